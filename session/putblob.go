package session

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/agentrun/agentrun/blobref"
)

// PutBlob stores what r yields from its beginning on, in bounded memory, and returns
// its reference and length. It is for content that an entry to be appended to this
// Session names: no collector takes it before the Session is closed, and with
// Options.Durability Sync it survives power loss. A quota may refuse it.
func (s *Session) PutBlob(ctx context.Context, r io.ReadSeeker) (blobref.Ref, int64, error) {
	ref, n, err := s.putStream(ctx, r)
	var no *refusal
	if errors.As(err, &no) {
		err = no.err
	}
	if err != nil {
		return blobref.Ref{}, 0, fmt.Errorf("storing a blob for %s: %w", s.Path(), err)
	}
	return ref, n, nil
}

// PutBytes is PutBlob for what is in memory.
func (s *Session) PutBytes(ctx context.Context, data []byte) (blobref.Ref, error) {
	ref, err := s.putBytes(ctx, data)
	var no *refusal
	if errors.As(err, &no) {
		err = no.err
	}
	if err != nil {
		return blobref.Ref{}, fmt.Errorf("storing a blob for %s: %w", s.Path(), err)
	}
	return ref, nil
}

func (s *Session) putBytes(ctx context.Context, data []byte) (blobref.Ref, error) {
	if err := s.writable(ctx); err != nil {
		return blobref.Ref{}, err
	}
	if s.quota != nil {
		return s.admitBlob(ctx, data)
	}
	return s.putBlob(ctx, data)
}

func (s *Session) putStream(ctx context.Context, r io.ReadSeeker) (blobref.Ref, int64, error) {
	if err := s.writable(ctx); err != nil {
		return blobref.Ref{}, 0, err
	}
	if s.quota != nil {
		return s.admitStream(ctx, r)
	}
	return s.storeStream(ctx, r)
}

func (s *Session) storeStream(ctx context.Context, r io.ReadSeeker) (blobref.Ref, int64, error) {
	if err := s.prepareHome(); err != nil {
		return blobref.Ref{}, 0, err
	}
	if err := s.pin(); err != nil {
		return blobref.Ref{}, 0, err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return blobref.Ref{}, 0, err
	}
	ref, n, err := s.blobs.Put(ctx, r)
	if err != nil {
		return blobref.Ref{}, 0, err
	}
	return ref, n, s.registerBlob(ctx, ref)
}

// admitStream is admitBlob for a stream: it is read once more, to know what it is.
func (s *Session) admitStream(ctx context.Context, r io.ReadSeeker) (blobref.Ref, int64, error) {
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return blobref.Ref{}, 0, err
	}
	h := sha256.New()
	size, err := io.Copy(h, r)
	if err != nil {
		return blobref.Ref{}, 0, err
	}
	var digest [sha256.Size]byte
	h.Sum(digest[:0])
	ref := blobref.FromSum(digest)
	c := &s.cited
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.readCitations(ctx); err != nil {
		return blobref.Ref{}, 0, err
	}
	if !c.refs[ref] {
		_, stored := s.blobSize(ctx, ref)
		if err := s.quota.Blob(c.bytes, size, !stored); err != nil {
			return blobref.Ref{}, 0, &refusal{err}
		}
	}
	// A stream that changed meanwhile counts as what it is now.
	got, n, err := s.storeStream(ctx, r)
	if err == nil && !c.refs[got] {
		c.refs[got], c.bytes = true, c.bytes+n
	}
	return got, n, err
}
