// Package textdiff writes the difference between two texts as a unified diff, and
// applies one to a text that may have moved on since.
//
// Lines end with a newline, and a carriage return before it belongs to the end. The
// functions work on bytes, whatever the encoding is, and are safe for concurrent use.
package textdiff

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/aymanbagabas/go-udiff"
)

// Context is how many lines a hunk shows before and behind what changed.
const Context = 3

// Span is a place where two texts differ: everything between two spans is the same in
// both.
type Span struct {
	OldStart, OldEnd int // bytes of the old text
	NewStart, NewEnd int // bytes of the new text
}

// header is a name as git writes it at the head of a diff: in quotes where it has characters that
// would end the line, or be obeyed by a terminal.
func header(name string) string {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}

// Write writes the difference between two texts as a unified diff, nothing when there is
// none, and returns how many lines it adds and removes. Who knows where they differ gives
// spans, in order, which spares the comparison of all the rest; nil is everywhere.
func Write(w io.Writer, oldName, newName string, before, after []byte, spans []Span) (added, removed int, err error) {
	if spans == nil {
		spans = []Span{between(before, after)}
	}
	d := &differ{before: before, w: bufio.NewWriter(w)}
	for _, s := range wholeLines(before, after, spans) {
		for _, e := range udiff.Lines(string(before[s.OldStart:s.OldEnd]), string(after[s.NewStart:s.NewEnd])) {
			d.changes = append(d.changes, change{s.OldStart + e.Start, s.OldStart + e.End, []byte(e.New)})
		}
	}
	if len(d.changes) > 0 {
		fmt.Fprintf(d.w, "--- %s\n+++ %s\n", header(oldName), header(newName))
		d.hunks()
	}
	return d.added, d.removed, d.w.Flush()
}

// between is what is left of two texts without what both begin and end with.
func between(before, after []byte) Span {
	n := min(len(before), len(after))
	start := 0
	for start < n && before[start] == after[start] {
		// Long stretches are compared at memory speed.
		if k := min(n-start, 4<<10); bytes.Equal(before[start:start+k], after[start:start+k]) {
			start += k
			continue
		}
		start++
	}
	end := 0
	for end < n-start && before[len(before)-1-end] == after[len(after)-1-end] {
		if k := min(n-start-end, 4<<10); bytes.Equal(before[len(before)-end-k:len(before)-end], after[len(after)-end-k:len(after)-end]) {
			end += k
			continue
		}
		end++
	}
	return Span{start, len(before) - end, start, len(after) - end}
}

// wholeLines widens spans to lines, and joins those that then touch.
func wholeLines(before, after []byte, spans []Span) []Span {
	var wide []Span
	for i := 0; i < len(spans); i++ {
		s := spans[i]
		back := s.OldStart - 1 - bytes.LastIndexByte(before[:s.OldStart], '\n')
		s.OldStart, s.NewStart = s.OldStart-back, s.NewStart-back
		for {
			forth := 0
			// What follows is the same in both, but a line may have ended in one only.
			if s.OldEnd > s.OldStart && before[s.OldEnd-1] != '\n' || s.NewEnd > s.NewStart && after[s.NewEnd-1] != '\n' {
				forth = lineLen(before[s.OldEnd:])
			}
			if i+1 == len(spans) || spans[i+1].OldStart > s.OldEnd+forth {
				s.OldEnd, s.NewEnd = s.OldEnd+forth, s.NewEnd+forth
				break
			}
			i++
			s.OldEnd, s.NewEnd = spans[i].OldEnd, spans[i].NewEnd
		}
		wide = append(wide, s)
	}
	return wide
}

// change takes the place of whole lines.
type change struct {
	start, end int // bytes of the old text
	text       []byte
}

type differ struct {
	before         []byte
	w              *bufio.Writer // its first error is told by Flush
	changes        []change
	added, removed int
}

// hunks writes the changes, those near each other together.
func (d *differ) hunks() {
	line, at, shift := 0, 0, 0 // lines before at; lines that the new text has more
	for i := 0; i < len(d.changes); {
		last := i
		for last+1 < len(d.changes) && bytes.Count(d.before[d.changes[last].end:d.changes[last+1].start], newline) <= 2*Context {
			last++
		}
		group := d.changes[i : last+1]
		start := d.before[:group[0].start]
		for range Context {
			start = start[:bytes.LastIndexByte(start[:max(len(start)-1, 0)], '\n')+1]
		}
		end := group[len(group)-1].end
		for range Context {
			end += lineLen(d.before[end:])
		}
		line += bytes.Count(d.before[at:len(start)], newline)
		at = len(start)
		shift += d.hunk(group, len(start), end, line, line+shift)
		i = last + 1
	}
}

var newline = []byte("\n")

// lineLen is the length of the first line of text, with its end.
func lineLen(text []byte) int {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return i + 1
	}
	return len(text)
}

// lineCount is how many lines a text has, the last one with or without its end.
func lineCount(text []byte) int {
	n := bytes.Count(text, newline)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}
	return n
}

// hunk writes the changes of a group, and returns by how many lines the new text grew.
func (d *differ) hunk(group []change, start, end, oldLine, newLine int) int {
	oldLines := lineCount(d.before[start:end])
	newLines := oldLines
	for _, c := range group {
		gone, come := lineCount(d.before[c.start:c.end]), lineCount(c.text)
		newLines += come - gone
		d.added += come
		d.removed += gone
	}
	fmt.Fprintf(d.w, "@@ -%s +%s @@\n", lineRange(oldLine, oldLines), lineRange(newLine, newLines))
	at := start
	for _, c := range group {
		d.lines(' ', d.before[at:c.start])
		d.lines('-', d.before[c.start:c.end])
		d.lines('+', c.text)
		at = c.end
	}
	d.lines(' ', d.before[at:end])
	return newLines - oldLines
}

// lineRange is n lines behind the first before of them, as diff writes it.
func lineRange(before, n int) string {
	switch n {
	case 0:
		return fmt.Sprintf("%d,0", before)
	case 1:
		return fmt.Sprint(before + 1)
	}
	return fmt.Sprintf("%d,%d", before+1, n)
}

func (d *differ) lines(mark byte, text []byte) {
	for len(text) > 0 {
		n := lineLen(text)
		d.w.WriteByte(mark)
		d.w.Write(text[:n])
		if text[n-1] != '\n' {
			d.w.WriteString("\n" + noNewline + "\n")
		}
		text = text[n:]
	}
}

const noNewline = `\ No newline at end of file`
