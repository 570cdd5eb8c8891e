package session

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/entry"
)

// The time of a log says when somebody worked on the session last: lists are ordered by
// it, a directory's newest session is the one to go on with, also in pi and oh-my-pi,
// and what is old may be compressed or removed. So who only notes something about a
// session, gives it a title or an entry a label, leaves the log as old as it was, but
// for a microsecond: caches know a file by its size and time, and a title may change
// within a line that stays as long as it was.

// aged is how much older a note makes a log, in nanoseconds: the least that every file
// system of today can tell.
const aged = 1000

var checkpointMember = []byte(`"customType":"` + entry.CustomTypeCheckpoint + `"`)

// annotates reports whether entries only note something about a session.
func annotates(reqs []*request) bool {
	for _, r := range reqs {
		switch r.typ {
		case entry.TypeLabel, entry.TypeTitleChange, entry.TypeSessionInfo:
		case entry.TypeCustom:
			if !bytes.Contains(r.fields, checkpointMember) {
				return false
			}
		default:
			return false
		}
	}
	return len(reqs) > 0
}

// asOld gives f, which was as before says, its time back, if its size is size: else
// another program has appended meanwhile. That it fails is no fault: the session
// counts as worked on.
func asOld(f durable.File, before durable.Identity, size int64) {
	now, err := f.Identify()
	if err == nil && now.SameFile(before) && now.Size == size {
		_ = setTime(f, before.ModTime+aged)
	}
}

func setTime(f durable.File, to int64) error {
	at := unix.NsecToTimeval(to / 1000 * 1000)
	return unix.Futimes(int(f.Fd()), []unix.Timeval{at, at})
}

// keepTime gives the file called name a time: another form of a log is as old as the
// log.
func (s *Session) keepTime(name string, modified int64) error {
	f, err := s.fs.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(setTime(f, modified), f.Close())
}

// keepMode gives w, a file that takes the place of one, the permissions of that one:
// who lets others read a log has a reason. Where it fails only the owner can read it.
func keepMode(w io.Writer, was durable.Identity) {
	mode := fs.FileMode(was.Mode) & fs.ModePerm
	if f, ok := w.(durable.File); ok && mode != durable.FilePerm {
		_ = f.Chmod(mode)
	}
}
