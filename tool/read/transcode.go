package read

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"

	"golang.org/x/text/transform"

	"github.com/agentrun/agentrun/internal/charset"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/internalurl"
)

// decodeBlock is how much is decoded at once, and how far apart places are that decoding can
// begin at: a page deep in a file costs one block of it.
const decodeBlock = 64 << 10

// transcoded is content in another encoding as UTF-8. It holds a block, and 16 bytes for each
// block of the content.
type transcoded struct {
	internalurl.Content
	encoding charset.Encoding
	from     int64 // behind the byte order mark

	mu    sync.Mutex // guards all below
	marks []mark
	ix    lineindex.Index
	known bool
}

// mark is a place that decoding can begin at.
type mark struct{ raw, text int64 }

func (t *transcoded) Size() (int64, error) {
	ix, err := t.Index(context.Background()) // whoever reads has an index already
	return ix.Size, err
}

// Index decodes everything once.
func (t *transcoded) Index(ctx context.Context) (lineindex.Index, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known {
		return t.ix, nil
	}
	var b lineindex.Builder
	var marks []mark
	err := t.decode(ctx, mark{t.from, 0}, func(at mark, text []byte) bool {
		marks = append(marks, at)
		_, _ = b.Write(text) // never fails
		return true
	})
	if err != nil {
		return lineindex.Index{}, fmt.Errorf("decoding %s: %w", t.encoding, err)
	}
	t.marks, t.ix, t.known = marks, b.Index(), true
	return t.ix, nil
}

// decode calls block for one stretch of text after the other, with where it begins, until
// that returns false.
func (t *transcoded) decode(ctx context.Context, from mark, block func(mark, []byte) bool) error {
	size, err := t.Content.Size()
	if err != nil {
		return err
	}
	dec := t.encoding.NewDecoder()
	src, dst := make([]byte, decodeBlock), make([]byte, 4*decodeBlock)
	for at := from; at.raw < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := t.Content.ReadAt(src[:min(decodeBlock, size-at.raw)], at.raw)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			return nil // it became shorter
		}
		nDst, nSrc, err := dec.Transform(dst, src[:n], at.raw+int64(n) == size)
		if err != nil && !errors.Is(err, transform.ErrShortSrc) && !errors.Is(err, transform.ErrShortDst) {
			return err
		}
		if nSrc == 0 {
			return fmt.Errorf("nothing can be made of byte %d", at.raw)
		}
		if !block(at, dst[:nDst]) {
			return nil
		}
		at.raw += int64(nSrc)
		at.text += int64(nDst)
	}
	return nil
}

func (t *transcoded) ReadAt(p []byte, off int64) (int, error) {
	if _, err := t.Index(context.Background()); err != nil {
		return 0, err
	}
	i := sort.Search(len(t.marks), func(i int) bool { return t.marks[i].text > off }) - 1
	if i < 0 || off >= t.ix.Size {
		return 0, io.EOF
	}
	n := 0
	err := t.decode(context.Background(), t.marks[i], func(at mark, text []byte) bool {
		if skip := off + int64(n) - at.text; skip < int64(len(text)) {
			n += copy(p[n:], text[skip:])
		}
		return n < len(p)
	})
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// behind is content without its first bytes.
type behind struct {
	internalurl.Content
	from int64

	mu    sync.Mutex // guards all below
	ix    lineindex.Index
	known bool
}

func (b *behind) Size() (int64, error) {
	size, err := b.Content.Size()
	return max(size-b.from, 0), err
}

func (b *behind) ReadAt(p []byte, off int64) (int, error) { return b.Content.ReadAt(p, off+b.from) }

func (b *behind) Index(ctx context.Context) (lineindex.Index, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known {
		return b.ix, nil
	}
	size, err := b.Size()
	if err == nil {
		b.ix, err = lineindex.Build(ctx, io.NewSectionReader(b, 0, size))
	}
	b.known = err == nil
	return b.ix, err
}
