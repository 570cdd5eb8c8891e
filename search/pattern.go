package search

import (
	"bytes"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// pattern is one regular expression of a query (RE2), as it stands, upper and lower
// case told apart. ^ and $ are the ends of a line.
type pattern struct {
	re    *regexp.Regexp
	needs []need // what the index has where it matches; none when that is not known
	raw   []byte // ASCII letters and digits that every match has, nil when none are known
}

func newPattern(expr string) (pattern, error) {
	re, err := regexp.Compile("(?m)" + expr)
	if err != nil {
		return pattern{}, fmt.Errorf("%q is no regular expression: %w; without --regex words are looked for as they are", expr, err)
	}
	p := pattern{re: re}
	tree, err := syntax.Parse("(?m)"+expr, syntax.Perl)
	if err != nil {
		return p, nil // it compiled; do without the index
	}
	for _, lit := range required(tree.Simplify()) {
		p.needs = append(p.needs, lit.needs()...)
		if lit.fold {
			continue
		}
		for run := range strings.FieldsFuncSeq(lit.text, func(r rune) bool { return r >= utf8.RuneSelf || asciiClass[r] == separator }) {
			if len(run) > len(p.raw) {
				p.raw = []byte(run)
			}
		}
	}
	return p, nil
}

// required are texts that every match of the expression has. It says less than it
// could rather than too much.
func required(re *syntax.Regexp) []fixed {
	switch re.Op {
	case syntax.OpLiteral:
		return []fixed{{text: string(re.Rune), fold: re.Flags&syntax.FoldCase != 0}}
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		var all []fixed
		for _, sub := range re.Sub {
			all = append(all, required(sub)...)
		}
		return all
	}
	return nil
}

// fixed is a text that every match of a pattern has.
type fixed struct {
	text string
	fold bool // in any case
}

// needs are the tokens of a text that has f. The ends of f may be inside of words,
// so its first run is not known to be where a word begins, and its last not to end
// there.
func (f fixed) needs() []need {
	if !utf8.ValidString(f.text) {
		return nil
	}
	var x folded
	x.fold([]byte(f.text), false)
	if !x.plain {
		return nil // another character may combine with the one at an end
	}
	var out []need
	for _, r := range x.runs {
		text := x.of(r)
		last := int(r.to) == len(x.text)
		switch {
		case r.from == 0 || last && len(text) <= shortRun+1:
		case len(text) > maxToken:
			out = append(out, need{string(cutToken(text)), false})
		case last:
			// What follows may combine with the last letter.
			out = append(out, need{string(text[:min(len(text)-1, maxToken-1)]), true})
		default:
			out = append(out, need{string(cutToken(text)), false})
		}
	}
	return out
}

// lines appends the numbers of the lines of text that match, from 0. Each line is
// matched by itself.
func (p *pattern) lines(text []byte, dst []int) []int {
	if !bytes.Contains(text, p.raw) {
		return dst
	}
	n := 0
	for line := range bytes.Lines(text) {
		if p.re.Match(bytes.TrimSuffix(line, newline)) {
			dst = append(dst, n)
		}
		n++
	}
	return dst
}
