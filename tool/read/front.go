package read

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/agentrun/agentrun/internal/charset"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/tool/workspace"
)

// lazyFrom is from how many bytes on a file is read only as far as a page of it takes. Below,
// all of it is looked at, so that a change of it shows when it is edited; above, it is not edited.
// Tests change it.
var lazyFrom int64 = workspace.MaxFile + 1

// frontBytes is how much is looked at behind the first line of a page: more than maxScan.
const frontBytes = 32 << 20

// front is the beginning of a file, as far as a page takes it: whole lines, or one that is longer
// than frontBytes.
type front struct {
	*file
	ix    lineindex.Index
	mu    sync.Mutex // guards check
	check charset.Checker
	more  bool // the file goes on
}

func (f *front) Size() (int64, error)                           { return f.ix.Size, nil }
func (f *front) Index(context.Context) (lineindex.Index, error) { return f.ix, nil }

// guess is the encoding of what was looked at.
func (f *front) guess(context.Context) (charset.Encoding, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.check.Guess(), nil
}

// shorten makes the content the front of a large file. In UTF-16 the bytes do not tell where
// lines end, and all of it is decoded.
func (s *selection) shorten(ctx context.Context) error {
	f, ok := s.res.Content.(*file)
	if !ok || s.size < lazyFrom || s.sel.Tail > 0 || s.sel.Skip > 0 {
		return nil
	}
	from := int64(1)
	if n := len(s.sel.Ranges); n > 0 {
		from = s.sel.Ranges[n-1].First
	}
	front := &front{file: f, more: true}
	var b lineindex.Builder
	var begun int64 // where that line does
	block := make([]byte, 1<<20)
	for front.more {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := f.ReadAt(block, b.Size())
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		front.more = err == nil
		whole := n
		if front.more {
			whole = bytes.LastIndexByte(block[:n], '\n') + 1
		}
		_, _ = b.Write(block[:whole]) // it and the other never fail
		_, _ = front.check.Write(block[:whole])
		if b.Lines() < from {
			begun = b.Size()
		}
		if b.Lines() > from+MaxLines || b.Lines() >= from && b.Size()-begun >= frontBytes {
			break
		}
		_, _ = b.Write(block[whole:n])
		_, _ = front.check.Write(block[whole:n])
	}
	front.ix = b.Index()
	s.res.Content = front
	s.more = front.more
	return nil
}
