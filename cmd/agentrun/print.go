package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agentrun/agentrun/internal/quantity"

	"github.com/clipperhouse/displaywidth"

	"github.com/agentrun/agentrun/session"
)

// printJSON writes v on one line.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}

// oneLine makes one line of a title or path from a file, safe for a terminal.
func oneLine(s string) string { return visible(session.CleanTitle(s)) }

// terminal says how many columns a text takes; colours take none.
var terminal = displaywidth.Options{ControlSequences: true}

// firstWords is as much of a text as n columns of a line hold.
func firstWords(text string, n int) string {
	// A column takes at most four bytes in nearly every text, and looking at more is what
	// this costs. Combining characters and runs of white space may need all sixteen.
	for _, each := range []int{4, 16} {
		line := oneLine(text[:min(len(text), each*n)])
		if terminal.String(line) > n {
			return strings.TrimRight(terminal.TruncateString(line, n-1, ""), " ") + "…"
		}
		if len(text) <= each*n {
			return line
		}
	}
	return oneLine(text[:16*n])
}

// orNull is a string member of JSON that may be unknown.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// timestamp is a point in time in JSON, as session logs write them.
func timestamp(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format("2006-01-02T15:04:05.000Z")
	return &s
}

// localTime is a point in time for people.
func localTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// count is a number with its noun.
func count(n int64, one, many string) string { return quantity.Count(n, one, many) }
