package session

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"path/filepath"
	"time"

	"github.com/agentrun/agentrun/internal/notify"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// Watch yields every entry behind the entry after ("" for all), those that are
// there and then those that any process appends, once each and in file order, until
// ctx is done. There must be such an entry: the error matches ErrNoEntry. A rewrite of
// the file by another program yields only entries that are new. A log that is
// compressed, restored or moved is followed; one that is away for two seconds is gone
// (ErrGone). Without inotify, and on network file systems, the file is looked at 20
// times a second. None of it costs who writes anything. Entries are as in the file: Restore puts images and long strings back.
//
// An error ends the sequence; the end of ctx does so without one.
func (s *Session) Watch(ctx context.Context, after string) iter.Seq2[entry.Entry, error] {
	return func(yield func(entry.Entry, error) bool) {
		err := s.watch(ctx, after, func(e entry.Entry) bool { return yield(e, nil) })
		if err != nil && ctx.Err() == nil {
			yield(entry.Entry{}, fmt.Errorf("watching %s: %w", s.Path(), err))
		}
	}
}

func (s *Session) watch(ctx context.Context, after string, yield func(entry.Entry) bool) error {
	if !s.Exists() {
		// The directory of a new session may be as new as its file will be.
		if err := s.manager.makeDir(filepath.Dir(s.Path())); err != nil {
			return err
		}
	}
	changes := notify.Open(s.manager.opts.polls)
	defer changes.Close()
	f := follower{session: s, skipTo: after}
	here := !s.manager.trashed(s.Path())
	for {
		// The directory, not the file: a rewrite puts another file under the name.
		place := s.Path()
		changes.Only(filepath.Dir(place))
		going, err := f.read(ctx, yield)
		switch {
		case fleeting(err) && f.patient():
			// the next look tells
		case err != nil || !going:
			return err
		case f.skipTo != "":
			return fmt.Errorf("behind %.40q: %w", f.skipTo, ErrNoEntry)
		default:
			f.gone = time.Time{}
		}
		if here && s.manager.trashed(s.Path()) {
			return errAway // removed: who writes to it goes on in the trash, who reads it ends
		}
		if s.Path() != place {
			continue // it was moved: watch the other directory before the next look
		}
		if err := changes.Wait(ctx, func(path string) bool { return path == place || path == catalog.ColdPath(place) }); err != nil {
			return err
		}
	}
}

// fleeting reports whether an error may be about a moment in the middle of a rewrite
// by a program that does not replace its file as a whole.
func fleeting(err error) bool {
	return errors.Is(err, ErrGone) || errors.Is(err, ErrNotSession) || errors.Is(err, io.ErrUnexpectedEOF)
}

// goneWait is how long a log may be away before a watch gives it up: programs that
// replace a file may remove it first.
const goneWait = 2 * time.Second

// patient reports whether a log that is away is waited for.
func (f *follower) patient() bool {
	if f.gone.IsZero() {
		f.gone = time.Now()
	}
	return time.Since(f.gone) < goneWait
}

// follower is how far a watch has come.
type follower struct {
	session *Session
	gone    time.Time // since when the log is away; zero when it is there
	skipTo  string    // deliver nothing up to this entry; "" when past it
	st      state     // the file that at is in
	at      int64     // everything before it was delivered
	line    int       // the number of the last line that was begun
	open    bool      // that line had no newline yet
	// passed are the hashed ids of the entries of the file, delivered or skipped,
	// and past those of the files before it: what another program's rewrite drops
	// may come back.
	passed []uint64
	past   map[uint64]struct{}
}

// enter goes on with another file, which took the place of the one that was read.
func (f *follower) enter(st state) {
	if f.past == nil {
		f.past = make(map[uint64]struct{}, len(f.passed))
	}
	for _, h := range f.passed {
		f.past[h] = struct{}{}
	}
	f.st, f.at, f.line, f.open, f.passed = st, st.end, st.linesBefore(), false, nil
}

// read delivers what is new. It returns false when yield does.
func (f *follower) read(ctx context.Context, yield func(entry.Entry) bool) (going bool, err error) {
	st, err := f.session.snapshot(ctx)
	if err != nil {
		return false, err
	}
	if st.file == nil || st.none {
		return true, nil
	}
	if f.st.file != st.file {
		f.enter(st)
	}
	f.st = st
	going = true
	err = eachForward(ctx, st.src, f.at, st.src.size, func(line []byte, at int64) bool {
		next := at + int64(len(line)) + 1
		whole := next <= st.src.size
		if !whole {
			// The last line has no newline yet. A whole record counts.
			if _, err := record.Parse(line); err != nil {
				return false
			}
			next = st.src.size
		}
		if !f.open {
			f.line++
		}
		f.open = !whole
		eachRecord(line, func(raw []byte, in int, e record.Envelope) {
			if !going || e.IsHeader() || e.IsSlot() {
				return
			}
			h := maphash.Bytes(seed, e.ID)
			f.passed = append(f.passed, h)
			if f.skipTo != "" {
				if string(e.ID) == f.skipTo {
					f.skipTo = ""
				}
				return
			}
			if _, before := f.past[h]; !before {
				going = yield(newEntry(raw, at+int64(in), e, f.line))
			}
		}, nil)
		f.at = next
		return going
	})
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return going, nil // cut while it was read; the event about that is to come
	}
	return going, err
}
