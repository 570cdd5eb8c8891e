package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// Log is the text of a session file as it was when it was opened, compressed or
// not, for programs that read it from any place and come back for what was
// appended: indexes. Offsets are those of the uncompressed text; a session of
// version 1 or 2 is read as version 3 would write it. It takes no lock and is safe
// for concurrent use.
type Log struct {
	st *state
}

// OpenLog opens the session file at path, or the compressed one that took its
// place. Close it.
func (m *Manager) OpenLog(path string) (*Log, error) {
	st, err := openState(m.opts.FS, m.blobs, path)
	if err != nil {
		return nil, err
	}
	err = func() (err error) {
		if st.preamble, err = readPreamble(st.src); err != nil {
			return noPreamble(st.file.Name(), err)
		}
		if v := st.header.Version; !st.none && (v == 1 || v == 2) {
			return st.read()
		}
		return nil
	}()
	if err != nil {
		return nil, errors.Join(err, st.close())
	}
	return &Log{st: st}, nil
}

// Close closes the file.
func (l *Log) Close() error { return l.st.close() }

// Identify says which file it is, compressed or not, and how it looks now.
func (l *Log) Identify() (durable.Identity, error) { return l.st.file.Identify() }

// ID is the id of the session in its header, "" when it has none.
func (l *Log) ID() string { return l.st.header.ID }

// Title is the title that stands before the first entry.
func (l *Log) Title() string {
	if l.st.hasSlot {
		return l.st.slot.Title
	}
	return l.st.header.Title
}

// Migrated reports whether the file is of an older version. It is small, and
// replaced before anything is appended.
func (l *Log) Migrated() bool { return l.st.image != nil }

// Size is the length of the text.
func (l *Log) Size() int64 { return l.st.src.size }

// Begin is where entries begin, and the number of the line there, counted from 1.
func (l *Log) Begin() (offset int64, line int) {
	if l.st.none {
		return l.st.src.size, 1
	}
	return l.st.end, l.st.linesBefore() + 1
}

// ReadAt reads the text.
func (l *Log) ReadAt(p []byte, off int64) (int, error) { return l.st.src.ReadAt(p, off) }

// Lines hands the lines of [from, to) to each, without their newlines, until it
// returns false. from must be the beginning of a line. The bytes may be kept.
func (l *Log) Lines(ctx context.Context, from, to int64, each func(line []byte, at int64) bool) error {
	if err := eachForward(ctx, l.st.src, from, min(to, l.st.src.size), each); err != nil {
		return fmt.Errorf("reading %s: %w", l.st.file.Name(), err)
	}
	return nil
}

// LineEntries are the entries of one line: one, or none for a header or damage, or
// several where lines were run together. line must not change any more.
func LineEntries(line []byte, offset int64, number int) []entry.Entry {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	var list []entry.Entry
	eachRecord(line, func(raw []byte, in int, e record.Envelope) {
		if !e.IsHeader() && !e.IsSlot() {
			list = append(list, newEntry(raw, offset+int64(in), e, number))
		}
	}, nil)
	return list
}

// ArtifactsPath is the directory of the artifacts of the session whose log is at
// path, compressed or not, "" when it can have none.
func ArtifactsPath(path string) string {
	plain := catalog.PlainPath(path)
	if filepath.Ext(plain) != catalog.PlainExt {
		return ""
	}
	return plain[:len(plain)-len(catalog.PlainExt)]
}

// RestoreEntry is [Session.Restore] for an entry of a session that is not open.
func (m *Manager) RestoreEntry(ctx context.Context, e entry.Entry) (entry.Entry, []Missing, error) {
	return (&Session{blobs: m.blobs, manager: m}).Restore(ctx, e)
}
