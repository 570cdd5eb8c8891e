package session

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/record"
)

// create makes the session's file with its header and its first entries: it
// appears whole or not at all.
func (s *Session) create(reqs []*request) error {
	st, header := s.knownFresh()
	if st.hasSlot {
		header.Title, header.TitleSource = st.slot.Title, st.slot.Source
	}
	buf := header.AppendLine(nil)
	if header.Title != "" && !st.none {
		// pi knows titles from entries only, and the header may have had to cut it.
		whole := &request{id: record.NewID()}
		if err := whole.set(entry.SessionInfo{Name: header.Title}); err != nil {
			return err
		}
		reqs = slices.Insert(slices.Clone(reqs), 0, whole)
	}
	reqs, err := s.resolveBeside(&st, reqs)
	if err != nil {
		return err
	}
	buf = s.lines(buf, reqs, "")
	write := func(w io.Writer) error {
		_, err := w.Write(buf)
		return err
	}
	if st.none {
		err = durable.WriteFileFunc(s.fs, s.Path(), s.durability == Sync, write)
	} else {
		err = s.publish(write)
	}
	if err != nil {
		return fmt.Errorf("making session %s: %w", s.Path(), err)
	}
	s.wrote(int64(len(buf)), reqs)
	made, err := load(s.fs, s.blobs, s.Path())
	if err != nil {
		return fmt.Errorf("making session %s: %w", s.Path(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Readers may still use the old file; it is closed when nobody does.
	s.st, s.dirSynced = *made, s.durability == Sync
	for i, r := range reqs {
		end := int64(len(buf))
		if i+1 < len(reqs) {
			end = reqs[i+1].off
		}
		s.remember(ownEntry{id: r.id, file: made.file, off: r.off, size: int(end - r.off - 1)})
	}
	s.founded()
	return nil
}

// publish makes a new file at s.Path(), which must not exist.
func (s *Session) publish(write func(io.Writer) error) (err error) {
	dir := filepath.Dir(s.Path())
	if err := s.prepareHome(); err != nil {
		return err
	}
	if err := durable.MkdirAll(s.fs, dir); err != nil {
		return err
	}
	f, err := durable.CreateTemp(s.fs, dir, filepath.Base(s.Path()))
	if err != nil {
		return err
	}
	temp := f.Name()
	err = write(f)
	if err == nil && s.durability == Sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		if err = s.fs.RenameNoReplace(temp, s.Path()); err == nil {
			if s.durability != Sync {
				return nil
			}
			if err = s.syncDirs(dir); err == nil {
				return nil
			}
			temp = s.Path() // not acknowledged, so it must not stay
		}
	}
	return errors.Join(err, s.fs.Remove(temp))
}

// syncDirs makes the name of a new file durable, and that of its directory,
// which may be as new.
func (s *Session) syncDirs(dir string) error {
	for _, d := range []string{dir, filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} {
		if err := s.fs.SyncDir(d); err != nil {
			return err
		}
	}
	return nil
}

// needsRewrite brings a file into the form that can be appended to: a compressed
// one is restored, one of an older version is migrated, a title slot that oh-my-pi put
// before a header of ours is folded back into it, and a torn header is made anew.
func (s *Session) needsRewrite(ctx context.Context) error {
	s.mu.Lock()
	ready := s.st.appendable()
	s.mu.Unlock()
	if ready {
		return nil
	}
	st := s.known()
	switch {
	case st.none:
		return nil // create writes it
	case !st.header.Writable():
		return fmt.Errorf("appending to %s: it has version %s of the format, and this program writes up to %d: %w",
			s.Path(), versionText(st.header), record.Version, ErrReadOnly)
	case st.cold:
		if err := s.restoreCold(ctx); err != nil {
			return err
		}
		return s.needsRewrite(ctx)
	case st.image != nil:
		return s.rewrite(ctx, st.line)
	case st.header.Torn:
		header := st.header
		given, err := s.lastTitle(ctx, st)
		if err != nil {
			return err
		}
		header.Title = given.Title
		return s.rewrite(ctx, header.AppendLine(nil))
	case st.hasSlot && st.header.Padded:
		header := st.header
		header.Title, header.TitleSource = st.slot.Title, st.slot.Source
		if err := s.keepTitle(ctx, st, &header); err != nil {
			return err
		}
		return s.rewrite(ctx, header.AppendLine(nil))
	}
	return nil
}

// appendable reports whether lines can be written behind the file as it is.
func (st *state) appendable() bool {
	return !st.none && st.header.Writable() && !st.cold && st.image == nil && !st.header.Torn && !(st.hasSlot && st.header.Padded)
}

func versionText(h record.Header) string {
	if h.Version == 0 {
		return string(h.Member("version"))
	}
	return fmt.Sprint(h.Version)
}

// rewrite replaces the file by header and every good record of it, to the byte
// and in order. What is damaged goes to <session>.damaged first.
func (s *Session) rewrite(ctx context.Context, header []byte) error {
	st := s.known()
	was, aerr := s.fs.Identify(s.Path())
	err := durable.WriteFileFunc(s.fs, s.Path(), s.durability == Sync, func(out io.Writer) error {
		var aside []byte // what is damaged, each stretch behind a newline
		if st.header.Torn {
			aside = append(bytes.Clone(st.line), '\n')
		}
		w := bufio.NewWriterSize(out, 1<<20)
		w.Write(header)
		if n := len(header); n == 0 || header[n-1] != '\n' {
			w.WriteByte('\n')
		}
		err := eachForward(ctx, st.src, st.end, st.src.size, func(line []byte, _ int64) bool {
			eachRecord(line, func(raw []byte, _ int, _ record.Envelope) {
				w.Write(raw)
				w.WriteByte('\n')
			}, func(at, size int, kind Kind) {
				if kind != KindJoined { // all of its records are written again
					aside = append(append(aside, line[at:at+size]...), '\n')
				}
			})
			return true
		})
		if err = errors.Join(err, w.Flush()); err != nil || len(aside) == 0 {
			return err
		}
		// Before the new file takes the place of the old one, which has these bytes.
		return appendDamaged(s.fs, s.Path(), aside)
	})
	if err != nil {
		return fmt.Errorf("rewriting session: %w", err)
	}
	if aerr == nil {
		_ = s.keepTime(s.Path(), was.ModTime) // else it counts as worked on
	}
	return s.reopen()
}

// reopen reads the file that a rewrite of ours has put into place. What we wrote
// before is in it, at another place.
func (s *Session) reopen() error {
	s.mu.Lock()
	before := s.st.size
	err := s.reload()
	if err == nil {
		s.replaced = len(s.writer.own) > 0
		s.writer.file = nil
	}
	grown := s.st.size - before
	s.mu.Unlock()
	if err == nil {
		s.wrote(grown, nil)
	}
	return err
}
