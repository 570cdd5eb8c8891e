package task

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentrun/agentrun/tool"
)

// previewBytes is how much of a report its parent is shown; all of it is at its URL.
const previewBytes = 5000

// answer is what a parent is told of its subagents, in the order of the call.
func answer(reports []report) tool.Result {
	var parts []string
	var details []any
	failed := 0
	for _, r := range reports {
		parts = append(parts, r.String())
		if r.end.Status != Completed {
			failed++
		}
		details = append(details, struct {
			End
			Agent string `json:"agent"`
			URL   string `json:"url"`
			Bytes int    `json:"bytes"`
		}{r.end, r.typ, "agent://" + r.id.String(), len(r.all())})
	}
	res := tool.Result{Text: strings.Join(parts, "\n\n"), IsError: failed == len(reports)}
	res.Details, _ = json.Marshal(map[string]any{"tasks": details}) // strings and numbers
	return res
}

// all is the whole report.
func (r *report) all() string {
	if r.result != nil {
		return string(r.result)
	}
	return r.text
}

// empty is the output of one who reported nothing.
func (r *report) empty() string {
	text := fmt.Sprintf("(%s reported nothing: %s", r.id, r.end.Status)
	if r.end.Reason != "" {
		text += ": " + r.end.Reason
	}
	return text + "; its transcript is agent://" + r.id.String() + ".jsonl)"
}

// String is the report as a model is shown it.
func (r *report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<task-result id=%q agent=%q status=%q", r.id.String(), r.typ, string(r.end.Status))
	if r.end.Version > 1 {
		fmt.Fprintf(&b, " version=\"%d\"", r.end.Version)
	}
	if r.took > 0 {
		fmt.Fprintf(&b, " duration=%q", r.took.Round(time.Millisecond).String())
	}
	b.WriteString(">\n")
	if r.end.Reason != "" {
		fmt.Fprintf(&b, "<reason>%s</reason>\n", r.end.Reason)
	}
	if r.end.Patch != nil {
		r.end.Patch.say(&b, r.id.String())
	}
	switch text := r.all(); {
	case text == "":
		b.WriteString(r.empty() + "\n")
	case len(text) <= previewBytes:
		fmt.Fprintf(&b, "<output url=\"agent://%s\">\n%s\n</output>\n", r.id, strings.TrimSuffix(text, "\n"))
	default:
		shown := preview(text)
		fmt.Fprintf(&b, "<preview url=\"agent://%s\" shown-bytes=\"%d\" total-bytes=\"%d\" total-lines=\"%d\">\n%s\n</preview>\n",
			r.id, len(shown), len(text), lines(text), strings.TrimSuffix(shown, "\n"))
	}
	b.WriteString("</task-result>")
	return b.String()
}

// preview is the beginning of a text, up to the end of a line if there is one in its second half.
func preview(text string) string {
	text = text[:previewBytes]
	if i := strings.LastIndexByte(text, '\n'); i >= previewBytes/2 {
		return text[:i+1]
	}
	for len(text) > 0 && !utf8.ValidString(text[max(0, len(text)-utf8.UTFMax):]) {
		r, n := utf8.DecodeLastRuneInString(text)
		if r != utf8.RuneError || n > 1 {
			break
		}
		text = text[:len(text)-1]
	}
	return text
}

func lines(text string) int {
	n := strings.Count(text, "\n")
	if !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}
