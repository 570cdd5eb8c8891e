package encrypted

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// state is what is known of the store below once its marker was opened. It never
// changes; another takes its place.
type state struct {
	marker *marker // nil where there is none
	twice  bool    // both copies were seen to be it

	ids   idScheme
	idKey []byte
	fits  bool // there is a marker, and every slot of it opens
	empty bool // there is no marker, ids are to be keyed, and nothing is there to ask for

	looked time.Time  // when
	opened []*wrapper // one for each slot that opens
	writer *wrapper   // of the newest passphrase; nil when it has no slot yet
}

// stored returns the ids under which the blob may be, the first being where it is
// stored from now on.
func (st *state) stored(ref blobref.Ref) (ids [3]blobref.Ref, n int) {
	switch {
	case st.empty:
		// What nobody has: that the store below cannot do what is asked of it shows
		// all the same.
		return [3]blobref.Ref{keyedID(newIDKey(idScheme{keyed: true}), ref)}, 1
	case !st.ids.keyed:
		return [3]blobref.Ref{ref}, 1
	}
	keyed := keyedID(st.idKey, ref)
	if !st.ids.mixed {
		return [3]blobref.Ref{keyed}, 1
	}
	// Rotate may move it from the second place to the first between the two looks.
	return [3]blobref.Ref{keyed, ref, keyed}, 3
}

// keyedID is the id under which a store with keyed ids keeps a blob.
func keyedID(idKey []byte, ref blobref.Ref) blobref.Ref {
	mac, sum := hmac.New(sha256.New, idKey), ref.Sum()
	mac.Write(sum[:])
	var id [idSize]byte
	mac.Sum(id[:0])
	return blobref.FromSum(id)
}

func isMarker(id blobref.Ref) bool {
	markers := blobstore.EncryptionMarkers()
	return id == markers[0] || id == markers[1]
}

// relook is how old what is known of the marker may be when a blob is not found:
// another process may have keyed the ids since.
const relook = time.Second

// look returns the state for reading. Where the store has no marker its ids are
// plain.
func (s *Store) look(ctx context.Context) (*state, error) {
	if st := s.state.Load(); st != nil {
		return st, nil
	}
	if err := s.marker.acquire(ctx); err != nil {
		return nil, err
	}
	defer s.marker.release()
	if st := s.state.Load(); st != nil {
		return st, nil
	}
	return s.lookAgain(ctx)
}

// lookAgain reads the marker. s.marker is held.
func (s *Store) lookAgain(ctx context.Context) (*state, error) {
	st, err := s.readMarker(ctx)
	if err != nil {
		return nil, err
	}
	if st == nil {
		// Plain ids are what keyed ones are to hide: there must be a reason to ask
		// for them.
		st = new(state)
		if !s.surveyed {
			holds, err := s.survey(ctx)
			if err != nil {
				return nil, err
			}
			s.surveyed, s.held = true, holds
		}
		st.empty = s.opts.KeyedIDs && !s.held
	}
	if old := s.state.Load(); old != nil && old.twice && st.marker != nil {
		st.twice = bytes.Equal(old.marker.encode(), st.marker.encode())
	}
	st.looked = time.Now()
	s.state.Store(st)
	return st, nil
}

// lookAnew returns a newer state than one under which a blob was not found, or nil
// where that one is new enough or the ids are still the same.
func (s *Store) lookAnew(ctx context.Context, old *state) (*state, error) {
	if time.Since(old.looked) < relook {
		return nil, nil
	}
	if err := s.marker.acquire(ctx); err != nil {
		return nil, err
	}
	defer s.marker.release()
	st := s.state.Load()
	if st == nil || st == old {
		var err error
		if st, err = s.lookAgain(ctx); err != nil {
			return nil, err
		}
	}
	if st.ids == old.ids && st.empty == old.empty && bytes.Equal(st.idKey, old.idKey) {
		return nil, nil
	}
	return st, nil
}

// good reports whether st will do for writing.
func (s *Store) good(st *state) bool {
	return st != nil && st.twice && st.writer != nil && (st.ids.keyed || !s.opts.KeyedIDs)
}

// ready returns the state for writing, in which writer is set. It makes the marker,
// or a slot in it for the newest passphrase, where there is none. With anew it makes one
// also where that of a store with keyed ids was lost.
func (s *Store) ready(ctx context.Context, anew bool) (*state, error) {
	if st := s.state.Load(); s.good(st) {
		return st, nil
	}
	if err := s.marker.acquire(ctx); err != nil {
		return nil, err
	}
	defer s.marker.release()
	if st := s.state.Load(); s.good(st) {
		return st, nil
	}
	// The first time round makes what is missing. The second reads what is there,
	// which another process may have put in its place meanwhile.
	for range 5 {
		st, err := s.readMarker(ctx)
		if err != nil {
			return nil, err
		}
		if st == nil {
			if err := s.makeMarker(ctx, anew); err != nil {
				return nil, err
			}
			continue
		}
		if st.twice, err = s.keptTwice(ctx, st.marker); err != nil {
			return nil, err
		}
		switch {
		case s.good(st):
			st.looked = time.Now()
			s.state.Store(st)
			return st, nil
		case !st.twice:
			err = s.writeMarker(ctx, st.marker)
		default:
			err = s.extendMarker(ctx, st)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.New("others keep changing the marker of the store")
}

// keptTwice reports whether both copies are what m says. Before they are no blob is
// stored: a blob under a keyed id must not depend on one copy.
func (s *Store) keptTwice(ctx context.Context, m *marker) (bool, error) {
	want := m.encode()
	for _, id := range blobstore.EncryptionMarkers() {
		data, err := s.inner.Get(ctx, id)
		if errors.Is(err, blobstore.ErrNotFound) || errors.Is(err, blobstore.ErrCorrupt) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("reading the marker of the store: %w", err)
		}
		if !bytes.Equal(data, want) {
			return false, nil
		}
	}
	return true, nil
}

// readMarker opens the marker, or its second copy where the first is damaged. It is nil
// where there is none, or one that was never completed.
func (s *Store) readMarker(ctx context.Context) (*state, error) {
	for i, id := range blobstore.EncryptionMarkers() {
		st, err := s.readCopy(ctx, id)
		switch {
		case err == nil:
			return st, nil
		case errors.Is(err, blobstore.ErrNotFound):
		case i == 0 && errors.Is(err, blobstore.ErrCorrupt):
		case i == 0 && errors.Is(err, ErrWrongKey):
			// Damage to a salt looks like this too.
			if st, serr := s.readCopy(ctx, blobstore.EncryptionMarkers()[1]); serr == nil {
				return st, nil
			}
			fallthrough
		default:
			return nil, fmt.Errorf("reading the marker of the store: %w", err)
		}
	}
	// A damaged first copy without a second one is a marker that was being made:
	// the second is written before any blob.
	return nil, nil
}

func (s *Store) readCopy(ctx context.Context, id blobref.Ref) (*state, error) {
	data, err := s.inner.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	m, err := parseMarker(data)
	if err != nil {
		return nil, err
	}
	return s.openMarker(ctx, m)
}

// openMarker opens what the passphrases open of a marker.
func (s *Store) openMarker(ctx context.Context, m *marker) (*state, error) {
	st := &state{marker: m, ids: m.ids, fits: true}
	for i := range m.slots {
		slot := &m.slots[i]
		w, err := s.keys.find(ctx, slot.salted, slot.id)
		if errors.Is(err, ErrWrongKey) {
			st.fits = false
			continue
		}
		if err != nil {
			return nil, err
		}
		idKey, err := slot.open(w, m.ids)
		if err != nil {
			return nil, err
		}
		if len(st.opened) > 0 && !bytes.Equal(idKey, st.idKey) {
			return nil, fmt.Errorf("%w: its marker has two keys for ids", ErrTampered)
		}
		st.idKey, st.opened = idKey, append(st.opened, w)
		if newest, err := s.keys.newest(ctx, slot.salted); err != nil {
			return nil, err
		} else if newest.id == w.id && st.writer == nil {
			st.writer = w
		}
	}
	if len(st.opened) == 0 {
		return nil, fmt.Errorf("%w (the store has slots for keys %s)", s.keys.wrongKey(), m.describe())
	}
	return st, nil
}

// wrapperOf returns the wrapper that a header asks for: nearly always one of the marker.
func (s *Store) wrapperOf(ctx context.Context, h *header) (*wrapper, error) {
	if st := s.state.Load(); st != nil {
		for _, w := range st.opened {
			if w.id == h.keyID && w.salted == h.salted {
				return w, nil
			}
		}
	}
	return s.keys.findForBlob(ctx, h.salted, h.keyID)
}

// passphrasesFit reports whether the marker is there and the passphrases open all of
// it, so that a blob that does not open was changed.
func (s *Store) passphrasesFit(ctx context.Context) (bool, error) {
	st, err := s.look(ctx)
	if errors.Is(err, ErrWrongKey) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return st.fits, nil
}

// newWriter derives the newest passphrase under a new salt.
func (s *Store) newWriter(ctx context.Context) (*wrapper, error) {
	fresh := salted{kdf: s.opts.KDF}
	_, _ = rand.Read(fresh.salt[:]) // never fails
	return s.keys.newest(ctx, fresh)
}

func newIDKey(ids idScheme) []byte {
	if !ids.keyed {
		return nil
	}
	key := make([]byte, idKeySize)
	_, _ = rand.Read(key) // never fails
	return key
}

// makeMarker writes the first marker of a store.
func (s *Store) makeMarker(ctx context.Context, anew bool) error {
	holds, err := s.survey(ctx)
	if err != nil && !(anew && errors.Is(err, ErrTampered)) {
		return err
	}
	w, err := s.newWriter(ctx)
	if err != nil {
		return err
	}
	ids := idScheme{keyed: s.opts.KeyedIDs, mixed: s.opts.KeyedIDs && holds}
	return s.placeMarker(ctx, &marker{ids: ids, slots: []slot{newSlot(w, ids, newIDKey(ids))}})
}

// placeMarker is writeMarker where no marker was found. Of many who make one at once, each
// with an id key of its own, one does, as far as the store below can tell who was first;
// the others find that one.
func (s *Store) placeMarker(ctx context.Context, m *marker) error {
	first := blobstore.EncryptionMarkers()[0]
	stored, err := blobstore.SetIfAbsent(ctx, s.inner, first, m.encode())
	switch {
	case errors.Is(err, blobstore.ErrUnsupported):
		return s.writeMarker(ctx, m)
	case err != nil:
		return fmt.Errorf("writing the marker of the store: %w", err)
	case !stored:
		if _, err := s.readCopy(ctx, first); !errors.Is(err, blobstore.ErrCorrupt) {
			return nil // that of another
		}
	}
	return s.writeMarker(ctx, m)
}

// surveyed is how many blobs a survey looks at.
const surveyed = 4

// survey looks at a store without a marker, and reports whether it holds blobs. A store
// below that cannot list is taken for empty: to ask it for plain ids, to be on the safe
// side, would tell it what keyed ids are to hide. Blobs that are filed under an id key
// are ErrTampered: their marker is lost, and nothing would be found.
func (s *Store) survey(ctx context.Context) (holds bool, err error) {
	seen := 0
	for info, err := range blobstore.Walk(ctx, s.inner) {
		switch {
		case errors.Is(err, blobstore.ErrUnsupported):
			return false, nil
		case err != nil && info.Ref.IsZero():
			return false, err
		case isMarker(info.Ref):
			continue
		case err == nil && s.keyedElsewhere(ctx, info.Ref):
			return true, fmt.Errorf("%w: its blobs have keyed ids, and its marker with the key is missing; bring %s back, or have Rotate file all blobs anew", ErrTampered, blobstore.EncryptionMarkers()[0].Hex())
		}
		if seen++; seen == surveyed {
			break
		}
	}
	return seen > 0, nil
}

// keyedElsewhere reports whether a blob is under another id than that of its plaintext.
func (s *Store) keyedElsewhere(ctx context.Context, id blobref.Ref) bool {
	head, err := s.head(ctx, id)
	if err != nil || !IsEncrypted(head) {
		return false
	}
	h, err := parseHeader(head)
	if err != nil {
		return false
	}
	c, err := h.open(ctx, s)
	return err == nil && c.id != id
}

// extendMarker adds a slot for the newest passphrase, and keyed ids where they are
// wanted. Slots that no passphrase opens are kept unless the ids change, which only
// a slot that opens can follow.
func (s *Store) extendMarker(ctx context.Context, st *state) error {
	m := st.marker
	next, idKey := &marker{ids: m.ids}, st.idKey
	if s.opts.KeyedIDs && !m.ids.keyed {
		holds, err := s.survey(ctx)
		if err != nil {
			return err
		}
		next.ids = idScheme{keyed: true, mixed: holds}
		idKey = newIDKey(next.ids)
	}
	writer := st.writer
	if writer == nil {
		var err error
		if writer, err = s.newWriter(ctx); err != nil {
			return err
		}
	}
	next.slots = append(next.slots, newSlot(writer, next.ids, idKey))
	for _, old := range m.slots {
		if old.id == writer.id || len(next.slots) == maxSlots {
			continue
		}
		if next.ids != m.ids {
			w, err := s.keys.find(ctx, old.salted, old.id)
			if errors.Is(err, ErrWrongKey) {
				continue
			}
			if err != nil {
				return err
			}
			old = newSlot(w, next.ids, idKey)
		}
		next.slots = append(next.slots, old)
	}
	return s.writeMarker(ctx, next)
}

// writeMarker writes both copies. The first is the one that counts, unless it is
// damaged.
func (s *Store) writeMarker(ctx context.Context, m *marker) error {
	data := m.encode()
	for _, id := range blobstore.EncryptionMarkers() {
		if err := s.inner.Set(ctx, id, data); err != nil {
			return fmt.Errorf("writing the marker of the store: %w", err)
		}
	}
	return nil
}
