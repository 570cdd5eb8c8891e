package grep

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"

	"github.com/agentrun/agentrun/internal/literal"
)

// pattern is what lines are matched with.
type pattern struct {
	line *regexp.Regexp // for one line, without its end
	// text is for many lines at once: a line that matches has the beginning of a match of
	// text in it, and not the other way round. Nil for expressions of which that cannot be
	// told.
	text *regexp.Regexp
	// literal is in every line that matches; "" is not known. With fold it is there in
	// upper or lower case, and has only ASCII letters that have no other case.
	literal []byte
	finder  literal.Finder
	fold    bool
	// exact is set when the lines that match are those with the literal in them.
	exact bool
	// any are literals of which each line that matches has one, where there is no single one.
	any  []literal.Finder
	tree *syntax.Regexp

	json bool // results are objects
}

// compile reads a regular expression in Go's syntax.
func compile(expr string, ignoreCase bool) (*pattern, error) {
	flags := syntax.Perl
	if ignoreCase {
		flags |= syntax.FoldCase
	}
	tree, err := syntax.Parse(expr, flags)
	if err != nil {
		return nil, fmt.Errorf("the pattern %.80q is no regular expression of Go: %s; put \\ before characters that are meant as they are", expr, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	tree = lineAnchors(tree.Simplify())
	p := &pattern{tree: tree}
	if p.line, err = regexp.Compile(tree.String()); err != nil {
		return nil, fmt.Errorf("the pattern %.80q cannot be used: %w", expr, err)
	}
	if plainAnchors(tree, true, true) {
		if p.text, err = regexp.Compile(carriageReturns(tree)); err != nil {
			return nil, fmt.Errorf("the pattern %.80q cannot be used: %w", expr, err)
		}
	}
	lit, fold := required(tree)
	if strings.ContainsRune(lit, unicode.ReplacementChar) {
		lit = "" // it stands for bytes that are no UTF-8, too
	}
	if fold {
		lit = plainFold(lit)
	}
	p.literal, p.fold = []byte(lit), fold && lit != ""
	p.finder = literal.NewFinder(p.literal)
	if lit == "" {
		if list := alternatives(tree); list != nil {
			p.any = literal.Finders(list)
		}
	}
	p.exact = tree.Op == syntax.OpLiteral && lit != "" && tree.Flags&syntax.FoldCase == 0 && !strings.ContainsAny(lit, "\r\n")
	return p, nil
}

// lineAnchors makes ends of the text ends of lines: a line is all the text there is.
func lineAnchors(re *syntax.Regexp) *syntax.Regexp {
	c := *re
	switch c.Op {
	case syntax.OpBeginText:
		c.Op = syntax.OpBeginLine
	case syntax.OpEndText:
		c.Op = syntax.OpEndLine
		c.Flags &^= syntax.WasDollar
	case syntax.OpAnyChar:
		c.Op = syntax.OpAnyCharNotNL
	}
	c.Sub = make([]*syntax.Regexp, len(re.Sub))
	for i, sub := range re.Sub {
		c.Sub[i] = lineAnchors(sub)
	}
	return &c
}

// plainAnchors reports whether ^ stands at beginnings only, and $ at ends. What stands behind
// a $ would have to look behind the carriage return that it may stand for.
func plainAnchors(re *syntax.Regexp, head, tail bool) bool {
	switch re.Op {
	case syntax.OpBeginLine:
		return head
	case syntax.OpEndLine:
		return tail
	case syntax.OpCapture, syntax.OpAlternate:
	case syntax.OpConcat:
		for i, sub := range re.Sub {
			if !plainAnchors(sub, head && i == 0, tail && i == len(re.Sub)-1) {
				return false
			}
		}
		return true
	default:
		head, tail = false, false
	}
	for _, sub := range re.Sub {
		if !plainAnchors(sub, head, tail) {
			return false
		}
	}
	return true
}

// carriageReturns is the expression for text in which lines may end with a carriage return.
// None of its classes has a newline, or a match would go on for as long as there is text.
func carriageReturns(re *syntax.Regexp) string {
	var change func(re *syntax.Regexp) *syntax.Regexp
	end, _ := syntax.Parse(`(?m:\r?$)`, syntax.Perl) // it is valid
	change = func(re *syntax.Regexp) *syntax.Regexp {
		if re.Op == syntax.OpEndLine {
			return end
		}
		c := *re
		if c.Op == syntax.OpCharClass {
			if c.Rune = without(c.Rune, '\n'); len(c.Rune) == 0 {
				c.Op = syntax.OpNoMatch
			}
		}
		c.Sub = make([]*syntax.Regexp, len(re.Sub))
		for i, sub := range re.Sub {
			c.Sub[i] = change(sub)
		}
		return &c
	}
	return change(re).String()
}

// without are the ranges of a class without one rune.
func without(ranges []rune, r rune) []rune {
	var out []rune
	for i := 0; i < len(ranges); i += 2 {
		lo, hi := ranges[i], ranges[i+1]
		if r < lo || r > hi {
			out = append(out, lo, hi)
			continue
		}
		if lo < r {
			out = append(out, lo, r-1)
		}
		if r < hi {
			out = append(out, r+1, hi)
		}
	}
	return out
}

// required is the longest literal that is in every match.
func required(re *syntax.Regexp) (lit string, fold bool) {
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune), re.Flags&syntax.FoldCase != 0
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if l, f := required(sub); better(l, f, lit, fold) {
				lit, fold = l, f
			}
		}
	}
	return lit, fold
}

// maxAny is how many literals are looked for at once.
const maxAny = 16

// alternatives are literals of two bytes or more, one of which is in every match; nil when
// that is not known.
func alternatives(re *syntax.Regexp) [][]byte {
	for re.Op == syntax.OpCapture || re.Op == syntax.OpPlus {
		re = re.Sub[0]
	}
	if re.Op == syntax.OpConcat {
		for _, sub := range re.Sub {
			if list := alternatives(sub); list != nil {
				return list
			}
		}
	}
	if re.Op != syntax.OpAlternate || len(re.Sub) > maxAny {
		return nil
	}
	var list [][]byte
	for _, sub := range re.Sub {
		lit, fold := required(sub)
		if fold || len(lit) < 2 || strings.ContainsRune(lit, unicode.ReplacementChar) {
			return nil
		}
		list = append(list, []byte(lit))
	}
	return list
}

// better prefers what is found faster.
func better(a string, aFold bool, b string, bFold bool) bool {
	if aFold {
		a = plainFold(a)
	}
	if bFold {
		b = plainFold(b)
	}
	if aFold != bFold && min(len(a), len(b)) >= 2 {
		return bFold
	}
	return len(a) > len(b)
}

// plainFold is the longest part of a literal of ASCII characters that have no case but
// upper and lower: the Kelvin sign is a k, and the long s an s.
func plainFold(lit string) string {
	best := ""
	for part := range strings.FieldsFuncSeq(lit, func(r rune) bool {
		return r >= 0x80 || strings.ContainsRune("kKsS", r)
	}) {
		if len(part) > len(best) {
			best = part
		}
	}
	return strings.ToLower(best)
}

// next is where in text a literal of the pattern is, or a match begins; -1 for nowhere.
func (p *pattern) next(text []byte) int {
	switch {
	case p.fold:
		return literal.IndexFold(text, p.literal)
	case len(p.literal) > 0:
		return p.finder.Index(text)
	case p.any != nil:
		return literal.IndexAny(text, p.any)
	case p.text == nil:
		return 0
	}
	loc := p.text.FindIndex(text)
	if loc == nil {
		return -1
	}
	return loc[0]
}

// matches reports whether a line matches that has what next found.
func (p *pattern) matches(line []byte) bool { return p.exact || p.line.Match(line) }
