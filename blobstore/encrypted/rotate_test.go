package encrypted_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/memory"
)

func fill(t *testing.T, s blobstore.Store, from, to int) map[blobref.Ref][]byte {
	t.Helper()
	blobs := make(map[blobref.Ref][]byte)
	for i := from; i < to; i++ {
		data := random(i*700, 9)
		blobs[put(t, s, data)] = data
	}
	return blobs
}

func holds(t *testing.T, s blobstore.Store, blobs map[blobref.Ref][]byte) {
	t.Helper()
	for ref, want := range blobs {
		if got, err := s.Get(t.Context(), ref); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("Get of %d bytes = %d, %v", len(want), len(got), err)
		}
	}
	listed := make(map[blobref.Ref]bool)
	for info, err := range blobstore.Walk(t.Context(), s) {
		if err != nil || listed[info.Ref] {
			t.Fatalf("Walk yielded %v, %v (seen: %v)", info.Ref, err, listed[info.Ref])
		}
		listed[info.Ref] = true
	}
	if len(listed) != len(blobs) {
		t.Fatalf("Walk yielded %d blobs, want %d", len(listed), len(blobs))
	}
	for ref := range blobs {
		if !listed[ref] {
			t.Fatalf("Walk left out %v", ref)
		}
	}
}

func TestRotateLeavesNothingToTheOldPassphrase(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before encrypted.Options
		after  encrypted.Options
	}{
		{"own form", encrypted.Options{}, encrypted.Options{}},
		{"keyed ids", encrypted.Options{KeyedIDs: true}, encrypted.Options{KeyedIDs: true}},
		{"keyed ids that nobody asks for", encrypted.Options{KeyedIDs: true}, encrypted.Options{}},
		{"seed's form", encrypted.Options{Form: encrypted.Seed}, encrypted.Options{Form: encrypted.Seed}},
		{"seed's form to own", encrypted.Options{Form: encrypted.Seed}, encrypted.Options{}},
		{"own form to seed's", encrypted.Options{}, encrypted.Options{Form: encrypted.Seed}},
		{"plain ids to keyed", encrypted.Options{}, encrypted.Options{KeyedIDs: true}},
		{"seed's form to keyed", encrypted.Options{Form: encrypted.Seed}, encrypted.Options{KeyedIDs: true}},
		{"opaque", encrypted.Options{Mode: blobstore.Opaque}, encrypted.Options{Mode: blobstore.Opaque}},
		{"opaque, to keyed", encrypted.Options{Mode: blobstore.Opaque}, encrypted.Options{Mode: blobstore.Opaque, KeyedIDs: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			below := memory.New(blobstore.Opaque)
			blobs := fill(t, open(t, below, ring(t, "old"), tt.before), 0, 30)

			both := open(t, below, ring(t, "new", "old"), tt.after)
			maps.Copy(blobs, fill(t, both, 30, 40))
			holds(t, both, blobs)

			var last encrypted.Rotation
			calls := 0
			done, err := both.Rotate(t.Context(), func(r encrypted.Rotation) { last, calls = r, calls+1 })
			if err != nil {
				t.Fatal(err)
			}
			if done != last || calls != len(blobs) || done.Seen != len(blobs) || done.Failed != 0 || done.Rewrapped+done.Reencrypted < 30 {
				t.Errorf("Rotate = %+v, told %d times, last %+v", done, calls, last)
			}
			holds(t, both, blobs)
			holds(t, open(t, below, ring(t, "new"), tt.after), blobs)
			if _, err := open(t, below, ring(t, "old"), tt.after).Get(t.Context(), blobref.Of(nil)); !errors.Is(err, encrypted.ErrWrongKey) {
				t.Errorf("Get with the old passphrase = %v, want ErrWrongKey", err)
			}

			if again, err := both.Rotate(t.Context(), nil); err != nil || again.Bytes != 0 || again.Moved != 0 {
				t.Errorf("Rotate once more = %+v, %v; want nothing to do", again, err)
			}
			if tt.after.KeyedIDs {
				for ref := range blobs {
					if _, err := below.Stat(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
						t.Fatalf("%v is still there under its plain id: %v", ref, err)
					}
				}
			}
		})
	}
}

func TestRotateReportsWhatItCannotOpenAndKeepsTheOldPassphrase(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	s := open(t, below, ring(t, "old"), encrypted.Options{})
	blobs := fill(t, s, 1, 10)
	bad := put(t, s, []byte("to be damaged"))
	sealed := ciphertext(t, s, bad)
	sealed[40] ^= 1
	plant(t, s, bad, sealed)

	both := open(t, below, ring(t, "new", "old"), encrypted.Options{})
	done, err := both.Rotate(t.Context(), nil)
	if !errors.Is(err, encrypted.ErrTampered) || done.Failed != 1 || done.Rewrapped != len(blobs) {
		t.Fatalf("Rotate = %+v, %v", done, err)
	}
	// The old passphrase still opens the marker: somebody may need it.
	if _, err := open(t, below, ring(t, "old"), encrypted.Options{}).Get(t.Context(), blobref.Of([]byte("absent"))); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Get with the old passphrase = %v", err)
	}
	if err := both.Set(t.Context(), bad, []byte("to be damaged")); err != nil {
		t.Fatal(err)
	}
	if done, err := both.Rotate(t.Context(), nil); err != nil || done.Failed != 0 {
		t.Fatalf("Rotate after healing = %+v, %v", done, err)
	}
}

func TestRotateBesideReadersAndWriters(t *testing.T) {
	for _, mode := range []blobstore.Mode{blobstore.Verified, blobstore.Opaque} {
		t.Run(mode.String(), func(t *testing.T) {
			below := memory.New(blobstore.Opaque)
			opts := encrypted.Options{Mode: mode}
			old := open(t, below, ring(t, "old"), opts)
			blobs := fill(t, old, 1, 60)
			opts.KeyedIDs = true
			s := open(t, below, ring(t, "new", "old"), opts)
			if err := s.SetLocal(t.Context(), blobref.Of(nil), nil); err != nil { // makes ids keyed
				t.Fatal(err)
			}
			var work sync.WaitGroup
			stop := make(chan struct{})
			for range 2 {
				work.Go(func() {
					for {
						for ref, want := range blobs {
							got, err := s.Get(context.Background(), ref)
							if err != nil || !bytes.Equal(got, want) {
								t.Errorf("Get beside Rotate = %d bytes, %v", len(got), err)
								return
							}
							select {
							case <-stop:
								return
							default:
							}
						}
					}
				})
			}
			// A writer that replaces what an id holds: its last word counts.
			changing := blobref.Of([]byte("changing"))
			var latest []byte
			if mode == blobstore.Opaque {
				work.Go(func() {
					for i := 0; ; i++ {
						latest = random(100+i%50, byte(i))
						if err := s.Set(context.Background(), changing, latest); err != nil {
							t.Error(err)
							return
						}
						select {
						case <-stop:
							return
						default:
						}
					}
				})
			}
			for range 3 {
				if done, err := s.Rotate(t.Context(), nil); err != nil {
					t.Errorf("Rotate = %+v, %v", done, err)
				}
			}
			close(stop)
			work.Wait()
			if mode == blobstore.Opaque {
				if got, err := s.Get(t.Context(), changing); err != nil || !bytes.Equal(got, latest) {
					t.Errorf("Rotate put something old in the place of something new: %v", err)
				}
			}
			holdsAll := open(t, below, ring(t, "new"), opts)
			for ref, want := range blobs {
				if got, err := holdsAll.Get(t.Context(), ref); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("Get = %d bytes, %v", len(got), err)
				}
			}
		})
	}
}

func TestWhatWasStoredAgainSinceIsNotReplacedByWhatWasThereBefore(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	opts := encrypted.Options{Mode: blobstore.Opaque}
	id := blobref.Of([]byte("an id"))
	if err := open(t, below, ring(t, "pass"), opts).Set(t.Context(), id, []byte("before")); err != nil {
		t.Fatal(err)
	}
	opts.KeyedIDs = true
	s := open(t, below, ring(t, "pass"), opts)
	if err := s.Set(t.Context(), id, []byte("since")); err != nil { // under its keyed id
		t.Fatal(err)
	}
	if _, err := s.Rotate(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), id); err != nil || string(got) != "since" {
		t.Errorf("Get = %q, %v", got, err)
	}
}

// before calls do once, before the first Get of an id.
type before struct {
	*memory.Store
	id   blobref.Ref
	do   func()
	once sync.Once
}

func (b *before) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	if ref == b.id {
		b.once.Do(b.do)
	}
	return b.Store.Get(ctx, ref)
}

func TestABlobThatMovesBetweenTheLooksOfAReaderIsFound(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	keys := ring(t, "pass")
	ref := put(t, open(t, below, keys, encrypted.Options{}), []byte("data"))
	keyed := open(t, below, keys, encrypted.Options{KeyedIDs: true})
	put(t, keyed, nil) // ids are mixed from here on
	reader := open(t, &before{Store: below, id: ref, do: func() {
		if done, err := keyed.Rotate(t.Context(), nil); err != nil || done.Moved != 1 {
			t.Errorf("Rotate = %+v, %v", done, err)
		}
	}}, keys, encrypted.Options{})
	if got, err := reader.Get(t.Context(), ref); err != nil || string(got) != "data" {
		t.Errorf("Get = %q, %v", got, err)
	}
}
