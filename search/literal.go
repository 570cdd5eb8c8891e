package search

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWord is the longest word of a query, in bytes as it is compared. A line that
// is cut into pieces overlaps by more than that.
const maxWord = 256

// literal is one word of a query.
type literal struct {
	text     []byte // folded
	anchored bool   // it begins with a letter or digit: only where a word may begin
	short    bool   // it ends with a run too short to be the beginning of another one
	needs    []need // what the index has where the literal is
	raw      []byte // the longest stretch of letters in it that have one form, in lower case
}

// need is a token that an indexed text must have.
type need struct {
	token  string
	prefix bool // the token may go on
}

// newLiteral prepares one word. White space around it does not count.
func newLiteral(word string) (literal, error) {
	if !utf8.ValidString(word) {
		return literal{}, fmt.Errorf("%.40q is not UTF-8: give words as text", word)
	}
	var f folded
	f.fold([]byte(strings.TrimSpace(word)), false)
	l := literal{text: bytes.Clone(f.text)}
	switch {
	case len(l.text) == 0:
		return l, fmt.Errorf("a word of the query is empty: give what to look for")
	case len(l.text) > maxWord:
		return l, fmt.Errorf("%.20q... is %d bytes long: a word has at most %d", word, len(l.text), maxWord)
	case bytes.IndexByte(l.text, '\n') >= 0:
		return l, fmt.Errorf("%.40q has a line break: give one word, or one line, at a time", word)
	}
	for _, r := range f.runs {
		last := int(r.to) == len(l.text)
		if r.from == 0 {
			l.anchored = true
		}
		text := l.text[r.from:r.to]
		if !r.cjk {
			switch {
			case len(text) >= maxToken:
				l.need(cutToken(text), false)
			case !last:
				l.need(text, false)
			case utf8.RuneCount(text) > shortRun:
				l.need(text, true)
			default:
				l.short = true
				l.need(text, false)
			}
			continue
		}
		n := 0
		f.cjkTokens(run{from: r.from, to: r.to, cjk: true}, func(token []byte) {
			n++
			single := utf8.RuneCount(token) == 1
			switch {
			case !single || !last:
				l.need(token, false)
			case n == 1:
				l.need(token, true) // of one character: it may go on
			}
		})
	}
	l.raw = longestRaw(l.text)
	return l, nil
}

func (l *literal) need(token []byte, prefix bool) {
	l.needs = append(l.needs, need{string(token), prefix})
}

// longestRaw is the longest stretch of ASCII letters and digits, and of characters
// that have no case.
func longestRaw(b []byte) []byte {
	var best []byte
	for at := 0; at < len(b); {
		from := at
		for at < len(b) {
			r, size := utf8.DecodeRune(b[at:])
			if classOf(r) == separator || r >= utf8.RuneSelf && (unicode.ToUpper(r) != r || unicode.ToLower(r) != r || unicode.IsMark(r)) {
				break
			}
			at += size
		}
		if at-from > len(best) {
			best = b[from:at]
		}
		if at == from {
			_, size := utf8.DecodeRune(b[at:])
			at += size
		}
	}
	return best
}

// matchExpression is what the index is asked for: every token, none of them
// syntax. It is "" when the literals have no token, so that the index cannot help.
func matchExpression(needs []need) string {
	var b strings.Builder
	seen := map[need]bool{}
	for _, n := range needs {
		if seen[n] {
			continue
		}
		seen[n] = true
		if b.Len() > 0 {
			b.WriteString(" AND ")
		}
		b.WriteString(`"` + n.token + `"`) // letters and digits only
		if n.prefix {
			b.WriteString(" *")
		}
	}
	return b.String()
}
