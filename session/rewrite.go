package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// create makes the session's file with its header and its first entries: it
// appears whole or not at all.
func (s *Session) create(reqs []*request) error {
	st, header := s.knownFresh()
	if st.none {
		if err := s.refuseLost(); err != nil {
			return err
		}
	}
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

// refuseLost keeps a log that was emptied from beginning anew among the artifacts of
// what it held: nothing would tell any more that something was lost, nor keep the blobs
// that it cited for when it comes back.
func (s *Session) refuseLost() error {
	l, err := catalog.LostAt(s.fs, s.Path())
	if err != nil || l == nil {
		return err
	}
	return fmt.Errorf("appending to %s: %v, and its artifacts or its index are there: what it held is lost; put it back from a backup, give it up with agentrun sessions rm %[1]s, or start another session with --new", s.Path(), l)
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
		version := st.image.version
		if err := s.rewrite(ctx, st.line); err != nil {
			return err
		}
		s.report(Event{Kind: EventMigrated, Path: s.Path(), Version: version})
		return nil
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
		if aerr == nil {
			keepMode(out, was)
		}
		if n := len(header); n == 0 || header[n-1] != '\n' {
			header = append(header[:n:n], '\n')
		}
		if _, err := out.Write(header); err != nil {
			return err
		}
		var aside []byte
		worker := func() func(a, b int64) sifted {
			return func(a, b int64) sifted { return sift(st.src, st.end, a, b, st.src.size) }
		}
		err := inBlocks(ctx, st.end, st.src.size, worker, func(block sifted) error {
			aside = append(aside, block.aside...)
			if block.err != nil || len(block.good) == 0 {
				return block.err
			}
			_, err := out.Write(block.good)
			return err
		})
		if err != nil || len(aside) == 0 {
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

// sifted is a block of a log: the good records of the lines that start in it, each
// with a newline behind it, and what is damaged of them, likewise.
type sifted struct {
	good, aside []byte
	err         error
}

// sift tells the good records of the lines that start in [a, b) from what is damaged.
func sift(src source, from, a, b, end int64) (s sifted) {
	lines, _, err := blockLines(src, from, a, b, end, nil)
	if err != nil || len(lines) == 0 {
		return sifted{err: err}
	}
	clean := true // so far good is what lines begins with
	var records [][]byte
	for at := 0; at < len(lines); {
		size := bytes.IndexByte(lines[at:], '\n') + 1
		closed := size > 0
		if !closed {
			size = len(lines) - at
		}
		line := bytes.TrimSuffix(lines[at:at+size], newline)
		records = records[:0]
		eachRecord(line, func(raw []byte, _ int, _ record.Envelope) {
			records = append(records, raw)
		}, func(at, size int, kind Kind) {
			if kind != KindJoined { // all of its records are written again
				s.aside = append(append(s.aside, line[at:at+size]...), '\n')
			}
		})
		if clean && !(closed && len(records) == 1 && len(records[0]) == len(line)) {
			clean, s.good = false, append(make([]byte, 0, len(lines)+slack), lines[:at]...)
		}
		if !clean {
			for _, raw := range records {
				s.good = append(append(s.good, raw...), '\n')
			}
		}
		at += size
	}
	if clean {
		s.good = lines
	}
	return s
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
