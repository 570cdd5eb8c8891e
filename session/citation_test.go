package session

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestAWordSearchFindsWhatSearchesForEachWordFind(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	pieces := []string{blobWord, artifactWord, "blob:", "sha256:", `"`, "artifact", "agent:", `"run"`, `"details"`, "a", "t", "b", "6:", " the quick brown fox ", `"art`, "ifact", "xyz", "agen", `un"`}
	searches := []*wordSearch{citeWords, besideWords}
	for range 20_000 {
		var text strings.Builder
		for range r.IntN(12) {
			text.WriteString(pieces[r.IntN(len(pieces))])
		}
		b := []byte(text.String())
		for _, search := range searches {
			want := len(b)
			for _, word := range search.words {
				if i := bytes.Index(b, []byte(word)); i >= 0 {
					want = min(want, i)
				}
			}
			if got := search.next(b); got != want {
				t.Fatalf("%q: at %d, want %d of %q", b, got, want, search.words)
			}
		}
	}
}

func BenchmarkCiteWords(b *testing.B) {
	text := bytes.Repeat([]byte(`{"type":"message","id":"6921f0a1c3d44b7e90aa12fe","message":{"role":"user","content":"the quick brown fox jumps over the lazy dog and reads the session file again"}}`), 4000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if citeWords.next(text) != len(text) {
			b.Fatal("found")
		}
	}
}
