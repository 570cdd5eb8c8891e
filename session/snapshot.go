package session

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// Snapshot is a log as it is at one moment. It stays what it is while others append
// to the log or replace it, as long as its Session is open.
type Snapshot struct {
	io.ReaderAt // the plain log, as it stands in the file
	Size        int64
	Entries     int   // that Tree finds in it
	Torn        int64 // bytes behind it that are no whole line
	// Damaged is the file of damaged bytes that were kept before a rewrite left them
	// out, "" when there is none.
	Damaged string
}

// Snapshot returns the log up to the last whole line. A session of version 1 or 2 is
// as it stands in its file, not migrated. The session must have a header.
func (s *Session) Snapshot(ctx context.Context) (Snapshot, error) {
	t, err := s.Tree(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	st := s.known()
	if st.file == nil || st.none {
		return Snapshot{}, fmt.Errorf("reading %s: it has no entries yet: %w", s.Path(), ErrNotSession)
	}
	src := source{t.src.ReaderAt, t.end}
	if st.image != nil {
		src = source{st.file, st.size}
		if st.cold {
			if src, err = openCold(st.file, st.size, st.blobs); err != nil {
				return Snapshot{}, fmt.Errorf("reading %s: %w", s.Path(), err)
			}
		}
	}
	size, err := WholeLines(src.ReaderAt, src.size)
	if err != nil {
		return Snapshot{}, fmt.Errorf("reading %s: %w", s.Path(), err)
	}
	x := Snapshot{ReaderAt: src.ReaderAt, Size: size, Entries: t.Len(), Torn: src.size - size}
	damaged := catalog.DamagedPath(s.Path())
	if _, err := s.fs.Identify(damaged); err == nil {
		x.Damaged = damaged
	}
	return x, nil
}

// WholeLines returns how much of a log of size bytes is whole lines: all of it, or
// all but an end without a newline that is no entry. Another process may be about to
// write the rest of it.
func WholeLines(r io.ReaderAt, size int64) (int64, error) {
	src, end := source{r, size}, int64(0)
	var buf []byte
	for to := size; to > 0 && end == 0; to = max(0, to-blockSize) {
		var err error
		from := max(0, to-blockSize)
		if buf, err = readSpan(src, from, to, buf); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf, '\n'); i >= 0 {
			end = from + int64(i) + 1
		}
	}
	tail, err := readSpan(src, end, size, buf)
	if err != nil {
		return 0, err
	}
	eachRecord(tail, func([]byte, int, record.Envelope) { end = size }, nil)
	return end, nil
}
