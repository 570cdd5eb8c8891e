package textdiff

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxFuzz is how many lines at either end of a hunk need not match, as of patch(1).
const MaxFuzz = 2

// Patch is a unified diff of one file.
type Patch struct {
	hunks []hunk
}

// hunk is a part of a patch.
type hunk struct {
	at    int // line of the old text that it begins at, from 1; 0 when it does not say
	empty bool
	lines []patchLine
	count int // lines of the old text
}

type patchLine struct {
	mark byte // ' ', '-' or '+'
	text []byte
	cut  bool // it has no newline
}

// ParsePatch reads a unified diff. Headers are not needed, nor line numbers: models
// write "@@" alone and count badly. A patch of several files is an error.
func ParsePatch(text []byte) (Patch, error) {
	r := &patchReader{rest: text}
	if err := r.read(); err != nil {
		return Patch{}, err
	}
	if len(r.p.hunks) == 0 {
		return Patch{}, errors.New("the patch has no hunk: a hunk begins with a line such as @@ -1,3 +1,4 @@")
	}
	for i, h := range r.p.hunks {
		changes := false
		for _, l := range h.lines {
			changes = changes || l.mark != ' '
		}
		if !changes {
			return Patch{}, fmt.Errorf("hunk %d of the patch changes nothing: lines to remove begin with -, lines to add with +", i+1)
		}
	}
	return r.p, nil
}

type patchReader struct {
	p        Patch
	rest     []byte
	line     int // number of the last line that next returned
	files    int
	old, new int // lines that the hunk still has, by its header; -1 when it does not say
}

// next takes a line, without its end.
func (r *patchReader) next() []byte {
	n := lineLen(r.rest)
	line := bytes.TrimSuffix(bytes.TrimSuffix(r.rest[:n], newline), []byte("\r"))
	r.rest = r.rest[n:]
	r.line++
	return line
}

func (r *patchReader) read() error {
	for len(r.rest) > 0 {
		line := r.next()
		var h *hunk
		if n := len(r.p.hunks); n > 0 {
			h = &r.p.hunks[n-1]
		}
		inside := h != nil && (r.old > 0 || r.new > 0)
		switch {
		case bytes.HasPrefix(line, []byte("@@")):
			if err := r.header(line); err != nil {
				return err
			}
		case !inside && r.fileHeader(line):
			if r.files++; r.files > 1 {
				return fmt.Errorf("line %d of the patch begins another file: give one call for each file", r.line)
			}
			r.old, r.new = 0, 0
		case h == nil: // git's lines before the first hunk, or prose
		case bytes.HasPrefix(line, []byte(`\`)):
			if n := len(h.lines); n > 0 {
				h.lines[n-1].cut = true
			}
		case !inside && r.old == 0 && r.new == 0: // behind the last line
			if len(bytes.TrimSpace(line)) > 0 && !bytes.HasPrefix(line, []byte("diff ")) && !bytes.HasPrefix(line, []byte("index ")) && !bytes.HasPrefix(line, []byte("-- ")) {
				if err := r.body(h, line); err != nil { // it counted badly
					return err
				}
			}
		default:
			if err := r.body(h, line); err != nil {
				return err
			}
		}
	}
	// An empty line at the end is that of the text around the patch, unless it was
	// counted.
	if n := len(r.p.hunks); n > 0 && r.old < 0 {
		h := &r.p.hunks[n-1]
		for k := len(h.lines); k > 0 && h.lines[k-1].mark == ' ' && len(h.lines[k-1].text) == 0; k-- {
			h.lines = h.lines[:k-1]
			h.count--
		}
	}
	return nil
}

// fileHeader reports whether a line begins a file: "--- old", with "+++ new" behind it.
func (r *patchReader) fileHeader(line []byte) bool {
	return bytes.HasPrefix(line, []byte("--- ")) && bytes.HasPrefix(r.rest, []byte("+++ "))
}

// header reads "@@ -first,count +first,count @@", of which all but the first two
// characters may be missing.
func (r *patchReader) header(line []byte) error {
	h := hunk{}
	r.old, r.new = -1, -1
	fields := strings.Fields(string(line))
	if len(fields) >= 3 && strings.HasPrefix(fields[1], "-") && strings.HasPrefix(fields[2], "+") {
		var ok1, ok2 bool
		h.at, r.old, ok1 = parseRange(fields[1][1:])
		_, r.new, ok2 = parseRange(fields[2][1:])
		if !ok1 || !ok2 {
			return fmt.Errorf("line %d of the patch: %.80q is no header of a hunk such as @@ -1,3 +1,4 @@", r.line, line)
		}
		h.empty = r.old == 0
	}
	r.p.hunks = append(r.p.hunks, h)
	return nil
}

func parseRange(s string) (first, count int, ok bool) {
	a, b, has := strings.Cut(s, ",")
	first, err1 := strconv.Atoi(a)
	count, err2 := 1, error(nil)
	if has {
		count, err2 = strconv.Atoi(b)
	}
	return first, count, err1 == nil && err2 == nil && first >= 0 && count >= 0 && a[0] != '+' && first < 1<<40 && count < 1<<40
}

func (r *patchReader) body(h *hunk, line []byte) error {
	l := patchLine{mark: ' '}
	if len(line) > 0 { // an empty one is one of context that lost its space
		l.mark, l.text = line[0], line[1:]
	}
	switch l.mark {
	case ' ', '-':
		h.count++
		r.old = max(r.old-1, min(r.old, 0))
	}
	switch l.mark {
	case ' ', '+':
		r.new = max(r.new-1, min(r.new, 0))
	case '-':
	default:
		return fmt.Errorf("line %d of the patch: %.80q begins with none of space, -, + and @@", r.line, line)
	}
	h.lines = append(h.lines, l)
	return nil
}

// Applied says where a hunk went.
type Applied struct {
	Line   int `json:"line"`             // of the old text that it begins at, from 1
	Offset int `json:"offset,omitempty"` // how far that is from where the patch says
	Fuzz   int `json:"fuzz,omitempty"`   // how many lines at its ends did not match
}

// Apply returns the text with the patch, and where the hunks went. Lines of context stay
// as the text has them. All hunks apply, or none does and the error says which does
// not.
func (p Patch) Apply(text []byte) ([]byte, []Span, []Applied, error) {
	a := &applier{text: text, crlf: bytes.Contains(text, []byte("\r\n"))}
	a.starts = append(a.starts, 0)
	for at := 0; at < len(text); {
		at += lineLen(text[at:])
		a.starts = append(a.starts, at)
	}
	for i, h := range p.hunks {
		if err := a.apply(h); err != nil {
			return nil, nil, nil, fmt.Errorf("hunk %d of the patch %w", i+1, err)
		}
	}
	a.out = append(a.out, text[a.starts[a.done]:]...)
	return a.out, a.spans, a.applied, nil
}

type applier struct {
	text    []byte
	starts  []int // of lines, and the end of the text
	crlf    bool
	out     []byte
	done    int // lines of the text that are in out, or were removed
	offset  int // of the last hunk
	spans   []Span
	applied []Applied
}

func (a *applier) lines() int { return len(a.starts) - 1 }

// line is line i without its end.
func (a *applier) line(i int) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(a.text[a.starts[i]:a.starts[i+1]], newline), []byte("\r"))
}

// matches reports whether the old lines of a hunk, without some at its ends, are there
// at line at, which is that of the first of all.
func (a *applier) matches(old []patchLine, at, skip, skipEnd int) bool {
	if at+skip < a.done || at+len(old)-skipEnd > a.lines() {
		return false
	}
	for i := skip; i < len(old)-skipEnd; i++ {
		if !bytes.Equal(a.line(at+i), bytes.TrimSuffix(old[i].text, []byte("\r"))) {
			return false
		}
	}
	return true
}

func (a *applier) apply(h hunk) error {
	var old []patchLine
	prefix, suffix, seen := 0, 0, false // lines of context at the ends
	for _, l := range h.lines {
		if l.mark == ' ' {
			suffix++
			if !seen {
				prefix++
			}
		} else {
			seen, suffix = true, 0
		}
		if l.mark != '+' {
			old = append(old, l)
		}
	}
	want := h.at - 1
	if h.empty {
		want = h.at // lines come behind that one
	}
	for fuzz := 0; fuzz <= MaxFuzz && fuzz <= max(prefix, suffix); fuzz++ {
		// As in patch: the longer context gives up lines first.
		context := max(prefix, suffix)
		skip, skipEnd := max(0, fuzz+prefix-context), max(0, fuzz+suffix-context)
		at, found, err := a.find(h, old, want, skip, skipEnd)
		if err != nil {
			return err
		}
		if found {
			a.put(h, at, skip, skipEnd)
			done := Applied{Line: at + 1, Fuzz: fuzz}
			if h.at > 0 || h.empty {
				done.Offset = at - want
				a.offset = done.Offset
			}
			a.applied = append(a.applied, done)
			return nil
		}
	}
	return a.mismatch(h, old, want)
}

// find looks for the lines nearest to where they should be.
func (a *applier) find(h hunk, old []patchLine, want, skip, skipEnd int) (int, bool, error) {
	if len(old)-skip-skipEnd == 0 {
		if h.at == 0 && !h.empty {
			return 0, false, errors.New("has no line to find its place by: give some lines around the change, or line numbers")
		}
		at := want + a.offset
		if len(old) > 0 || at < a.done || at > a.lines() {
			return 0, false, nil
		}
		return at, true, nil
	}
	if h.at == 0 && !h.empty {
		first := -1
		for at := a.done - skip; at+len(old)-skipEnd <= a.lines(); at++ {
			if !a.matches(old, at, skip, skipEnd) {
				continue
			}
			if first >= 0 {
				return 0, false, fmt.Errorf("fits at line %d and at line %d: give more lines around the change, or line numbers", first+1, at+1)
			}
			first = at
		}
		return first, first >= 0, nil
	}
	at := want + a.offset
	for d := 0; d <= max(a.lines(), at)+len(old); d++ {
		if a.matches(old, at-d, skip, skipEnd) {
			return at - d, true, nil
		}
		if a.matches(old, at+d, skip, skipEnd) {
			return at + d, true, nil
		}
	}
	return 0, false, nil
}

// put writes what is before the hunk, and the hunk.
func (a *applier) put(h hunk, at, skip, skipEnd int) {
	end := at + h.count - skipEnd
	first := at + skip
	a.out = append(a.out, a.text[a.starts[a.done]:a.starts[first]]...)
	span := Span{OldStart: a.starts[first], OldEnd: a.starts[end], NewStart: len(a.out)}
	at = first
	seen := 0
	for _, l := range h.lines {
		if l.mark != '+' {
			if seen++; seen <= skip || seen > h.count-skipEnd {
				continue
			}
		}
		switch l.mark {
		case ' ':
			a.out = append(a.endLine(a.out), a.text[a.starts[at]:a.starts[at+1]]...)
			at++
		case '-':
			at++
		case '+':
			a.out = append(a.endLine(a.out), l.text...)
			if l.cut || at == a.lines() && a.noNewline() && !a.gains(h) {
				break
			}
			a.out = append(a.out, a.end(at)...)
		}
	}
	a.done = end
	if a.done < a.lines() {
		a.out = a.endLine(a.out)
	}
	span.NewEnd = len(a.out)
	a.spans = append(a.spans, span)
}

// endLine ends the last line of out.
func (a *applier) endLine(out []byte) []byte {
	if len(out) == 0 || out[len(out)-1] == '\n' {
		return out
	}
	return append(out, a.end(a.lines())...)
}

// end is how a line ends at line i: as its neighbour does.
func (a *applier) end(i int) []byte {
	if !a.crlf {
		return newline
	}
	for _, n := range []int{i, i - 1, 0} {
		if n >= 0 && n < a.lines() {
			line := a.text[a.starts[n]:a.starts[n+1]]
			switch {
			case bytes.HasSuffix(line, []byte("\r\n")):
				return []byte("\r\n")
			case bytes.HasSuffix(line, newline):
				return newline
			}
		}
	}
	return newline
}

// noNewline reports whether the last line of the text has no end.
func (a *applier) noNewline() bool {
	return len(a.text) > 0 && a.text[len(a.text)-1] != '\n'
}

// gains reports whether a hunk says that the text gets the newline at its end that it
// lacks: a line that is removed has none, and the last one that is added has.
func (a *applier) gains(h hunk) bool {
	for _, l := range h.lines {
		if l.mark == '-' && l.cut {
			return true
		}
	}
	return false
}

// mismatch says what a hunk did not find.
func (a *applier) mismatch(h hunk, old []patchLine, want int) error {
	if len(old) == 0 {
		return fmt.Errorf("adds behind line %d, and there are %d lines", want, a.lines())
	}
	best, at := -1, 0
	for try := a.done; try < a.lines(); try++ {
		n := 0
		for n < len(old) && try+n < a.lines() && bytes.Equal(a.line(try+n), bytes.TrimSuffix(old[n].text, []byte("\r"))) {
			n++
		}
		if n > best {
			best, at = n, try
		}
	}
	if best <= 0 {
		return fmt.Errorf("does not fit anywhere: its first line, %.80q, is not there behind line %d", old[0].text, a.done)
	}
	got := "the end of the file"
	if at+best < a.lines() {
		got = fmt.Sprintf("%.80q", a.line(at+best))
	}
	if best == 1 {
		return fmt.Errorf("does not fit: nearest to it is line %d, but behind it comes %s in place of %.80q", at+1, got, old[best].text)
	}
	return fmt.Errorf("does not fit: nearest to it are the %d lines from line %d on, but behind them comes %s in place of %.80q", best, at+1, got, old[best].text)
}
