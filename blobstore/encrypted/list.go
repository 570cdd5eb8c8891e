package encrypted

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Stat describes the blob. Size is that of the plaintext, as the length of the
// ciphertext has it; nothing is verified and no key is used.
func (s *Store) Stat(ctx context.Context, ref blobref.Ref) (blobstore.Info, error) {
	var info blobstore.Info
	err := ctx.Err()
	if err == nil {
		err = s.at(ctx, ref, func(id blobref.Ref) error {
			var err error
			if info, err = blobstore.Stat(ctx, s.inner, id); err != nil {
				return err
			}
			head, err := s.head(ctx, id)
			if err != nil {
				return err
			}
			info.Size, err = plainSize(head, info.Size)
			return err
		})
	}
	if err != nil {
		return blobstore.Info{}, fmt.Errorf("describing %s: %w", ref, err)
	}
	info.Ref = ref
	return info, nil
}

// head returns the first bytes of what is stored under id, at most a header.
func (s *Store) head(ctx context.Context, id blobref.Ref) ([]byte, error) {
	if r, ok := s.inner.(blobstore.RangeReader); ok {
		head, err := r.GetRange(ctx, id, 0, headerSize)
		if !errors.Is(err, blobstore.ErrUnsupported) {
			return head, err
		}
	}
	if o, ok := s.inner.(blobstore.Opener); ok {
		b, err := o.Open(ctx, id)
		if err == nil {
			defer b.Close()
			return readUpTo(b, make([]byte, headerSize), 0)
		}
		if !errors.Is(err, blobstore.ErrUnsupported) {
			return nil, err
		}
	}
	sealed, err := s.inner.Get(ctx, id)
	return sealed[:min(headerSize, len(sealed))], err
}

// readUpTo fills p from offset off, less where r ends before, which is no error.
func readUpTo(r io.ReaderAt, p []byte, off int64) ([]byte, error) {
	for n := 0; ; {
		m, err := r.ReadAt(p[n:], off+int64(n))
		if n += m; n == len(p) || err == io.EOF {
			return p[:n], nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// plainSize is the length of the plaintext of a blob that begins with head and is
// stored bytes long.
func plainSize(head []byte, stored int64) (int64, error) {
	if !IsEncrypted(head) {
		if stored < seedOverhead {
			return 0, ErrTruncated
		}
		return stored - seedOverhead, nil
	}
	h, err := parseHeader(head)
	if err != nil {
		return 0, err
	}
	sealedChunk := int64(1)<<h.chunkLog + tagSize
	chunks := (stored - headerSize + sealedChunk - 1) / sealedChunk
	size := stored - headerSize - chunks*tagSize
	if size < 0 || chunks < 1 {
		return 0, ErrTruncated
	}
	return size, nil
}

// Walk yields the blobs of the store below under the ids of their plaintext. Where ids
// are keyed the header of each blob is read for that, and Size is that of the
// plaintext; where they are plain Size is what the store below keeps, since a remote
// one would answer a request for each blob. The marker is passed over.
func (s *Store) Walk(ctx context.Context) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		st, err := s.look(ctx)
		if err != nil {
			yield(blobstore.Info{}, fmt.Errorf("listing blobs: %w", err))
			return
		}
		for info, err := range blobstore.Walk(ctx, s.inner) {
			if isMarker(info.Ref) {
				continue
			}
			if err == nil && st.ids.keyed {
				info, err = s.unkeyed(ctx, st, info)
				if st.ids.mixed && errors.Is(err, blobstore.ErrNotFound) {
					info, err = s.moved(ctx, st, info)
				}
				if errors.Is(err, blobstore.ErrNotFound) || errors.Is(err, errListedElsewhere) {
					continue // deleted meanwhile, or not the copy that counts
				}
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// unkeyed describes the blob that is stored under info.Ref by the id of its plaintext.
func (s *Store) unkeyed(ctx context.Context, st *state, info blobstore.Info) (blobstore.Info, error) {
	head, err := s.head(ctx, info.Ref)
	if err != nil {
		return info, err
	}
	if !IsEncrypted(head) {
		// The seed's form has plain ids only.
		if info.Size -= seedOverhead; !st.ids.mixed || info.Size < 0 {
			return info, fmt.Errorf("listing %s: %w", info.Ref, ErrTampered)
		}
		return info, nil
	}
	h, err := parseHeader(head)
	if err != nil {
		return info, fmt.Errorf("listing %s: %w", info.Ref, err)
	}
	c, err := h.open(ctx, s)
	if err != nil {
		return info, fmt.Errorf("listing %s: %w", info.Ref, err)
	}
	stored := info.Ref
	info.Ref, info.Size = c.id, c.size
	if stored == keyedID(st.idKey, c.id) {
		return info, nil
	}
	if !st.ids.mixed || stored != c.id {
		return info, fmt.Errorf("listing %s: it is stored as %s, where nobody looks for it; rotate the store to file it anew", c.id, stored)
	}
	// It may be there under its keyed id as well, which is then the one that counts.
	if _, err := s.head(ctx, keyedID(st.idKey, c.id)); err == nil {
		return info, errListedElsewhere
	}
	return info, nil
}

// errListedElsewhere says that a blob is listed under another of its places.
var errListedElsewhere = errors.New("listed elsewhere")

// moved describes a blob that was listed under its plain id and is not there any more: it
// was deleted, or Rotate has given it its keyed one.
func (s *Store) moved(ctx context.Context, st *state, info blobstore.Info) (blobstore.Info, error) {
	at := info
	at.Ref = keyedID(st.idKey, info.Ref)
	return s.unkeyed(ctx, st, at)
}

// Delete removes the blob, in all places where it may be.
func (s *Store) Delete(ctx context.Context, ref blobref.Ref) error {
	err := ctx.Err()
	if err == nil {
		err = s.delete(ctx, ref)
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", ref, err)
	}
	return nil
}

func (s *Store) delete(ctx context.Context, ref blobref.Ref) error {
	deleted := false
	err := s.at(ctx, ref, func(id blobref.Ref) error {
		if err := s.writing.acquire(ctx, id); err != nil {
			return err
		}
		defer s.writing.release(id) // Rotate would bring it back
		err := blobstore.Delete(ctx, s.inner, id)
		if err == nil {
			deleted = true
			return blobstore.ErrNotFound // go on to the next place
		}
		return err
	})
	if deleted && errors.Is(err, blobstore.ErrNotFound) {
		return nil
	}
	return err
}
