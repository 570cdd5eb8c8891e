package conversation

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/conversation/internal/sidecar"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/session/entry"
)

// turn is a turn that may grow.
type turn struct {
	first   string // id of its first entry
	entries int    // that are messages
	kept    *keptTurn

	user    []byte // id of its UserMessage, nil for none
	shell   *agentv1.ShellConversationTurnStructure
	request string
	steps   []step
	calls   map[string]int // steps that have no result yet, by the id of the call
	spans   []sidecar.Span
	began   int64 // milliseconds, 0 for unknown
	ended   int64
}

// step is one step of a turn.
type step struct {
	id   []byte            // nil when it is to be stored
	call *agentv1.ToolCall // as long as its result may come
	name string            // of the tool
	raw  string            // JSON of the call
}

// line notes that a line belongs to the turn.
func (t *turn) line(s sidecar.Span, at time.Time) {
	if ms := at.UnixMilli(); !at.IsZero() && ms > 0 {
		if t.began == 0 {
			t.began = ms
		}
		t.ended = max(t.ended, ms)
	}
	if n := len(t.spans); n > 0 {
		if last := &t.spans[n-1]; last.From+last.Len == s.From {
			last.Len += s.Len
			return
		}
	}
	t.spans = append(t.spans, s)
}

func (t *turn) timing() *agentv1.StepTiming {
	return &agentv1.StepTiming{DurationMs: uint64(max(0, t.ended-t.began)), TimestampMs: uint64(t.began)}
}

// message stores the steps that are not stored, and returns the turn.
func (t *turn) message(ctx context.Context, b *builder) (*agentv1.ConversationTurnStructure, error) {
	if t.shell != nil {
		return &agentv1.ConversationTurnStructure{Turn: &agentv1.ConversationTurnStructure_ShellConversationTurn{ShellConversationTurn: t.shell}}, nil
	}
	a := &agentv1.AgentConversationTurnStructure{UserMessage: t.user, Steps: make([][]byte, len(t.steps))}
	if t.request != "" {
		a.RequestId = proto.String(t.request)
	}
	for i := range t.steps {
		s := &t.steps[i]
		if s.id == nil {
			id, err := b.put(ctx, &agentv1.ConversationStep{Message: &agentv1.ConversationStep_ToolCall{ToolCall: s.call}})
			if err != nil {
				return nil, err
			}
			s.id = id
		}
		a.Steps[i] = s.id
	}
	return &agentv1.ConversationTurnStructure{Turn: &agentv1.ConversationTurnStructure_AgentConversationTurn{AgentConversationTurn: a}}, nil
}

// pending are the calls of the turn that have no result, each as the field of a state.
func (t *turn) pending() (b []byte) {
	waiting := make([]int, 0, len(t.calls))
	for _, i := range t.calls {
		waiting = append(waiting, i)
	}
	slices.Sort(waiting)
	for _, i := range waiting {
		block := gjson.Parse(t.steps[i].raw)
		part := `{"type":"tool-call","toolCallId":` + jsonOr(block.Get("id"), `""`) + `,"toolName":` + jsonOr(block.Get("name"), `""`) + `,"args":` + jsonOr(block.Get("arguments"), `{}`) + `}`
		b = protowire.AppendString(protowire.AppendTag(b, fieldPending, protowire.BytesType), valid(part))
	}
	return b
}

// jsonOr is a value as it stands in the log, or what is to stand there without it.
func jsonOr(v gjson.Result, none string) string {
	if v.Raw == "" {
		return none
	}
	return v.Raw
}

// message takes an entry with a message. The last turn is there if one has begun.
func (b *builder) message(ctx context.Context, role string, e entry.Entry) error {
	switch role {
	case entry.RoleUser:
		return b.user(ctx, e)
	case entry.RoleAssistant:
		return b.assistant(ctx, e)
	case entry.RoleToolResult:
		return b.result(e)
	case entry.RoleBashExecution:
		return b.shell(ctx, e)
	}
	if beginsTurn(role) {
		return b.simulated(ctx, role, e)
	}
	return nil
}

// user takes what a person said.
func (b *builder) user(ctx context.Context, e entry.Entry) error {
	u := b.userMessage(e)
	content := gjson.Get(view(e.Raw()), "message.content")
	if content.Type == gjson.String {
		u.Text = valid(content.Str)
	} else {
		var texts []string
		n := 0
		content.ForEach(func(_, block gjson.Result) bool {
			switch block.Get("type").Str {
			case entry.BlockText:
				texts = append(texts, block.Get("text").String())
			case entry.BlockImage:
				if u.SelectedContext == nil {
					u.SelectedContext = &agentv1.SelectedContext{}
				}
				image := selectedImage(block)
				image.Uuid = fmt.Sprintf("%s#%d", u.MessageId, n)
				u.SelectedContext.SelectedImages = append(u.SelectedContext.SelectedImages, image)
				n++
			}
			return true
		})
		u.Text = valid(strings.Join(texts, "\n"))
	}
	if id := externalText(e.Raw()); id != nil {
		u.TextBlobId = id
	}
	var err error
	b.last.user, err = b.put(ctx, u)
	return err
}

// userMessage is what all user messages say.
func (b *builder) userMessage(e entry.Entry) *agentv1.UserMessage {
	u := &agentv1.UserMessage{MessageId: valid(e.ID()), Mode: agentv1.AgentMode_AGENT_MODE_AGENT}
	if b.state.Mode != nil {
		u.Mode = *b.state.Mode
	}
	if at := e.Time(); !at.IsZero() && at.UnixMilli() > 0 {
		u.StartedAtMs = proto.Uint64(uint64(at.UnixMilli()))
	}
	return u
}

// simulated takes what models read as said by a user, and no user said.
func (b *builder) simulated(ctx context.Context, role string, e entry.Entry) error {
	u := b.userMessage(e)
	u.IsSimulatedMsg = proto.Bool(true)
	if m, err := e.Message(); err == nil {
		u.Text = valid(entry.Text(m))
		if c, ok := m.(entry.ExtensionMessage); ok && c.CustomType == reportType {
			reason := agentv1.SimulatedMsgReason_SIMULATED_MSG_REASON_BACKGROUND_TASK_COMPLETION
			u.SimulatedMsgReason = &reason
		}
	}
	var err error
	b.last.user, err = b.put(ctx, u)
	return err
}

// reportType is the message that hands an agent the report of a subagent (package task).
const reportType = "agentrun.task.report"

// selectedImage is an image of a user message. One in the blob store stays there.
func selectedImage(block gjson.Result) *agentv1.SelectedImage {
	data := block.Get("data").Str
	image := &agentv1.SelectedImage{MimeType: valid(block.Get("mimeType").String())}
	if ref, err := blobref.Parse(data); err == nil {
		image.DataOrBlobId = &agentv1.SelectedImage_BlobId{BlobId: idOf(ref)}
	} else if raw, err := base64.StdEncoding.DecodeString(data); err == nil {
		image.DataOrBlobId = &agentv1.SelectedImage_Data{Data: raw}
	}
	return image
}

// externalText is the blob of a message's one text, where the line has only its
// beginning.
func externalText(raw []byte) []byte {
	if !strings.Contains(string(raw[max(0, len(raw)-4096):]), `"externalized"`) {
		return nil
	}
	for _, item := range gjson.GetBytes(raw, "externalized").Array() {
		path := item.Get("path").Str
		if (path == "/message/content" || path == "/message/content/0/text") && !item.Get("form").Exists() {
			return contentID(item.Get("ref"))
		}
	}
	return nil
}

// assistant takes an answer of a model.
func (b *builder) assistant(ctx context.Context, e entry.Entry) error {
	t, at := b.last, uint64(max(0, e.Time().UnixMilli()))
	m := gjson.Get(view(e.Raw()), "message")
	var failed error
	m.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "content":
			if v.Type == gjson.String {
				failed = b.text(ctx, v.Str, at)
				return failed == nil
			}
			v.ForEach(func(_, block gjson.Result) bool {
				failed = b.block(ctx, block, at)
				return failed == nil
			})
		case "usage":
			used := int64(0)
			v.ForEach(func(key, n gjson.Result) bool {
				switch key.Str {
				case "input", "output", "cacheRead", "cacheWrite":
					used += n.Int()
				}
				return true
			})
			if used > 0 {
				b.used(used)
			}
		case "responseId":
			if t.request == "" {
				t.request = valid(v.Str)
			}
		}
		return failed == nil
	})
	return failed
}

// used notes how many tokens the context has.
func (b *builder) used(tokens int64) {
	d := b.state.TokenDetails
	if d == nil {
		d = &agentv1.ConversationTokenDetails{}
		b.state.TokenDetails = d
	}
	d.UsedTokens = uint32(min(tokens, math.MaxUint32))
}

func (b *builder) text(ctx context.Context, text string, at uint64) error {
	if text == "" {
		return nil
	}
	m := &agentv1.AssistantMessage{Text: valid(text)}
	if at > 0 {
		m.CompletedAtMs = &at
	}
	return b.step(ctx, &agentv1.ConversationStep{Message: &agentv1.ConversationStep_AssistantMessage{AssistantMessage: m}})
}

func (b *builder) step(ctx context.Context, s *agentv1.ConversationStep) error {
	id, err := b.put(ctx, s)
	b.last.steps = append(b.last.steps, step{id: id})
	return err
}

// block takes a block of an answer.
func (b *builder) block(ctx context.Context, block gjson.Result, at uint64) error {
	switch block.Get("type").Str { // the first member, as everybody writes it
	case entry.BlockText:
		return b.text(ctx, block.Get("text").String(), at)
	case entry.BlockThinking:
		if text := block.Get("thinking").String(); text != "" {
			m := &agentv1.ThinkingMessage{Text: valid(text)}
			if at > 0 {
				m.CompletedAtMs = &at
			}
			return b.step(ctx, &agentv1.ConversationStep{Message: &agentv1.ConversationStep_ThinkingMessage{ThinkingMessage: m}})
		}
	case entry.BlockToolCall:
		c := callOf(block)
		if at > 0 {
			c.call.StartedAtMs = &at
		}
		t := b.last
		if t.calls == nil {
			t.calls = map[string]int{}
		}
		t.calls[c.id] = len(t.steps)
		t.steps = append(t.steps, step{call: c.call, name: c.name, raw: block.Raw})
	}
	return nil
}

// toolResult are the members of a result that matter here.
type toolResult struct {
	id               string
	content, details gjson.Result
	failed           bool
}

func parseResult(raw []byte) (r toolResult) {
	gjson.Get(view(raw), "message").ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "toolCallId":
			r.id = v.String()
		case "content":
			r.content = v
		case "details":
			r.details = v
		case "isError":
			r.failed = v.Bool()
		}
		return true
	})
	return r
}

// result takes the result of a call. One that answers no call of its turn is in the
// sidecar alone.
func (b *builder) result(e entry.Entry) error {
	t := b.last
	if t == nil {
		return nil
	}
	r := parseResult(e.Raw())
	i, waits := t.calls[r.id]
	if !waits {
		return nil
	}
	delete(t.calls, r.id)
	s := &t.steps[i]
	if at := uint64(max(0, e.Time().UnixMilli())); at > 0 {
		s.call.CompletedAtMs = &at
	}
	answer(s.call, s.raw, r)
	if path := readPath(s.call); path != "" && !b.read[path] {
		path = strings.Clone(path) // of a message that is not kept
		b.read[path] = true
		b.state.ReadPaths = append(b.state.ReadPaths, path)
	}
	s.id = nil
	return nil
}

// shell takes a command that a person had run.
func (b *builder) shell(ctx context.Context, e entry.Entry) error {
	m := gjson.Get(view(e.Raw()), "message")
	command, err := b.put(ctx, &agentv1.ShellCommand{Command: valid(m.Get("command").String())})
	if err != nil {
		return err
	}
	code := int32(m.Get("exitCode").Int())
	if !m.Get("exitCode").Exists() && m.Get("cancelled").Bool() {
		code = -1
	}
	output, err := b.put(ctx, &agentv1.ShellOutput{Stdout: valid(m.Get("output").String()), ExitCode: code})
	b.last.shell = &agentv1.ShellConversationTurnStructure{ShellCommand: command, ShellOutput: output}
	return err
}

// view is b as a string, without a copy: the line of an entry does not change. What is
// kept beyond the turn that the line belongs to is cloned, so that the line is not.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// valid is a string that protobuf takes.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\ufffd")
}
