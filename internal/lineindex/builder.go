package lineindex

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"slices"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Builder makes the index of a stream that passes through it. The zero Builder is ready for the first byte of a file;
// [Resume] makes one for the bytes behind an index. It belongs to one goroutine.
//
// A copy stays as it is while the original goes on, but nothing may be written to it.
type Builder struct {
	size     int64
	newlines int64
	crc      uint32
	open     bool  // the last byte was no newline
	every    int64 // 0 until the first write
	next     int64 // the first line that begins at or behind this offset is the next sample
	samples  []sample
}

// Resume returns a builder that continues where the index ends: the next byte written is the one at offset ix.Size.
// The index itself stays as it is.
func Resume(ix Index) *Builder {
	b := &Builder{
		size:     ix.Size,
		newlines: ix.Lines,
		crc:      ix.CRC32C,
		open:     ix.Partial,
		every:    ix.Every(),
		samples:  slices.Clone(ix.samples),
	}
	if ix.Partial {
		b.newlines--
	}
	b.next = b.every
	if n := len(b.samples); n > 0 {
		b.next = b.cellAfter(b.samples[n-1].off)
	}
	return b
}

// Write takes the next bytes of the stream. It returns len(p) and no error.
func (b *Builder) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if b.every == 0 {
		b.every, b.next = minEvery, minEvery
	}
	b.crc = crc32.Update(b.crc, castagnoli, p)
	counted := 0
	for {
		// The line behind a newline at index i begins at size+i+1; it is wanted from `next` on.
		from := int(max(b.next-1-b.size, int64(counted)))
		if from >= len(p) {
			break
		}
		i := bytes.IndexByte(p[from:], '\n')
		if i < 0 {
			break
		}
		i += from + 1
		b.newlines += int64(bytes.Count(p[counted:i], newline))
		counted = i
		b.add(sample{line: b.newlines + 1, off: b.size + int64(i)})
	}
	b.newlines += int64(bytes.Count(p[counted:], newline))
	b.size += int64(len(p))
	b.open = p[len(p)-1] != '\n'
	return len(p), nil
}

// Size returns how many bytes the index would describe.
func (b *Builder) Size() int64 { return b.size }

// Lines returns how many lines the index would have, an unterminated last one included.
func (b *Builder) Lines() int64 {
	if b.open {
		return b.newlines + 1
	}
	return b.newlines
}

// Index returns the index of what was written so far. Writing may go on; the index stays as it is.
func (b *Builder) Index() Index {
	ix := Index{
		Size:    b.size,
		Lines:   b.Lines(),
		Partial: b.open,
		CRC32C:  b.crc,
		every:   b.every,
		samples: slices.Clone(b.samples),
	}
	if ix.every == 0 {
		ix.every = minEvery
	}
	return ix
}

func (b *Builder) cellAfter(off int64) int64 { return (off/b.every + 1) * b.every }

func (b *Builder) add(s sample) {
	b.samples = append(b.samples, s)
	for len(b.samples) >= maxSamples {
		b.thin()
	}
	b.next = b.cellAfter(s.off)
}

// thin doubles the cells and keeps the first sample of each, which is what a builder with those cells from the
// beginning would have.
func (b *Builder) thin() {
	b.every *= 2
	kept, last := make([]sample, 0, maxSamples), int64(0) // not in place: copies of the builder have the old ones
	for _, s := range b.samples {
		if cell := s.off / b.every; cell != last {
			kept, last = append(kept, s), cell
		}
	}
	b.samples = kept
}

// Build reads r to its end and returns its index. ctx is looked at between blocks. The error is that of the context
// or of r; what was read until then is not returned.
func Build(ctx context.Context, r io.Reader) (Index, error) { return Extend(ctx, Index{}, r) }

// Extend reads r, which begins at byte ix.Size of the file, to its end and returns the index of the whole. Otherwise
// it is as [Build]; ix itself stays as it is.
func Extend(ctx context.Context, ix Index, r io.Reader) (Index, error) {
	b := Resume(ix)
	buf := scanBuffers.Get().(*[scanBlock]byte)
	defer scanBuffers.Put(buf)
	for empty := 0; ; {
		if err := ctx.Err(); err != nil {
			return Index{}, err
		}
		n, err := r.Read(buf[:])
		_, _ = b.Write(buf[:n])
		switch {
		case errors.Is(err, io.EOF):
			return b.Index(), nil
		case err != nil:
			return Index{}, err
		case n > 0:
			empty = 0
		default:
			if empty++; empty == 100 {
				return Index{}, io.ErrNoProgress
			}
		}
	}
}
