package session

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/agentrun/agentrun/blobref"
)

// In the stream that a compressed log decompresses to, a folded stretch is
//
//	<SUB>blob:sha256:<64 hex digits>,<length><SUB>
//
// where SUB is the byte 0x1a, "substitute". JSON has no such byte, so who reads the
// stream without the blobs sees a damaged line and not another one, and the blob is
// found by whoever looks for references in the text. Where the stretches are stands
// in a skippable frame between the last frame and the seek table:
//
//	"agentrun folds 1"   16 bytes
//	stretches, blobs     uvarints: how many
//	blobs                SHA-256, uvarint length of each
//	stretches            uvarint distance from the end of the one before in the log,
//	                     uvarint number of its blob
//	CRC-32C              4 bytes, little endian, of all before
const (
	foldMark   = 0x1a
	foldsMagic = "agentrun folds 1"
	// foldsFrame is the magic number of the skippable frame.
	foldsFrame = 0x184d2a5b
	seekFooter = 9
	// maxFoldsTable bounds the table; it has about five bytes for a stretch.
	maxFoldsTable = 256 << 20
)

// folds are the stretches of a compressed log that are kept as blobs.
type folds struct {
	blobs []foldedBlob
	list  []fold // by offset
}

type foldedBlob struct {
	ref  blobref.Ref
	size int64
}

// fold is one stretch.
type fold struct {
	off    int64 // in the log
	stream int64 // where its mark is in the stream
	blob   uint32
}

func (b foldedBlob) mark() []byte {
	m := append(make([]byte, 0, blobref.TextLen+16), foldMark)
	m = append(m, b.ref.String()...)
	m = strconv.AppendInt(append(m, ','), b.size, 10)
	return append(m, foldMark)
}

// markLen is len(mark()).
func (b foldedBlob) markLen() int64 {
	n := int64(blobref.TextLen + 4)
	for s := b.size; s >= 10; s /= 10 {
		n++
	}
	return n
}

func (t *folds) add(ref blobref.Ref, r *repeated) {
	n := uint32(len(t.blobs))
	t.blobs = append(t.blobs, foldedBlob{ref, r.size})
	for _, at := range r.at {
		t.list = append(t.list, fold{off: at, blob: n})
	}
}

// sort puts the stretches into the order of the log and finds their places in the
// stream.
func (t *folds) sort() {
	slices.SortFunc(t.list, func(a, b fold) int { return cmp.Compare(a.off, b.off) })
	t.place()
}

func (t *folds) place() {
	less := int64(0)
	for i := range t.list {
		x := &t.list[i]
		x.stream = x.off - less
		b := t.blobs[x.blob]
		less += b.size - b.markLen()
	}
}

// moved are the stretches of a log of which the beginning grew by n bytes.
func (t *folds) moved(n int64) *folds {
	if t == nil {
		return nil
	}
	m := &folds{blobs: t.blobs, list: slices.Clone(t.list)}
	for i := range m.list {
		m.list[i].off += n
		m.list[i].stream += n
	}
	return m
}

// end is where the last stretch ends, in the log and in the stream.
func (t *folds) end() (log, stream int64) {
	if len(t.list) == 0 {
		return 0, 0
	}
	x := t.list[len(t.list)-1]
	b := t.blobs[x.blob]
	return x.off + b.size, x.stream + b.markLen()
}

// streamReader reads the stream that a compressed log holds.
func (t *folds) streamReader(log io.Reader) io.Reader {
	if t == nil || len(t.list) == 0 {
		return log
	}
	return &folding{t: t, log: log}
}

// errShortLog is not an end of the log that a writer may take for one.
var errShortLog = errors.New("it ends within what is folded of it")

// folding reads a log with marks in place of what is folded.
type folding struct {
	t    *folds
	log  io.Reader
	next int
	off  int64 // in the log
	mark []byte
}

func (f *folding) Read(p []byte) (int, error) {
	for len(f.mark) == 0 {
		if f.next == len(f.t.list) {
			return f.log.Read(p)
		}
		x := f.t.list[f.next]
		if n := x.off - f.off; n > 0 {
			got, err := f.log.Read(p[:min(n, int64(len(p)))])
			f.off += int64(got)
			if err == io.EOF {
				err = errShortLog
			}
			return got, err
		}
		b := f.t.blobs[x.blob]
		n, err := io.CopyN(io.Discard, f.log, b.size)
		f.off += n
		if err != nil {
			if err == io.EOF {
				err = errShortLog
			}
			return 0, err
		}
		f.mark, f.next = b.mark(), f.next+1
	}
	n := copy(p, f.mark)
	f.mark = f.mark[n:]
	return n, nil
}

// frame is the table as a skippable frame.
func (t *folds) frame() ([]byte, error) {
	b := binary.LittleEndian.AppendUint32(nil, foldsFrame)
	b = append(b, 0, 0, 0, 0)
	b = append(b, foldsMagic...)
	b = binary.AppendUvarint(b, uint64(len(t.list)))
	b = binary.AppendUvarint(b, uint64(len(t.blobs)))
	for _, x := range t.blobs {
		sum := x.ref.Sum()
		b = append(b, sum[:]...)
		b = binary.AppendUvarint(b, uint64(x.size))
	}
	at := int64(0)
	for _, x := range t.list {
		b = binary.AppendUvarint(b, uint64(x.off-at))
		b = binary.AppendUvarint(b, uint64(x.blob))
		at = x.off + t.blobs[x.blob].size
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[skippableHead:], castagnoli))
	if len(b) > maxFoldsTable {
		return nil, fmt.Errorf("it repeats too much: a table of %d bytes says where", len(b))
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-skippableHead))
	return b, nil
}

var errFolds = errors.New("its table of folded stretches is damaged")

// readFolds reads the table of a compressed file, of which frames end at dataEnd, nil
// when it has none.
func readFolds(file source, dataEnd int64) (*folds, error) {
	var foot [seekFooter]byte
	if _, err := file.ReadAt(foot[:], file.size-seekFooter); err != nil && err != io.EOF {
		return nil, err
	}
	entry := int64(8)
	if foot[4]&0x80 != 0 {
		entry = 12
	}
	end := file.size - seekFooter - skippableHead - int64(binary.LittleEndian.Uint32(foot[:]))*entry
	switch {
	case end == dataEnd:
		return nil, nil
	case end < dataEnd+skippableHead || end-dataEnd > maxFoldsTable:
		return nil, errFolds
	}
	b, err := readSpan(file, dataEnd, end, nil)
	if err != nil {
		return nil, err
	}
	return parseFolds(b)
}

// parseFolds checks the table of a file that anybody may have made. nil stands for a
// skippable frame of somebody else.
func parseFolds(b []byte) (*folds, error) {
	if len(b) < skippableHead || int(binary.LittleEndian.Uint32(b[4:])) != len(b)-skippableHead {
		return nil, errFolds
	}
	if m := binary.LittleEndian.Uint32(b); m&^0xf == 0x184d2a50 && m != foldsFrame {
		return nil, nil
	} else if m != foldsFrame {
		return nil, errFolds
	}
	b = b[skippableHead:]
	if len(b) < len(foldsMagic)+4 || string(b[:len(foldsMagic)]) != foldsMagic ||
		binary.LittleEndian.Uint32(b[len(b)-4:]) != crc32.Checksum(b[:len(b)-4], castagnoli) {
		return nil, errFolds
	}
	r := varints{b: b[len(foldsMagic) : len(b)-4]}
	count, blobs := r.next(), r.next()
	if r.bad || count > uint64(len(r.b))/2 || blobs > uint64(len(r.b))/33 {
		return nil, errFolds
	}
	t := &folds{blobs: make([]foldedBlob, blobs), list: make([]fold, count)}
	for i := range t.blobs {
		ref, size := r.ref(), r.next()
		if r.bad || size < minFold || size > maxFold {
			return nil, errFolds
		}
		t.blobs[i] = foldedBlob{ref, int64(size)}
	}
	at := int64(0)
	for i := range t.list {
		gap, blob := r.next(), r.next()
		if r.bad || blob >= blobs || gap > math.MaxInt64/2 || at > math.MaxInt64/2-maxFold {
			return nil, errFolds
		}
		t.list[i] = fold{off: at + int64(gap), blob: uint32(blob)}
		at += int64(gap) + t.blobs[blob].size
	}
	if len(r.b) > 0 {
		return nil, errFolds
	}
	t.place()
	return t, nil
}

// varints reads from b.
type varints struct {
	b   []byte
	bad bool
}

func (r *varints) next() uint64 {
	v, n := binary.Uvarint(r.b)
	if r.bad = r.bad || n <= 0; r.bad {
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *varints) ref() (ref blobref.Ref) {
	var sum [32]byte
	if r.bad = r.bad || len(r.b) < len(sum); r.bad {
		return ref
	}
	r.b = r.b[copy(sum[:], r.b):]
	return blobref.FromSum(sum)
}

// findFolds makes the table anew from the marks in a stream.
func findFolds(ctx context.Context, stream source) (*folds, error) {
	t := &folds{}
	numbers := map[foldedBlob]uint32{}
	const longest = blobref.TextLen + 16
	log := int64(0) // behind the last mark
	var buf []byte
	for at, behind := int64(0), int64(0); at < stream.size; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		to := min(at+blockSize, stream.size)
		var err error
		if buf, err = readSpan(stream, at, to, buf); err != nil {
			return nil, err
		}
		next := to
		for i := 0; ; {
			n := bytes.IndexByte(buf[i:], foldMark)
			if n < 0 {
				break
			}
			i += n
			if len(buf)-i < longest && to < stream.size {
				next = at + int64(i)
				break
			}
			b, ok := parseMark(buf[i:])
			if !ok {
				i++
				continue
			}
			number, known := numbers[b]
			if !known {
				number = uint32(len(t.blobs))
				numbers[b], t.blobs = number, append(t.blobs, b)
			}
			place := at + int64(i)
			log += place - behind
			t.list = append(t.list, fold{off: log, stream: place, blob: number})
			log, behind = log+b.size, place+b.markLen()
			i += int(b.markLen())
		}
		at = next
	}
	return t, nil
}

// parseMark reads a mark that b begins with.
func parseMark(b []byte) (x foldedBlob, ok bool) {
	rest := b[1:]
	if len(rest) < blobref.TextLen || rest[blobref.TextLen-1] == foldMark {
		return x, false
	}
	ref, err := blobref.Parse(string(rest[:blobref.TextLen]))
	if err != nil {
		return x, false
	}
	size, _, ended := bytes.Cut(rest[blobref.TextLen:min(len(rest), blobref.TextLen+9)], []byte{foldMark})
	if !ended || len(size) < 2 || size[0] != ',' || size[1] == '0' {
		return x, false
	}
	n, err := strconv.ParseUint(string(size[1:]), 10, 32)
	x = foldedBlob{ref, int64(n)}
	return x, err == nil && n >= minFold && n <= maxFold
}

// logOffset is the offset in the log of one in the stream.
func (t *folds) logOffset(stream int64) int64 {
	i := sort.Search(len(t.list), func(i int) bool { return t.list[i].stream >= stream }) - 1
	if i < 0 {
		return stream
	}
	x := t.list[i]
	return x.off + max(0, t.blobs[x.blob].size+stream-x.stream-t.blobs[x.blob].markLen())
}
