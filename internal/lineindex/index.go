// Package lineindex finds lines in files of any size.
//
// An [Index] knows a file's size, its number of lines, the CRC-32C of its bytes, and where about one line in every
// Every bytes begins. Any line is then one read of at most Every bytes away: line 500,000 of 10 GB is a seek.
//
// # What is promised
//
//   - Lines are numbered from 1 and end with '\n'. A final newline does not begin one more line; a last line without
//     one is a line ([Index.Partial]). An empty file has no lines.
//   - Memory is bounded whatever the input: at most maxSamples samples of 16 bytes. The distance between them starts
//     at 16 KiB and doubles whenever they would become more.
//   - An index is a pure function of the file's bytes. Any split into writes, and any chain of [Resume] calls as the
//     file grows, gives the same index.
//   - The encoded form has its own checksum. Bytes from anywhere may be decoded; what is not a well-formed index is
//     [ErrFormat], and a decoded index never makes a lookup panic, loop or read outside the file.
//
// An index says nothing about whether the file is still the one it was made from: [Stamp] travels with the encoded
// form for that, and [Index.LineRange] returns [ErrStale] where it sees a contradiction itself.
//
// A [Builder] belongs to one goroutine. An Index is not changed by any of its methods and may be shared.
package lineindex

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"
)

const (
	// minEvery is the distance between samples in a small file: 16 KiB are counted in about a microsecond, and an
	// index of 50 MiB of text stays below 20 KiB on disk.
	minEvery = 16 << 10

	// maxSamples bounds an index at 128 KiB of memory. 10 GB then have a sample at least every 2 MiB, which is a
	// fraction of a millisecond of counting.
	maxSamples = 8192

	// scanBlock is how much is read at a time while counting.
	scanBlock = 64 << 10
)

var (
	// ErrRange is returned when lines are asked for that the file does not have.
	ErrRange = errors.New("no such lines")

	// ErrStale is returned when the file contradicts its index, which must then be built again.
	ErrStale = errors.New("the file is not the one this line index was made from")
)

// sample says that line begins at off.
//
// Samples stand on a grid: the file is divided in cells of `every` bytes, and the first line that begins in a cell
// is its sample. Line 1 at offset 0 is the sample of the first cell and not kept. A line that begins in some cell is
// therefore always less than `every` bytes behind a sample, however long the lines around it are.
type sample struct {
	line, off int64
}

// Index describes the lines of one file, or of its first Size bytes when the file has grown since. The zero Index is
// that of an empty file.
type Index struct {
	Size    int64  // bytes described
	Lines   int64  // lines in them, an unterminated last one included
	Partial bool   // the last line has no '\n' (yet)
	CRC32C  uint32 // of all Size bytes, Castagnoli polynomial

	every   int64 // cell size; 0 means minEvery
	samples []sample
}

// Every returns the greatest number of bytes that lie between a line and the place [Index.Nearest] gives for it.
func (ix *Index) Every() int64 {
	if ix.every == 0 {
		return minEvery
	}
	return ix.every
}

// Nearest returns the nearest known start of a line at or before the given one: counting lines begins at offset, where
// line startLine begins. Lines before the first are taken as the first; for lines behind the last, the last sample
// is returned.
func (ix *Index) Nearest(line int64) (startLine, offset int64) {
	i := sort.Search(len(ix.samples), func(i int) bool { return ix.samples[i].line > line })
	if i == 0 {
		return 1, 0
	}
	return ix.samples[i-1].line, ix.samples[i-1].off
}

// Tail returns the numbers of the last n lines, first to last. With fewer lines it returns all of them; with none,
// first is greater than last.
func (ix *Index) Tail(n int64) (first, last int64) {
	return max(1, ix.Lines-max(n, 0)+1), ix.Lines
}

// LineRange returns the range of bytes, off <= i < end, that holds lines first to last (from 1, both included) with
// their newlines. It reads at most about two times [Index.Every] bytes of r in blocks, whatever the length of the
// lines, and keeps none of them.
//
// r holds at least the indexed bytes. Errors: ErrRange when 1 <= first <= last <= Lines does not hold, ErrStale when
// r does not have the lines the index says, or what r returned.
func (ix *Index) LineRange(r io.ReaderAt, first, last int64) (off, end int64, err error) {
	if first < 1 || last < first || last > ix.Lines {
		return 0, 0, fmt.Errorf("lines %d to %d of %d: %w", first, last, ix.Lines, ErrRange)
	}
	if off, err = ix.lineStart(r, first); err != nil {
		return 0, 0, err
	}
	end = ix.Size
	if last < ix.Lines {
		if end, err = ix.lineStart(r, last+1); err != nil {
			return 0, 0, err
		}
	}
	if end <= off {
		return 0, 0, fmt.Errorf("finding line %d: %w", last, ErrStale)
	}
	return off, end, nil
}

// scanBuffers holds blocks for counting, so that a page of lines costs no garbage.
var scanBuffers = sync.Pool{New: func() any { return new([scanBlock]byte) }}

// lineStart returns where a line begins, counting newlines from the sample before it.
func (ix *Index) lineStart(r io.ReaderAt, line int64) (int64, error) {
	at, off := ix.Nearest(line)
	if at == line {
		return off, nil
	}
	// The start is within the cell of the sample or a later one without a sample of its own, hence less than one
	// cell away. A file that disagrees is noticed there, not at its end.
	limit := off + min(ix.Size-off, ix.Every())
	buf := scanBuffers.Get().(*[scanBlock]byte)
	defer scanBuffers.Put(buf)
	missing := int(min(line-at, limit-off+1)) // newlines to pass; more than there are bytes can't be found
	for off < limit {
		block := buf[:min(scanBlock, limit-off)]
		n, err := r.ReadAt(block, off)
		if n < len(block) {
			if err == nil || errors.Is(err, io.EOF) {
				return 0, fmt.Errorf("finding line %d: the file ends at byte %d of %d: %w", line, off+int64(max(n, 0)), ix.Size, ErrStale)
			}
			return 0, fmt.Errorf("finding line %d: %w", line, err)
		}
		have := bytes.Count(block, newline)
		if have >= missing {
			return off + int64(afterNewline(block, missing)), nil
		}
		missing -= have
		off += int64(len(block))
	}
	return 0, fmt.Errorf("finding line %d: not before byte %d: %w", line, limit, ErrStale)
}

var newline = []byte{'\n'}

// afterNewline returns the index behind the n-th newline of block, which holds at least n >= 1 of them.
func afterNewline(block []byte, n int) int {
	base := 0
	for len(block) > 512 { // halve while counting is cheaper than stepping
		half := len(block) / 2
		if have := bytes.Count(block[:half], newline); have < n {
			n -= have
			base += half
			block = block[half:]
		} else {
			block = block[:half]
		}
	}
	at := 0
	for ; n > 0; n-- {
		at += bytes.IndexByte(block[at:], '\n') + 1
	}
	return base + at
}
