package search

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// Sizes of what is read at a time. They decide what a match is in lines longer than
// a batch, so they are part of the index's format: see formatVersion.
const (
	// batchSize is how many bytes of whole lines are looked at together. A longer
	// line is cut into pieces of that size.
	batchSize = 64 << 10
	// overlap is how many bytes the next piece of a long line shares with the one
	// before, so that every word is whole in one of them.
	overlap = 2 * maxWord
	// nearLines and nearBytes say how far apart the words of a query may stand in an
	// artifact: they are in nearLines lines that begin within nearBytes.
	nearLines = 10
	nearBytes = 4 << 10
)

// place is where in a text a batch begins.
type place struct {
	off  int64
	line int64 // its number, from 1
	cut  bool  // off is inside of a line
}

// batch is a stretch of text: whole lines, or a piece of one long line.
type batch struct {
	place
	data []byte // with its newlines
	// before are the lines that stand before data and belong to what is near its
	// first lines. It is contiguous with data in memory.
	before int
	text   []byte // before and data
	next   place  // where the next batch begins
	open   bool   // data is the end of the text, and its last line has no newline
}

// batches reads a text from a place in it.
type batches struct {
	src  io.ReaderAt
	at   place
	end  int64
	buf  []byte // text from base on
	base int64
}

// newBatches reads [at.off, end) of src, and a little before it.
func newBatches(src io.ReaderAt, at place, end int64) *batches {
	return &batches{src: src, at: at, end: end, base: -1}
}

// next returns the next batch, or io.EOF. Its bytes are valid until the next call.
func (b *batches) next(ctx context.Context) (batch, error) {
	if err := ctx.Err(); err != nil {
		return batch{}, err
	}
	if b.at.off >= b.end {
		return batch{}, io.EOF
	}
	before, err := b.fill()
	if err != nil {
		return batch{}, err
	}
	data := b.buf[before:]
	size := len(data)
	find := bytes.LastIndexByte
	if b.at.cut {
		find = bytes.IndexByte // the rest of a long line stands alone
	}
	if i := find(data, '\n'); i >= 0 {
		size = i + 1
	}
	data = data[:size]
	x := batch{place: b.at, next: place{off: b.at.off + int64(size), line: b.at.line}}
	switch {
	case data[size-1] == '\n':
		x.next.line += int64(bytes.Count(data, newline))
	case size == batchSize:
		x.next.off -= overlap
		x.next.cut = true
	default:
		x.open = true
	}
	if !b.at.cut {
		x.before = before - nearFrom(b.buf[:before], b.base == 0)
	}
	x.text = b.buf[before-x.before : before+size]
	x.data = x.text[x.before:]
	if b.at = x.next; x.next.cut && x.next.off+overlap >= b.end {
		b.at.off = b.end // what is left is in this piece
	}
	return x, nil
}

var newline = []byte{'\n'}

// nearFrom returns where in b, which ends where a batch begins, the lines begin
// that are near it. first says that b is the beginning of the text.
func nearFrom(b []byte, first bool) int {
	from := len(b)
	for n := 1; n < nearLines && from > 0; n++ {
		if b[from-1] != '\n' {
			break // a piece of a long line
		}
		i := bytes.LastIndexByte(b[:from-1], '\n')
		if i < 0 && !first {
			break // it begins before b
		}
		from = i + 1
	}
	return from
}

// fill reads so that the buffer has the bytes near the place and a batch behind it.
// It returns where in the buffer the place is.
func (b *batches) fill() (int, error) {
	from := max(b.at.off-nearBytes-1, 0) // one more: to see whether a line begins there
	to := min(b.at.off+batchSize, b.end)
	if b.base < 0 || from < b.base || from > b.base+int64(len(b.buf)) {
		b.base, b.buf = from, b.buf[:0]
	} else {
		n := copy(b.buf, b.buf[from-b.base:])
		b.base, b.buf = from, b.buf[:n]
	}
	have := b.base + int64(len(b.buf))
	if have < to {
		if need := int(to - b.base); cap(b.buf) < need {
			b.buf = append(make([]byte, 0, nearBytes+1+batchSize+512), b.buf...)
		}
		n := len(b.buf)
		b.buf = b.buf[:n+int(to-have)]
		got, err := b.src.ReadAt(b.buf[n:], have)
		b.buf = b.buf[:n+got]
		if have+int64(got) < to {
			if err == nil || errors.Is(err, io.EOF) {
				err = errShrunk
			}
			return 0, err
		}
	}
	b.buf = b.buf[:to-b.base]
	return int(b.at.off - b.base), nil
}

// errShrunk is returned for a file that is shorter than it was.
var errShrunk = errors.New("it became shorter while it was read")
