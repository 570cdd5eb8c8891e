package search

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

// text is an open source.
type text struct {
	io.ReaderAt
	log   *session.Log // of a session
	file  durable.File // of an output
	stat  durable.Identity
	size  int64
	begin place
}

// errChanged is returned for a file that is not the one that was listed.
var errChanged = errors.New("it was replaced while it was searched; search again")

// open opens a source and sees that it is the file that was listed.
func (x *Searcher) open(s *source) (*text, error) {
	t := &text{}
	var err error
	if s.kind == kindLog {
		if t.log, err = x.manager.OpenLog(s.path); err != nil {
			return nil, err
		}
		t.ReaderAt = t.log
		t.stat, err = t.log.Identify()
		off, line := t.log.Begin()
		t.size, t.begin = t.log.Size(), place{off: off, line: int64(line)}
	} else {
		if t.file, err = x.fs.OpenFile(s.path, os.O_RDONLY, 0); err != nil {
			return nil, err
		}
		t.ReaderAt = t.file
		t.stat, err = t.file.Identify()
		t.size, t.begin = t.stat.Size, place{line: 1}
	}
	if err == nil && !t.stat.SameFile(s.stat) {
		err = errChanged
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("searching %s: %w", s.path, err), t.close())
	}
	return t, nil
}

func (t *text) close() error {
	if t.log != nil {
		return t.log.Close()
	}
	return t.file.Close()
}

// tailSize is how many bytes before the place where reading goes on tell whether a
// file was appended to or written anew.
const tailSize = 256

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tail is the checksum of the bytes before off.
func (t *text) tail(off int64) (uint32, error) {
	b := make([]byte, min(tailSize, off))
	if n, err := t.ReadAt(b, off-int64(len(b))); n < len(b) {
		return 0, err
	}
	return crc32.Checksum(b, castagnoli), nil
}

// handle opens a source when it is first needed, for any number of goroutines.
type handle struct {
	once sync.Once
	t    *text
	err  error
}

func (h *handle) get(x *Searcher, s *source) (*text, error) {
	h.once.Do(func() { h.t, h.err = x.open(s) })
	return h.t, h.err
}

func (h *handle) close() error {
	h.once.Do(func() { h.err = errChanged })
	if h.t == nil {
		return nil
	}
	return h.t.close()
}

// lineStart returns where the first line begins at or behind off.
func lineStart(ctx context.Context, r io.ReaderAt, off, begin, end int64) (int64, error) {
	if off <= begin {
		return begin, nil
	}
	buf := make([]byte, 4<<10)
	for at := off - 1; at < end; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := r.ReadAt(buf[:min(int64(len(buf)), end-at)], at)
		for i, c := range buf[:n] {
			if c == '\n' {
				return at + int64(i) + 1, nil
			}
		}
		if n == 0 {
			if err == nil || err == io.EOF {
				err = errShrunk
			}
			return 0, err
		}
		at += int64(n)
		if len(buf) < 1<<20 {
			buf = make([]byte, 1<<20)
		}
	}
	return end, nil
}
