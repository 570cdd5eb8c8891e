package session

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestCiteWordFindsWhatSearchesForBothWordsFind(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	pieces := []string{blobWord, artifactWord, "blob:", "sha256:", `"`, "artifact", "a", "t", "b", "6:", " the quick brown fox ", `"art`, "ifact", "xyz"}
	for range 20_000 {
		var text strings.Builder
		for range r.IntN(12) {
			text.WriteString(pieces[r.IntN(len(pieces))])
		}
		b := []byte(text.String())
		want := len(b)
		for _, word := range []string{blobEnd, artifactWord} {
			if i := bytes.Index(b, []byte(word)); i >= 0 {
				want = min(want, i)
			}
		}
		if got := citeWord(b); got != want {
			t.Fatalf("%q: at %d, want %d", b, got, want)
		}
	}
}

func BenchmarkCiteWord(b *testing.B) {
	text := bytes.Repeat([]byte(`{"type":"message","id":"6921f0a1c3d44b7e90aa12fe","message":{"role":"user","content":"the quick brown fox jumps over the lazy dog and reads the session file again"}}`), 4000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if citeWord(text) != len(text) {
			b.Fatal("found")
		}
	}
}
