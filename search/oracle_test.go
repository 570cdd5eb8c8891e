package search

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// pieces of random texts: what words, parts of words and places between them can be.
var textPieces = []string{
	"pool", "Pool", "POOL", "Timeout", "timeout", "HTTP", "Server", "v2", "404", "x", "7", "77", "error", "_", "-", ".", "/",
	" ", " ", " ", "\t", "数", "据", "库", "连接", "プ", "ール", "ﾌﾟ", "か\u3099", "한", "국어", "é", "e\u0301", "É", "ß", "Σ", "ς", "ﬁ", "ｆｕｌｌ", "㎏",
	"，", "\u00a0", "\x1b[31m", "\x1b[0m", "\x1b]0;title\x07", "\x00", "\xff", "\xe6\x95", "\r", "*", `"`, `\`, "(", "😀", "İ", "ı", "K", "กำ", "ﷺ",
	"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef01", strings.Repeat("Ab", 40),
}

func randomLine(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(12) {
		b.WriteString(textPieces[r.IntN(len(textPieces))])
	}
	return b.String()
}

// randomText has lines of all lengths, and may lack the last newline.
func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(60) {
		switch r.IntN(300) {
		case 0: // longer than a batch
			for n := b.Len(); b.Len() < n+3*batchSize; {
				b.WriteString(randomLine(r) + " hay ")
			}
		case 1:
			b.WriteString(strings.Repeat("hay\n", r.IntN(30_000)))
		}
		b.WriteString(randomLine(r))
		b.WriteByte('\n')
	}
	if r.IntN(2) == 0 {
		b.WriteString(randomLine(r))
	}
	return b.String()
}

func randomWord(r *rand.Rand, texts []string) string {
	if text := texts[r.IntN(len(texts))]; r.IntN(2) == 0 && len(text) > 20 {
		from := r.IntN(len(text) - 20)
		word, _, _ := strings.Cut(text[from:from+1+r.IntN(19)], "\n")
		if i := strings.IndexByte(word, 0x1b); i >= 0 {
			word = word[:i]
		}
		return word
	}
	word := ""
	for range 1 + r.IntN(3) {
		word += textPieces[r.IntN(len(textPieces))]
	}
	return word
}

// TestAnswersAreThoseOfAPlainScan asks random queries of random texts: with the
// index, without it, and a scan that knows neither batches nor what can be left out.
func TestAnswersAreThoseOfAPlainScan(t *testing.T) {
	if testing.Short() {
		t.Skip("asks each question of every state of the index; run without -short")
	}
	rounds := 3 // the race detector makes SQLite many times slower; more without it
	if n, err := strconv.Atoi(os.Getenv("AGENTRUN_TEST_ROUNDS")); err == nil {
		rounds = min(n, 15)
	}
	for round := range rounds {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %d round %d", seed, round), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			m, err := session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{Durability: session.Flush})
			check(t, err)
			ctx := context.Background()
			s, err := m.Create(ctx, t.TempDir(), session.CreateOptions{})
			check(t, err)
			defer s.Close()
			var entries, ids []string
			grow := func() {
				for range 1 + r.IntN(10) {
					text := randomText(r)
					if r.IntN(3) > 0 {
						text = randomLine(r)
					}
					if text == "" {
						text = "-" // an empty message says nothing
					}
					id, err := s.Append(ctx, entry.UserText(text))
					check(t, err)
					e, err := s.Entry(ctx, id)
					check(t, err)
					var sc scratch
					entries = append(entries, strings.Clone(string(sc.plainText(appendEntryText(nil, e.Raw())))))
					ids = append(ids, id)
				}
			}
			grow()
			check(t, os.Mkdir(s.ArtifactsDir(), 0o700))
			var outputs []string
			name := func(i int) string { return filepath.Join(s.ArtifactsDir(), fmt.Sprintf("%d.bash.log", i)) }
			for i := range 1 + r.IntN(4) {
				outputs = append(outputs, randomText(r))
				check(t, os.WriteFile(name(i), []byte(outputs[i]), 0o600))
			}
			x := New(m, Options{})
			check(t, x.Update(ctx))
			for step := range 25 {
				switch r.IntN(6) { // the files go on
				case 0:
					grow()
				case 1:
					i := r.IntN(len(outputs))
					more := randomText(r)
					outputs[i] += more
					f, err := os.OpenFile(name(i), os.O_APPEND|os.O_WRONLY, 0)
					check(t, err)
					_, err = f.WriteString(more)
					check(t, err)
					check(t, f.Close())
				case 2:
					i := r.IntN(len(outputs))
					outputs[i] = randomText(r)
					check(t, os.Remove(name(i)))
					check(t, os.WriteFile(name(i), []byte(outputs[i]), 0o600))
				}
				var words []string
				for range 1 + r.IntN(2) {
					words = append(words, randomWord(r, append(slices.Clone(outputs), entries...)))
				}
				mt, err := newMatcher(words, false)
				if err != nil {
					continue // empty
				}
				if step%5 == 0 {
					check(t, x.Update(ctx))
				}
				want := plainScan(mt, outputs, entries, ids)
				for _, noIndex := range []bool{true, false} {
					var got []string
					res, err := x.Search(ctx, Query{Words: words, Limit: -1, NoIndex: noIndex}, func(h Hit) bool {
						if h.Role == RoleArtifact {
							got = append(got, fmt.Sprintf("%s:%d", h.URL[strings.LastIndexByte(h.URL, '/')+1:], h.Line))
						} else {
							got = append(got, h.Entry)
						}
						return true
					})
					check(t, err)
					if len(res.Problems) > 0 {
						t.Fatal(res.Problems)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("step %d, %q, without the index %v (%+v): a plain scan (-) and the search (+):\n%s", step, words, noIndex, res, diff)
					}
				}
			}
		})
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plainScan is the answer as the documentation describes it.
func plainScan(m *matcher, outputs, entries, ids []string) []string {
	var want []string
	for i := len(outputs) - 1; i >= 0; i-- {
		lines := strings.SplitAfter(outputs[i], "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		for _, n := range plainLines(m, lines) {
			want = append(want, fmt.Sprintf("%d:%d", i, n))
		}
	}
	for i := len(entries) - 1; i >= 0; i-- {
		if hasAll(m, []byte(entries[i])) {
			want = append(want, ids[i])
		}
	}
	return want
}

func hasAll(m *matcher, text []byte) bool {
	var f folded
	f.fold(text, false)
	for i := range m.literals {
		if f.index(&m.literals[i], 0) < 0 {
			return false
		}
	}
	return true
}

// plainLines are the numbers of the first lines of the shortest stretches of lines
// near each other that have every word.
func plainLines(m *matcher, lines []string) []int {
	var off, out []int
	at := 0
	last := make([]int, len(m.literals)) // the last line with each word, from 1
	done := 0
	for i, line := range lines {
		off = append(off, at)
		at += len(line)
		for from, cut := 0, false; ; cut = true {
			piece := line[from:min(from+batchSize, len(line))]
			var s scratch
			var f folded
			f.fold(bytes.Clone(s.plainText([]byte(piece))), cut)
			if len(line) > batchSize {
				clear(last) // in a long line, all words are in one piece
			}
			found := false
			for w := range m.literals {
				if f.index(&m.literals[w], 0) >= 0 {
					last[w], found = i+1, true
				}
			}
			if first := slices.Min(last); found && first > done && i+1-first < nearLines && (len(line) <= batchSize && off[i]-off[first-1] <= nearBytes || first == i+1) {
				done = first
				out = append(out, first)
			}
			if from+batchSize >= len(line) {
				break
			}
			from += batchSize - overlap
		}
		if len(line) > batchSize {
			clear(last)
		}
	}
	return out
}

// plainTokens are the tokens as their documentation has them, found byte by byte.
func plainTokens(f *folded) (tokens []string) {
	for _, r := range f.runs {
		if r.cjk {
			f.cjkTokens(r, func(token []byte) { tokens = append(tokens, string(token)) })
			continue
		}
		text := f.of(r)
		if !r.cut {
			tokens = append(tokens, string(cutToken(text)))
		}
		if len(text) > longRun {
			continue
		}
		for i := range text {
			if !f.begin(int(r.from) + i) {
				continue
			}
			if i > 0 {
				tokens = append(tokens, string(cutToken(text[i:])))
			}
			part := []rune(string(text[i:]))
			for n := 1; n <= shortRun && n < len(part); n++ {
				if end := i + len(string(part[:n])); f.begin(int(r.from) + end) {
					tokens = append(tokens, string(text[i:end]))
				}
			}
		}
	}
	return tokens
}

func FuzzFold(f *testing.F) {
	for _, s := range textPieces {
		f.Add([]byte(s), "pool")
		f.Add([]byte("x "+s+" y\n"+s), s)
	}
	f.Fuzz(func(t *testing.T, text []byte, word string) {
		l, err := newLiteral(word)
		if err != nil {
			return
		}
		m := &matcher{literals: []literal{l}}
		var s scratch
		var x folded
		x.fold(text, false)
		var got []string
		x.tokens(func(token []byte) { got = append(got, string(token)) })
		if diff := cmp.Diff(plainTokens(&x), got); diff != "" {
			t.Fatalf("%q: tokens read plainly (-) and with bit sets (+):\n%s", text, diff)
		}
		for _, r := range x.runs {
			if x.plain && r.to-r.from <= longRun {
				if want := 1 | asciiParts(text[r.from:r.to]); x.beginsOf(r) != want {
					t.Fatalf("%q: words begin at %b, not at %b", text[r.from:r.to], x.beginsOf(r), want)
				}
			}
		}
		at := x.index(&l, 0)
		if at < 0 {
			return
		}
		if !m.may(text, false, &s) {
			t.Fatalf("%q has %q, and the look at its bytes says no", text, word)
		}
		tokens := map[string]bool{}
		for _, token := range got {
			tokens[token] = true
		}
		for _, n := range l.needs {
			ok := tokens[n.token]
			for token := range tokens {
				ok = ok || n.prefix && strings.HasPrefix(token, n.token)
			}
			if !ok {
				t.Fatalf("%q has %q, and no token %q", text, word, n.token)
			}
		}
		if strings.Trim(matchExpression(l.needs), " ") != "" && strings.Count(matchExpression(l.needs), `"`)%2 != 0 {
			t.Fatalf("%q is syntax", word)
		}
		snippet := m.snippet(text)
		for _, r := range snippet.Marks {
			if r[0] < 0 || r[0] >= r[1] || r[1] > len(snippet.Text) {
				t.Fatalf("marks %v of %q", snippet.Marks, snippet.Text)
			}
		}
	})
}
