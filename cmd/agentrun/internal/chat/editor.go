package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"

	"github.com/agentrun/agentrun/cmd/agentrun/internal/runview"
)

// maxInput bounds what a person can have in the input, a paste included.
const maxInput = 1 << 20

// editor is the text that a person is writing. Its zero value is empty.
type editor struct {
	text string
	at   int // the byte where the cursor is, at the beginning of a grapheme

	history []string // of prompts, the last one last
	back    int      // how many prompts back; 0 is what is being written
	draft   string   // that, while another one is shown
}

// set replaces the text, with the cursor at its end.
func (e *editor) set(text string) { e.text, e.at = text, len(text) }

// insert puts text at the cursor. What is not for a terminal is left out; too much is refused.
func (e *editor) insert(text string) bool {
	text = runview.CleanLines(strings.ReplaceAll(text, "\r\n", "\n"))
	if len(e.text)+len(text) > maxInput {
		return false
	}
	e.text, e.at = e.text[:e.at]+text+e.text[e.at:], e.at+len(text)
	return true
}

// left is where the grapheme before the cursor begins.
func (e *editor) left() int {
	line := strings.LastIndexByte(e.text[:e.at], '\n') + 1
	if line == e.at {
		return max(0, e.at-1)
	}
	at, last := line, line
	for g := displaywidth.StringGraphemes(e.text[line:e.at]); g.Next(); {
		last, at = at, at+len(g.Value())
	}
	return last
}

// right is where the grapheme at the cursor ends.
func (e *editor) right() int {
	g := displaywidth.StringGraphemes(e.text[e.at:])
	if !g.Next() {
		return e.at
	}
	return e.at + len(g.Value())
}

// wordLeft is where the word before the cursor begins.
func (e *editor) wordLeft() int {
	head := strings.TrimRightFunc(e.text[:e.at], unicode.IsSpace)
	i := strings.LastIndexFunc(head, unicode.IsSpace)
	if i < 0 {
		return 0
	}
	_, n := utf8.DecodeRuneInString(head[i:])
	return i + n
}

// wordRight is where the word behind the cursor ends.
func (e *editor) wordRight() int {
	rest := e.text[e.at:]
	word := strings.TrimLeftFunc(rest, unicode.IsSpace)
	i := strings.IndexFunc(word, unicode.IsSpace)
	if i < 0 {
		return len(e.text)
	}
	return e.at + len(rest) - len(word) + i
}

// lineStart and lineEnd are the ends of the line that the cursor is in.
func (e *editor) lineStart() int { return strings.LastIndexByte(e.text[:e.at], '\n') + 1 }

func (e *editor) lineEnd() int {
	if i := strings.IndexByte(e.text[e.at:], '\n'); i >= 0 {
		return e.at + i
	}
	return len(e.text)
}

// remove takes text away.
func (e *editor) remove(from, to int) { e.text, e.at = e.text[:from]+e.text[to:], from }

// key takes a key, and reports whether it is one of the editor.
func (e *editor) key(k string) bool {
	switch k {
	case "left", "ctrl+b":
		e.at = e.left()
	case "right", "ctrl+f":
		e.at = e.right()
	case "home", "ctrl+a":
		e.at = e.lineStart()
	case "end", "ctrl+e":
		e.at = e.lineEnd()
	case "alt+left", "ctrl+left", "alt+b":
		e.at = e.wordLeft()
	case "alt+right", "ctrl+right", "alt+f":
		e.at = e.wordRight()
	case "backspace", "ctrl+h":
		e.remove(e.left(), e.at)
	case "delete":
		e.remove(e.at, e.right())
	case "ctrl+w", "alt+backspace":
		e.remove(e.wordLeft(), e.at)
	case "ctrl+u":
		e.remove(e.lineStart(), e.at)
	case "ctrl+k":
		e.remove(e.at, e.lineEnd())
	case "ctrl+j", "alt+enter", "shift+enter":
		e.insert("\n")
	case "up", "ctrl+p":
		e.vertical(-1)
	case "down", "ctrl+n":
		e.vertical(1)
	default:
		return false
	}
	return true
}

// vertical goes to the line above or below, and from the first and last ones to other prompts.
func (e *editor) vertical(by int) {
	start, end := e.lineStart(), e.lineEnd()
	column := runview.Width(e.text[start:e.at])
	switch {
	case by < 0 && start > 0:
		e.at = start - 1
		e.at = e.lineStart()
	case by > 0 && end < len(e.text):
		e.at = end + 1
	default:
		e.recall(e.back - by)
		return
	}
	for stop := e.lineEnd(); e.at < stop; {
		next := e.right()
		if column -= runview.Width(e.text[e.at:next]); column < 0 {
			return
		}
		e.at = next
	}
}

// recall shows the prompt that is so many back.
func (e *editor) recall(back int) {
	if back < 0 || back > len(e.history) {
		return
	}
	if e.back == 0 {
		e.draft = e.text
	}
	if e.back = back; back == 0 {
		e.set(e.draft)
		return
	}
	e.set(e.history[len(e.history)-back])
}

// take returns the text, which is a prompt from now on, and is empty then.
func (e *editor) take() string {
	text := e.text
	if n := len(e.history); strings.TrimSpace(text) != "" && (n == 0 || e.history[n-1] != text) {
		e.history = append(e.history, text)
	}
	e.back, e.draft = 0, ""
	e.set("")
	return text
}

// rows are the text broken into rows of at most width columns, and where the cursor is in them.
func (e *editor) rows(width int) (rows []string, x, y int) {
	at := 0
	for line := range strings.SplitSeq(e.text, "\n") {
		for i, row := range runview.Wrap(line, width) {
			if e.at >= at && e.at <= at+len(row) {
				x, y = runview.Width(row[:e.at-at]), len(rows)
			}
			at += len(row)
			rows = append(rows, row)
			_ = i
		}
		at++ // the newline
	}
	if x >= width {
		x, y = 0, y+1
		if y == len(rows) {
			rows = append(rows, "")
		}
	}
	return rows, x, y
}
