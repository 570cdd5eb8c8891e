package encrypted_test

import (
	"bytes"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/memory"
)

// Whatever the sizes of blob and chunk, and however it was stored, every part that is read
// in any way is that part of the plaintext, and the store below has what the header says.
func TestAnyPartOfAnyBlobIsThatPartOfThePlaintext(t *testing.T) {
	keys := ring(t, "pass")
	rapid.Check(t, func(rt *rapid.T) {
		chunk := 4096 << rapid.IntRange(0, 2).Draw(rt, "chunk")
		size := rapid.OneOf(
			rapid.IntRange(0, 5*chunk),
			rapid.Map(rapid.IntRange(0, 5), func(n int) int { return n * chunk }),
			rapid.Map(rapid.IntRange(1, 5), func(n int) int { return n*chunk - 1 }),
		).Draw(rt, "size")
		data := random(size, byte(chunk>>12))
		ref := blobref.Of(data)
		below := memory.New(blobstore.Opaque)
		s := open(t, below, keys, encrypted.Options{ChunkBytes: chunk, KeyedIDs: rapid.Bool().Draw(rt, "keyed")})
		var err error
		if rapid.Bool().Draw(rt, "stream") {
			err = s.SetStream(t.Context(), ref, bytes.NewReader(data), int64(size))
		} else {
			err = s.Set(t.Context(), ref, data)
		}
		if err != nil {
			rt.Fatal(err)
		}
		if got := len(ciphertext(t, s, ref)); got != headerSize+size+16*max(1, (size+chunk-1)/chunk) {
			rt.Fatalf("%d bytes are stored as %d", size, got)
		}
		if info, err := s.Stat(t.Context(), ref); err != nil || info.Size != int64(size) || info.Ref != ref {
			rt.Fatalf("Stat = %+v, %v", info, err)
		}
		b, err := s.Open(t.Context(), ref)
		if err != nil {
			rt.Fatal(err)
		}
		defer b.Close()
		for range 5 {
			off := rapid.IntRange(0, size).Draw(rt, "off")
			n := rapid.IntRange(0, size-off).Draw(rt, "n")
			want := data[off : off+n]
			if got, err := s.GetRange(t.Context(), ref, int64(off), int64(n)); err != nil || !bytes.Equal(got, want) {
				rt.Fatalf("GetRange(%d, %d) = %d bytes, %v", off, n, len(got), err)
			}
			got := make([]byte, n)
			if _, err := b.ReadAt(got, int64(off)); err != nil && (err != io.EOF || off+n < size) || !bytes.Equal(got, want) {
				rt.Fatalf("ReadAt(%d bytes, %d): %v", n, off, err)
			}
		}
		if got, err := s.Get(t.Context(), ref); err != nil || !bytes.Equal(got, data) {
			rt.Fatalf("Get = %d bytes, %v", len(got), err)
		}
	})
}
