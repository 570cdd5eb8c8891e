// Package memory is a blob store that forgets: a map, for tests and for caches
// whose owner bounds what goes in. It has every ability that blobstore names and
// shares no bytes with its callers. It holds what it is given, all of it, until
// Delete. Safe for concurrent use.
//
// To an observer it is the layer in_memory. What reads a blob is a get_blob,
// Open and GetRange included, and what stores one a set_blob.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Store is a blob store in memory. The zero value is an empty Verified store.
type Store struct {
	mode     blobstore.Mode
	observer blobstore.Observer // nil: nobody looks

	mu    sync.RWMutex
	blobs map[blobref.Ref]blob // guarded by mu; the bytes inside never change
}

type blob struct {
	data   []byte
	stored time.Time
}

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
	_ blobstore.Moder           = (*Store)(nil)
)

// Option says something about a store that New makes.
type Option func(*Store)

// Observed tells o what the store does.
func Observed(o blobstore.Observer) Option {
	return func(s *Store) { s.observer = o }
}

// New returns an empty store.
func New(mode blobstore.Mode, opts ...Option) *Store {
	s := &Store{mode: mode}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

func (s *Store) begin(ctx context.Context, name string) (context.Context, blobstore.Span) {
	return blobstore.Begin(ctx, s.observer, blobstore.Op{Layer: "in_memory", Name: name})
}

// Mode returns the mode that the store was made with.
func (s *Store) Mode() blobstore.Mode { return s.mode }

// Get returns a copy of the blob.
func (s *Store) Get(ctx context.Context, ref blobref.Ref) (_ []byte, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	b, err := s.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return append([]byte{}, b.data...), nil
}

func (s *Store) find(ctx context.Context, ref blobref.Ref) (blob, error) {
	if err := ctx.Err(); err != nil {
		return blob{}, fmt.Errorf("getting %s: %w", ref, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	b, ok := s.blobs[ref]
	if !ok {
		return blob{}, fmt.Errorf("getting %s: %w", ref, blobstore.ErrNotFound)
	}
	return b, nil
}

// Set stores a copy of data. An Opaque store replaces what ref held.
func (s *Store) Set(ctx context.Context, ref blobref.Ref, data []byte) (err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	return s.set(ctx, ref, data)
}

func (s *Store) set(ctx context.Context, ref blobref.Ref, data []byte) error {
	if err := s.check(ctx, ref, data); err != nil {
		return err
	}
	s.store(ref, data)
	return nil
}

func (s *Store) check(ctx context.Context, ref blobref.Ref, data []byte) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	if s.mode == blobstore.Verified && !ref.Verify(data) {
		return fmt.Errorf("storing %s: %w (they are %s)", ref, blobstore.ErrMismatch, blobref.Of(data))
	}
	if ref.IsZero() {
		return fmt.Errorf("storing %d bytes: %w: the zero reference names no blob", len(data), blobref.ErrInvalid)
	}
	return nil
}

// SetIfAbsent stores a copy of data under ref where nothing is.
func (s *Store) SetIfAbsent(ctx context.Context, ref blobref.Ref, data []byte) (stored bool, err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	if err := s.check(ctx, ref, data); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.blobs[ref]; ok {
		return false, nil
	}
	s.keep(ref, data)
	return true, nil
}

func (s *Store) store(ref blobref.Ref, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.blobs[ref]; ok && bytes.Equal(old.data, data) {
		return
	}
	s.keep(ref, data)
}

// keep is called with s.mu held.
func (s *Store) keep(ref blobref.Ref, data []byte) {
	if s.blobs == nil {
		s.blobs = make(map[blobref.Ref]blob)
	}
	s.blobs[ref] = blob{data: bytes.Clone(data), stored: time.Now()}
}

// SetLocal is Set: nothing here is remote.
func (s *Store) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) (err error) {
	ctx, span := s.begin(ctx, "set_blob_locally_only")
	defer func() { span.End(err) }()
	return s.set(ctx, ref, data)
}

// Flush has nothing to wait for.
func (s *Store) Flush(ctx context.Context) error {
	_, span := s.begin(ctx, "flush")
	span.End(nil)
	return nil
}

// PutBytes stores a copy of data under the reference of its content.
func (s *Store) PutBytes(ctx context.Context, data []byte) (_ blobref.Ref, err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	return s.putBytes(ctx, data)
}

func (s *Store) putBytes(ctx context.Context, data []byte) (blobref.Ref, error) {
	if err := ctx.Err(); err != nil {
		return blobref.Ref{}, fmt.Errorf("storing %d bytes: %w", len(data), err)
	}
	ref := blobref.Of(data)
	s.store(ref, data)
	return ref, nil
}

// Put stores what r yields under the reference of its content.
func (s *Store) Put(ctx context.Context, r io.Reader) (_ blobref.Ref, _ int64, err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	data, err := io.ReadAll(r)
	if err != nil {
		return blobref.Ref{}, 0, fmt.Errorf("storing a stream: %w", err)
	}
	ref, err := s.putBytes(ctx, data)
	if err != nil {
		return blobref.Ref{}, 0, err
	}
	return ref, int64(len(data)), nil
}

// Stat describes the blob.
func (s *Store) Stat(ctx context.Context, ref blobref.Ref) (blobstore.Info, error) {
	b, err := s.find(ctx, ref)
	if err != nil {
		return blobstore.Info{}, err
	}
	return b.info(ref), nil
}

func (b blob) info(ref blobref.Ref) blobstore.Info {
	return blobstore.Info{Ref: ref, Size: int64(len(b.data)), ModTime: b.stored}
}

// Walk yields the blobs that were there when it began.
func (s *Store) Walk(ctx context.Context) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		s.mu.RLock()
		infos := make([]blobstore.Info, 0, len(s.blobs))
		for ref, b := range s.blobs {
			infos = append(infos, b.info(ref))
		}
		s.mu.RUnlock()
		// The lock is free while the caller works, so that it may delete.
		for _, info := range infos {
			if err := ctx.Err(); err != nil {
				yield(blobstore.Info{}, fmt.Errorf("listing blobs: %w", err))
				return
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Delete removes the blob.
func (s *Store) Delete(ctx context.Context, ref blobref.Ref) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("deleting %s: %w", ref, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.blobs[ref]; !ok {
		return fmt.Errorf("deleting %s: %w", ref, blobstore.ErrNotFound)
	}
	delete(s.blobs, ref)
	return nil
}

// Open opens the blob for reading. It stays readable when it is deleted or
// replaced meanwhile.
func (s *Store) Open(ctx context.Context, ref blobref.Ref) (_ blobstore.Blob, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	b, err := s.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return reader{bytes.NewReader(b.data)}, nil
}

// reader hides the methods of bytes.Reader that would hand out the stored slice
// itself (WriteTo passes it to a foreign Write).
type reader struct{ r *bytes.Reader }

func (r reader) Read(p []byte) (int, error)                   { return r.r.Read(p) }
func (r reader) ReadAt(p []byte, off int64) (int, error)      { return r.r.ReadAt(p, off) }
func (r reader) Seek(offset int64, whence int) (int64, error) { return r.r.Seek(offset, whence) }
func (r reader) Size() int64                                  { return r.r.Size() }
func (reader) Close() error                                   { return nil }

// GetRange returns a copy of a part of the blob.
func (s *Store) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) (_ []byte, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	if off < 0 || n < 0 {
		return nil, fmt.Errorf("getting %d bytes at %d of %s: negative range", n, off, ref)
	}
	b, err := s.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	size := int64(len(b.data))
	off = min(off, size)
	return append([]byte{}, b.data[off:off+min(n, size-off)]...), nil
}
