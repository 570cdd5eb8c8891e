package encrypted

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentrun/agentrun/blobstore"
)

const (
	maxMarker = 64 << 10 // bytes
	maxSlots  = maxPassphrases
	idKeySize = 32
)

// marker is what a store says about itself: see "The marker" in the package comment.
type marker struct {
	ids   idScheme
	slots []slot
}

// idScheme says how plaintext ids become ids of the store below.
type idScheme struct {
	keyed bool
	mixed bool // blobs from before the ids were keyed may be there
}

// slot is one passphrase that opens the store.
type slot struct {
	salted
	id     keyID
	sealed []byte // nonce, and the id key under the wrapper; nothing but a tag where ids are not keyed
}

// markerJSON is the marker as it is written, after a line that is the magic.
type markerJSON struct {
	Note    string     `json:"note"`
	Version int        `json:"version"`
	IDs     string     `json:"ids"` // plain, keyed, or mixed
	Slots   []slotJSON `json:"slots"`
}

type slotJSON struct {
	KDF       string `json:"kdf"`
	Time      uint8  `json:"time"`
	Threads   uint8  `json:"threads"`
	MemoryKiB uint32 `json:"memory_kib"`
	Salt      string `json:"salt"`
	KeyID     string `json:"key_id"`
	Sealed    string `json:"sealed"`
}

const (
	markerNote = "The blobs beside this one are encrypted by agentrun. Their passphrase opens them; without it nothing does."
	kdfName    = "argon2id"
)

func (s idScheme) String() string {
	switch {
	case s.mixed:
		return "mixed"
	case s.keyed:
		return "keyed"
	}
	return "plain"
}

func (m *marker) encode() []byte {
	out := markerJSON{Note: markerNote, Version: version1, IDs: m.ids.String()}
	for _, s := range m.slots {
		out.Slots = append(out.Slots, slotJSON{
			KDF: kdfName, Time: s.kdf.Time, Threads: s.kdf.Threads, MemoryKiB: s.kdf.MemoryKiB,
			Salt: hex.EncodeToString(s.salt[:]), KeyID: hex.EncodeToString(s.id[:]), Sealed: hex.EncodeToString(s.sealed),
		})
	}
	text, err := json.MarshalIndent(out, "", "\t")
	if err != nil {
		panic("encrypted: " + err.Error()) // strings and numbers
	}
	return append(append([]byte(blobstore.EncryptedMagic), text...), '\n')
}

// parseMarker is the one judge of what is found under the id of a marker. Its error
// matches ErrTampered, or blobstore.ErrUnsupported for a newer version.
func parseMarker(data []byte) (*marker, error) {
	text, ok := bytes.CutPrefix(data, []byte(blobstore.EncryptedMagic))
	if !ok || len(data) > maxMarker {
		return nil, fmt.Errorf("%w: its marker is none", ErrTampered)
	}
	var in markerJSON
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, fmt.Errorf("%w: its marker: %w", ErrTampered, err)
	}
	if in.Version != version1 {
		return nil, fmt.Errorf("%w: the marker of the store is version %d, and this program knows version %d", blobstore.ErrUnsupported, in.Version, version1)
	}
	m := new(marker)
	switch in.IDs {
	case "plain":
	case "keyed":
		m.ids.keyed = true
	case "mixed":
		m.ids = idScheme{keyed: true, mixed: true}
	default:
		return nil, fmt.Errorf("%w: its marker says that ids are %.20q", ErrTampered, in.IDs)
	}
	if len(in.Slots) == 0 || len(in.Slots) > maxSlots {
		return nil, fmt.Errorf("%w: its marker has %d slots", ErrTampered, len(in.Slots))
	}
	for i, js := range in.Slots {
		s, err := js.parse(m.ids)
		if err != nil {
			return nil, fmt.Errorf("%w: slot %d of its marker: %w", ErrTampered, i+1, err)
		}
		m.slots = append(m.slots, s)
	}
	return m, nil
}

func (js slotJSON) parse(ids idScheme) (slot, error) {
	s := slot{salted: salted{kdf: KDF{Time: js.Time, Threads: js.Threads, MemoryKiB: js.MemoryKiB}}}
	if js.KDF != kdfName {
		return slot{}, fmt.Errorf("%.20q is no way from a passphrase to a key that is known here", js.KDF)
	}
	if err := s.kdf.validate(); err != nil {
		return slot{}, err
	}
	want := nonceSize + tagSize
	if ids.keyed {
		want += idKeySize
	}
	salt, err1 := hex.DecodeString(js.Salt)
	id, err2 := hex.DecodeString(js.KeyID)
	sealed, err3 := hex.DecodeString(js.Sealed)
	if err := errors.Join(err1, err2, err3); err != nil {
		return slot{}, err
	}
	if len(salt) != saltSize || len(id) != keyIDSize || len(sealed) != want {
		return slot{}, errors.New("a length is wrong")
	}
	s.salt, s.id, s.sealed = [saltSize]byte(salt), keyID(id), sealed
	return s, nil
}

// slotAD binds a slot to how the store uses ids, so that nobody without a passphrase
// turns keyed ids off.
func slotAD(ids idScheme, w *wrapper) []byte {
	return fmt.Appendf(nil, "agentrun marker 1 %v %s %d %d %d %x %x", ids, kdfName, w.kdf.Time, w.kdf.Threads, w.kdf.MemoryKiB, w.salt, w.id)
}

// newSlot seals the id key, empty where ids are not keyed, under w.
func newSlot(w *wrapper, ids idScheme, idKey []byte) slot {
	nonce := make([]byte, nonceSize, nonceSize+idKeySize+tagSize)
	_, _ = rand.Read(nonce) // never fails
	return slot{salted: w.salted, id: w.id, sealed: w.aead.Seal(nonce, nonce, idKey, slotAD(ids, w))}
}

// open returns the id key.
func (s *slot) open(w *wrapper, ids idScheme) ([]byte, error) {
	idKey, err := w.aead.Open(nil, s.sealed[:nonceSize], s.sealed[nonceSize:], slotAD(ids, w))
	if err != nil {
		return nil, fmt.Errorf("%w: its marker", ErrTampered)
	}
	return idKey, nil
}

// describe names the slots for an error, without a secret.
func (m *marker) describe() string {
	var ids []string
	for _, s := range m.slots {
		ids = append(ids, hex.EncodeToString(s.id[:4]))
	}
	return strings.Join(ids, ", ")
}
