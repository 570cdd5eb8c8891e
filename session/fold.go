package session

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"

	"github.com/klauspost/compress/zstd"

	"github.com/agentrun/agentrun/blobref"
)

// What a log repeats is folded when the log is compressed: it is stored once, as a
// blob, and the compressed file names the blob wherever it stood. A frame of zstd
// does not see further than itself, and logs whose compactions and subagents embed
// the same history again and again repeat megabytes.
//
// What repeats is looked for in pieces. A string of minFold bytes or more begins a
// piece, and ends one. Longer pieces are cut where a hash of the last bytes says so,
// so that a history which grew by a message is cut where it was before. Pieces that
// always follow each other are then folded as one.
const (
	// minFold is the shortest stretch that is folded.
	minFold = 4 << 10
	// maxPiece is the longest piece.
	maxPiece = 64 << 10
	// maxFold is the longest stretch that one blob holds; a reader has all of it in
	// memory.
	maxFold = 1 << 20
	// foldMargin is how much at both ends of a log is never folded, so that a list
	// finds header and title without a blob.
	foldMargin = 64 << 10
	// minFoldSaving is what folding must save, else the log stays whole.
	minFoldSaving = 64 << 10
	// foldCost is what a stretch costs in the file, besides its blob.
	foldCost = 64
	// blobBlock is what file systems round the size of a blob up to.
	blobBlock = 4 << 10
)

// piece is a stretch of a log that may be repeated.
type piece struct {
	off   int64
	hash  uint64
	size  int32
	first bool // does not begin where the piece before it ends
}

// sight is what is known of all pieces with one hash.
type sight struct {
	count      int
	prev, next uint64 // of the pieces around it, 0 for none; ambiguous if they differ
}

const ambiguous = ^uint64(0)

// folder finds what a log repeats.
type folder struct {
	src    source
	end    int64 // nothing behind it is folded
	seed   maphash.Seed
	pieces []piece
	marker bool // the log itself has the byte that marks what is folded
}

// repeated is a stretch that stands in a log more than once.
type repeated struct {
	at     []int64
	size   int64
	frames int // how many frames of a compressed log it stands in
}

// planFolds says which stretches of a log to fold, or nil when too little would be
// saved. put stores a blob durably.
func planFolds(ctx context.Context, src source, put func(data []byte) (blobref.Ref, error)) (*folds, error) {
	f := &folder{src: src, end: src.size - foldMargin, seed: maphash.MakeSeed()}
	err := eachForward(ctx, src, 0, src.size, func(line []byte, at int64) bool {
		f.line(line, at)
		return !f.marker
	})
	if err != nil || f.marker {
		return nil, err
	}
	list, err := f.worthwhile(ctx)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	table := &folds{}
	var buf []byte
	for _, r := range list {
		if buf, err = readSpan(src, r.at[0], r.at[0]+r.size, buf); err != nil {
			return nil, err
		}
		ref, err := put(buf)
		if err != nil {
			return nil, fmt.Errorf("storing what the log repeats: %w", err)
		}
		table.add(ref, r)
	}
	table.sort()
	return table, ctx.Err()
}

// line cuts a line into pieces. Shorter lines than a fold are none.
func (f *folder) line(line []byte, at int64) {
	f.marker = f.marker || bytes.IndexByte(line, foldMark) >= 0
	if len(line) < minFold || at < foldMargin || at >= f.end {
		return
	}
	line = line[:min(int64(len(line)), f.end-at)]
	from, quote := 0, -1
	for i := 0; i < len(line); {
		n := bytes.IndexByte(line[i:], '"')
		if n < 0 {
			break
		}
		i += n
		if escaped(line[:i]) {
			i++
			continue
		}
		if quote >= 0 && i-quote-1 >= minFold {
			f.cut(line, from, quote+1, at)
			f.cut(line, quote+1, i, at)
			from = i
		}
		quote = i
		i++
	}
	f.cut(line, from, len(line), at)
}

// escaped reports whether b ends with an odd number of backslashes.
func escaped(b []byte) bool {
	n := len(b)
	for n > 0 && b[n-1] == '\\' {
		n--
	}
	return (len(b)-n)%2 == 1
}

// gear spreads a byte over 64 bits; the top ones of their sum, shifted by one for
// each byte, depend on the last 64 bytes. Its values are those of splitmix64.
var gear = func() (table [256]uint64) {
	x := uint64(0)
	for i := range table {
		x += 0x9e3779b97f4a7c15
		z := (x ^ x>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		table[i] = z ^ z>>31
	}
	return table
}()

// gearMask has 13 bits: behind its first minFold bytes a piece is cut after 8 KiB on
// average.
const gearMask = uint64(1<<13-1) << 51

// cut notes the pieces of line[from:to], which begins at offset at of the log. A rest
// too short to be folded goes with the piece before it.
func (f *folder) cut(line []byte, from, to int, at int64) {
	for first := true; to-from >= minFold; first = false {
		end := to
		if to-from > 2*minFold {
			h, limit := uint64(0), min(from+maxPiece, to-minFold)
			end = limit
			for i := from + minFold - 64; i < limit; i++ {
				h = h<<1 + gear[line[i]]
				if h&gearMask == 0 && i >= from+minFold {
					end = i
					break
				}
			}
			if end == limit && to-limit <= minFold && to-from <= maxPiece {
				end = to
			}
		}
		f.pieces = append(f.pieces, piece{
			off: at + int64(from), hash: maphash.Bytes(f.seed, line[from:end]) >> 1, size: int32(end - from), first: first,
		})
		from = end
	}
}

// sights counts the pieces, and what stands around them.
func (f *folder) sights() map[uint64]*sight {
	seen := make(map[uint64]*sight, len(f.pieces))
	for i, p := range f.pieces {
		var prev, next uint64
		if !p.first {
			prev = f.pieces[i-1].hash
		}
		if i+1 < len(f.pieces) && !f.pieces[i+1].first {
			next = f.pieces[i+1].hash
		}
		s := seen[p.hash]
		if s == nil {
			seen[p.hash] = &sight{1, prev, next}
			continue
		}
		s.count++
		if s.prev != prev {
			s.prev = ambiguous
		}
		if s.next != next {
			s.next = ambiguous
		}
	}
	return seen
}

// repeats joins the pieces that stand in the log more than once, as far as they
// always follow each other.
func (f *folder) repeats() []*repeated {
	seen := f.sights()
	byFirst := map[uint64]*repeated{}
	var list []*repeated
	for i := 0; i < len(f.pieces); {
		first := f.pieces[i]
		size := int64(first.size)
		j := i + 1
		if seen[first.hash].count < 2 {
			i = j
			continue
		}
		for ; j < len(f.pieces) && !f.pieces[j].first; j++ {
			a, b := f.pieces[j-1].hash, f.pieces[j].hash
			if seen[a].next != b || seen[b].prev != a || size+int64(f.pieces[j].size) > maxFold {
				break
			}
			size += int64(f.pieces[j].size)
		}
		i = j
		r := byFirst[first.hash]
		if r == nil {
			r = &repeated{size: size}
			byFirst[first.hash] = r
			list = append(list, r)
		}
		if r.size != size {
			continue // two texts with one hash
		}
		if n := len(r.at); n == 0 || r.at[n-1]/coldFrame != first.off/coldFrame {
			r.frames++
		}
		r.at = append(r.at, first.off)
	}
	return list
}

// worthwhile are the stretches that cost more compressed, in each frame anew, than
// once as a blob; none when all of them save too little.
func (f *folder) worthwhile(ctx context.Context) (list []*repeated, err error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer enc.Close()
	var text, packed []byte
	saved := int64(0)
	for _, r := range f.repeats() {
		if r.frames < 2 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if text, err = readSpan(f.src, r.at[0], r.at[0]+r.size, text); err != nil {
			return nil, err
		}
		packed = enc.EncodeAll(text, packed[:0])
		blob := (r.size + blobBlock - 1) / blobBlock * blobBlock
		if n := int64(r.frames*len(packed)) - blob - int64(foldCost*len(r.at)); n > 0 {
			list, saved = append(list, r), saved+n
		}
	}
	if saved < minFoldSaving {
		return nil, nil
	}
	return list, nil
}
