package transcript

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

// turn tells entry i. ok is false for what says nothing of its own: the result of a
// call that was told, the start of a run whose end comes, bookkeeping.
func (r *reader) turn(ctx context.Context, i int) (t turn, ok bool, err error) {
	if r.told[i] {
		return t, false, nil
	}
	r.told[i] = true
	e, err := r.entry(ctx, i)
	if err != nil {
		return t, false, err
	}
	t = turn{id: e.ID(), time: e.Time(), label: r.labels[e.ID()]}
	if ok, err = r.tell(ctx, &t, i, e); err != nil {
		return t, false, err
	}
	for _, gap := range r.gapAt[e.Offset()] {
		if !ok {
			t.kind, t.who, ok = "note", "Note", true
		}
		t.parts = append([]part{remark{sentence(gap.What())}}, t.parts...)
	}
	return t, ok, nil
}

// sentence makes a sentence of words.
func sentence(words string) string {
	return strings.ToUpper(words[:1]) + words[1:] + "."
}

// tell fills a turn with what entry i says.
func (r *reader) tell(ctx context.Context, t *turn, i int, e entry.Entry) (ok bool, err error) {
	if e.Type() != entry.TypeMessage {
		return r.other(t, e), nil
	}
	m, err := e.Message()
	if err != nil {
		t.kind, t.who, t.parts = "note", "Message", []part{raw{"a message that cannot be read", pretty(e.Raw())}}
		return true, nil
	}
	return true, r.message(ctx, t, i, m)
}

// message fills a turn with the message in entry i.
func (r *reader) message(ctx context.Context, t *turn, i int, m entry.Message) error {
	switch m := m.(type) {
	case entry.UserMessage:
		t.kind, t.who = "user", "User"
		if m.MessageRole() == entry.RoleDeveloper {
			t.kind, t.who = "note", "Developer"
		}
		t.parts = r.content(m.Content, false, t.id)
	case entry.AssistantMessage:
		t.kind, t.who, t.aside = "assistant", "Assistant", m.Model
		if err := r.answer(ctx, t, i, m); err != nil {
			return err
		}
	case entry.ToolResultMessage:
		t.kind, t.who = "tool", "Result"
		t.parts = []part{call{name: m.ToolName, status: failed(m.IsError), bad: m.IsError, parts: r.content(m.Content, true, t.id)}}
	case entry.BashExecutionMessage:
		t.kind, t.who = "run", "Command"
		t.parts = []part{r.run("$", m, t.id)}
	case entry.PythonExecutionMessage:
		t.kind, t.who = "run", "Python"
		t.parts = []part{r.run("python", entry.BashExecutionMessage{
			Command: m.Code, Output: m.Output, ExitCode: m.ExitCode, Cancelled: m.Cancelled, Images: m.Images, Details: m.Details,
		}, t.id)}
	case entry.ExtensionMessage:
		t.kind, t.who, t.aside = "note", "Extension", m.CustomType
		t.parts = r.content(m.Content, true, t.id)
	case entry.FileMentionMessage:
		t.kind, t.who = "user", "Files"
		for _, f := range m.Files {
			c := call{name: f.Path, status: f.SkippedReason}
			if f.Content != "" {
				c.parts = r.output(f.Content, t.id)
			}
			if f.Image != nil {
				c.parts = append(c.parts, r.picture(*f.Image))
			}
			t.parts = append(t.parts, c)
		}
	default:
		t.kind, t.who = "note", "Message"
		text, _ := json.Marshal(m)
		t.parts = []part{raw{"a message of role " + m.MessageRole(), pretty(text)}}
	}
	return nil
}

// answer fills a turn with what a model answered in entry i, each call with its result.
func (r *reader) answer(ctx context.Context, t *turn, i int, m entry.AssistantMessage) error {
	for _, b := range m.Content.Blocks() {
		c, ok := b.(entry.ToolCallBlock)
		if !ok {
			t.parts = append(t.parts, r.block(b, true)...)
			continue
		}
		p := call{name: c.Name, brief: briefly(c), asked: arguments(c.Arguments), status: "no result", bad: true}
		results := r.results[asked{i, c.ID}]
		if at := slices.IndexFunc(results, func(i int) bool { return !r.told[i] }); at >= 0 {
			i := results[at]
			r.told[i] = true
			e, err := r.entry(ctx, i)
			if err != nil {
				return err
			}
			result, err := e.Message()
			if answer, ok := result.(entry.ToolResultMessage); ok && err == nil {
				p.status, p.bad, p.parts = failed(answer.IsError), answer.IsError, r.content(answer.Content, true, e.ID())
			} else {
				p.parts = []part{raw{"a result that cannot be read", pretty(e.Raw())}}
			}
		}
		t.parts = append(t.parts, p)
	}
	switch {
	case m.ErrorMessage != "":
		t.parts = append(t.parts, remark{"It ended with an error: " + clean(m.ErrorMessage)})
	case m.StopReason == entry.StopAborted:
		t.parts = append(t.parts, remark{"It was interrupted."})
	case m.StopReason == entry.StopLength:
		t.parts = append(t.parts, remark{"It ended at the longest answer that was allowed."})
	}
	return nil
}

// content tells the blocks of a message. Text of a program is kept to the letter.
func (r *reader) content(c entry.Content, program bool, id string) []part {
	var parts []part
	for _, b := range c.Blocks() {
		if text, ok := b.(entry.TextBlock); ok && program {
			parts = append(parts, r.output(text.Text, id)...)
			continue
		}
		parts = append(parts, r.block(b, false)...)
	}
	return parts
}

func (r *reader) block(b entry.Block, markdown bool) []part {
	switch b := b.(type) {
	case entry.TextBlock:
		if strings.TrimSpace(b.Text) == "" {
			return nil
		}
		return []part{prose{clean(b.Text), markdown}}
	case entry.ThinkingBlock:
		if strings.TrimSpace(b.Thinking) == "" {
			return nil
		}
		return []part{reasoning{clean(b.Thinking)}}
	case entry.RedactedThinkingBlock:
		return []part{remark{"Reasoning that only the provider can read."}}
	case entry.ImageBlock:
		return []part{r.picture(b)}
	}
	text, _ := json.Marshal(b)
	return []part{raw{"a block of type " + b.BlockType(), pretty(text)}}
}

// picture tells an image, or why there is none.
func (r *reader) picture(b entry.ImageBlock) part {
	p := picture{mime: b.MIMEType}
	if (entry.Image{Data: b.Data}).IsRef() {
		r.sum.Missing++
		p.why = "it is not in this home: " + clean(b.Data)
		return p
	}
	data, err := base64.StdEncoding.DecodeString(b.Data)
	if err != nil || len(data) == 0 {
		r.sum.Missing++
		p.why = "its bytes are no base64"
		return p
	}
	p.data = data
	r.sum.Images++
	return p
}

// run tells a command, or code, and its output.
func (r *reader) run(name string, m entry.BashExecutionMessage, id string) part {
	c := call{name: name, brief: firstLine(m.Command), asked: clean(m.Command), parts: r.output(m.Output, id)}
	c.status, c.bad = ending(m.ExitCode, m.Cancelled)
	var f bash.Finish
	if json.Unmarshal(m.Details, &f) == nil && f.Run != "" {
		if f.Artifact != nil {
			c.artifact = &f.Artifact.ID
		}
		switch {
		case f.TimedOut:
			c.status, c.bad = "timeout", true
		case f.Signal != nil:
			c.status, c.bad = clean(*f.Signal), true
		}
	}
	for _, image := range m.Images {
		c.parts = append(c.parts, r.picture(image))
	}
	return c
}

func ending(code *int, cancelled bool) (status string, bad bool) {
	switch {
	case cancelled:
		return "cancelled", true
	case code != nil && *code != 0:
		return fmt.Sprintf("exit %d", *code), true
	}
	return "", false
}

func failed(is bool) string {
	if is {
		return "failed"
	}
	return ""
}

// output keeps as much of a program's text as is shown, and says what is not.
func (r *reader) output(text, id string) []part {
	if text == "" {
		return nil
	}
	o := output{text: clean(text)}
	if limit := r.o.MaxOutput; len(o.text) > limit {
		r.sum.Cut++
		all := o.text
		head := cutLines(all[:limit/2], true)
		tail := cutLines(all[len(all)-limit/2:], false)
		gone := all[len(head) : len(all)-len(tail)]
		o.text = strings.TrimSuffix(head, "\n") + "\n[…]\n" + tail
		o.notice = "Not shown: " + outputsink.FormatBytes(int64(len(gone))) + " in the middle"
		if before := strings.Count(head, "\n"); strings.HasSuffix(head, "\n") && strings.HasSuffix(gone, "\n") {
			o.notice += fmt.Sprintf(", lines %s to %s of %s", thousands(before+1), thousands(before+strings.Count(gone, "\n")), thousands(lines(all)))
		}
		o.notice += ". " + r.whole(id)
	}
	return []part{o}
}

// whole says where all of an entry is.
func (r *reader) whole(id string) string {
	if id == "" {
		return "All of it is in the log, and in a transcript as JSON."
	}
	return fmt.Sprintf("All of it: agentrun read session://%s/%s", r.s.ID(), id)
}

// lines is how many lines a text has.
func lines(s string) int {
	n := strings.Count(s, "\n")
	if s != "" && !strings.HasSuffix(s, "\n") {
		n++
	}
	return n
}

// cutLines leaves out the line that is not whole, at the end or at the beginning; of
// a single line the bytes that are no character.
func cutLines(s string, end bool) string {
	if end {
		if i := strings.LastIndexByte(s, '\n'); i >= 0 {
			return s[:i+1]
		}
	} else if i := strings.IndexByte(s, '\n'); i >= 0 {
		return s[i+1:]
	}
	return strings.ToValidUTF8(s, "")
}

// other fills a turn with an entry that is no message, and reports whether it is told.
func (r *reader) other(t *turn, e entry.Entry) bool {
	t.kind = "note"
	body, err := e.Body()
	if err != nil {
		t.who, t.parts = "Entry", []part{raw{"an entry that cannot be read", pretty(e.Raw())}}
		return true
	}
	switch b := body.(type) {
	case entry.Compaction:
		t.who = "Compaction"
		t.parts = []part{remark{fmt.Sprintf("What came before was replaced by this summary for the model (%s tokens before).", thousands(int(b.TokensBefore)))}, prose{clean(b.Summary), true}}
	case entry.BranchSummary:
		t.who = "Branch"
		if b.Summary == "" {
			t.parts = []part{remark{"Another branch was left here."}}
		} else {
			t.parts = []part{remark{"Summary of a branch that was left:"}, prose{clean(b.Summary), true}}
		}
	case entry.ResetBoundary:
		t.who, t.parts = "Reset", []part{remark{"Nothing before this is sent to the model."}}
	case entry.CustomMessage:
		t.who, t.aside, t.parts = "Extension", clean(b.CustomType), r.content(b.Content, true, t.id)
	case entry.ModelChange:
		t.who, t.parts = "Model", []part{remark{clean(b.Selector())}}
	case entry.ThinkingLevelChange:
		level := entry.ThinkingOff
		if b.ThinkingLevel != nil {
			level = *b.ThinkingLevel
		}
		t.who, t.parts = "Thinking", []part{remark{clean(level)}}
	case entry.ModeChange:
		t.who, t.parts = "Mode", []part{remark{clean(b.Mode)}}
	case entry.SessionInit:
		t.who, t.aside = "Subagent", clean(b.Agent)
		t.parts = []part{prose{clean(b.Task), true}}
		if prompt := strings.Join(b.SystemPrompt, "\n\n"); prompt != "" {
			t.parts = append(t.parts, call{name: "System prompt", parts: []part{output{text: clean(prompt)}}})
		}
	case entry.Custom:
		start, ok := bash.StartOf(e)
		if !ok || r.ended[start.Run] || !start.Moved && r.moved[start.Run] {
			return false
		}
		t.kind, t.who = "run", "Command"
		name := "$"
		if start.Language == "python" {
			t.who, name = "Python", start.Language
		}
		t.parts = []part{call{name: name, brief: firstLine(start.Command), asked: clean(start.Command), status: "no end recorded", bad: true, artifact: start.Artifact}}
	case entry.Label, entry.TitleChange, entry.SessionInfo, entry.ModelUsage, entry.ServiceTierChange, entry.TTSRInjection, entry.CredentialPin:
		return false
	default:
		t.who, t.parts = "Entry", []part{raw{"an entry of type " + clean(e.Type()), pretty(e.Raw())}}
	}
	return true
}

// clean makes text of what a file holds: no control characters, valid UTF-8. Line
// ends and tabs stay.
func clean(s string) string {
	var z outputsink.Sanitizer
	buf := z.Append(make([]byte, 0, len(s)), []byte(s))
	return string(z.Flush(buf))
}

// pretty indents JSON.
func pretty(data []byte) string {
	var b bytes.Buffer
	if len(data) > 1<<20 || bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) > 1<<12 || json.Indent(&b, data, "", "  ") != nil {
		return clean(string(data))
	}
	return clean(b.String())
}

// arguments are what a call was given: the text when that is all, else JSON.
func arguments(data []byte) string {
	var one map[string]json.RawMessage
	if json.Unmarshal(data, &one) == nil && len(one) == 1 {
		for _, v := range one {
			var s string
			if json.Unmarshal(v, &s) == nil {
				return clean(s)
			}
		}
	}
	return pretty(data)
}

// briefly is what a call asks for, on one line.
func briefly(c entry.ToolCallBlock) string {
	var args map[string]json.RawMessage
	if json.Unmarshal(c.Arguments, &args) != nil {
		return ""
	}
	for _, name := range []string{"command", "cmd", "script", "code", "path", "file_path", "url", "pattern", "query", "task", "prompt", "name"} {
		var s string
		if json.Unmarshal(args[name], &s) == nil && s != "" {
			return firstLine(s)
		}
	}
	for _, v := range args {
		var s string
		if len(args) == 1 && json.Unmarshal(v, &s) == nil {
			return firstLine(s)
		}
	}
	return ""
}

// maxBrief is how many characters of a line are enough.
const maxBrief = 120

func firstLine(s string) string {
	line, _, more := strings.Cut(strings.TrimSpace(clean(s)), "\n")
	runes := []rune(line)
	if len(runes) > maxBrief {
		return string(runes[:maxBrief-1]) + "…"
	}
	if more {
		return line + " …"
	}
	return line
}

// thousands writes a number in groups of three digits.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
