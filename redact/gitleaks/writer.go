package gitleaks

import (
	"bytes"
	"fmt"
	"io"

	"github.com/agentrun/agentrun/redact"
)

// window is how much of a text without line ends is looked at together.
const window = 256 << 10

// Writer replaces what the rules find in a text on its way to another writer, by [redacted:<rule>:<n>]. It looks at whole lines, several at once. A
// secret ends where a quote, a backslash or a character of markup stands in it, so that JSON and HTML stay what they are.
type Writer struct {
	to     io.Writer
	number func(kind string, secret []byte) int64
	held   []byte
	n      int64
}

// NewWriter returns a Writer. number numbers secrets as redact.Options.Number does; nil counts. Close writes what was held back.
func NewWriter(to io.Writer, number func(kind string, secret []byte) int64) *Writer {
	if number == nil {
		number = redact.Count(0)
	}
	return &Writer{to: to, number: number}
}

// Write takes all of b. Its error is that of the writer behind.
func (w *Writer) Write(b []byte) (int, error) {
	w.held = append(w.held, b...)
	for len(w.held) >= window {
		end := bytes.LastIndexByte(w.held[:window], '\n') + 1
		if end == 0 {
			end = window
		}
		if err := w.pass(w.held[:end]); err != nil {
			return 0, err
		}
		w.held = append(w.held[:0], w.held[end:]...)
	}
	return len(b), nil
}

// Close ends the text.
func (w *Writer) Close() error {
	err := w.pass(w.held)
	w.held = nil
	return err
}

// Replaced returns how many secrets were replaced so far.
func (w *Writer) Replaced() int64 { return w.n }

func (w *Writer) pass(text []byte) error {
	var out []byte
	done := 0
	for _, f := range Find(text) {
		secret := text[f.From:f.To]
		if i := bytes.IndexAny(secret, "\"\\<>&"); i >= 0 {
			secret = secret[:i]
		}
		if len(secret) < redact.MinSecret || bytes.Contains(text[max(0, f.From-len("[redacted:")):f.To], []byte("[redacted:")) {
			continue
		}
		out = append(out, text[done:f.From]...)
		out = fmt.Appendf(out, "[redacted:%s:%d]", f.Rule, w.number(f.Rule, secret))
		done = f.From + len(secret)
		w.n++
	}
	if out == nil {
		out = text
	} else {
		out = append(out, text[done:]...)
	}
	if len(out) == 0 {
		return nil
	}
	_, err := w.to.Write(out)
	return err
}
