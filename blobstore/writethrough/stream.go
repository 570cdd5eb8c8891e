package writethrough

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// openLarge opens a blob of a store that is worth streaming. It returns nil for one that
// is small, or whose store cannot stream.
func (s *Store) openLarge(ctx context.Context, from blobstore.Store, ref blobref.Ref) (blobstore.Blob, error) {
	if _, ok := from.(blobstore.Opener); !ok {
		return nil, nil
	}
	if info, err := blobstore.Stat(ctx, from, ref); err != nil || info.Size <= s.opts.StreamOver {
		return nil, nil
	}
	b, err := blobstore.Open(ctx, from, ref)
	if errors.Is(err, blobstore.ErrUnsupported) {
		return nil, nil
	}
	return b, err
}

// storeStream stores an open blob, by whichever way the other store has. In mode Opaque
// that is SetStream alone, for the id is no hash.
func (s *Store) storeStream(ctx context.Context, to blobstore.Store, ref blobref.Ref, r io.ReadSeeker, size int64) (stored bool, err error) {
	err = blobstore.SetStream(ctx, to, ref, r, size)
	if err == nil || !errors.Is(err, blobstore.ErrUnsupported) {
		return err == nil, err
	}
	if s.mode == blobstore.Opaque {
		return false, nil
	}
	// Bytes are stored under their own hash: a stream that is not what was asked for
	// becomes another blob, which nobody asks for.
	got, _, err := blobstore.PutStream(ctx, to, r)
	switch {
	case errors.Is(err, blobstore.ErrUnsupported):
		return false, nil
	case err != nil:
		return false, err
	case got != ref:
		return false, fmt.Errorf("%w: they are %s", blobstore.ErrMismatch, got)
	}
	return true, nil
}

// uploadStream sends a large blob where both stores can stream.
func (s *Store) uploadStream(ctx context.Context, ref blobref.Ref) (sent bool, err error) {
	b, err := s.openLarge(ctx, s.local, ref)
	if b == nil || err != nil {
		return false, err
	}
	defer b.Close()
	return s.storeStream(ctx, s.remote, ref, struct{ io.ReadSeeker }{b}, b.Size())
}

// errOutdated means that a blob was stored or deleted while it was fetched. Who waits
// for it looks again.
var errOutdated = errors.New("the blob was stored or deleted while it was fetched")

// fetchStream brings a large blob where both stores can stream.
func (s *Store) fetchStream(ctx context.Context, ref blobref.Ref, call *fetchCall) (bool, error) {
	b, err := s.openLarge(ctx, s.remote, ref)
	if b == nil || err != nil {
		return false, err
	}
	defer b.Close()
	if s.mode == blobstore.Opaque {
		// What is stored meanwhile must not be replaced by what comes now. Others
		// end this before they wait for the locks.
		if err := s.fetchs.hold(call); err != nil {
			return false, err
		}
		unlock, err := s.refs.lock(ctx, ref)
		if err != nil {
			return false, err
		}
		defer unlock()
		if !s.fetchs.keeping.TryLock() {
			return false, nil // somebody stores a blob, which may be this one
		}
		defer s.fetchs.keeping.Unlock()
	}
	stored, err := s.storeStream(ctx, s.local, ref, fetchReader{b, s, call}, b.Size())
	if errors.Is(err, blobstore.ErrMismatch) {
		return false, fmt.Errorf("getting %s from the remote store: %w: %w", ref, blobstore.ErrCorrupt, err)
	}
	return stored, err
}

// fetchReader ends when the fetch is outdated.
type fetchReader struct {
	io.ReadSeeker
	store *Store
	call  *fetchCall
}

func (r fetchReader) Read(p []byte) (int, error) {
	if r.store.fetchs.isOutdated(r.call) {
		return 0, errOutdated
	}
	return r.ReadSeeker.Read(p)
}

// Put stores what r yields here and queues it for the remote.
func (s *Store) Put(ctx context.Context, r io.Reader) (_ blobref.Ref, n int64, err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	ref, err := s.putAndQueue(ctx, func() (ref blobref.Ref, err error) {
		ref, n, err = blobstore.PutStream(ctx, s.local, r)
		return ref, err
	})
	if err != nil {
		return blobref.Ref{}, 0, err
	}
	return ref, n, nil
}

// SetStream stores the size bytes that r yields here and queues them for the remote.
func (s *Store) SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) (err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	store := func() error { return blobstore.SetStream(ctx, s.local, ref, r, size) }
	if s.mode == blobstore.Verified {
		// A stream may be slow, and holds up nobody: its bytes are those that any
		// other call would store.
		_, err := s.putAndQueue(ctx, func() (blobref.Ref, error) { return ref, store() })
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	err = s.change(ctx, ref, func() error {
		if err := store(); err != nil {
			return err
		}
		return s.enqueue(ctx, ref)
	})
	if err != nil {
		return err
	}
	return s.waitForRoom(ctx, ref)
}

// bytesBlob is a blob in memory.
type bytesBlob struct{ *bytes.Reader }

func (bytesBlob) Close() error { return nil }

// WriteTo copies: that of bytes.Reader hands out its slice.
func (b bytesBlob) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{b.Reader})
}
