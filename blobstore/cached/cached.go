// Package cached keeps blobs in memory in front of a slower store.
//
//	store := cached.New(encrypted, cached.Options{MaxBytes: 64 << 20})
//
// It is made for the top of a stack, above encryption: what it keeps is what its
// caller would get, and a hit costs a look into a map and a copy.
//
//   - Get keeps what it fetched, in mode blobstore.Verified after it hashed the
//     bytes, once; a store below that returns others is reported as
//     blobstore.ErrCorrupt. Set keeps what it was given once the store below has
//     acknowledged it, and hashes nothing: that was the promise of a Verified
//     store. A store below that does not say its mode is not believed there.
//   - Get calls for one blob that miss at the same time fetch it once. Each of
//     them waits by its own context; the fetch goes on as long as one waits.
//   - That a blob is absent is remembered for Options.AbsentFor, and not at all
//     by default. A Set of the blob, also one that failed, forgets it.
//   - Delete and, in mode blobstore.Opaque, every write forget what was kept,
//     whether they succeed or not. A Get that begins when a write has returned
//     never sees what was there before, not from a fetch that was under way
//     either. While writes of an Opaque store overlap, Set keeps nothing: which
//     came last is for the store below to know.
//   - What other processes, or calls past the cache, delete below stays in
//     the cache until it is evicted; what they replace in an Opaque store too.
//   - Open and GetRange are served from a blob that is kept and are forwarded
//     otherwise, without keeping anything. Put and SetStream are forwarded. What
//     the store below cannot do is blobstore.ErrUnsupported here, hit or not. Stat
//     and Walk are found below by blobstore.As.
//
// To an observer it is the layer cached: Get, Open and GetRange are get_blob, Set,
// PutBytes, Put and SetStream are set_blob. Each get_blob counts in the counter
// agent_kv.cached.get_blob.results: cache_type is hit when it was served from
// memory, absent when there is no such blob, as far as memory or the store below
// knew, and miss otherwise.
//
// Safe for concurrent use. Hits take no lock.
package cached

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// DefaultMaxBytes is the room of a cache that was not told.
const DefaultMaxBytes = 64 << 20

// Options of New.
type Options struct {
	// MaxBytes bounds what is kept: the blobs, and 256 bytes for each of them
	// and for each absence. Zero is DefaultMaxBytes, a negative number keeps
	// nothing. A blob that would not fit alone is passed on and not kept.
	MaxBytes int64

	// AbsentFor is how long it is believed that a blob is not there. Zero asks
	// the store below each time.
	AbsentFor time.Duration

	// Observer is told what happens; nil: nobody.
	Observer blobstore.Observer
}

// Store is a cache in front of another store.
type Store struct {
	inner     blobstore.Store
	verified  bool // mode of inner
	says      bool // inner says its mode
	absentFor time.Duration
	observer  blobstore.Observer

	kept kept

	mu      sync.Mutex
	fetches map[blobref.Ref]*fetch // guarded by mu; those that a Get may join
	writes  writes                 // guarded by mu
}

var (
	_ blobstore.Store        = (*Store)(nil)
	_ blobstore.Deleter      = (*Store)(nil)
	_ blobstore.Opener       = (*Store)(nil)
	_ blobstore.RangeReader  = (*Store)(nil)
	_ blobstore.Putter       = (*Store)(nil)
	_ blobstore.StreamSetter = (*Store)(nil)
	_ blobstore.BytesPutter  = (*Store)(nil)
	_ blobstore.Healer       = (*Store)(nil)
	_ blobstore.Unwrapper    = (*Store)(nil)
)

// New returns a cache in front of inner. Its mode is that of inner.
func New(inner blobstore.Store, opts Options) *Store {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	_, says := blobstore.As[blobstore.Moder](inner)
	return &Store{
		inner:     inner,
		verified:  blobstore.ModeOf(inner) == blobstore.Verified,
		says:      says,
		absentFor: opts.AbsentFor,
		observer:  opts.Observer,
		kept:      kept{limit: opts.MaxBytes},
		fetches:   make(map[blobref.Ref]*fetch),
	}
}

// Unwrap returns the store below.
func (s *Store) Unwrap() blobstore.Store { return s.inner }

// Usage is how much a cache keeps.
type Usage struct {
	Blobs int   // absences included
	Bytes int64 // as Options.MaxBytes counts them
}

// Usage returns how much is kept now.
func (s *Store) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Usage{Blobs: s.kept.count, Bytes: s.kept.bytes}
}

func (s *Store) begin(ctx context.Context, name string) (context.Context, blobstore.Span) {
	return blobstore.Begin(ctx, s.observer, blobstore.Op{Layer: "cached", Name: name})
}

// served tells the observer from where a get_blob was served.
func (s *Store) served(ctx context.Context, hit bool, err error) {
	if s.observer == nil {
		return
	}
	how := "miss"
	switch {
	case errors.Is(err, blobstore.ErrNotFound):
		how = "absent"
	case hit:
		how = "hit"
	}
	s.observer.Counted(ctx, "agent_kv.cached.get_blob.results", "cache_type", how)
}

// Get returns the blob, from memory or from the store below.
func (s *Store) Get(ctx context.Context, ref blobref.Ref) (_ []byte, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	data, hit, err := s.look(ctx, ref)
	if hit {
		s.served(ctx, true, err)
		return copyOf(data), err
	}
	if err != nil {
		return nil, err
	}
	data, err = s.fetch(ctx, ref)
	s.served(ctx, false, err)
	return data, err
}

// look looks into memory. A hit is the bytes, which belong to the cache, or
// ErrNotFound; an error without a hit is the end of the context.
func (s *Store) look(ctx context.Context, ref blobref.Ref) (data []byte, hit bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, fmt.Errorf("getting %s: %w", ref, err)
	}
	e := s.kept.find(ref)
	switch {
	case e == nil:
		return nil, false, nil
	case e.absent:
		return nil, true, fmt.Errorf("getting %s: %w", ref, blobstore.ErrNotFound)
	}
	return e.data, true, nil
}

// copyOf returns bytes that belong to the caller; nil stays nil, beside an error.
func copyOf(data []byte) []byte {
	if data == nil {
		return nil
	}
	own := make([]byte, len(data))
	copy(own, data)
	return own
}

// Set stores data below and keeps a copy.
func (s *Store) Set(ctx context.Context, ref blobref.Ref, data []byte) (err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	return s.set(ctx, ref, data, s.inner.Set)
}

// SetLocal stores data below by SetLocal and keeps a copy.
func (s *Store) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) (err error) {
	ctx, span := s.begin(ctx, "set_blob_locally_only")
	defer func() { span.End(err) }()
	return s.set(ctx, ref, data, s.inner.SetLocal)
}

func (s *Store) set(ctx context.Context, ref blobref.Ref, data []byte, below func(context.Context, blobref.Ref, []byte) error) error {
	w := s.beginWrite(!s.verified)
	err := below(ctx, ref, data)
	s.endWrite(w, ref, s.toKeep(ref, data, err))
	return err
}

// toKeep returns a copy of what a write left below, or nil when it is not to be
// kept, is not known to be there, or is kept already.
func (s *Store) toKeep(ref blobref.Ref, data []byte, err error) []byte {
	if err != nil || !s.kept.fits(len(data)) {
		return nil
	}
	if s.verified {
		if e := s.kept.find(ref); e != nil && !e.absent {
			return nil
		}
		if !s.says && !ref.Verify(data) {
			return nil
		}
	}
	own := make([]byte, len(data))
	copy(own, data)
	return own
}

// PutBytes stores data below under the reference of its content and keeps a copy.
func (s *Store) PutBytes(ctx context.Context, data []byte) (ref blobref.Ref, err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	if !s.verified {
		ref = blobref.Of(data)
		if err := s.set(ctx, ref, data, s.inner.Set); err != nil {
			return blobref.Ref{}, err
		}
		return ref, nil
	}
	w := s.beginWrite(false)
	ref, err = blobstore.Put(ctx, s.inner, data)
	s.endWrite(w, ref, s.toKeep(ref, data, err))
	return ref, err
}

// Put stores a stream below and keeps nothing of it.
func (s *Store) Put(ctx context.Context, r io.Reader) (ref blobref.Ref, n int64, err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	w := s.beginWrite(!s.verified)
	ref, n, err = blobstore.PutStream(ctx, s.inner, r)
	if err != nil && !s.verified {
		s.forgetAll() // which blob may have been replaced, nobody knows
	}
	s.endWrite(w, ref, nil)
	return ref, n, err
}

// SetStream stores a stream below under ref and keeps nothing of it.
func (s *Store) SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) (err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	w := s.beginWrite(!s.verified)
	err = blobstore.SetStream(ctx, s.inner, ref, r, size)
	s.endWrite(w, ref, nil)
	return err
}

// Delete removes the blob below and here.
func (s *Store) Delete(ctx context.Context, ref blobref.Ref) error {
	w := s.beginWrite(true)
	err := blobstore.Delete(ctx, s.inner, ref)
	s.endWrite(w, ref, nil)
	return err
}

// Heal forgets the blob and has the store below heal it: it returns nil when the next
// Get may return other bytes.
func (s *Store) Heal(ctx context.Context, ref blobref.Ref) error {
	e := s.kept.find(ref)
	w := s.beginWrite(true)
	err := blobstore.Heal(ctx, s.inner, ref)
	s.endWrite(w, ref, nil)
	if e != nil && !e.absent && errors.Is(err, blobstore.ErrUnsupported) {
		return nil // what was kept here may have been the damage
	}
	return err
}

// Flush waits for the store below.
func (s *Store) Flush(ctx context.Context) (err error) {
	ctx, span := s.begin(ctx, "flush")
	defer func() { span.End(err) }()
	return s.inner.Flush(ctx)
}

// Open opens the blob, in memory if it is kept.
func (s *Store) Open(ctx context.Context, ref blobref.Ref) (_ blobstore.Blob, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	if _, able := s.inner.(blobstore.Opener); able {
		data, hit, err := s.look(ctx, ref)
		if hit {
			s.served(ctx, true, err)
		}
		if err != nil {
			return nil, err
		}
		if hit {
			return reader{bytes.NewReader(data)}, nil
		}
	}
	b, err := blobstore.Open(ctx, s.inner, ref)
	s.served(ctx, false, err)
	return b, err
}

// reader hides the methods of bytes.Reader that would hand out the slice that is
// kept (WriteTo passes it to a foreign Write).
type reader struct{ r *bytes.Reader }

func (r reader) Read(p []byte) (int, error)                   { return r.r.Read(p) }
func (r reader) ReadAt(p []byte, off int64) (int, error)      { return r.r.ReadAt(p, off) }
func (r reader) Seek(offset int64, whence int) (int64, error) { return r.r.Seek(offset, whence) }
func (r reader) Size() int64                                  { return r.r.Size() }
func (reader) Close() error                                   { return nil }

// GetRange returns a part of the blob, from memory if it is kept.
func (s *Store) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) (_ []byte, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	if off < 0 || n < 0 {
		return nil, fmt.Errorf("getting %d bytes at %d of %s: negative range", n, off, ref)
	}
	if _, able := s.inner.(blobstore.RangeReader); able {
		data, hit, err := s.look(ctx, ref)
		if hit {
			s.served(ctx, true, err)
		}
		if err != nil {
			return nil, err
		}
		if hit {
			size := int64(len(data))
			off = min(off, size)
			return copyOf(data[off : off+min(n, size-off)]), nil
		}
	}
	data, err := blobstore.GetRange(ctx, s.inner, ref, off, n)
	s.served(ctx, false, err)
	return data, err
}
