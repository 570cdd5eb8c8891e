package search

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxWords bounds the words of a query.
const maxWords = 32

// matcher is a query as it is put to texts. It is safe for concurrent use.
type matcher struct {
	literals []literal
	patterns []pattern
	match    string // for the index; "" when it cannot help
}

func newMatcher(words []string, regex bool) (*matcher, error) {
	m := &matcher{}
	if len(words) == 0 {
		return nil, fmt.Errorf("there is nothing to search for: give one word or more")
	}
	if len(words) > maxWords {
		return nil, fmt.Errorf("a query has at most %d words, these are %d", maxWords, len(words))
	}
	var needs []need
	for _, w := range words {
		if regex {
			p, err := newPattern(w)
			if err != nil {
				return nil, err
			}
			m.patterns = append(m.patterns, p)
			needs = append(needs, p.needs...)
			continue
		}
		l, err := newLiteral(w)
		if err != nil {
			return nil, err
		}
		m.literals = append(m.literals, l)
		needs = append(needs, l.needs...)
	}
	m.match = matchExpression(needs)
	return m, nil
}

func (m *matcher) count() int { return len(m.literals) + len(m.patterns) }

// scratch is what a worker uses again.
type scratch struct {
	folded folded
	plain  []byte
	lower  []byte
	exact  bool
	line   folded
	entry  []byte
	set    tokenSet
	lines  [][]int
	starts []int // of the lines of the text that spans looked at
}

// may reports whether b, which is text or JSON as it stands in a file, can hold
// every word. It is right to say yes. s.lower is then b with ASCII letters in lower
// case, and s.exact says whether the raw part of each word stands in it wherever the
// word is in b.
func (m *matcher) may(b []byte, json bool, s *scratch) bool {
	s.exact = false
	if bytes.IndexByte(b, 0x1b) >= 0 || json && bytes.Contains(b, unicodeEscape) {
		return true // a word may be interrupted, or written in digits
	}
	for i := range m.patterns {
		if !bytes.Contains(b, m.patterns[i].raw) {
			return false
		}
	}
	if len(m.literals) == 0 {
		return true
	}
	if becomesLetters(b) {
		return true
	}
	s.exact = true
	s.lower = appendLower(s.lower[:0], b)
	for i := range m.literals {
		if !bytes.Contains(s.lower, m.literals[i].raw) {
			return false
		}
	}
	return true
}

// unicodeEscape begins a character of JSON in digits.
var unicodeEscape = []byte(`\u`)

// becomesLetters reports whether in NFKC b has letters or digits that it does not
// have: fullwidth forms, ligatures, marks that join the character before.
// Punctuation, such as the fullwidth comma of every Chinese text, does not count.
func becomesLetters(b []byte) bool {
	for {
		n := asciiLen(b)
		if n == len(b) {
			return false
		}
		b = b[max(n-1, 0):] // a mark joins what is before it
		if n = norm.NFKC.QuickSpan(b); n == len(b) {
			return false
		}
		b = b[n:]
		if n = norm.NFKC.NextBoundary(b, true); n <= 0 {
			n = 1
		}
		part := b[:n]
		for form := norm.NFKC.Bytes(part); len(form) > 0; {
			r, size := utf8.DecodeRune(form)
			if classOf(r) != separator && !bytes.Contains(part, form[:size]) {
				return true
			}
			form = form[size:]
		}
		b = b[n:]
	}
}

// appendLower appends b with ASCII letters in lower case, eight at a time.
func appendLower(dst, b []byte) []byte {
	n := len(dst)
	dst = slices.Grow(dst, len(b))[:n+len(b)]
	out := dst[n:]
	for len(b) >= 8 {
		w := le64(b)
		// In each byte below 0x80: bit 7 of x+0x3f is set from 'A' on, of x+0x25
		// behind 'Z'.
		low := w & 0x7f7f7f7f7f7f7f7f
		is := (low + 0x3f3f3f3f3f3f3f3f) &^ (low + 0x2525252525252525) &^ w & 0x8080808080808080
		put64(out, w|is>>2)
		b, out = b[8:], out[8:]
	}
	for i, c := range b {
		out[i] = asciiFold[c]
	}
	return dst
}

func le64(b []byte) uint64 {
	_ = b[7]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

func put64(b []byte, v uint64) {
	_ = b[7]
	b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	b[4], b[5], b[6], b[7] = byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56)
}

// whole reports whether a text that counts as one, such as an entry, has every
// word.
func (m *matcher) whole(text []byte, s *scratch) bool {
	for _, p := range m.patterns {
		if !p.re.Match(text) {
			return false
		}
	}
	if len(m.literals) > 0 {
		s.folded.fold(text, false)
		for i := range m.literals {
			if s.folded.index(&m.literals[i], 0) < 0 {
				return false
			}
		}
	}
	return true
}

// span is a match in a batch: lines from first to last of its text, counted from
// 0, are near each other and have every word.
type span struct{ first, last int }

// spans finds the matches that end in lines from skip on of the text, whose
// line i begins at starts[i]. Of matches that share their first line the shortest is
// returned.
func (m *matcher) spans(text []byte, cut bool, skip int, s *scratch) []span {
	if len(s.lines) < m.count() {
		s.lines = make([][]int, m.count())
	}
	found := s.lines[:m.count()]
	n := 0
	for i := range m.patterns {
		found[n] = m.patterns[i].lines(text, found[n][:0])
		if len(found[n]) == 0 {
			return nil
		}
		n++
	}
	all := false // the whole text is folded
	for i := range m.literals {
		l := &m.literals[i]
		if s.exact && len(l.raw) > 0 {
			found[n] = s.linesAround(text, l, cut, found[n][:0])
		} else {
			if !all {
				s.folded.fold(text, cut)
				all = true
			}
			found[n] = s.folded.lines(l, found[n][:0])
		}
		if len(found[n]) == 0 {
			return nil
		}
		n++
	}
	s.starts = appendLineStarts(s.starts[:0], text)
	starts := s.starts
	var out []span
	at := make([]int, len(found)) // how far each list was passed
	last := make([]int, len(found))
	for i := range last {
		last[i] = -1
	}
	done := -1
	for {
		line := -1
		for i, l := range found {
			if at[i] < len(l) && (line < 0 || l[at[i]] < line) {
				line = l[at[i]]
			}
		}
		if line < 0 {
			return out
		}
		for i, l := range found {
			if at[i] < len(l) && l[at[i]] == line {
				last[i] = line
				at[i]++
			}
		}
		first := slices.Min(last)
		if first > done && line-first < nearLines && starts[line]-starts[first] <= nearBytes {
			done = first
			if line >= skip {
				out = append(out, span{first, line})
			}
		}
	}
}

// linesAround is lines for a text whose s.lower was made: only lines with the raw
// part of the literal are folded.
func (s *scratch) linesAround(text []byte, l *literal, cut bool, dst []int) []int {
	line, at := 0, 0
	for {
		i := bytes.Index(s.lower[at:], l.raw)
		if i < 0 {
			return dst
		}
		line += bytes.Count(text[at:at+i], newline)
		i += at
		from := bytes.LastIndexByte(text[:i], '\n') + 1
		end := len(text)
		if n := bytes.IndexByte(text[i:], '\n'); n >= 0 {
			end = i + n
		}
		s.line.fold(text[from:end], cut && from == 0)
		if s.line.index(l, 0) >= 0 {
			dst = append(dst, line)
		}
		if end == len(text) {
			return dst
		}
		at = end + 1
		line++
	}
}

// lines appends the numbers of the lines that have the literal, from 0.
func (f *folded) lines(l *literal, dst []int) []int {
	line, at := 0, 0
	for {
		i := f.index(l, at)
		if i < 0 {
			return dst
		}
		line += bytes.Count(f.text[at:i], newline)
		dst = append(dst, line)
		next := bytes.IndexByte(f.text[i:], '\n')
		if next < 0 {
			return dst
		}
		at = i + next + 1
		line++
	}
}

// appendLineStarts appends where the lines of text begin.
func appendLineStarts(starts []int, text []byte) []int {
	starts = append(starts, 0)
	for i := 0; ; {
		n := bytes.IndexByte(text[i:], '\n')
		if n < 0 {
			return starts
		}
		i += n + 1
		starts = append(starts, i)
	}
}

// snippetSize is about how much of a text is shown of a match, in bytes.
const snippetSize = 200

// Snippet is a piece of a text with the places of the words in it.
type Snippet struct {
	Text  string
	Marks [][2]int // byte ranges of Text, ascending
}

// snippet shows the text around its first match.
func (m *matcher) snippet(text []byte) Snippet {
	first := m.first(text)
	from := max(first-snippetSize/4, 0)
	if n := bytes.LastIndexByte(text[max(first-snippetSize/2, 0):first], '\n'); n >= 0 {
		from = max(first-snippetSize/2, 0) + n + 1
	} else if first <= snippetSize/2 {
		from = 0
	}
	to := min(from+snippetSize, len(text))
	// Words are looked for in a little more, so that one at an end is seen whole.
	ahead := max(from-snippetSize/4, 0)
	marks := m.marks(text[ahead:min(to+maxWord, len(text))])
	for i := range marks {
		marks[i][0] += ahead
		marks[i][1] += ahead
		if marks[i][0] <= first && first < marks[i][1] {
			to = min(max(to, marks[i][1]), len(text))
		}
	}
	for from > 0 && !utf8.RuneStart(text[from]) {
		from--
	}
	for to < len(text) && !utf8.RuneStart(text[to]) {
		to++
	}
	var out Snippet
	b := make([]byte, 0, to-from+8)
	if from > 0 && text[from-1] != '\n' {
		b = append(b, "…"...)
	}
	// One line, with what a terminal would take for more than text left out.
	white := true
	put := func(p []byte) {
		for len(p) > 0 {
			r, size := utf8.DecodeRune(p)
			switch {
			case r == ' ' || r == '\t' || r == '\n' || r == '\r':
				if !white {
					b = append(b, ' ')
				}
				white = true
			case r == utf8.RuneError && size == 1:
				b, white = append(b, "\uFFFD"...), false
			case r < 0x20 || r >= 0x7f && r < 0xa0:
			default:
				b, white = append(b, p[:size]...), false
			}
			p = p[size:]
		}
	}
	at := from
	for _, mark := range marks {
		if mark[0] < at || mark[1] > to {
			continue
		}
		put(text[at:mark[0]])
		start := len(b)
		put(text[mark[0]:mark[1]])
		if len(b) > start {
			out.Marks = append(out.Marks, [2]int{start, len(b)})
		}
		at = mark[1]
	}
	put(text[at:to])
	b = bytes.TrimRight(b, " ")
	for n := len(out.Marks); n > 0 && out.Marks[n-1][1] > len(b); n-- {
		out.Marks[n-1][1] = len(b)
	}
	if to < len(text) && len(bytes.TrimSpace(text[to:])) > 0 {
		b = append(b, "…"...)
	}
	out.Text = string(b)
	return out
}

// first is where in the text the first word is, or about there.
func (m *matcher) first(text []byte) int {
	at := len(text)
	for _, p := range m.patterns {
		if i := p.re.FindIndex(text); i != nil {
			at = min(at, i[0])
		}
	}
	if len(m.literals) > 0 {
		var f folded
		f.fold(text, false)
		found := len(f.text)
		for i := range m.literals {
			if n := f.index(&m.literals[i], 0); n >= 0 {
				found = min(found, n)
			}
		}
		if found < len(f.text) {
			at = min(at, unfold(text, found))
		}
	}
	if at == len(text) {
		return 0
	}
	return at
}

// marks are the places of the words in text, ascending. Where the text is not in
// the form in which it is compared, they may be a little off.
func (m *matcher) marks(text []byte) [][2]int {
	var all [][2]int
	for _, p := range m.patterns {
		for _, at := range p.re.FindAllIndex(text, snippetSize) {
			all = append(all, [2]int{at[0], at[1]})
		}
	}
	if len(m.literals) > 0 {
		var f folded
		f.fold(text, false)
		for i := range m.literals {
			l := &m.literals[i]
			for at := f.index(l, 0); at >= 0; at = f.index(l, at+len(l.text)) {
				all = append(all, [2]int{unfold(text, at), unfold(text, at+len(l.text))})
			}
		}
	}
	slices.SortFunc(all, func(a, b [2]int) int { return a[0] - b[0] })
	out := all[:0]
	for _, r := range all {
		if n := len(out); n > 0 && r[0] <= out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], r[1])
			continue
		}
		out = append(out, r)
	}
	return out
}

// unfold returns about where in text the byte i of its folded form comes from.
func unfold(text []byte, i int) int {
	at, got := 0, 0
	for at < len(text) && got < i {
		if n := asciiLen(text[at:]); n > 1 { // the last one may be joined by a mark
			n = min(n-1, i-got)
			at, got = at+n, got+n
			continue
		}
		// To the next place where folding can be taken up again.
		n := max(norm.NFKC.NextBoundary(text[at:], true), 1)
		form := norm.NFKC.Bytes(text[at : at+n])
		for len(form) > 0 {
			r, size := utf8.DecodeRune(form)
			if r == utf8.RuneError && size == 1 {
				got++
			} else {
				got += utf8.RuneLen(foldRune(r))
			}
			form = form[size:]
		}
		at += n
	}
	return at
}
