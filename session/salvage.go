package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// frame is a stretch of a compressed log: one whole zstd frame, or damage between
// two.
type frame struct {
	off, size int64 // in the file
	at, len   int64 // in the stream; damage stands there as one newline
	damaged   bool
}

// salvaged reads a compressed log frame by frame, without the frame table, and with a
// newline where frames cannot be decompressed. It is safe for concurrent use.
type salvaged struct {
	file   io.ReaderAt
	frames []frame

	mu   sync.Mutex // guards what follows
	dec  *zstd.Decoder
	last int // index of the frame in data, -1 for none
	data []byte
}

// openSalvaged opens a compressed log of which the table or a frame is damaged, and
// tells what is.
func openSalvaged(ctx context.Context, fsys durable.FS, b blobs, path string) (st *state, damage []Damage, err error) {
	f, err := fsys.OpenFile(catalog.ColdPath(path), os.O_RDONLY, 0)
	if err != nil {
		return nil, nil, openError(path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	st = &state{file: f, cold: true, blobs: b}
	if st.id, err = f.Identify(); err != nil {
		return nil, nil, fmt.Errorf("opening session: %w", err)
	}
	st.size = st.id.Size
	s := &salvaged{file: f, last: -1}
	if s.dec, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxColdFrame)); err != nil {
		return nil, nil, err
	}
	if err := s.find(ctx, source{f, st.size}); err != nil {
		return nil, nil, err
	}
	size := int64(0)
	for _, x := range s.frames {
		size = x.at + x.len
		if x.damaged {
			damage = append(damage, Damage{Offset: x.off, Bytes: x.size, Kind: KindFrame})
		}
	}
	if len(damage) == 0 {
		damage = append(damage, Damage{Offset: s.end(), Bytes: st.size - s.end(), Kind: KindSeek})
	}
	st.src = source{s, size}
	t, err := findFolds(ctx, st.src)
	if err == nil && len(t.list) > 0 {
		st.src, err = unfold(st.src, t, b)
	}
	if err != nil {
		return nil, nil, err
	}
	return st, damage, nil
}

// end is where the last frame ends in the file.
func (s *salvaged) end() int64 {
	if n := len(s.frames); n > 0 {
		return s.frames[n-1].off + s.frames[n-1].size
	}
	return 0
}

// salvagedOf is what src reads a damaged compressed log with, and the stretches that
// were folded; nil when it reads something else.
func salvagedOf(src source) (*salvaged, *folds) {
	if u, ok := src.ReaderAt.(*unfolded); ok {
		s, _ := u.stream.ReaderAt.(*salvaged)
		return s, u.folds
	}
	s, _ := src.ReaderAt.(*salvaged)
	return s, &folds{}
}

// gap is where in the stream the frame at off of the file is missing.
func (s *salvaged) gap(off int64) int64 {
	i := sort.Search(len(s.frames), func(i int) bool { return s.frames[i].off >= off })
	if i == len(s.frames) {
		return 0
	}
	return s.frames[i].at
}

const (
	frameMagic    = "\x28\xb5\x2f\xfd"
	skippableHead = 8 // magic and length
	maxFrameHead  = 18
)

// find lists the frames of the file.
func (s *salvaged) find(ctx context.Context, file source) error {
	at := int64(0) // in the log
	for off := int64(0); off < file.size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		size, n, err := s.whole(file, off)
		if err != nil {
			next, ferr := s.next(ctx, file, off+1)
			if ferr != nil {
				return ferr
			}
			if next == file.size && s.isTable(file, off) {
				return nil // a frame table that is damaged
			}
			s.frames = append(s.frames, frame{off: off, size: next - off, at: at, len: 1, damaged: true})
			at++
			off = next
			continue
		}
		if n >= 0 {
			s.frames = append(s.frames, frame{off: off, size: size, at: at, len: n})
			at += n
		}
		off += size
	}
	return nil
}

// isTable reports whether a stretch is what is left of a frame table: it begins or
// ends as one.
func (s *salvaged) isTable(file source, off int64) bool {
	tail, err := readSpan(file, max(off, file.size-4), file.size, nil)
	head, herr := readSpan(file, off, min(off+4, file.size), nil)
	return err == nil && herr == nil &&
		(string(tail) == "\xb1\xea\x92\x8f" || string(head) == "\x5e\x2a\x4d\x18")
}

// next returns where the next frame begins that is whole.
func (s *salvaged) next(ctx context.Context, file source, from int64) (int64, error) {
	var buf []byte
	for from < file.size {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		to := min(from+blockSize, file.size)
		var err error
		if buf, err = readSpan(file, from, to, buf); err != nil {
			return 0, err
		}
		for at := 0; ; {
			i := bytes.Index(buf[at:], []byte(frameMagic))
			k := bytes.Index(buf[at:], []byte("\x5e\x2a\x4d\x18"))
			if i < 0 || k >= 0 && k < i {
				i = k
			}
			if i < 0 {
				break
			}
			at += i
			if _, _, err := s.whole(file, from+int64(at)); err == nil {
				return from + int64(at), nil
			}
			at++
		}
		if to == file.size {
			break
		}
		from = to - int64(len(frameMagic)) + 1
	}
	return file.size, nil
}

var errFrame = errors.New("no whole frame")

// whole measures the frame at off: its size in the file, and how much it holds, -1
// for one that is skipped. It is decompressed to find out.
func (s *salvaged) whole(file source, off int64) (size, holds int64, err error) {
	head, err := readSpan(file, off, min(off+maxFrameHead, file.size), nil)
	if err != nil {
		return 0, 0, err
	}
	var h zstd.Header
	if err := h.Decode(head); err != nil {
		return 0, 0, errFrame
	}
	if h.Skippable {
		size = skippableHead + int64(binary.LittleEndian.Uint32(head[4:]))
		if off+size > file.size {
			return 0, 0, errFrame
		}
		return size, -1, nil
	}
	end := off + int64(h.HeaderSize)
	for last := false; !last; {
		b, err := readSpan(file, end, min(end+3, file.size), nil)
		if err != nil || len(b) < 3 {
			return 0, 0, errFrame
		}
		word := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
		last = word&1 != 0
		n := int64(word >> 3)
		switch word >> 1 & 3 {
		case 1:
			n = 1 // one byte, repeated
		case 3:
			return 0, 0, errFrame
		}
		if end += 3 + n; end > file.size || end-off > maxColdFrame {
			return 0, 0, errFrame
		}
	}
	if h.HasCheckSum {
		end += 4
	}
	data, err := s.decode(file, off, end-off, nil)
	if err != nil {
		return 0, 0, errFrame
	}
	return end - off, int64(len(data)), nil
}

func (s *salvaged) decode(file io.ReaderAt, off, size int64, into []byte) ([]byte, error) {
	packed := make([]byte, size)
	if n, err := file.ReadAt(packed, off); int64(n) < size {
		return nil, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return s.dec.DecodeAll(packed, into)
}

// ReadAt reads the log.
func (s *salvaged) ReadAt(p []byte, off int64) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := sort.Search(len(s.frames), func(i int) bool { return s.frames[i].at+s.frames[i].len > off })
	for ; n < len(p) && i < len(s.frames); i++ {
		x := s.frames[i]
		data := []byte{'\n'}
		if !x.damaged {
			if s.last != i {
				s.last = -1
				if s.data, err = s.decode(s.file, x.off, x.size, s.data[:0]); err != nil {
					return n, err
				}
				s.last = i
			}
			data = s.data
		}
		n += copy(p[n:], data[min(off+int64(n)-x.at, int64(len(data))):])
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

// damagedFrames returns the bytes of the frames that could not be decompressed.
func (x *examined) damagedFrames() (list [][]byte, err error) {
	s, _ := salvagedOf(x.raw)
	if s == nil {
		return nil, nil
	}
	for _, f := range s.frames {
		if !f.damaged {
			continue
		}
		b, err := readSpan(source{s.file, x.st.size}, f.off, f.off+f.size, nil)
		if err != nil {
			return nil, err
		}
		list = append(list, b)
	}
	return list, nil
}

// isCold reports whether the log at path exists in its compressed form alone.
func isCold(fsys durable.FS, path string) bool {
	_, err := fsys.Identify(catalog.PlainPath(path))
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err = fsys.Identify(catalog.ColdPath(path))
	return err == nil
}

// sortDamage puts damage into the order of the file.
func sortDamage(list []Damage) {
	slices.SortStableFunc(list, func(a, b Damage) int { return int(min(max(a.Offset-b.Offset, -1), 1)) })
}
