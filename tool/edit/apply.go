package edit

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/internal/literal"
	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/internal/textdiff"
	"github.com/agentrun/agentrun/tool/workspace"
)

// Edit is the exchange of one text for another.
type Edit struct {
	Old string `json:"old"` // exactly as it is in the file; not empty
	New string `json:"new"`
	All bool   `json:"all,omitempty"` // wherever it is; else it must be there once
}

// MaxEdits is how many edits one call may make. Each is looked for in the whole file.
const MaxEdits = 1000

// maxPlaces is how many exchanges one call may make: each is held in memory until all are known.
const maxPlaces = 1_000_000

// NotFoundError is returned for a text that is not there.
type NotFoundError struct {
	Edit int    // from 0
	Near int    // a line where it is but for white space, from 1; 0 for none
	Text string // that line

	// Of a text of several lines: how many of its first lines are there, from line Near on, before line Text of the file
	// differs from line Want of the old text; 0 for none.
	Same int
	Want string
}

func (e *NotFoundError) Error() string {
	if e.Same > 0 {
		return fmt.Sprintf("edit %d: the old text is not there: from line %d on the file has its first %s, but then %q in place of %q: read the file and copy the text exactly",
			e.Edit+1, e.Near, lines(e.Same), e.Text, e.Want)
	}
	if e.Near > 0 {
		return fmt.Sprintf("edit %d: the old text is not there; but for white space it is at line %d, which begins %q: copy it exactly", e.Edit+1, e.Near, e.Text)
	}
	return fmt.Sprintf("edit %d: the old text is not there: read the file and copy the text exactly", e.Edit+1)
}

// AmbiguousError is returned for a text that is there more than once.
type AmbiguousError struct {
	Edit  int   // from 0
	Count int   // how often it is there
	Lines []int // where, from 1; the first ten
}

func (e *AmbiguousError) Error() string {
	lines := strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Lines), " ", ", "), "[]")
	if e.Count > len(e.Lines) {
		lines += ", ..."
	}
	return fmt.Sprintf("edit %d: the old text is there %d times, at lines %s: give more of the text around it, or ask for all of them", e.Edit+1, e.Count, lines)
}

// Apply makes all edits of a text, or none. Each is looked for in the text as it is given,
// so their order means nothing, and two must not touch the same text. Where lines of the
// text end with a carriage return and a newline, a newline in an edit stands for both. It
// returns the new text, where it differs, and how many exchanges were made.
func Apply(text []byte, edits []Edit) ([]byte, []textdiff.Span, int, error) {
	if len(edits) == 0 {
		return nil, nil, 0, errors.New("there is no edit")
	}
	if len(edits) > MaxEdits {
		return nil, nil, 0, fmt.Errorf("there are %d edits, and %d are the most: make them in several calls", len(edits), MaxEdits)
	}
	h := newHaystack(text)
	var all []exchange
	for i, e := range edits {
		found, err := h.find(i, e)
		if err != nil {
			return nil, nil, 0, err
		}
		if all = append(all, found...); len(all) > maxPlaces {
			return nil, nil, 0, tooMany(i)
		}
	}
	slices.SortFunc(all, func(a, b exchange) int { return a.start - b.start })
	size := int64(len(text))
	for i, x := range all {
		if i > 0 && x.start < all[i-1].end {
			return nil, nil, 0, fmt.Errorf("edits %d and %d are about the same text, at line %d: make one of them", all[i-1].edit+1, x.edit+1, lineOf(text, x.start))
		}
		size += int64(len(x.text) - (x.end - x.start))
	}
	if size > workspace.MaxFile {
		return nil, nil, 0, fmt.Errorf("it would have %s, and %s are the most: %w", quantity.Bytes(size), quantity.Size(workspace.MaxFile), workspace.ErrTooLarge)
	}
	out := make([]byte, 0, size)
	spans := make([]textdiff.Span, 0, len(all))
	at := 0
	for _, x := range all {
		out = append(out, text[at:x.start]...)
		spans = append(spans, textdiff.Span{OldStart: x.start, OldEnd: x.end, NewStart: len(out), NewEnd: len(out) + len(x.text)})
		out = append(out, x.text...)
		at = x.end
	}
	return append(out, text[at:]...), spans, len(all), nil
}

// exchange is a place of the text and what comes there.
type exchange struct {
	start, end int
	text       []byte
	edit       int
}

// haystack is a text that is searched.
type haystack struct {
	text []byte
	// plain is the text with newlines alone, and returns says where in it a carriage
	// return was before a newline. Both are made when they are needed.
	plain   []byte
	returns []int
	crlf    bool
}

func newHaystack(text []byte) *haystack {
	return &haystack{text: text, crlf: bytes.Contains(text, crlf)}
}

var crlf = []byte("\r\n")

// find returns the places of an edit.
func (h *haystack) find(i int, e Edit) ([]exchange, error) {
	switch {
	case e.Old == "":
		return nil, fmt.Errorf("edit %d: the old text is empty: give the text to exchange; the tool write makes a whole file", i+1)
	case e.Old == e.New:
		return nil, fmt.Errorf("edit %d: the old text and the new one are the same", i+1)
	}
	if !h.crlf || strings.Contains(e.Old, "\r\n") || !strings.Contains(e.Old+e.New, "\n") {
		found, err := h.places(i, e, h.text)
		text := []byte(e.New) // one for all of them
		for k := range found {
			found[k].text = text
		}
		return found, err
	}
	h.unwind()
	found, err := h.places(i, e, h.plain)
	if err != nil {
		return nil, err
	}
	text := []byte(e.New)
	returned := bytes.ReplaceAll(bytes.ReplaceAll(text, crlf, newline), newline, crlf)
	for k, x := range found {
		x.start, x.end = h.raw(x.start), h.raw(x.end)
		if x.text = text; h.endsCRLF(x.start) {
			x.text = returned
		}
		found[k] = x
	}
	return found, nil
}

var newline = []byte("\n")

// unwind makes the text with newlines alone.
func (h *haystack) unwind() {
	if h.plain != nil {
		return
	}
	h.plain = make([]byte, 0, len(h.text))
	for rest := h.text; ; {
		i := bytes.Index(rest, crlf)
		if i < 0 {
			h.plain = append(h.plain, rest...)
			return
		}
		h.plain = append(h.plain, rest[:i]...)
		h.returns = append(h.returns, len(h.plain))
		rest = rest[i+1:]
		h.plain = append(h.plain, '\n')
		rest = rest[1:]
	}
}

// raw is where a byte of plain is in the text; a newline is where its carriage return is.
func (h *haystack) raw(at int) int {
	n, _ := slices.BinarySearch(h.returns, at)
	return at + n
}

// endsCRLF reports whether the line at an offset ends with both, or the one before it
// where it has no end.
func (h *haystack) endsCRLF(at int) bool {
	end := bytes.IndexByte(h.text[at:], '\n')
	if end < 0 {
		at, end = 0, bytes.LastIndexByte(h.text, '\n')
	}
	at += end
	return at > 0 && h.text[at-1] == '\r'
}

// places looks for the old text of an edit.
func (h *haystack) places(i int, e Edit, in []byte) ([]exchange, error) {
	old := []byte(e.Old)
	var found []exchange
	step := 1 // two places that overlap are two that could be meant
	if e.All {
		step = len(old)
	}
	ambiguous := &AmbiguousError{Edit: i}
	finder := literal.NewFinder(old)
	for at := 0; at <= len(in); {
		k := finder.Index(in[at:])
		if k < 0 {
			break
		}
		at += k
		if ambiguous.Count++; e.All || len(found) == 0 {
			found = append(found, exchange{start: at, end: at + len(old), edit: i})
		}
		if len(found) > maxPlaces {
			return nil, tooMany(i)
		}
		if !e.All && len(ambiguous.Lines) < 10 {
			ambiguous.Lines = append(ambiguous.Lines, lineOf(in, at))
		}
		at += step
	}
	switch {
	case len(found) == 0:
		return nil, h.near(i, e)
	case ambiguous.Count > 1 && !e.All:
		return nil, ambiguous
	}
	return found, nil
}

func tooMany(i int) error {
	return fmt.Errorf("edit %d: the old texts are at more than %d places: give more of the text around them, or change the file with a program", i+1, maxPlaces)
}

func lineOf(text []byte, at int) int { return bytes.Count(text[:at], newline) + 1 }

// near looks for the old text regardless of white space.
func (h *haystack) near(i int, e Edit) error {
	missing := &NotFoundError{Edit: i}
	want := squeeze([]byte(e.Old))
	if len(want) == 0 {
		return missing
	}
	// Where a byte of the squeezed text was is found by squeezing line after line.
	all := squeeze(h.text)
	at := bytes.Index(all, want)
	if at < 0 {
		h.nearest(missing, e.Old)
		return missing
	}
	line, seen := 0, 0
	for text := range bytes.Lines(h.text) {
		line++
		if seen += len(squeeze(text)); seen > at {
			missing.Near, missing.Text = line, excerpt(text)
			return missing
		}
	}
	return missing
}

// maxNearest bounds how many lines of a file are compared with those of an old text.
const maxNearest = 1_000_000

// nearest notes where most of the first lines of the old text are, regardless of white space at their ends.
func (h *haystack) nearest(missing *NotFoundError, old string) {
	want := bytes.Split(bytes.Trim([]byte(old), "\r\n"), newline)
	first := bytes.TrimSpace(want[0])
	if len(want) < 2 || len(first) < 2 || bytes.Count(h.text, newline) > maxNearest {
		return
	}
	has := bytes.Split(h.text, newline)
	for i := range has {
		same := 0
		for same < len(want) && i+same < len(has) && bytes.Equal(bytes.TrimSpace(has[i+same]), bytes.TrimSpace(want[same])) {
			same++
		}
		if same <= missing.Same || same == len(want) {
			continue
		}
		missing.Same, missing.Near, missing.Want, missing.Text = same, i+1, excerpt(want[same]), ""
		if i+same < len(has) {
			missing.Text = excerpt(has[i+same])
		}
	}
}

// excerpt is the beginning of a line.
func excerpt(line []byte) string {
	return fmt.Sprintf("%.80s", bytes.ToValidUTF8(bytes.TrimRight(line, "\r\n"), []byte("\uFFFD")))
}

func lines(n int) string {
	if n == 1 {
		return "line"
	}
	return fmt.Sprintf("%d lines", n)
}

// squeeze takes all white space out.
func squeeze(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, b := range text {
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			out = append(out, b)
		}
	}
	return out
}
