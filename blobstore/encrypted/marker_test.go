package encrypted_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/memory"
)

func TestKeyedIDsHidePlaintextIDs(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	keys := ring(t, "pass")
	s := open(t, below, keys, encrypted.Options{KeyedIDs: true})
	blobs := fill(t, s, 0, 20)
	asked := &listening{Store: below}
	other := open(t, asked, keys, encrypted.Options{}) // which learns of keyed ids from the marker
	holds(t, other, blobs)
	if _, err := other.Get(t.Context(), blobref.Of([]byte("absent"))); !errors.Is(err, blobstore.ErrNotFound) {
		t.Fatal(err)
	}
	put(t, other, []byte("another"))
	for ref := range blobs {
		if asked.wanted[ref] {
			t.Errorf("the store below was asked for %v", ref)
		}
		if _, err := below.Stat(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
			t.Errorf("the store below has %v: %v", ref, err)
		}
	}
	for _, text := range []string{"absent", "another"} {
		if asked.wanted[blobref.Of([]byte(text))] {
			t.Errorf("the store below was asked for the plain id of %q", text)
		}
	}
	// Another store has another key: equal plaintexts have unequal ids.
	second := open(t, memory.New(blobstore.Opaque), keys, encrypted.Options{KeyedIDs: true})
	if ref := blobref.Of(nil); storedAs(t, s, ref) == storedAs(t, second, ref) {
		t.Error("two stores use one id key")
	}
}

// listening remembers which ids it was asked for.
type listening struct {
	*memory.Store
	mu     sync.Mutex
	wanted map[blobref.Ref]bool
}

func (l *listening) note(ref blobref.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wanted == nil {
		l.wanted = make(map[blobref.Ref]bool)
	}
	l.wanted[ref] = true
}

func (l *listening) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	l.note(ref)
	return l.Store.Get(ctx, ref)
}

func (l *listening) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) ([]byte, error) {
	l.note(ref)
	return l.Store.GetRange(ctx, ref, off, n)
}

func (l *listening) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	l.note(ref)
	return l.Store.Set(ctx, ref, data)
}

func TestTheIDKeySurvivesEveryRotation(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	s := open(t, below, ring(t, "1"), encrypted.Options{KeyedIDs: true})
	blobs := fill(t, s, 0, 5)
	ref := blobref.Of(nil)
	id := storedAs(t, s, ref)
	for _, keys := range []*encrypted.Keyring{ring(t, "2", "1"), ring(t, "3", "2"), ring(t, "4", "3")} {
		s := open(t, below, keys, encrypted.Options{})
		if _, err := s.Rotate(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if got := storedAs(t, s, ref); got != id {
			t.Fatalf("the empty blob is stored as %v since a rotation, before as %v", got, id)
		}
	}
	holds(t, open(t, below, ring(t, "4"), encrypted.Options{}), blobs)
}

func TestADamagedMarkerIsReadFromItsSecondCopy(t *testing.T) {
	markers := blobstore.EncryptionMarkers()
	for name, damage := range map[string]func([]byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)/2] },
		"emptied": func([]byte) []byte { return nil },
		"flipped": func(b []byte) []byte { b[3] ^= 1; return b },
		"grown":   func(b []byte) []byte { return append(b, '}') },
		"another slot": func(b []byte) []byte {
			at := bytes.Index(b, []byte(`"sealed": "`)) + 20
			b[at] ^= 1
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			below := memory.New(blobstore.Opaque)
			keys := ring(t, "pass")
			blobs := fill(t, open(t, below, keys, encrypted.Options{KeyedIDs: true}), 0, 5)
			text, err := below.Get(t.Context(), markers[0])
			if err != nil {
				t.Fatal(err)
			}
			whole := bytes.Clone(text)
			if err := below.Set(t.Context(), markers[0], damage(text)); err != nil {
				t.Fatal(err)
			}
			s := open(t, below, keys, encrypted.Options{})
			holds(t, s, blobs)
			ref := put(t, s, []byte("more"))
			if healed, err := below.Get(t.Context(), markers[0]); err != nil || !bytes.Equal(healed, whole) {
				t.Errorf("the first copy was not mended by who wrote: %v", err)
			}
			// Both copies damaged: nothing is found, and nothing is said to be absent.
			if err := below.Set(t.Context(), markers[1], []byte("noise")); err != nil {
				t.Fatal(err)
			}
			if err := below.Set(t.Context(), markers[0], []byte("noise")); err != nil {
				t.Fatal(err)
			}
			s = open(t, below, keys, encrypted.Options{KeyedIDs: true})
			if _, err := s.Get(t.Context(), ref); !errors.Is(err, encrypted.ErrTampered) {
				t.Errorf("Get without a marker = %v, want ErrTampered", err)
			}
			if err := s.Set(t.Context(), ref, []byte("more")); !errors.Is(err, encrypted.ErrTampered) {
				t.Errorf("Set without a marker = %v, want ErrTampered", err)
			}
		})
	}
}

func TestNobodyWithoutAPassphraseTurnsKeyedIDsOff(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	keys := ring(t, "pass")
	put(t, open(t, below, keys, encrypted.Options{KeyedIDs: true}), []byte("data"))
	markers := blobstore.EncryptionMarkers()
	text, err := below.Get(t.Context(), markers[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, ids := range []string{"plain", "mixed"} {
		changed := bytes.Replace(text, []byte(`"keyed"`), []byte(`"`+ids+`"`), 1)
		if bytes.Equal(changed, text) {
			t.Fatal("the marker does not say that ids are keyed")
		}
		for _, id := range markers {
			if err := below.Set(t.Context(), id, changed); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := open(t, below, keys, encrypted.Options{}).Get(t.Context(), blobref.Of([]byte("data"))); !errors.Is(err, encrypted.ErrTampered) {
			t.Errorf("Get where the marker says %s = %v, want ErrTampered", ids, err)
		}
	}
}

func TestTheMarkerTellsPeopleWhatItIs(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	put(t, open(t, below, ring(t, "a secret passphrase"), encrypted.Options{}), []byte("data"))
	for _, id := range blobstore.EncryptionMarkers() {
		text, err := below.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if !encrypted.IsEncrypted(text) || !strings.Contains(string(text), "encrypted") || strings.Contains(string(text), "secret") {
			t.Errorf("the marker is\n%s", text)
		}
	}
}

func TestTheMarkerIsNoBlob(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	s := open(t, below, ring(t, "pass"), encrypted.Options{Mode: blobstore.Opaque})
	put(t, s, []byte("data"))
	for _, id := range blobstore.EncryptionMarkers() {
		if _, err := s.Get(t.Context(), id); !errors.Is(err, blobstore.ErrNotFound) {
			t.Errorf("Get = %v", err)
		}
		if err := s.Delete(t.Context(), id); !errors.Is(err, blobstore.ErrNotFound) {
			t.Errorf("Delete = %v", err)
		}
		if err := s.Set(t.Context(), id, []byte("other")); err == nil {
			t.Error("Set put a blob in the place of the marker")
		}
	}
	if _, err := open(t, below, ring(t, "pass"), encrypted.Options{}).Get(t.Context(), blobref.Of([]byte("absent"))); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("the marker is damaged: %v", err)
	}
}

func TestStoresThatAreMadeAtOnceAgreeOnOneKeyForIDs(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	s := open(t, below, ring(t, "pass"), encrypted.Options{KeyedIDs: true})
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			if _, err := blobstore.Put(context.Background(), s, random(100, byte(i))); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	for i := range 8 {
		if _, err := s.Get(t.Context(), blobref.Of(random(100, byte(i)))); err != nil {
			t.Error(err)
		}
	}
}

func TestAReaderFollowsWhenIDsBecomeKeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := memory.New(blobstore.Opaque)
		keys := ring(t, "pass")
		before := fill(t, open(t, below, keys, encrypted.Options{}), 0, 5)
		reader := open(t, below, keys, encrypted.Options{})
		holds(t, reader, before)
		keyed := open(t, below, keys, encrypted.Options{KeyedIDs: true})
		since := fill(t, keyed, 5, 10)
		if _, err := keyed.Rotate(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // after which a miss is reason enough to look at the marker
		for ref, data := range since {
			before[ref] = data
		}
		holds(t, reader, before)
	})
}

func TestALostMarkerOfKeyedIDsIsToldAndMended(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	keys := ring(t, "pass")
	blobs := fill(t, open(t, below, keys, encrypted.Options{KeyedIDs: true}), 0, 20)
	for _, id := range blobstore.EncryptionMarkers() {
		if err := below.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	for _, opts := range []encrypted.Options{{}, {KeyedIDs: true}} {
		s := open(t, below, keys, opts)
		for ref, data := range blobs {
			if _, err := s.Get(t.Context(), ref); !errors.Is(err, encrypted.ErrTampered) || errors.Is(err, blobstore.ErrNotFound) {
				t.Fatalf("Get = %v, want ErrTampered", err)
			}
			if err := s.Set(t.Context(), ref, data); !errors.Is(err, encrypted.ErrTampered) {
				t.Fatalf("Set = %v, want ErrTampered", err)
			}
		}
	}
	s := open(t, below, keys, encrypted.Options{KeyedIDs: true})
	if done, err := s.Rotate(t.Context(), nil); err != nil || done.Moved != len(blobs) {
		t.Fatalf("Rotate = %+v, %v", done, err)
	}
	holds(t, s, blobs)
	holds(t, open(t, below, keys, encrypted.Options{}), blobs)
}

func TestANewStoreWithKeyedIDsIsNeverAskedForAPlainOne(t *testing.T) {
	below := &listening{Store: memory.New(blobstore.Opaque)}
	s := open(t, below, ring(t, "pass"), encrypted.Options{KeyedIDs: true})
	ref := blobref.Of([]byte("data"))
	if _, err := s.Get(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
		t.Fatal(err)
	}
	put(t, s, []byte("data"))
	if _, err := s.Get(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if below.wanted[ref] {
		t.Error("the store below was asked for a plain id")
	}
}

func TestWhoReadFirstStillMakesTheMissingCopyBeforeItWrites(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	keys := ring(t, "pass")
	ref := put(t, open(t, below, keys, encrypted.Options{KeyedIDs: true}), []byte("data"))
	second := blobstore.EncryptionMarkers()[1]
	if err := below.Delete(t.Context(), second); err != nil { // as if its maker had died
		t.Fatal(err)
	}
	s := open(t, below, keys, encrypted.Options{})
	if _, err := s.Get(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	put(t, s, []byte("more"))
	if _, err := below.Get(t.Context(), second); err != nil {
		t.Errorf("the second copy: %v", err)
	}
}
