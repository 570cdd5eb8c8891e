package bundle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// blockSize is how much of the archive one frame holds: so much that a frame
	// compresses nearly as well as the whole, so little that a few fit in memory.
	blockSize = 4 << 20
	// maxFrame is the longest that a frame of blockSize bytes can be: zstd's bound
	// for data that does not compress, rounded up.
	maxFrame = blockSize + blockSize>>8 + 64
	// lengthMagic begins the skippable frame before each frame, as pzstd writes it.
	lengthMagic = 0x184D2A50
	lengthSize  = 12
)

// workers is how many blocks are worked on at once. More would cost memory for
// little: what feeds them and what they feed hash at the speed of one processor.
var workers = min(4, runtime.GOMAXPROCS(0))

// block is a stretch of the archive on its way through a worker.
type block struct {
	in, out []byte
	err     error
	done    chan struct{}
}

func newBlock() *block { return &block{done: make(chan struct{}, 1)} }

// frameWriter compresses what is written to it. Whoever makes one calls Close or
// Abort, and then no goroutine is left.
type frameWriter struct {
	cur   *block
	jobs  chan *block
	order chan *block // the same blocks, in the order of the archive
	free  chan *block
	wg    sync.WaitGroup
	enc   *zstd.Encoder
	ended bool

	mu  sync.Mutex
	err error // the first error of the one who writes
}

func newFrameWriter(w io.Writer) (*frameWriter, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(workers))
	if err != nil {
		return nil, fmt.Errorf("compressing: %w", err)
	}
	f := &frameWriter{
		jobs: make(chan *block, workers), order: make(chan *block, 2*workers),
		free: make(chan *block, 2*workers+2), enc: enc,
	}
	for range workers {
		f.wg.Go(func() {
			for b := range f.jobs {
				b.out = enc.EncodeAll(b.in, appendLength(b.out[:0], 0))
				binary.LittleEndian.PutUint32(b.out[8:], uint32(len(b.out)-lengthSize))
				b.done <- struct{}{}
			}
		})
	}
	f.wg.Go(func() { f.drain(w) })
	return f, nil
}

// appendLength appends the skippable frame before a frame of n bytes.
func appendLength(dst []byte, n uint32) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, lengthMagic)
	dst = binary.LittleEndian.AppendUint32(dst, 4)
	return binary.LittleEndian.AppendUint32(dst, n)
}

// drain writes the frames in order. After an error it only takes them in.
func (f *frameWriter) drain(w io.Writer) {
	for b := range f.order {
		<-b.done
		if f.failed() == nil {
			if _, err := w.Write(b.out); err != nil {
				f.mu.Lock()
				f.err = err
				f.mu.Unlock()
			}
		}
		select {
		case f.free <- b:
		default:
		}
	}
}

func (f *frameWriter) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *frameWriter) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if f.cur == nil {
			if err := f.failed(); err != nil {
				return n, err
			}
			select {
			case f.cur = <-f.free:
				f.cur.in = f.cur.in[:0]
			default:
				f.cur = newBlock()
				f.cur.in = make([]byte, 0, blockSize)
			}
		}
		m := min(len(p)-n, blockSize-len(f.cur.in))
		f.cur.in = append(f.cur.in, p[n:n+m]...)
		if n += m; len(f.cur.in) == blockSize {
			f.dispatch()
		}
	}
	return n, nil
}

func (f *frameWriter) dispatch() {
	f.jobs <- f.cur
	f.order <- f.cur
	f.cur = nil
}

// Close writes what is left.
func (f *frameWriter) Close() error {
	if f.cur != nil {
		f.dispatch()
	}
	f.Abort()
	return f.failed()
}

// Abort ends the goroutines. A second call, or one after Close, does nothing.
func (f *frameWriter) Abort() {
	if f.ended {
		return
	}
	f.ended = true
	close(f.jobs)
	close(f.order)
	f.wg.Wait()
	_ = f.enc.Close() // it writes nowhere
}

// errFrame wraps every error about the compressed form.
var errFrame = errors.New("its compression is not that of a bundle, or damaged")

// frameReader decompresses. Whoever makes one calls Close, and then no goroutine is
// left.
type frameReader struct {
	jobs  chan *block
	order chan *block
	free  chan *block
	stop  chan struct{}
	wg    sync.WaitGroup
	dec   *zstd.Decoder

	cur  *block
	rest []byte
	err  error
}

func newFrameReader(r io.Reader) (*frameReader, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(workers),
		zstd.WithDecoderMaxMemory(blockSize), zstd.WithDecoderMaxWindow(2*blockSize))
	if err != nil {
		return nil, fmt.Errorf("decompressing: %w", err)
	}
	f := &frameReader{
		jobs: make(chan *block, workers), order: make(chan *block, 2*workers),
		free: make(chan *block, 2*workers+2), stop: make(chan struct{}), dec: dec,
	}
	for range workers {
		f.wg.Go(func() {
			for b := range f.jobs {
				b.decode(dec)
				b.done <- struct{}{}
			}
		})
	}
	f.wg.Go(func() { f.feed(r) })
	return f, nil
}

func (b *block) decode(dec *zstd.Decoder) {
	if b.err != nil {
		return
	}
	var h zstd.Header
	if err := h.Decode(b.in); err != nil || h.Skippable || !h.HasFCS || h.FrameContentSize > blockSize || h.FrameContentSize == 0 {
		b.err = errFrame
		return
	}
	if b.out == nil {
		b.out = make([]byte, 0, blockSize)
	}
	var err error
	if b.out, err = dec.DecodeAll(b.in, b.out[:0]); err != nil {
		b.err = fmt.Errorf("%w: %w", errFrame, err)
	} else if uint64(len(b.out)) != h.FrameContentSize {
		b.err = errFrame // several frames under one length
	}
}

// feed reads frames and hands them to the workers, until the end or an error, which
// is the last block.
func (f *frameReader) feed(r io.Reader) {
	defer close(f.order)
	defer close(f.jobs)
	for {
		var b *block
		select {
		case b = <-f.free:
			b.err = nil
		case <-f.stop:
			return
		default:
			b = newBlock()
		}
		b.in, b.err = readFrame(r, b.in)
		last := b.err != nil
		select {
		case f.order <- b:
		case <-f.stop:
			return
		}
		f.jobs <- b // a worker takes it in any case
		if last {
			return
		}
	}
}

// readFrame reads one frame into buf, or a larger one. It returns io.EOF at the end.
func readFrame(r io.Reader, buf []byte) ([]byte, error) {
	var head [lengthSize]byte
	switch n, err := io.ReadFull(r, head[:]); {
	case err == io.EOF && n == 0:
		return buf, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return buf, errTruncated
	case err != nil:
		return buf, err
	}
	size := binary.LittleEndian.Uint32(head[8:])
	if binary.LittleEndian.Uint32(head[:]) != lengthMagic || binary.LittleEndian.Uint32(head[4:]) != 4 || size == 0 || size > maxFrame {
		return buf, errFrame
	}
	if cap(buf) < int(size) {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	_, err := io.ReadFull(r, buf)
	if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
		err = errTruncated
	}
	return buf, err
}

func (f *frameReader) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		if f.cur != nil {
			select {
			case f.free <- f.cur:
			default:
			}
			f.cur = nil
		}
		b, ok := <-f.order
		if !ok {
			f.err = io.ErrClosedPipe
			return 0, f.err
		}
		<-b.done
		if b.err != nil {
			f.err = b.err
			return 0, f.err
		}
		f.cur, f.rest = b, b.out
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// Close ends the goroutines. A reader that blocks for ever would keep it waiting.
func (f *frameReader) Close() error {
	close(f.stop)
	for range f.order { // what the feeder still wants to hand over
	}
	f.wg.Wait()
	f.dec.Close()
	f.err, f.rest = io.ErrClosedPipe, nil
	return nil
}
