package encrypted

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

const (
	// inMemory is the longest stream that Put holds in memory rather than reading
	// it twice.
	inMemory = 1 << 20

	// maxWhole is the longest stream that is held in memory where there is no other
	// way: the seed's form, or a store below that takes blobs as a whole only.
	maxWhole = 64 << 20

	spoolChunk = 256 << 10
)

// Put stores what r yields, in bounded memory. The id is known at the end only, and is
// part of every chunk, so that a stream of more than 1 MiB is read twice: where r can
// seek, from r itself, else from a temporary that is encrypted under a key of its own
// and has no name. In the seed's form, or where the store below is no
// blobstore.StreamSetter, a blob of more than 64 MiB is blobstore.ErrTooLarge.
func (s *Store) Put(ctx context.Context, r io.Reader) (ref blobref.Ref, size int64, err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	if err = ctx.Err(); err == nil {
		ref, size, err = s.put(ctx, r)
	}
	if err != nil {
		return blobref.Ref{}, 0, fmt.Errorf("storing a stream: %w", err)
	}
	return ref, size, nil
}

func (s *Store) put(ctx context.Context, r io.Reader) (blobref.Ref, int64, error) {
	limit := int64(inMemory)
	if !s.streams() {
		limit = maxWhole
	}
	begin, err := readAll(ctx, r, limit+1)
	if err != nil {
		return blobref.Ref{}, 0, err
	}
	if size := int64(len(begin)); size <= limit {
		ref := blobref.Of(begin)
		return ref, size, s.store(ctx, ref, begin, s.inner.Set)
	}
	if !s.streams() {
		return blobref.Ref{}, 0, fmt.Errorf("%w (more than %d bytes, which is all that this store takes as a whole)", blobstore.ErrTooLarge, int64(maxWhole))
	}
	h := sha256.New()
	h.Write(begin)
	again, size, err := s.readTwice(ctx, r, begin, h)
	if err != nil {
		return blobref.Ref{}, 0, err
	}
	defer again.Close()
	var sum [idSize]byte
	h.Sum(sum[:0])
	ref := blobref.FromSum(sum)
	err = s.storeStream(ctx, ref, again, size, errChanged, true)
	return ref, size, err
}

// errChanged says that a stream was another when it was read for the second time.
var errChanged = errors.New("what is stored changed while it was read")

// streams reports whether the store below takes streams and the form is made for them.
func (s *Store) streams() bool {
	_, ok := s.inner.(blobstore.StreamSetter)
	return ok && s.opts.Form == Own
}

// readAll reads r until it ends or n bytes are there. Unlike with io.ReadFull the error
// of a stream that was cut off, io.ErrUnexpectedEOF, is one.
func readAll(ctx context.Context, r io.Reader, n int64) ([]byte, error) {
	var buf bytes.Buffer
	_, err := buf.ReadFrom(io.LimitReader(reader{ctx, r}, n))
	return buf.Bytes(), err
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// readTwice hashes the rest of r, whose begin has been read, and returns a stream of all
// of it, and its length.
func (s *Store) readTwice(ctx context.Context, r io.Reader, begin []byte, h hash.Hash) (io.ReadCloser, int64, error) {
	if seeker, ok := r.(io.ReadSeeker); ok {
		// A pipe has the method, and fails it.
		if at, err := seeker.Seek(0, io.SeekCurrent); err == nil && at >= int64(len(begin)) {
			n, err := io.Copy(h, reader{ctx, r})
			if err != nil {
				return nil, 0, err
			}
			if _, err := seeker.Seek(at-int64(len(begin)), io.SeekStart); err != nil {
				return nil, 0, err
			}
			return io.NopCloser(r), int64(len(begin)) + n, nil
		}
	}
	sp, err := newSpool(s.opts.TempDir)
	if err != nil {
		return nil, 0, err
	}
	src := io.TeeReader(reader{ctx, r}, h)
	if err := sp.fill(io.MultiReader(bytes.NewReader(begin), src)); err != nil {
		sp.Close()
		return nil, 0, err
	}
	return sp, sp.size, nil
}

// SetStream is Set of the size bytes that r yields. They are encrypted on their way, in
// bounded memory; a Verified store hashes them, and the store below never sees the last
// chunk of bytes that are not what ref names. See Put for what is too large.
func (s *Store) SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) (err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	if err = ctx.Err(); err == nil {
		err = s.setStream(ctx, ref, r, size)
	}
	if err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	return nil
}

func (s *Store) setStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) error {
	verify := s.opts.Mode == blobstore.Verified
	switch {
	case size < 0:
		return fmt.Errorf("%d bytes are none", size)
	case s.streams():
		return s.storeStream(ctx, ref, r, size, blobstore.ErrMismatch, verify)
	case size > maxWhole:
		return fmt.Errorf("%w (%d bytes; this store takes %d as a whole)", blobstore.ErrTooLarge, size, int64(maxWhole))
	}
	data, err := readAll(ctx, r, size+1)
	switch {
	case err != nil:
		return err
	case int64(len(data)) != size:
		return errSize
	case verify && !ref.Verify(data):
		return blobstore.ErrMismatch
	}
	return s.store(ctx, ref, data, s.inner.Set)
}

var errSize = errors.New("the stream has not the length that was announced")

// storeStream encrypts the size bytes of r. Where verify is set and they are not what
// ref names, the error is mismatch.
func (s *Store) storeStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64, mismatch error, verify bool) error {
	st, id, err := s.target(ctx, ref)
	if err != nil {
		return err
	}
	sealed := newSealer(st, ref, reader{ctx, r}, size, s.chunkLog, s.flags())
	if verify {
		sealed.hash, sealed.mismatch = sha256.New(), mismatch
	}
	err = s.exclusively(ctx, id, func() error {
		return blobstore.SetStream(ctx, s.inner, id, sealed, sealed.sealedSize())
	})
	if sealed.failed != nil {
		return sealed.failed // which the store below may have put in other words
	}
	return err
}

// sealer is a blob in our own form, made while it is read. It cannot be read again: were
// its source another by then, two plaintexts would be under one key and nonce.
type sealer struct {
	body
	src      io.Reader
	hash     hash.Hash // of the plaintext; nil where nothing is to be verified
	mismatch error

	next    int64  // the chunk to make
	pending []byte // made, and not read yet
	plain   []byte
	sealed  []byte
	failed  error
}

func newSealer(st *state, ref blobref.Ref, src io.Reader, size int64, chunkLog, flags byte) *sealer {
	head := make([]byte, headerSize)
	s := &sealer{src: src, pending: head}
	s.body = newHeader(head, st.writer, ref, size, chunkLog, flags)
	s.plain = make([]byte, min(s.chunk, size))
	s.sealed = make([]byte, 0, len(s.plain)+tagSize)
	return s
}

func (s *sealer) Read(p []byte) (int, error) {
	if s.failed != nil {
		return 0, s.failed
	}
	for len(s.pending) == 0 {
		if s.next == s.chunks() {
			return 0, io.EOF
		}
		if s.failed = s.make(); s.failed != nil {
			return 0, s.failed
		}
	}
	n := copy(p, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}

// make makes the next chunk. The last is made only if all of the plaintext is what it
// should be.
func (s *sealer) make() error {
	plain := s.plain[:s.length(s.next)]
	if err := readFull(s.src, plain); err != nil {
		return err
	}
	if s.hash != nil {
		s.hash.Write(plain)
	}
	if s.next == s.chunks()-1 {
		if err := s.ends(); err != nil {
			return err
		}
	}
	s.pending = s.seal(s.sealed[:0], plain, s.next)
	s.next++
	return nil
}

// ends holds the source to its length and to the id.
func (s *sealer) ends() error {
	var more [1]byte
	if err := readFull(s.src, more[:]); err == nil {
		return errSize
	} else if !errors.Is(err, errSize) {
		return err
	}
	if s.hash == nil {
		return nil
	}
	var sum [idSize]byte
	if s.hash.Sum(sum[:0]); blobref.FromSum(sum) != s.id {
		return s.mismatch
	}
	return nil
}

// readFull fills p. A source that ends before is errSize.
func readFull(r io.Reader, p []byte) error {
	for n := 0; n < len(p); {
		m, err := r.Read(p[n:])
		if n += m; n == len(p) {
			return nil
		}
		if err == io.EOF {
			return errSize
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// spool is a stream that waits to be read again: a file without a name, encrypted under
// a key that is nowhere else than here.
type spool struct {
	body // id is zero, and the chunks are numbered as if there were always one more
	file *os.File
	buf  []byte

	next    int64
	pending []byte
}

func newSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, ".agentrun-spool-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	var key [keySize]byte
	_, _ = rand.Read(key[:]) // never fails
	return &spool{
		body: body{aead: newGCM(key[:]), chunk: spoolChunk},
		file: f,
		buf:  make([]byte, spoolChunk+tagSize),
	}, nil
}

// fill takes all of r, and rewinds.
func (s *spool) fill(r io.Reader) error {
	for i := int64(0); ; i++ {
		n := 0
		var err error
		for n < spoolChunk && err == nil {
			var m int
			m, err = r.Read(s.buf[n:spoolChunk])
			n += m
		}
		if err != nil && err != io.EOF {
			return err
		}
		s.size += int64(n)
		nonce := chunkNonce(i, false)
		if _, werr := s.file.Write(s.aead.Seal(s.buf[:0], nonce[:], s.buf[:n], nil)); werr != nil {
			return werr
		}
		if err == io.EOF {
			_, err = s.file.Seek(0, io.SeekStart)
			return err
		}
	}
}

func (s *spool) Read(p []byte) (int, error) {
	for len(s.pending) == 0 {
		n := s.length(s.next)
		if n <= 0 {
			return 0, io.EOF
		}
		sealed := s.buf[:n+tagSize]
		if _, err := io.ReadFull(s.file, sealed); err != nil {
			return 0, fmt.Errorf("reading a temporary again: %w", err)
		}
		nonce := chunkNonce(s.next, false)
		var err error
		if s.pending, err = s.aead.Open(sealed[:0], nonce[:], sealed, nil); err != nil {
			return 0, fmt.Errorf("reading a temporary again: %w", err)
		}
		s.next++
	}
	n := copy(p, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}

func (s *spool) Close() error { return s.file.Close() }
