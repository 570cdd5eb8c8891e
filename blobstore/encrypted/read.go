package encrypted

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"sync"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// maxTries bounds how often a range is read anew because the blob is being replaced.
const maxTries = 8

// Open opens the blob, by Open of the store below where it has that. All of it has been
// decrypted once, and hashed in mode Verified, before Open returns; what is then read
// is decrypted again, chunk by chunk, so that bytes that change meanwhile are an error
// and not handed out. It holds one chunk in memory; of a blob in the seed's form, or
// from a store that hands out blobs as a whole only, all of it.
func (s *Store) Open(ctx context.Context, ref blobref.Ref) (blobstore.Blob, error) {
	var found blobstore.Blob
	err := ctx.Err()
	if err == nil {
		err = s.at(ctx, ref, func(id blobref.Ref) error {
			var err error
			found, err = s.openAt(ctx, ref, id)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", ref, err)
	}
	return found, nil
}

func (s *Store) openAt(ctx context.Context, ref, id blobref.Ref) (blobstore.Blob, error) {
	inner, err := blobstore.Open(ctx, s.inner, id)
	if errors.Is(err, blobstore.ErrUnsupported) {
		return s.openWhole(ctx, ref, id)
	}
	if err != nil {
		return nil, err
	}
	head, err := readUpTo(inner, make([]byte, headerSize), 0)
	if err == nil && !IsEncrypted(head) {
		inner.Close()
		return s.openWhole(ctx, ref, id)
	}
	var b *blob
	if err == nil {
		b, err = s.openStream(ctx, ref, inner, head)
	}
	if err != nil {
		inner.Close()
		return nil, err
	}
	return b, nil
}

func (s *Store) openWhole(ctx context.Context, ref, id blobref.Ref) (blobstore.Blob, error) {
	sealed, err := s.inner.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	data, err := s.open(ctx, ref, sealed)
	if err != nil {
		return nil, err
	}
	return whole{bytes.NewReader(data)}, nil
}

// whole is a blob in memory. It hides WriteTo, which would hand out the bytes
// themselves.
type whole struct{ r *bytes.Reader }

func (w whole) Read(p []byte) (int, error)                   { return w.r.Read(p) }
func (w whole) ReadAt(p []byte, off int64) (int, error)      { return w.r.ReadAt(p, off) }
func (w whole) Seek(offset int64, whence int) (int64, error) { return w.r.Seek(offset, whence) }
func (w whole) Size() int64                                  { return w.r.Size() }
func (whole) Close() error                                   { return nil }

func (s *Store) openStream(ctx context.Context, ref blobref.Ref, inner blobstore.Blob, head []byte) (*blob, error) {
	c, err := s.openHeader(ctx, ref, head)
	if err != nil {
		return nil, err
	}
	if err := c.complete(inner.Size()); err != nil {
		return nil, err
	}
	r := &chunkReader{body: c.body, inner: inner, held: -1}
	if err := r.verify(ctx, s.opts.Mode == blobstore.Verified); err != nil {
		return nil, err
	}
	return &blob{SectionReader: io.NewSectionReader(r, 0, c.size), r: r}, nil
}

type blob struct {
	*io.SectionReader
	r *chunkReader
}

func (b *blob) Close() error { return b.r.close() }

// chunkReader decrypts one chunk at a time, and keeps the last for those who read on.
type chunkReader struct {
	body
	inner blobstore.Blob

	mu     sync.Mutex
	closed bool   // guarded by mu, as what follows
	held   int64  // the chunk in plain, -1 if none
	plain  []byte // part of buf
	buf    []byte
}

// verify reads all chunks.
func (r *chunkReader) verify(ctx context.Context, hashed bool) error {
	var h hash.Hash
	if hashed {
		h = sha256.New()
	}
	for i := range r.chunks() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.hold(i); err != nil {
			return err
		}
		if h != nil {
			h.Write(r.plain)
		}
	}
	if h != nil {
		var sum [idSize]byte
		if h.Sum(sum[:0]); blobref.FromSum(sum) != r.id {
			return fmt.Errorf("%w (its plaintext is not what the reference names)", ErrTampered)
		}
	}
	return nil
}

// hold makes chunk i the one in plain.
func (r *chunkReader) hold(i int64) error {
	if r.held == i {
		return nil
	}
	r.held = -1
	if r.buf == nil {
		r.buf = make([]byte, min(r.chunk, r.size)+tagSize)
	}
	want := r.length(i) + tagSize
	sealed, err := readUpTo(r.inner, r.buf[:want], r.offset(i))
	if err != nil {
		return err
	}
	if int64(len(sealed)) < want {
		return ErrTruncated // since it was opened
	}
	if r.plain, err = r.open(sealed, i); err != nil {
		return err
	}
	r.held = i
	return nil
}

// ReadAt implements io.ReaderAt.
func (r *chunkReader) ReadAt(p []byte, off int64) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, fs.ErrClosed
	}
	for n < len(p) && off < r.size {
		if err := r.hold(off / r.chunk); err != nil {
			return n, fmt.Errorf("reading %s: %w", r.id, err)
		}
		m := copy(p[n:], r.plain[off%r.chunk:])
		n, off = n+m, off+int64(m)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (r *chunkReader) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fs.ErrClosed
	}
	r.closed = true
	r.held, r.plain, r.buf = -1, nil, nil
	return r.inner.Close()
}

// GetRange returns a part of the blob. Where the store below reads ranges, only the
// header and the chunks that the part is in are fetched and decrypted: each chunk
// proves by itself that it is this part of what a holder of the key stored, and
// verified, under this reference. Otherwise, and of a blob in the seed's form or one
// that was stored by an opaque store and is read by a verified one, it is Get.
func (s *Store) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) ([]byte, error) {
	var part []byte
	err := ctx.Err()
	if err == nil && (off < 0 || n < 0) {
		err = errors.New("negative range")
	}
	if err == nil {
		err = s.at(ctx, ref, func(id blobref.Ref) error {
			var err error
			part, err = s.rangeAt(ctx, ref, id, off, n)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("getting %d bytes at %d of %s: %w", n, off, ref, err)
	}
	return part, nil
}

// errWhole says that a part cannot be had for less than the whole.
var errWhole = errors.New("not by parts")

func (s *Store) rangeAt(ctx context.Context, ref, id blobref.Ref, off, n int64) ([]byte, error) {
	if r, ok := s.inner.(blobstore.RangeReader); ok {
		for range maxTries {
			head, err := r.GetRange(ctx, id, 0, headerSize)
			if errors.Is(err, blobstore.ErrUnsupported) {
				break
			}
			if err != nil {
				return nil, err
			}
			part, err := s.rangeUnder(ctx, ref, id, head, r, off, n)
			if errors.Is(err, errWhole) {
				break
			}
			if !errors.Is(err, blobstore.ErrCorrupt) {
				return part, err
			}
			// Header and chunks are of two blobs if it was replaced in between.
			again, rerr := r.GetRange(ctx, id, 0, headerSize)
			if rerr != nil || bytes.Equal(head, again) {
				return nil, err
			}
		}
	}
	sealed, err := s.inner.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	data, err := s.open(ctx, ref, sealed)
	if err != nil {
		return nil, err
	}
	off = min(off, int64(len(data)))
	end := off + min(n, int64(len(data))-off)
	return data[off:end:end], nil
}

func (s *Store) rangeUnder(ctx context.Context, ref, id blobref.Ref, head []byte, r blobstore.RangeReader, off, n int64) ([]byte, error) {
	if !IsEncrypted(head) {
		return nil, errWhole
	}
	c, err := s.openHeader(ctx, ref, head)
	if err != nil {
		return nil, err
	}
	if c.unverified && s.opts.Mode == blobstore.Verified {
		return nil, errWhole
	}
	off = min(off, c.size)
	if n = min(n, c.size-off); n == 0 {
		return []byte{}, nil
	}
	first, last := off/c.chunk, (off+n-1)/c.chunk
	from, to := c.offset(first), c.offset(last)+c.length(last)+tagSize
	sealed, err := r.GetRange(ctx, id, from, to-from)
	if err != nil {
		return nil, err
	}
	if int64(len(sealed)) < to-from {
		return nil, fmt.Errorf("%w (%d bytes are left of %d)", ErrTruncated, from+int64(len(sealed)), c.sealedSize())
	}
	plain, err := c.openRun(sealed, first)
	if err != nil {
		return nil, err
	}
	off -= first * c.chunk
	return plain[off : off+n : off+n], nil
}
