package s3store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/internal/exact"
	"github.com/agentrun/agentrun/blobstore/internal/spool"
	"github.com/agentrun/agentrun/internal/s3"
)

// Store keeps blobs in a bucket. It is safe for concurrent use.
type Store struct{ *bucket }

var (
	_ blobstore.Store           = (*Store)(nil)
	_ blobstore.Stater          = (*Store)(nil)
	_ blobstore.Walker          = (*Store)(nil)
	_ blobstore.Deleter         = (*Store)(nil)
	_ blobstore.Opener          = (*Store)(nil)
	_ blobstore.RangeReader     = (*Store)(nil)
	_ blobstore.Putter          = (*Store)(nil)
	_ blobstore.BytesPutter     = (*Store)(nil)
	_ blobstore.ExclusiveSetter = (*Store)(nil)
	_ blobstore.StreamSetter    = (*Store)(nil)
	_ blobstore.Moder           = (*Store)(nil)
)

// Open returns the store in a bucket. It asks the service nothing yet. Close frees the
// connections.
func Open(o Options) (*Store, error) {
	if o.Mode != blobstore.Verified && o.Mode != blobstore.Opaque {
		return nil, fmt.Errorf("opening bucket %s: %w: %v", o.Bucket, blobstore.ErrMode, o.Mode)
	}
	b, err := open(o)
	if err != nil {
		return nil, err
	}
	return &Store{b}, nil
}

// begin tells the observer of an operation.
func (s *Store) begin(ctx context.Context, name string) (context.Context, blobstore.Span) {
	return blobstore.Begin(ctx, s.opts.Observer, blobstore.Op{Layer: "remote", Name: name})
}

// Mode returns the mode that the store was opened with.
func (s *Store) Mode() blobstore.Mode { return s.opts.Mode }

// Flush has nothing to wait for: every call finishes its own work.
func (s *Store) Flush(ctx context.Context) error {
	_, span := s.begin(ctx, "flush")
	span.End(nil)
	return nil
}

// check is what holds for every Set before anything is sent.
func (s *Store) check(ctx context.Context, ref blobref.Ref, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.opts.Mode == blobstore.Verified && !ref.Verify(data) {
		return fmt.Errorf("%w (they are %s)", blobstore.ErrMismatch, blobref.Of(data))
	}
	if ref.IsZero() {
		return fmt.Errorf("%w: the zero reference names no blob", blobref.ErrInvalid)
	}
	return nil
}

// Set stores data under ref.
func (s *Store) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	err := s.check(ctx, ref, data)
	if err == nil {
		err = s.put(ctx, ref, bytes.NewReader(data), int64(len(data)), false)
	}
	if err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	return nil
}

// SetIfAbsent stores data under ref unless the bucket has a blob there, and reports
// whether it did. Of many who try at once, one does. What is there is not compared: a
// corrupt blob is not healed.
func (s *Store) SetIfAbsent(ctx context.Context, ref blobref.Ref, data []byte) (stored bool, err error) {
	if err = s.check(ctx, ref, data); err == nil {
		err = s.put(ctx, ref, bytes.NewReader(data), int64(len(data)), true)
	}
	switch {
	case errors.Is(err, ErrConflict):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("storing %s: %w", ref, err)
	}
	return true, nil
}

// put stores a body, which in mode Verified is that of its reference.
func (s *Store) put(ctx context.Context, ref blobref.Ref, body io.ReaderAt, size int64, absent bool) (err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	o := s3.Put{IfAbsent: absent, Whole: absent}
	if s.opts.Mode == blobstore.Verified {
		o.Sum = ref.Sum()
	}
	_, err = s.send(ctx, s.blobKey(ref), body, size, o)
	return err
}

// send stores an object, and returns its ETag.
func (b *bucket) send(ctx context.Context, key string, body io.ReaderAt, size int64, o s3.Put) (string, error) {
	etag, err := b.client.Put(ctx, b.opts.Bucket, key, body, size, o)
	return etag, explain(ctx, err)
}

// SetLocal stores nothing: there is no store on this machine.
func (s *Store) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) (err error) {
	ctx, span := s.begin(ctx, "set_blob_locally_only")
	defer func() { span.End(err) }()
	if err := s.check(ctx, ref, data); err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	return fmt.Errorf("storing %s: %w: it is %v", ref, blobstore.ErrNotLocal, s)
}

// PutBytes stores data under the reference of its content.
func (s *Store) PutBytes(ctx context.Context, data []byte) (blobref.Ref, error) {
	ref := blobref.Of(data)
	err := ctx.Err()
	if err == nil {
		err = s.put(ctx, ref, bytes.NewReader(data), int64(len(data)), false)
	}
	if err != nil {
		return blobref.Ref{}, fmt.Errorf("storing %s: %w", ref, err)
	}
	return ref, nil
}

// Put reads r to its end and stores what it yields.
func (s *Store) Put(ctx context.Context, r io.Reader) (blobref.Ref, int64, error) {
	held, err := spool.Read(ctx, r, s.opts.SpoolDir, s.opts.MaxStreamBytes)
	if err != nil {
		return blobref.Ref{}, 0, fmt.Errorf("storing a stream: %w", err)
	}
	defer held.Close()
	if err := s.put(ctx, held.Ref(), held, held.Size(), false); err != nil {
		return blobref.Ref{}, 0, fmt.Errorf("storing %s: %w", held.Ref(), err)
	}
	return held.Ref(), held.Size(), nil
}

// SetStream reads the size bytes that r yields and stores them under ref.
func (s *Store) SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) error {
	err := s.setStream(ctx, ref, r, size)
	if err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	return nil
}

func (s *Store) setStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) error {
	switch {
	case ref.IsZero():
		return fmt.Errorf("%w: the zero reference names no blob", blobref.ErrInvalid)
	case size < 0 || size > s.opts.MaxStreamBytes:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", blobstore.ErrTooLarge, size, s.opts.MaxStreamBytes)
	}
	want := ref
	if s.opts.Mode == blobstore.Opaque {
		want = blobref.Ref{}
	}
	// The client would end a request in its middle when the stream fails, and send no
	// more than size of a longer one.
	held, err := spool.Read(ctx, exact.New(r, size, want), s.opts.SpoolDir, size)
	if err != nil {
		return err
	}
	defer held.Close()
	return s.put(ctx, ref, held, size, false)
}

// fetch asks for an object, or a part of it.
func (b *bucket) fetch(ctx context.Context, key string, part s3.Range) (io.ReadCloser, s3.Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, s3.Info{}, err
	}
	body, info, err := b.client.Get(ctx, b.opts.Bucket, key, part)
	if err != nil {
		return nil, s3.Info{}, explain(ctx, err)
	}
	return body, info, nil
}

// read reads a body of at most limit bytes. Memory grows with what arrives, not with
// what was claimed.
func read(ctx context.Context, body io.Reader, claimed, limit int64) ([]byte, error) {
	if claimed > limit {
		return nil, fmt.Errorf("%w: it has %d bytes, the limit is %d", blobstore.ErrTooLarge, claimed, limit)
	}
	var buf bytes.Buffer
	buf.Grow(int(min(max(claimed, 0), 1<<20)) + bytes.MinRead)
	n, err := buf.ReadFrom(io.LimitReader(body, addUp(limit, 1)))
	if err != nil {
		return nil, explain(ctx, err)
	}
	if n > limit {
		return nil, fmt.Errorf("%w: it has more than %d bytes", blobstore.ErrTooLarge, limit)
	}
	if n == 0 {
		return []byte{}, nil
	}
	return buf.Bytes(), nil
}

// Get fetches the blob. One larger than Options.MaxBytes is blobstore.ErrTooLarge.
func (s *Store) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	data, err := s.get(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", ref, err)
	}
	return data, nil
}

func (s *Store) get(ctx context.Context, ref blobref.Ref) (_ []byte, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	body, info, err := s.fetch(ctx, s.blobKey(ref), s3.Range{})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := read(ctx, body, info.Size, s.opts.MaxBytes)
	if err != nil {
		return nil, err
	}
	if s.opts.Mode == blobstore.Verified {
		return data, s.verify(ref, blobref.Of(data), &data)
	}
	return data, nil
}

// verify takes away what is not the blob.
func (s *Store) verify(want, got blobref.Ref, data *[]byte) error {
	if want == got {
		return nil
	}
	*data = nil
	return fmt.Errorf("%w: the object is %s", blobstore.ErrCorrupt, got)
}

// Open fetches the blob into a temporary without a name, verifies it in mode Verified,
// and opens that.
func (s *Store) Open(ctx context.Context, ref blobref.Ref) (blobstore.Blob, error) {
	b, err := s.open(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", ref, err)
	}
	return b, nil
}

func (s *Store) open(ctx context.Context, ref blobref.Ref) (_ *spool.Stream, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	body, info, err := s.fetch(ctx, s.blobKey(ref), s3.Range{})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if info.Size > s.opts.MaxStreamBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, the limit is %d", blobstore.ErrTooLarge, info.Size, s.opts.MaxStreamBytes)
	}
	b, err := spool.Read(ctx, explained{ctx, body}, s.opts.SpoolDir, s.opts.MaxStreamBytes)
	if err != nil {
		return nil, err
	}
	if s.opts.Mode == blobstore.Verified && b.Ref() != ref {
		_ = b.Close()
		return nil, fmt.Errorf("%w: the object is %s", blobstore.ErrCorrupt, b.Ref())
	}
	return b, nil
}

// explained is a body whose errors are those of a store.
type explained struct {
	ctx context.Context
	r   io.Reader
}

func (e explained) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err != nil && err != io.EOF {
		err = explain(e.ctx, err)
	}
	return n, err
}

// GetRange returns a part of the blob. In mode Verified all of it is fetched, and what
// lies around the part is verified and forgotten.
func (s *Store) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) (data []byte, err error) {
	if off < 0 || n < 0 {
		return nil, fmt.Errorf("getting %d bytes at %d of %s: negative range", n, off, ref)
	}
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	if s.opts.Mode == blobstore.Verified {
		data, err = s.verifiedRange(ctx, ref, off, n)
	} else {
		data, err = s.opaqueRange(ctx, ref, off, n)
	}
	if err != nil {
		return nil, fmt.Errorf("getting %d bytes at %d of %s: %w", n, off, ref, err)
	}
	return data, nil
}

func (s *Store) opaqueRange(ctx context.Context, ref blobref.Ref, off, n int64) ([]byte, error) {
	if n == 0 {
		_, err := s.Stat(ctx, ref) // a range of nothing cannot be asked for
		return []byte{}, err
	}
	// The end is asked for by a number of 64 bits, and services count to it.
	body, _, err := s.fetch(ctx, s.blobKey(ref), s3.Range{First: off, Last: addUp(off, n-1), Given: true})
	if errors.Is(err, errBeyond) {
		return []byte{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return read(ctx, io.LimitReader(body, n), 0, s.opts.MaxBytes)
}

func (s *Store) verifiedRange(ctx context.Context, ref blobref.Ref, off, n int64) ([]byte, error) {
	body, info, err := s.fetch(ctx, s.blobKey(ref), s3.Range{})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if info.Size > s.opts.MaxStreamBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, the limit is %d", blobstore.ErrTooLarge, info.Size, s.opts.MaxStreamBytes)
	}
	hash := sha256.New()
	r := io.TeeReader(explained{ctx, io.LimitReader(body, s.opts.MaxStreamBytes)}, hash)
	if _, err := io.CopyN(io.Discard, r, off); err != nil && err != io.EOF {
		return nil, err
	}
	data, err := read(ctx, io.LimitReader(r, n), 0, s.opts.MaxBytes)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, err
	}
	return data, s.verify(ref, blobref.FromSum([sha256.Size]byte(hash.Sum(nil))), &data)
}

// Stat describes the blob.
func (s *Store) Stat(ctx context.Context, ref blobref.Ref) (blobstore.Info, error) {
	err := ctx.Err()
	var info s3.Info
	if err == nil {
		info, err = s.client.Stat(ctx, s.opts.Bucket, s.blobKey(ref))
		err = explain(ctx, err)
	}
	if err != nil {
		return blobstore.Info{}, fmt.Errorf("describing %s: %w", ref, err)
	}
	return blobstore.Info{Ref: ref, Size: info.Size, ModTime: info.ModTime}, nil
}

// Delete removes the blob.
func (s *Store) Delete(ctx context.Context, ref blobref.Ref) error {
	_, err := s.Stat(ctx, ref)
	if err == nil {
		err = explain(ctx, s.client.Delete(ctx, s.opts.Bucket, s.blobKey(ref)))
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", ref, err)
	}
	return nil
}

// Walk yields the blobs by rising reference.
func (s *Store) Walk(ctx context.Context) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		for o, err := range s.list(ctx, s.prefix) {
			if err != nil {
				yield(blobstore.Info{}, fmt.Errorf("listing blobs: %w", err))
				return
			}
			ref, err := blobref.ParseHex(o.Key[len(s.prefix):])
			if err != nil || o.Size < 0 {
				continue // no blob
			}
			if !yield(blobstore.Info{Ref: ref, Size: o.Size, ModTime: o.ModTime}, nil) {
				return
			}
		}
	}
}

// list yields the objects whose keys begin with prefix, by rising key.
func (b *bucket) list(ctx context.Context, prefix string) iter.Seq2[s3.Info, error] {
	return func(yield func(s3.Info, error) bool) {
		last := ""
		for o, err := range b.client.List(ctx, b.opts.Bucket, prefix) {
			if err = explain(ctx, err); err == nil {
				err = ctx.Err()
			}
			// A service that goes round in circles is left.
			if err == nil && (o.Key <= last || len(o.Key) < len(prefix) || o.Key[:len(prefix)] != prefix) {
				err = errors.New("the service's list is not as it should be")
			}
			if err != nil {
				yield(s3.Info{}, err)
				return
			}
			last = o.Key
			if !yield(o, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(s3.Info{}, err)
		}
	}
}

// addUp adds without overflow.
func addUp(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
