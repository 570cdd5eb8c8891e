package internalurl

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Range is a run of lines, counted from 1.
type Range struct {
	First int64
	Last  int64 // ToEnd for all that follow
}

// ToEnd is the Last of a Range without an end.
const ToEnd = math.MaxInt64

// Selector chooses lines of a resource. The zero value chooses nothing in
// particular: the resource from its beginning.
type Selector struct {
	Raw    bool    // bytes as they are, without paging
	Ranges []Range // ascending, neither overlapping nor adjacent
	Tail   int64   // the last lines; 0 when Ranges is meant
	// Skip is how many bytes of the first line of Ranges, as it is shown, are left out.
	Skip int64
	// Pages are those of a document that has pages, of which then the lines are counted; the zero
	// value selects none in particular.
	Pages Range
}

// IsZero reports whether nothing was selected.
func (s Selector) IsZero() bool {
	return !s.Raw && len(s.Ranges) == 0 && s.Tail == 0 && s.Pages == Range{}
}

// String is the selector as it ends a URL, colon included; "" for the zero one.
func (s Selector) String() string {
	var b strings.Builder
	if s.Raw {
		b.WriteString(":raw")
	}
	switch p := s.Pages; {
	case p == Range{}:
	case p.Last == ToEnd:
		fmt.Fprintf(&b, ":p%d-", p.First)
	case p.Last == p.First:
		fmt.Fprintf(&b, ":p%d", p.First)
	default:
		fmt.Fprintf(&b, ":p%d-%d", p.First, p.Last)
	}
	if s.Tail > 0 {
		fmt.Fprintf(&b, ":-%d", s.Tail)
	}
	for i, r := range s.Ranges {
		b.WriteByte(":,"[min(i, 1)])
		b.WriteString(strconv.FormatInt(r.First, 10))
		if i == 0 && s.Skip > 0 {
			fmt.Fprintf(&b, "@%d", s.Skip)
		}
		switch {
		case r.Last == ToEnd:
		case r.Last == r.First:
			b.WriteString("+1")
		default:
			fmt.Fprintf(&b, "-%d", r.Last)
		}
	}
	return b.String()
}

// cutSelector takes the selector off the end of a URL without its scheme. What
// follows a colon is a selector, except in the query and the keys of an agent's
// output, where only what reads as one is.
func cutSelector(scheme, rest string) (body string, sel Selector, err error) {
	body = rest
	var parts []string
	for {
		colon := strings.LastIndexByte(body, ':')
		if colon < 0 {
			break
		}
		part := body[colon+1:]
		if scheme == Agent && strings.ContainsAny(body[:colon], "/?") && !looksLikeSelector(part) {
			break
		}
		parts = append(parts, part)
		body = body[:colon]
	}
	slices.Reverse(parts)
	sel, err = parseSelector(parts)
	return body, sel, err
}

// ParseSelector reads a selector with its leading colon; "" is the zero one.
func ParseSelector(s string) (Selector, error) {
	if s == "" {
		return Selector{}, nil
	}
	rest, ok := strings.CutPrefix(s, ":")
	if !ok {
		return Selector{}, invalidSelector(s)
	}
	return parseSelector(strings.Split(rest, ":"))
}

// CutSelector takes a selector off the end of a file name. A colon that begins
// none belongs to the name.
func CutSelector(name string) (rest string, sel Selector, err error) {
	rest = name
	var parts []string
	for {
		colon := strings.LastIndexByte(rest, ':')
		if colon <= 0 || !looksLikeSelector(rest[colon+1:]) {
			break
		}
		parts = append(parts, rest[colon+1:])
		rest = rest[:colon]
	}
	slices.Reverse(parts)
	sel, err = parseSelector(parts)
	return rest, sel, err
}

func parseSelector(parts []string) (Selector, error) {
	var sel Selector
	whole := ":" + strings.Join(parts, ":")
	lines := false
	for _, part := range parts {
		raw, pages := strings.EqualFold(part, "raw"), selectsPages(part)
		switch {
		case raw && sel.Raw, pages && sel.Pages != Range{}, !raw && !pages && lines:
			return Selector{}, invalidSelector(whole)
		case raw:
			sel.Raw = true
		case pages:
			if err := sel.parsePages(part, whole); err != nil {
				return Selector{}, err
			}
		default:
			lines = true
			if err := sel.parseLines(part, whole); err != nil {
				return Selector{}, err
			}
		}
	}
	return sel, nil
}

// selectsPages reports whether part has the form of a selector of pages.
func selectsPages(part string) bool {
	return len(part) > 1 && (part[0] == 'p' || part[0] == 'P') && strings.Trim(part[1:], "0123456789-") == "" && '0' <= part[1] && part[1] <= '9'
}

// parsePages reads pN, pN-M and pN-: unlike a line, a page is read alone.
func (s *Selector) parsePages(part, whole string) error {
	left, right, open := strings.Cut(part[1:], "-")
	first, ok := parseCount(left)
	if !ok || first == 0 {
		return invalidSelector(whole)
	}
	s.Pages = Range{first, first}
	switch {
	case open && right == "":
		s.Pages.Last = ToEnd
	case open:
		last, ok := parseCount(right)
		if !ok || last < first {
			return invalidSelector(whole)
		}
		s.Pages.Last = last
	}
	return nil
}

// invalidSelector is the sentence for what reads as no selector at all.
func invalidSelector(s string) error {
	return sentence(fmt.Sprintf("Invalid selector '%.80s'. Use :N, :N-M, :N+K, :N-, :-N for the last N lines, a list such as :1-3,8-9, :pN for a page of a document, or :raw", s))
}

func (s *Selector) parseLines(part, whole string) error {
	if digits, ok := strings.CutPrefix(part, "-"); ok {
		n, ok := parseCount(digits)
		switch {
		case !ok:
			return invalidSelector(whole)
		case n == 0:
			return sentence("Tail selector -0 is invalid; use :-1 for the last line.")
		}
		s.Tail = n
		return nil
	}
	from := int64(0)
	for i, chunk := range strings.Split(part, ",") {
		chunk = strings.TrimSpace(chunk)
		if i == 0 {
			var ok bool
			if chunk, ok = s.cutSkip(chunk); !ok {
				return invalidSelector(whole)
			}
		}
		r, err := parseRange(chunk, whole)
		if err != nil {
			return err
		}
		if i == 0 {
			from = r.First
		}
		s.Ranges = append(s.Ranges, r)
	}
	s.Ranges = merge(s.Ranges)
	if s.Skip > 0 && s.Ranges[0].First != from {
		return invalidSelector(whole)
	}
	return nil
}

// cutSkip takes "@N" out behind the number of a line.
func (s *Selector) cutSkip(chunk string) (string, bool) {
	line, rest, ok := strings.Cut(chunk, "@")
	if !ok {
		return chunk, true
	}
	end := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	skip, ok := parseCount(rest[:end])
	_, plain := parseCount(trimL(line))
	s.Skip = skip
	return line + rest[end:], ok && plain
}

// parseRange reads N, N-M, N..M, N+K, N- and N.., with an optional L before a
// number.
func parseRange(chunk, whole string) (Range, error) {
	left, op, right := cutOperator(chunk)
	first, ok := parseCount(trimL(left))
	if !ok {
		return Range{}, invalidSelector(whole)
	}
	if first == 0 {
		return Range{}, sentence("Line selector 0 is invalid; lines are 1-indexed. Use :1.")
	}
	if right == "" {
		if op == "+" {
			return Range{}, invalidSelector(whole)
		}
		return Range{first, ToEnd}, nil
	}
	n, ok := parseCount(trimL(right))
	switch {
	case !ok:
		return Range{}, invalidSelector(whole)
	case op == "+" && n == 0:
		return Range{}, sentence(fmt.Sprintf("Invalid range %d+0: count must be >= 1.", first))
	case op == "+" && n > ToEnd-first:
		return Range{first, ToEnd}, nil
	case op == "+":
		return Range{first, first + n - 1}, nil
	case n < first:
		return Range{}, sentence(fmt.Sprintf("Invalid range %d-%d: end must be >= start.", first, n))
	}
	return Range{first, n}, nil
}

func cutOperator(chunk string) (left, op, right string) {
	for _, op := range []string{"..", "-", "+"} {
		if left, right, ok := strings.Cut(chunk, op); ok {
			return left, op, right
		}
	}
	return chunk, "", ""
}

func trimL(s string) string {
	if len(s) > 1 && (s[0] == 'L' || s[0] == 'l') {
		return s[1:]
	}
	return s
}

// parseCount reads decimal digits. What is beyond int64 is as good as the end of
// any file.
func parseCount(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return ToEnd, true
	}
	return n, true
}

// merge sorts ranges and joins those that overlap or touch.
func merge(ranges []Range) []Range {
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	merged := ranges[:1]
	for _, r := range ranges[1:] {
		last := &merged[len(merged)-1]
		if last.Last == ToEnd || r.First <= last.Last+1 {
			last.Last = max(last.Last, r.Last)
		} else {
			merged = append(merged, r)
		}
	}
	return merged
}

// looksLikeSelector reports whether part has the letters of a selector, valid or
// not.
func looksLikeSelector(part string) bool {
	if part == "" || strings.EqualFold(part, "raw") || selectsPages(part) {
		return part != ""
	}
	digit := strings.ContainsAny(part, "0123456789")
	return digit && strings.Trim(part, "0123456789-+.,@lL ") == ""
}
