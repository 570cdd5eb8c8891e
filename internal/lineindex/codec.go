package lineindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
)

// The encoded form, version 1 (frozen; integers little-endian):
//
//	offset size
//	     0    4  "LNIX"
//	     4    1  version, 1
//	     5    1  flags: 1 = the last line has no newline
//	     6    1  e: cells have 16 KiB << e bytes
//	     7    1  0
//	     8    8  size of the file when it was stamped
//	    16    8  modification time of the file when it was stamped, ns since 1970
//	    24    8  bytes described
//	    32    8  lines
//	    40    4  CRC-32C of the bytes described
//	    44    4  n, the number of samples
//	    48    -  n pairs of unsigned varints: offset, then line, each less that of the sample before;
//	             the one before the first is (0, 1)
//	  last    4  CRC-32C of everything before it
const (
	magic       = "LNIX"
	version     = 1
	headerLen   = 48
	trailerLen  = 4
	flagPartial = 1

	// MaxEncodedLen is the greatest length of an encoded index; a file that is longer is none.
	MaxEncodedLen = headerLen + maxSamples*2*binary.MaxVarintLen64 + trailerLen
)

// ErrFormat is returned for bytes that are not an index of this version: damaged, cut, foreign or newer. An index
// can always be built again from its file.
var ErrFormat = errors.New("not a line index")

// Stamp tells which state of a file an index was made from. A file whose size or modification time differs has
// changed since.
type Stamp struct {
	Size    int64 // bytes
	ModTime int64 // ns since 1970
}

// Marshal encodes the index together with the stamp of its file.
func (ix *Index) Marshal(s Stamp) []byte {
	b := make([]byte, headerLen, headerLen+len(ix.samples)*8+trailerLen)
	copy(b, magic)
	b[4] = version
	if ix.Partial {
		b[5] = flagPartial
	}
	b[6] = byte(bits.TrailingZeros64(uint64(ix.Every() / minEvery)))
	le := binary.LittleEndian
	le.PutUint64(b[8:], uint64(s.Size))
	le.PutUint64(b[16:], uint64(s.ModTime))
	le.PutUint64(b[24:], uint64(ix.Size))
	le.PutUint64(b[32:], uint64(ix.Lines))
	le.PutUint32(b[40:], ix.CRC32C)
	le.PutUint32(b[44:], uint32(len(ix.samples)))
	prev := sample{line: 1}
	for _, p := range ix.samples {
		b = binary.AppendUvarint(b, uint64(p.off-prev.off))
		b = binary.AppendUvarint(b, uint64(p.line-prev.line))
		prev = p
	}
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Unmarshal decodes what [Index.Marshal] made. Every other input gives an error that wraps ErrFormat. The checksum
// guards against damage, the checks behind it against bytes made on purpose.
func Unmarshal(b []byte) (Index, Stamp, error) {
	fail := func(why string) (Index, Stamp, error) {
		return Index{}, Stamp{}, fmt.Errorf("decoding a line index of %d bytes: %s: %w", len(b), why, ErrFormat)
	}
	le := binary.LittleEndian
	switch {
	case len(b) < headerLen+trailerLen || string(b[:4]) != magic:
		return fail("no header")
	case b[4] != version:
		return fail(fmt.Sprintf("version %d is not known here", b[4]))
	case len(b) > MaxEncodedLen:
		return fail("too long")
	}
	body, trailer := b[:len(b)-trailerLen], b[len(b)-trailerLen:]
	if crc32.Checksum(body, castagnoli) != le.Uint32(trailer) {
		return fail("its checksum is wrong")
	}
	if body[5]&^flagPartial != 0 || body[7] != 0 || body[6] > 40 {
		return fail("unknown flags")
	}
	s := Stamp{Size: int64(le.Uint64(body[8:])), ModTime: int64(le.Uint64(body[16:]))}
	ix := Index{
		Size:    int64(le.Uint64(body[24:])),
		Lines:   int64(le.Uint64(body[32:])),
		Partial: body[5]&flagPartial != 0,
		CRC32C:  le.Uint32(body[40:]),
		every:   minEvery << body[6],
	}
	n := int64(le.Uint32(body[44:]))
	switch {
	case ix.Size < 0 || ix.Lines < 0 || ix.Lines > ix.Size || (ix.Lines == 0) != (ix.Size == 0) || ix.Partial && ix.Size == 0:
		return fail("impossible totals")
	case n >= maxSamples || n*2 > int64(len(body)-headerLen):
		return fail("impossible number of samples")
	}
	if n > 0 {
		ix.samples = make([]sample, n)
	}
	rest, prev := body[headerLen:], sample{line: 1}
	for i := range ix.samples {
		off, w := binary.Uvarint(rest)
		if w <= 0 {
			return fail("a sample is cut")
		}
		rest = rest[w:]
		line, w := binary.Uvarint(rest)
		if w <= 0 {
			return fail("a sample is cut")
		}
		rest = rest[w:]
		// A line has at least its newline, so there are never more lines than bytes between two samples.
		if off > math.MaxInt64 || line == 0 || line > off || int64(off) > ix.Size-prev.off {
			return fail("an impossible sample")
		}
		p := sample{line: prev.line + int64(line), off: prev.off + int64(off)}
		if p.off/ix.every == prev.off/ix.every {
			return fail("two samples in one cell")
		}
		ix.samples[i], prev = p, p
	}
	// The last sample may stand where the next line would begin, at the very end of a file that ends with '\n'.
	left := ix.Size - prev.off
	switch {
	case len(rest) != 0:
		return fail("something follows the last sample")
	case left == 0 && (ix.Partial || prev.line != ix.Lines+1):
		return fail("impossible last line")
	case left > 0 && (prev.line > ix.Lines || ix.Lines-prev.line+1 > left):
		return fail("impossible last line")
	}
	return ix, s, nil
}
