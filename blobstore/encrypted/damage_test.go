package encrypted_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/memory"
)

// headerSize is that of the package comment.
const headerSize = 209

// random returns size bytes that are the same in every run.
func random(size int, seed byte) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed, byte(size), byte(size >> 8)}).Read(data)
	return data
}

func put(t testing.TB, s blobstore.Store, data []byte) blobref.Ref {
	t.Helper()
	ref, err := blobstore.Put(t.Context(), s, data)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// ciphertext returns what the store below holds of a blob.
func ciphertext(t testing.TB, s *encrypted.Store, ref blobref.Ref) []byte {
	t.Helper()
	sealed, err := s.Unwrap().Get(t.Context(), storedAs(t, s, ref))
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func plant(t testing.TB, s *encrypted.Store, ref blobref.Ref, sealed []byte) {
	t.Helper()
	if err := s.Unwrap().Set(t.Context(), storedAs(t, s, ref), sealed); err != nil {
		t.Fatal(err)
	}
}

// reads are the ways to plaintext. Each returns all that it was handed out.
var reads = map[string]func(ctx context.Context, s *encrypted.Store, ref blobref.Ref, size int) ([]byte, error){
	"Get": func(ctx context.Context, s *encrypted.Store, ref blobref.Ref, _ int) ([]byte, error) {
		return s.Get(ctx, ref)
	},
	"Open": func(ctx context.Context, s *encrypted.Store, ref blobref.Ref, _ int) ([]byte, error) {
		b, err := s.Open(ctx, ref)
		if err != nil {
			return nil, err
		}
		defer b.Close()
		return io.ReadAll(b)
	},
	"GetRange": func(ctx context.Context, s *encrypted.Store, ref blobref.Ref, size int) ([]byte, error) {
		var all []byte
		for off := 0; off < size; off += 1000 {
			part, err := s.GetRange(ctx, ref, int64(off), 1000)
			all = append(all, part...)
			if err != nil {
				return all, err
			}
		}
		return all, nil
	},
}

// readEveryWay fails unless every way gives a beginning of want and then an error that
// matches one of those, or, with none given, all of want.
func readEveryWay(t *testing.T, s *encrypted.Store, ref blobref.Ref, want []byte, what string, oneOf ...error) {
	t.Helper()
	for name, read := range reads {
		got, err := read(t.Context(), s, ref, max(len(want), 1))
		if !bytes.HasPrefix(want, got) {
			t.Errorf("%s of %s handed out %d wrong bytes", name, what, len(got))
		}
		switch {
		case len(oneOf) == 0 && (err != nil || len(got) != len(want)):
			t.Errorf("%s of %s = %d bytes, %v", name, what, len(got), err)
		case len(oneOf) > 0 && !matches(err, oneOf):
			t.Errorf("%s of %s = %d bytes, %v; want %v", name, what, len(got), err, oneOf)
		case name != "GetRange" && len(oneOf) > 0 && len(got) > 0:
			t.Errorf("%s of %s handed out %d bytes before the error", name, what, len(got))
		}
	}
}

func matches(err error, oneOf []error) bool {
	for _, want := range oneOf {
		if errors.Is(err, want) {
			return true
		}
	}
	return false
}

var forms = map[string]encrypted.Options{
	"own form":            {ChunkBytes: 4 << 10},
	"own form, keyed ids": {ChunkBytes: 4 << 10, KeyedIDs: true},
	"seed's form":         {Form: encrypted.Seed},
}

func TestAThousandFlippedBitsAreAllFound(t *testing.T) {
	for name, opts := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, memory.New(blobstore.Opaque), ring(t, "pass"), opts)
			data := random(10_000, 1)
			ref := put(t, s, data)
			sealed := ciphertext(t, s, ref)
			random := rand.New(rand.NewPCG(1, 2))
			bits := random.Perm(len(sealed) * 8)[:600]
			for i := range min(400, headerSize*8) { // and many where the structure is
				bits = append(bits, i*4)
			}
			for _, bit := range bits {
				flipped := bytes.Clone(sealed)
				flipped[bit/8] ^= 1 << (bit % 8)
				plant(t, s, ref, flipped)
				want := []error{encrypted.ErrTampered}
				if opts.Form == encrypted.Own && bit/8 == 16 {
					want = []error{blobstore.ErrUnsupported} // another version
				}
				what := fmt.Sprintf("a blob with bit %d flipped", bit)
				if got, err := s.Get(t.Context(), ref); !matches(err, want) || got != nil {
					t.Fatalf("Get of %s = %d bytes, %v", what, len(got), err)
				}
				if bit%7 == 0 {
					readEveryWayLast(t, s, ref, data, what, append(want, nil)...)
				}
			}
		})
	}
}

// readEveryWayLast is readEveryWay where a range may be whole although another part of
// the blob is not.
func readEveryWayLast(t *testing.T, s *encrypted.Store, ref blobref.Ref, want []byte, what string, oneOf ...error) {
	t.Helper()
	for name, read := range reads {
		got, err := read(t.Context(), s, ref, len(want))
		if !bytes.HasPrefix(want, got) {
			t.Errorf("%s of %s handed out %d wrong bytes", name, what, len(got))
		}
		if err == nil {
			t.Errorf("%s of %s found nothing wrong", name, what)
		} else if !matches(err, oneOf) {
			t.Errorf("%s of %s = %v, want one of %v", name, what, err, oneOf)
		}
	}
}

func TestABlobCutAtAnyByteIsTruncated(t *testing.T) {
	for name, opts := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, memory.New(blobstore.Opaque), ring(t, "pass"), opts)
			data := []byte("a small blob")
			ref := put(t, s, data)
			sealed := ciphertext(t, s, ref)
			for n := range len(sealed) {
				plant(t, s, ref, sealed[:n])
				oneOf := []error{encrypted.ErrTruncated}
				switch {
				case opts.Form == encrypted.Seed && n >= 28:
					oneOf = []error{encrypted.ErrTampered} // no length is in this form
				case opts.Form == encrypted.Own && n < 16:
					// The magic is cut: shorter than any blob of the seed's form too.
				}
				readEveryWay(t, s, ref, data, fmt.Sprintf("a blob cut after %d bytes", n), oneOf...)
				for _, err := range oneOf {
					if !errors.Is(err, blobstore.ErrCorrupt) {
						t.Fatalf("%v is not ErrCorrupt", err)
					}
				}
			}
			plant(t, s, ref, sealed)
			readEveryWay(t, s, ref, data, "the whole blob")
		})
	}
}

func TestTwoBlobsThatAreSwappedAreFound(t *testing.T) {
	for name, opts := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, memory.New(blobstore.Opaque), ring(t, "pass"), opts)
			one, other := random(10_000, 2), random(10_000, 3)
			oneRef, otherRef := put(t, s, one), put(t, s, other)
			oneSealed, otherSealed := ciphertext(t, s, oneRef), ciphertext(t, s, otherRef)
			plant(t, s, oneRef, otherSealed)
			plant(t, s, otherRef, oneSealed)
			readEveryWay(t, s, oneRef, one, "a blob under another's id", encrypted.ErrTampered)
			readEveryWay(t, s, otherRef, other, "a blob under another's id", encrypted.ErrTampered)
		})
	}
}

func TestASwapIsFoundWhereIDsAreNoHashes(t *testing.T) {
	s := open(t, memory.New(blobstore.Opaque), ring(t, "pass"), encrypted.Options{Mode: blobstore.Opaque})
	a, b := blobref.Of([]byte("a")), blobref.Of([]byte("b"))
	for _, id := range []blobref.Ref{a, b} {
		if err := s.Set(t.Context(), id, []byte("what a server calls "+id.Hex())); err != nil {
			t.Fatal(err)
		}
	}
	plant(t, s, a, ciphertext(t, s, b))
	if got, err := s.Get(t.Context(), a); !errors.Is(err, encrypted.ErrTampered) {
		t.Errorf("Get = %q, %v", got, err)
	}
}

func TestChunksThatAreMovedAreFound(t *testing.T) {
	const chunk = 4<<10 + 16
	s := open(t, memory.New(blobstore.Opaque), ring(t, "pass"), encrypted.Options{ChunkBytes: 4 << 10})
	data := random(3*4096+100, 4)
	ref := put(t, s, data)
	sealed := ciphertext(t, s, ref)
	other := random(3*4096+100, 5)
	otherSealed := ciphertext(t, s, put(t, s, other))
	head, one, two, three, last := sealed[:headerSize], sealed[headerSize:headerSize+chunk], sealed[headerSize+chunk:headerSize+2*chunk],
		sealed[headerSize+2*chunk:headerSize+3*chunk], sealed[headerSize+3*chunk:]
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, tt := range map[string]struct {
		sealed []byte
		want   error
	}{
		"chunks in another order":           {join(head, two, one, three, last), encrypted.ErrTampered},
		"one chunk twice":                   {join(head, one, one, three, last), encrypted.ErrTampered},
		"no last chunk":                     {join(head, one, two, three), encrypted.ErrTruncated},
		"no first chunk":                    {join(head, two, three, last), encrypted.ErrTruncated},
		"no chunk at all":                   {head, encrypted.ErrTruncated},
		"two last chunks":                   {join(sealed, last), encrypted.ErrTampered},
		"another blob behind it":            {join(sealed, otherSealed), encrypted.ErrTampered},
		"the chunks of another blob":        {join(head, otherSealed[headerSize:]), encrypted.ErrTampered},
		"a chunk of another blob":           {join(head, one, otherSealed[headerSize+chunk:headerSize+2*chunk], three, last), encrypted.ErrTampered},
		"the header of another blob":        {join(otherSealed[:headerSize], sealed[headerSize:]), encrypted.ErrTampered},
		"a byte more":                       {join(sealed, []byte{0}), encrypted.ErrTampered},
		"the plaintext instead":             {data, encrypted.ErrTampered},
		"a header, and the plaintext again": {join(head, data), encrypted.ErrTruncated},
	} {
		t.Run(name, func(t *testing.T) {
			plant(t, s, ref, tt.sealed)
			for _, way := range []string{"Get", "Open"} {
				if got, err := reads[way](t.Context(), s, ref, len(data)); !errors.Is(err, tt.want) || len(got) > 0 {
					t.Errorf("%s = %d bytes, %v; want %v", way, len(got), err, tt.want)
				}
			}
			if got, err := reads["GetRange"](t.Context(), s, ref, len(data)); !bytes.HasPrefix(data, got) {
				t.Errorf("GetRange handed out wrong bytes (%d), %v", len(got), err)
			}
		})
	}
}

func TestABlobOfAnotherPassphraseIsNotDamage(t *testing.T) {
	for name, opts := range forms {
		t.Run(name, func(t *testing.T) {
			below := memory.New(blobstore.Opaque)
			mine := open(t, below, ring(t, "mine"), opts)
			data := []byte("mine alone")
			ref := put(t, mine, data)
			yours := open(t, below, ring(t, "yours"), opts)
			for name, read := range reads {
				if got, err := read(t.Context(), yours, ref, len(data)); !errors.Is(err, encrypted.ErrWrongKey) || errors.Is(err, blobstore.ErrCorrupt) || len(got) > 0 {
					t.Errorf("%s = %q, %v; want ErrWrongKey alone", name, got, err)
				}
			}
			if err := yours.Set(t.Context(), ref, data); !errors.Is(err, encrypted.ErrWrongKey) {
				t.Errorf("Set = %v; want ErrWrongKey: nobody could read the store with one passphrase any more", err)
			}
			readEveryWay(t, mine, ref, data, "the blob")
		})
	}
}

func TestASeedBlobWithoutAMarkerMayBeOfAnotherPassphrase(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	foreign := open(t, memory.New(blobstore.Opaque), ring(t, "theirs"), encrypted.Options{Form: encrypted.Seed})
	data := []byte("from a client that knows no marker")
	ref := put(t, foreign, data)
	if err := below.Set(t.Context(), ref, ciphertext(t, foreign, ref)); err != nil {
		t.Fatal(err)
	}
	if got, err := open(t, below, ring(t, "mine"), encrypted.Options{}).Get(t.Context(), ref); !errors.Is(err, encrypted.ErrWrongKey) || errors.Is(err, blobstore.ErrCorrupt) {
		t.Errorf("Get = %q, %v; want ErrWrongKey alone", got, err)
	}
	if got, err := open(t, below, ring(t, "theirs"), encrypted.Options{}).Get(t.Context(), ref); err != nil || !bytes.Equal(got, data) {
		t.Errorf("Get = %q, %v", got, err)
	}
}
