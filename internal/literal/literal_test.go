package literal

import (
	"bytes"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// randomText has words of which the tests look for parts.
func randomText(r *rand.Rand) string {
	words := []string{"err", "Error ", "ERR", "a", "b", "bb", "e e", "long ", "LONG", "s", "\u017f", "\u212a", "k", "xq", "\n", "  ", "eeee", "\xff"}
	var b strings.Builder
	for range r.IntN(60) {
		b.WriteString(words[r.IntN(len(words))])
	}
	return b.String()
}

func TestFoldIsThatOfRegexp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	for _, lit := range []string{"err", "a", "bb", "xq", "error ", "long"} {
		re := regexp.MustCompile("(?i:" + lit + ")")
		for range 40 {
			text := randomText(r)
			want := -1
			if loc := re.FindStringIndex(text); loc != nil {
				want = loc[0]
			}
			if got := IndexFold([]byte(text), []byte(lit)); got != want {
				t.Fatalf("%q in %q: %d, want %d", lit, text, got, want)
			}
		}
	}
}

func TestLiteralsAreFoundWhereTheyAre(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	for range 200 {
		text := []byte(randomText(r) + strings.Repeat("e ", r.IntN(500)) + "err")
		var lits [][]byte
		first := -1
		for _, lit := range []string{"err", "bb", "e e", "xq", "long ", "ERROR"}[r.IntN(5):] {
			lits = append(lits, []byte(lit))
			k := bytes.Index(text, []byte(lit))
			if got := Index(text, []byte(lit)); got != k {
				t.Fatalf("%q in %q: %d, want %d", lit, text, got, k)
			}
			if k >= 0 && (first < 0 || k < first) {
				first = k
			}
		}
		if got := IndexAny(text, Finders(lits)); got != first {
			t.Fatalf("%q in %q: %d, want %d", lits, text, got, first)
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte("the text"), []byte("text"))
	f.Add([]byte("eeeeeeeeeeeeeeeee"), []byte(""))
	f.Fuzz(func(t *testing.T, text, lit []byte) {
		want := bytes.Index(text, lit)
		if got := Index(text, lit); got != want {
			t.Errorf("%q in %q: %d, want %d", lit, text, got, want)
		}
		if len(lit) > 0 {
			if got := IndexAny(text, Finders([][]byte{lit, lit})); got != want {
				t.Errorf("any of %q in %q: %d, want %d", lit, text, got, want)
			}
		}
	})
}
