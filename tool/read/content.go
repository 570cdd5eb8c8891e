package read

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/agentrun/agentrun/internal/charset"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/internalurl"
)

// part is content that nobody changes: text that was made of something, or a member of an
// archive.
type part struct {
	io.ReaderAt
	size int64
	// under is what it is a part of, closed with it; nil is nothing.
	under io.Closer

	mu    sync.Mutex // guards all below
	ix    lineindex.Index
	known bool
}

func newText(text []byte, under io.Closer) *part {
	return newPart(bytes.NewReader(text), int64(len(text)), under)
}

// newPart keeps of what it is a part of only what is to be closed: an archive that was taken
// into memory can go when a member of it was.
func newPart(r io.ReaderAt, size int64, under io.Closer) *part {
	if p, ok := under.(*part); ok {
		under = p.under
	}
	return &part{ReaderAt: r, size: size, under: under}
}

func (p *part) Size() (int64, error) { return p.size, nil }

func (p *part) Close() error {
	if p.under == nil {
		return nil
	}
	return p.under.Close()
}

func (p *part) Index(ctx context.Context) (lineindex.Index, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known {
		return p.ix, nil
	}
	ix, err := lineindex.Build(ctx, io.NewSectionReader(p.ReaderAt, 0, p.size))
	if err != nil {
		return ix, fmt.Errorf("counting lines: %w", err)
	}
	if ix.Size != p.size {
		return ix, fmt.Errorf("counting lines: it ends after %d of %d bytes: %w", ix.Size, p.size, io.ErrUnexpectedEOF)
	}
	p.ix, p.known = ix, true
	return ix, nil
}

// guesser is content that is looked at for its encoding while its lines are counted.
type guesser interface {
	guess(ctx context.Context) (charset.Encoding, error)
}

// guess looks through content that is no guesser.
func guess(ctx context.Context, c internalurl.Content) (charset.Encoding, error) {
	if g, ok := c.(guesser); ok {
		return g.guess(ctx)
	}
	size, err := c.Size()
	if err != nil {
		return charset.Encoding{}, err
	}
	var check charset.Checker
	block := make([]byte, 256<<10)
	_, err = io.CopyBuffer(struct{ io.Writer }{&check}, contextReader{ctx, io.NewSectionReader(c, 0, size)}, block)
	return check.Guess(), err
}

// load takes content into memory.
func load(ctx context.Context, c internalurl.Content, most int64) ([]byte, error) {
	size, err := c.Size()
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, fmt.Errorf("it has %s, and %s are the most", quantity.Bytes(size), quantity.Size(most))
	}
	data := make([]byte, size)
	_, err = io.ReadFull(contextReader{ctx, io.NewSectionReader(c, 0, size)}, data)
	return data, err
}
