package entry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// pruneFrom is the size in bytes from which it is worth to replace an output by a line.
const pruneFrom = 400

// PruneType is a custom entry that prunes every context below it: of the tool output before it, all but the newest is
// replaced as by [ContextOptions].KeepToolOutput. Its data is a Prune. A compaction or a reset boundary behind it ends it, and
// so does another one.
const PruneType = "agentrun.prune"

// Prune is the data of an entry of PruneType.
type Prune struct {
	// KeepToolOutput is how many bytes of the newest tool output before the entry stay whole; at least 1.
	KeepToolOutput int64 `json:"keepToolOutput"`
	// SessionID is cited where the reader of the context knows no other.
	SessionID string `json:"sessionId,omitempty"`
}

// lastPrune is the place of the last entry of PruneType, -1 without one.
func lastPrune(path []Entry) int {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i].typ == TypeCustom && mentions(path[i].raw, PruneType) {
			if c, ok := path[i].Custom(); ok && c.CustomType == PruneType {
				return i
			}
		}
	}
	return -1
}

// pruneBefore prunes what stands before an entry of PruneType.
func pruneBefore(ctx *Context, e Entry, opts ContextOptions) {
	var p Prune
	if c, ok := e.Custom(); !ok || json.Unmarshal(c.Data, &p) != nil || p.KeepToolOutput < 1 {
		return // not ours: the context has everything
	}
	// The way to the leaf goes through the file forwards.
	n := len(ctx.Messages)
	for n > 0 && ctx.Messages[n-1].entry.offset > e.offset {
		n--
	}
	prune(ctx.Messages[:n], ContextOptions{KeepToolOutput: p.KeepToolOutput, SessionID: cmp.Or(opts.SessionID, p.SessionID)})
	ctx.Prune = e.id
}

// prune replaces the text of all but the newest tool outputs by a line that says
// where it is.
func prune(messages []ContextMessage, opts ContextOptions) {
	left := opts.KeepToolOutput
	for i := len(messages) - 1; i >= 0; i-- {
		m := &messages[i]
		if m.Synthetic || m.entry.typ != TypeMessage {
			continue
		}
		body := m.entry.message()
		size := outputSize(m.Role, body)
		if left -= size; left >= 0 || size < pruneFrom {
			continue
		}
		left = 0 // whatever is older is pruned too, or what a model sees would have gaps
		m.Pruned = citation(m, body, opts.SessionID)
	}
}

// outputSize is how much output of a tool the message shows, in bytes of JSON.
func outputSize(role string, m gjson.Result) int64 {
	switch role {
	case RoleBashExecution, RolePythonExecution:
		return int64(len(m.Get("output").Raw))
	case RoleToolResult:
		content := m.Get("content")
		n := int64(0)
		if content.Type == gjson.String {
			n = int64(len(content.Raw))
		}
		for b := range elements(content) {
			if str(b.Get("type")) == BlockText {
				n += int64(len(b.Get("text").Raw))
			}
		}
		return n
	}
	return 0
}

// citation is the line that stands for the output of m: the artifact that holds all
// of it, else the entry itself, which is in the log for ever.
func citation(m *ContextMessage, body gjson.Result, session string) string {
	for _, at := range []struct{ id, lines, state string }{
		{"details.artifact.id", "details.artifact.lines", "details.artifact.state"},
		{"details.meta.truncation.artifactId", "details.meta.truncation.totalLines", ""},
		{"meta.truncation.artifactId", "meta.truncation.totalLines", ""},
		{"details.artifactId", "details.totalLines", ""},
	} {
		id := body.Get(at.id)
		n, err := strconv.ParseUint(id.String(), 10, 48)
		if err != nil || at.state != "" && str(body.Get(at.state)) != "" {
			continue // none, or one that does not hold everything
		}
		line := fmt.Sprintf("tool output at artifact://%d", n)
		if lines := body.Get(at.lines).Int(); lines > 0 {
			line += ", " + lineCount(lines)
		}
		return line
	}
	if session == "" {
		return ""
	}
	line := fmt.Sprintf("tool output at session://%s/%s", session, m.EntryID)
	if mentions(m.entry.raw, "externalized") {
		return line // part of it lies elsewhere, and cannot be counted here
	}
	lines := int64(0)
	count := func(text string) {
		if text != "" {
			lines += int64(strings.Count(strings.TrimSuffix(text, "\n"), "\n")) + 1
		}
	}
	if output := body.Get("output"); m.Role != RoleToolResult {
		count(output.String())
	} else if content := body.Get("content"); content.Type == gjson.String {
		count(content.Str)
	} else {
		for b := range elements(content) {
			if str(b.Get("type")) == BlockText {
				count(str(b.Get("text")))
			}
		}
	}
	return line + ", " + lineCount(lines)
}

// lineCount words a number of lines: 1 line, 4,301 lines.
func lineCount(n int64) string {
	if n == 1 {
		return "1 line"
	}
	digits := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String() + " lines"
}

// pruned returns m with line in place of its output. Images stay.
func pruned(m Message, line string) Message {
	switch m := m.(type) {
	case ToolResultMessage:
		blocks := []Block{TextBlock{Text: line}}
		for _, b := range m.Content.Blocks() {
			if _, ok := b.(TextBlock); !ok {
				blocks = append(blocks, b)
			}
		}
		m.Content = Blocks(blocks...)
		return m
	case BashExecutionMessage:
		m.Output, m.Meta = line, nil // a notice about what was cut is about the old output
		return m
	case PythonExecutionMessage:
		m.Output, m.Meta = line, nil
		return m
	}
	return m
}
