package encrypted

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Rotation counts what Rotate did.
type Rotation struct {
	Seen        int   // blobs, without the marker
	Rewrapped   int   // data keys put under the newest passphrase; the contents are as they were
	Reencrypted int   // blobs of the other form, or of an older passphrase in the seed's form
	Moved       int   // of these, and of others, blobs that have another id below now
	Failed      int   // blobs that are as they were
	Bytes       int64 // written to the store below
}

// maxReported is how many errors of single blobs Rotate returns. Failed counts all.
const maxReported = 20

// rewriteInMemory is the longest blob that Rotate rewrites in memory.
const rewriteInMemory = 8 << 20

// Rotate rewrites what is not as this store would write it: blobs under older
// passphrases, in the other form, or under plain ids where they are keyed. Of blobs in our
// own form only the header changes. Then the marker forgets the older passphrases, unless
// a blob failed, and they may go from the keyring. The errors of single blobs are joined
// in the one that is returned, and the others go on.
//
// It may be killed at any moment and called again: what is as it should be is left as it
// is, for the price of reading its header (in the seed's form, of reading it). Readers and
// writers go on meanwhile, in this process and others. Where another process deletes a
// blob at the very moment in which it is rewritten, it comes back; and in mode Opaque,
// where one process replaces what an id holds, no other may Rotate.
//
// progress, unless it is nil, is called after each blob with the counts so far.
func (s *Store) Rotate(ctx context.Context, progress func(Rotation)) (Rotation, error) {
	var done Rotation
	var failed []error
	err := s.rotate(ctx, &done, func(id blobref.Ref, err error) {
		if err != nil {
			if done.Failed++; len(failed) < maxReported {
				failed = append(failed, fmt.Errorf("rotating %s: %w", id, err))
			}
		}
		if progress != nil {
			progress(done)
		}
	})
	if err != nil {
		return done, fmt.Errorf("rotating the keys of a blob store: %w", errors.Join(append(failed, err)...))
	}
	return done, errors.Join(failed...)
}

func (s *Store) rotate(ctx context.Context, done *Rotation, report func(blobref.Ref, error)) error {
	s.state.Store(nil) // what the marker says by now counts
	st, err := s.ready(ctx, true)
	if err != nil {
		return err
	}
	for info, err := range blobstore.Walk(ctx, s.inner) {
		switch {
		case isMarker(info.Ref):
			continue
		case err != nil && info.Ref.IsZero():
			return err
		}
		done.Seen++
		if err == nil {
			err = s.rotateBlob(ctx, st, info, done)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, blobstore.ErrNotFound) {
			err = nil // deleted meanwhile
		}
		report(info.Ref, err)
	}
	if err := ctx.Err(); err != nil || done.Failed > 0 {
		return err
	}
	return s.forget(ctx, st)
}

func (s *Store) rotateBlob(ctx context.Context, st *state, info blobstore.Info, done *Rotation) error {
	id := info.Ref
	if err := s.writing.acquire(ctx, id); err != nil {
		return err
	}
	defer s.writing.release(id)
	head, err := s.head(ctx, id)
	if err != nil {
		return err
	}
	toSeed := s.opts.Form == Seed && !st.ids.keyed
	if !IsEncrypted(head) {
		return s.rotateSeed(ctx, st, id, toSeed, done)
	}
	h, err := parseHeader(head)
	if err != nil {
		return err
	}
	current := !toSeed && h.keyID == st.writer.id && h.salted == st.writer.salted
	if current && !st.ids.keyed {
		return nil
	}
	c, err := h.open(ctx, s)
	if err != nil {
		return err
	}
	ids, _ := st.stored(c.id)
	if current && ids[0] == id {
		return nil
	}
	return s.refile(ctx, id, ids[0], done, func() error {
		if toSeed {
			return s.reencrypt(ctx, st, c.id, id, ids[0], done)
		}
		return s.rewrap(ctx, st, h, c, id, ids[0], info.Size, done)
	})
}

// refile has rewrite store a blob, which is under from, under to.
func (s *Store) refile(ctx context.Context, from, to blobref.Ref, done *Rotation, rewrite func() error) error {
	if from == to {
		return rewrite()
	}
	if err := s.writing.acquire(ctx, to); err != nil {
		return err
	}
	defer s.writing.release(to)
	// Where it was stored again since it is left as it is: that may be newer.
	if !s.holds(ctx, to) {
		if err := rewrite(); err != nil {
			return err
		}
	}
	if err := blobstore.Delete(ctx, s.inner, from); err != nil && !errors.Is(err, blobstore.ErrNotFound) {
		return err
	}
	done.Moved++
	return nil
}

// rotateSeed rewrites a blob in the seed's form, which is stored under the id of its
// plaintext.
func (s *Store) rotateSeed(ctx context.Context, st *state, id blobref.Ref, toSeed bool, done *Rotation) error {
	if toSeed {
		sealed, err := s.inner.Get(ctx, id)
		if err != nil {
			return err
		}
		if _, key, err := s.keys.openSeed(bytes.Clone(sealed)); err == nil && key == 0 {
			return nil
		}
	}
	ids, _ := st.stored(id)
	return s.refile(ctx, id, ids[0], done, func() error { return s.reencrypt(ctx, st, id, id, ids[0], done) })
}

// holds reports whether a blob that a passphrase opens is stored under id.
func (s *Store) holds(ctx context.Context, id blobref.Ref) bool {
	head, err := s.head(ctx, id)
	if err != nil {
		return false
	}
	h, err := parseHeader(head)
	if err != nil {
		return false
	}
	_, err = h.open(ctx, s)
	return err == nil
}

// reencrypt decrypts the blob ref, which is stored under from, and stores it anew under
// to.
func (s *Store) reencrypt(ctx context.Context, st *state, ref, from, to blobref.Ref, done *Rotation) error {
	sealed, err := s.inner.Get(ctx, from)
	if err != nil {
		return err
	}
	plain, err := s.open(ctx, ref, sealed)
	if err != nil {
		return err
	}
	again := s.seal(st, ref, plain)
	if err := s.inner.Set(ctx, to, again); err != nil {
		return err
	}
	done.Reencrypted++
	done.Bytes += int64(len(again))
	return nil
}

// rewrap stores the blob again with its data key under the newest passphrase. The chunks
// do not know the difference.
func (s *Store) rewrap(ctx context.Context, st *state, h *header, c contents, from, to blobref.Ref, size int64, done *Rotation) error {
	dataKey, err := h.unwrap(ctx, s)
	if err != nil {
		return err
	}
	next := h.raw
	wrap(next[:], st.writer, dataKey)
	replace := s.replaceHeader
	if size > rewriteInMemory && s.streams() {
		replace = s.streamHeader
	}
	if err := replace(ctx, c, from, to, h.raw[:], next[:]); err != nil {
		return err
	}
	done.Rewrapped++
	done.Bytes += c.sealedSize()
	return nil
}

func (s *Store) replaceHeader(ctx context.Context, c contents, from, to blobref.Ref, old, next []byte) error {
	sealed, err := s.inner.Get(ctx, from)
	if err != nil {
		return err
	}
	if err := c.complete(int64(len(sealed))); err != nil {
		return err
	}
	if !bytes.HasPrefix(sealed, old) {
		return errReplaced
	}
	copy(sealed, next)
	return s.inner.Set(ctx, to, sealed)
}

func (s *Store) streamHeader(ctx context.Context, c contents, from, to blobref.Ref, old, next []byte) error {
	b, err := blobstore.Open(ctx, s.inner, from)
	if errors.Is(err, blobstore.ErrUnsupported) {
		return s.replaceHeader(ctx, c, from, to, old, next)
	}
	if err != nil {
		return err
	}
	defer b.Close()
	if err := c.complete(b.Size()); err != nil {
		return err
	}
	head, err := readUpTo(b, make([]byte, headerSize), 0)
	if err != nil {
		return err
	}
	if !bytes.Equal(head, old) {
		return errReplaced
	}
	chunks := io.NewSectionReader(b, headerSize, b.Size()-headerSize)
	return blobstore.SetStream(ctx, s.inner, to, io.MultiReader(bytes.NewReader(next), chunks), b.Size())
}

// errReplaced says that a blob was stored again between two looks. Whoever did that had
// a passphrase: another Rotate sees whether it was the newest.
var errReplaced = errors.New("the blob was replaced meanwhile; rotate once more")

// forget takes the passphrases from the marker that nothing needs any more: those that
// had a slot when the rotation began, under st. Where ids were mixed they are keyed from
// here on.
func (s *Store) forget(ctx context.Context, st *state) error {
	if err := s.marker.acquire(ctx); err != nil {
		return err
	}
	defer s.marker.release()
	now, err := s.readMarker(ctx)
	if err != nil {
		return err
	}
	if now == nil || now.ids != st.ids {
		return nil // others are at it: the next rotation will do
	}
	next := &marker{ids: idScheme{keyed: st.ids.keyed}}
	next.slots = append(next.slots, newSlot(st.writer, next.ids, st.idKey))
	for _, slot := range now.marker.slots {
		if st.marker.has(slot.id) {
			continue
		}
		// It came while this went on.
		w, err := s.keys.find(ctx, slot.salted, slot.id)
		if errors.Is(err, ErrWrongKey) {
			return nil // it could not be kept
		}
		if err != nil {
			return err
		}
		next.slots = append(next.slots, newSlot(w, next.ids, st.idKey))
	}
	if next.ids == now.ids && len(next.slots) == len(now.marker.slots) {
		return nil
	}
	s.state.Store(nil)
	return s.writeMarker(ctx, next)
}

func (m *marker) has(id keyID) bool {
	return slices.ContainsFunc(m.slots, func(s slot) bool { return s.id == id })
}
