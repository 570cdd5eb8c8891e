package stacks_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/faultstore"
)

// TestBytesThatWereDamagedOnTheirWayAreNotKeptForEver gets a blob on another machine
// when the remote hands out damaged bytes once. Below the layer that encrypts nobody
// can tell that they are.
func TestBytesThatWereDamagedOnTheirWayAreNotKeptForEver(t *testing.T) {
	p := parts{t: t}
	far := p.memory(opaque)
	data := bytes.Repeat([]byte("bytes"), 1000)
	ref := blobref.Of(data)
	here := p.all(p.memory(opaque), far)
	if err := here.Set(t.Context(), ref, data); err != nil {
		t.Fatal(err)
	}
	if err := here.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}

	way := faultstore.New(far)
	there := p.all(p.memory(opaque), way)
	if _, err := there.Get(t.Context(), blobref.Of([]byte("another"))); err == nil {
		t.Fatal("it is not there") // the marker of the store has been fetched by now
	}
	way.Plan(faultstore.First(1, faultstore.Fault{Damage: faultstore.FlipBit}, faultstore.Get))
	if got, err := there.Get(t.Context(), ref); err == nil && !bytes.Equal(got, data) {
		t.Fatalf("Get returned %d wrong bytes", len(got))
	}
	if got, err := there.Get(t.Context(), ref); err != nil || !bytes.Equal(got, data) {
		t.Errorf("Get = %d bytes, %v; the remote has the right ones", len(got), err)
	}
}

// TestADamagedCopyIsHealedByWhatTheRemoteHas flips a bit of the ciphertext on this
// machine: reading the blob, in whichever way, brings the right bytes back from the
// remote.
func TestADamagedCopyIsHealedByWhatTheRemoteHas(t *testing.T) {
	p := parts{t: t}
	near, far := p.memory(opaque), p.memory(opaque)
	data := bytes.Repeat([]byte("bytes"), 1000)
	ref := blobref.Of(data)
	store := p.encrypted(p.writethrough(near, p.retry(far)))
	if err := errors.Join(store.Set(t.Context(), ref, data), store.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func() ([]byte, error){
		"Get": func() ([]byte, error) { return store.Get(t.Context(), ref) },
		"Open": func() ([]byte, error) {
			b, err := blobstore.Open(t.Context(), store, ref)
			if err != nil {
				return nil, err
			}
			defer b.Close()
			return io.ReadAll(b)
		},
		"GetRange": func() ([]byte, error) {
			return blobstore.GetRange(t.Context(), store, ref, 0, int64(len(data)))
		},
	} {
		for what, damage := range map[string]func([]byte) []byte{"a flipped bit": faultstore.FlipBit, "half of it": faultstore.CutOff} {
			sealed, err := near.Get(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			if err := near.Set(t.Context(), ref, damage(bytes.Clone(sealed))); err != nil {
				t.Fatal(err)
			}
			if got, err := read(); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s after %s = %d bytes, %v", name, what, len(got), err)
			}
			if healed, err := near.Get(t.Context(), ref); err != nil || !bytes.Equal(healed, sealed) {
				t.Errorf("the copy on this machine is not healed after %s (%v)", what, err)
			}
		}
	}

	// Where both are damaged there is nothing to heal with, and it is said.
	for _, s := range []blobstore.Store{near, far} {
		if err := s.Set(t.Context(), ref, []byte("noise")); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := store.Get(t.Context(), ref); !errors.Is(err, blobstore.ErrCorrupt) {
		t.Errorf("Get = %d bytes, %v; want ErrCorrupt", len(got), err)
	}
}
