package conversation

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/session/entry"
)

// convertedAPI is the api of answers that came from a state: nobody here made them.
const convertedAPI = "agent.v1"

// converter writes turns as entries.
type converter struct {
	s     *State
	out   *lineWriter
	holes []*Hole
	cited []blobref.Ref // by what it wrote

	subagent *keptSubagent // nil for a session that is none
}

// keptSubagent is what a state said of a subagent, beside the state of that.
type keptSubagent struct {
	ID      string `json:"id"`
	Message []byte `json:"message"` // a SubagentPersistedState
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// turn writes one turn.
func (c *converter) turn(ctx context.Context, i int) error {
	t, err := c.s.Turn(ctx, i)
	if err != nil {
		return err
	}
	c.holes = append(c.holes, t.Holes...)
	c.out.seed = t.ID.Sum()
	if ms := t.Timing.GetTimestampMs(); ms > 0 {
		c.at(ms)
	}
	c.out.first, c.out.messages = "", 0
	if err := c.entries(ctx, i, t); err != nil {
		return err
	}
	return c.keep(ctx, t)
}

// keep says which turn the entries before were made of, unless something was missing.
func (c *converter) keep(ctx context.Context, t *Turn) error {
	if len(t.Holes) > 0 || t.ID.IsZero() || c.out.first == "" {
		return nil
	}
	k := keptTurn{
		Turn: t.ID, First: c.out.first, Entries: c.out.messages,
		Began: t.Timing.GetTimestampMs(), Took: t.Timing.GetDurationMs(), Blobs: []blobref.Ref{},
	}
	w := newWalker(c.s.store, c.s.limits)
	w.add(visit{ref: t.ID, kind: kindTurn})
	var failed error
	w.run(ctx, func(ref blobref.Ref, err error) bool {
		var h *Hole
		if errors.As(err, &h) {
			c.holes = append(c.holes, h)
		} else if failed = err; err == nil && ref != t.ID {
			k.Blobs = append(k.Blobs, ref)
		}
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	c.cited = append(append(c.cited, t.ID), k.Blobs...)
	data, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("writing which turn was converted: %w", err)
	}
	_, err = c.out.add(entry.Custom{CustomType: TurnType, Data: data}, "")
	return err
}

// entries writes the messages of turn i.
func (c *converter) entries(ctx context.Context, i int, t *Turn) error {
	switch {
	case t.Shell != nil:
		return c.shell(t)
	case t.Agent == nil:
		return c.hole(fmt.Sprintf("turn %d", i+1), t.Holes)
	}
	if t.User != nil {
		if err := c.user(ctx, t.User); err != nil {
			return err
		}
	} else if len(t.Agent.UserMessage) > 0 {
		if err := c.hole(fmt.Sprintf("the user message of turn %d", i+1), t.Holes); err != nil {
			return err
		}
	} else if err := c.begin(); err != nil {
		return err
	}
	return c.steps(t)
}

// begin begins a turn without a user message.
func (c *converter) begin() error {
	_, err := c.out.add(entry.Custom{CustomType: TurnType}, "")
	return err
}

// at moves the clock of the entries, never back.
func (c *converter) at(ms uint64) {
	if at := time.UnixMilli(int64(min(ms, 1<<52))); at.After(c.out.at) && at.Year() < 10000 {
		c.out.at = at
	}
}

// hole says in the log what is missing there.
func (c *converter) hole(what string, holes []*Hole) error {
	text := "This conversation was restored without " + what + "."
	for _, h := range holes {
		text += " Missing: blob " + h.ID.Hex() + "."
	}
	_, err := c.out.add(entry.CustomMessage{CustomType: StateType + ".hole", Content: entry.PlainText(text), Display: true}, "")
	return err
}

func (c *converter) shell(t *Turn) error {
	m := entry.BashExecutionMessage{Command: t.Command.GetCommand(), Output: t.Output.GetStdout(), Timestamp: c.out.at.UnixMilli()}
	if e := t.Output.GetStderr(); e != "" {
		if m.Output != "" && !strings.HasSuffix(m.Output, "\n") {
			m.Output += "\n"
		}
		m.Output += e
	}
	code := int(t.Output.GetExitCode())
	m.ExitCode = &code
	_, err := c.out.add(m, "")
	return err
}

// user writes what a user said, or what a program said in a user's place.
func (c *converter) user(ctx context.Context, u *agentv1.UserMessage) error {
	if ms := u.GetStartedAtMs(); ms > 0 {
		c.at(ms)
	}
	text := u.Text
	if len(u.TextBlobId) > 0 {
		data, err := c.s.get(ctx, u.TextBlobId, "text of a user message")
		switch h := holeOf(err); {
		case err == nil:
			text = valid(string(data))
		case h == nil:
			return err
		default:
			c.holes = append(c.holes, h)
		}
	}
	blocks := []entry.Block{entry.TextBlock{Text: text}}
	for _, image := range u.GetSelectedContext().GetSelectedImages() {
		block, err := c.image(ctx, image)
		if err != nil {
			return err
		}
		blocks = append(blocks, block)
	}
	content := entry.Blocks(blocks...)
	if u.GetIsSimulatedMsg() {
		kind := StateType + ".message"
		if u.GetSimulatedMsgReason() == agentv1.SimulatedMsgReason_SIMULATED_MSG_REASON_BACKGROUND_TASK_COMPLETION {
			kind = reportType
		}
		_, err := c.out.add(entry.CustomMessage{CustomType: kind, Content: content, Display: true}, u.MessageId)
		return err
	}
	_, err := c.out.add(entry.UserMessage{Content: content, Timestamp: c.out.at.UnixMilli()}, u.MessageId)
	return err
}

// image is an image of a user message: in the log where that would have it too, else as
// the reference of the blob that it is.
func (c *converter) image(ctx context.Context, image *agentv1.SelectedImage) (entry.Block, error) {
	data, id := image.GetData(), image.GetBlobId()
	if both := image.GetBlobIdWithData(); both != nil {
		data, id = both.Data, both.BlobId
	}
	if data != nil {
		return imageBlock(data, image.MimeType), nil
	}
	if len(id) != 32 {
		return entry.TextBlock{Text: "[an image without data]"}, nil
	}
	ref := blobref.FromSum([32]byte(id))
	if data, err := c.s.getRef(ctx, ref, "image"); err == nil && base64.StdEncoding.EncodedLen(len(data)) < 1024 {
		return imageBlock(data, image.MimeType), nil // the log has no reference for one that small
	} else if h := holeOf(err); h != nil {
		c.holes = append(c.holes, h)
	} else if err != nil {
		return nil, err
	}
	c.cited = append(c.cited, ref)
	return entry.ImageBlock{Data: ref.String(), MIMEType: image.MimeType}, nil
}

func imageBlock(data []byte, mimeType string) entry.ImageBlock {
	return entry.ImageBlock{Data: base64.StdEncoding.EncodeToString(data), MIMEType: mimeType}
}

// steps writes what an agent did. Texts, thoughts and the calls behind them are one
// answer; calls that began when others had ended are another one.
func (c *converter) steps(t *Turn) error {
	a := answerMaker{c: c, request: t.Agent.GetRequestId()}
	for i, step := range t.Steps {
		if step == nil {
			a.block(entry.TextBlock{Text: fmt.Sprintf("[step %d of this turn is missing]", i+1)}, 0)
			continue
		}
		var err error
		switch m := step.Message.(type) {
		case *agentv1.ConversationStep_AssistantMessage:
			if len(a.calls) > 0 {
				err = a.flush()
			}
			a.block(entry.TextBlock{Text: m.AssistantMessage.Text}, m.AssistantMessage.GetCompletedAtMs())
		case *agentv1.ConversationStep_ThinkingMessage:
			if len(a.calls) > 0 {
				err = a.flush()
			}
			a.block(entry.ThinkingBlock{Thinking: m.ThinkingMessage.Text}, m.ThinkingMessage.GetCompletedAtMs())
		case *agentv1.ConversationStep_ToolCall:
			err = a.call(m.ToolCall)
		}
		if err != nil {
			return err
		}
	}
	return a.flush()
}

// answerMaker gathers the blocks of one answer and the results of its calls.
type answerMaker struct {
	c       *converter
	request string
	blocks  []entry.Block
	calls   []*agentv1.ToolCall
	results []*entry.ToolResultMessage
}

func (a *answerMaker) block(b entry.Block, at uint64) {
	a.c.at(at)
	a.blocks = append(a.blocks, b)
}

func (a *answerMaker) call(call *agentv1.ToolCall) error {
	for _, before := range a.calls {
		if call.GetStartedAtMs() == 0 || before.GetCompletedAtMs() > 0 && call.GetStartedAtMs() >= before.GetCompletedAtMs() && call.GetStartedAtMs() != before.GetStartedAtMs() {
			if err := a.flush(); err != nil {
				return err
			}
			break
		}
	}
	id := call.GetToolCallId()
	if id == "" {
		id = callID(call)
	}
	if id == "" {
		id = a.c.out.id("")
	}
	block, result := toolOf(call, id)
	a.block(block, call.GetStartedAtMs())
	a.calls, a.results = append(a.calls, call), append(a.results, result)
	return nil
}

// callID is the id in the arguments of a call, where older states have it.
func callID(call *agentv1.ToolCall) string {
	m := call.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().ByName("tool"))
	if f == nil {
		return ""
	}
	t := m.Get(f).Message()
	f = t.Descriptor().Fields().ByName("args")
	if f == nil || f.Message() == nil || f.IsMap() || f.IsList() {
		return ""
	}
	args := t.Get(f).Message()
	if f = args.Descriptor().Fields().ByName("tool_call_id"); f == nil {
		return ""
	}
	return args.Get(f).String()
}

// flush writes the answer and the results of its calls.
func (a *answerMaker) flush() error {
	if len(a.blocks) == 0 {
		return nil
	}
	out := a.c.out
	m := entry.AssistantMessage{
		Content: entry.Blocks(a.blocks...), API: convertedAPI, StopReason: entry.StopStop,
		Timestamp: out.at.UnixMilli(), ResponseID: a.request,
	}
	if len(a.calls) > 0 {
		m.StopReason = entry.StopToolUse
	}
	if _, err := out.add(m, ""); err != nil {
		return err
	}
	for i, r := range a.results {
		if r == nil {
			continue // it has none yet
		}
		a.c.at(a.calls[i].GetCompletedAtMs())
		r.Timestamp = out.at.UnixMilli()
		if _, err := out.add(*r, ""); err != nil {
			return err
		}
	}
	a.blocks, a.calls, a.results, a.request = nil, nil, nil, ""
	return nil
}

// rest writes what a state says beside its turns: for programs of ours in their own
// entries, and all of it in the words of agent.v1, with which the next projection begins.
func (c *converter) rest(ctx context.Context) error {
	m := c.s.Message
	if m.Mode != nil {
		if name := modeName(m.GetMode()); name != "" {
			if _, err := c.out.add(entry.ModeChange{Mode: name}, ""); err != nil {
				return err
			}
		}
	}
	if len(m.Todos) > 0 {
		var items []*agentv1.TodoItem
		for _, id := range m.Todos {
			item := &agentv1.TodoItem{}
			switch err := c.s.message(ctx, id, "thing to do", item); {
			case err == nil:
				items = append(items, item)
			case holeOf(err) == nil:
				return err
			default:
				c.holes = append(c.holes, holeOf(err))
			}
		}
		data := jsonObject(map[string]any{"items": todoList(items)})
		if _, err := c.out.add(entry.Custom{CustomType: todoType, Data: data}, ""); err != nil {
			return err
		}
	}
	state, err := residue(m)
	if err != nil {
		return err
	}
	if len(state) == 0 && c.subagent == nil {
		return nil
	}
	kept := &agentv1.ConversationStateStructure{}
	if err := proto.Unmarshal(state, kept); err != nil {
		return fmt.Errorf("writing what the state says beside its turns: %w", err)
	}
	var blobs []blobref.Ref
	for ref, err := range walkState(ctx, c.s.store, kept, c.s.limits) {
		var h *Hole
		if errors.As(err, &h) {
			c.holes = append(c.holes, h)
		} else if err != nil {
			return err
		} else {
			blobs = append(blobs, ref)
		}
	}
	c.cited = append(c.cited, blobs...)
	data, err := json.Marshal(struct {
		State    string        `json:"state"`
		Blobs    []blobref.Ref `json:"blobs"` // that the state names: collectors and copies go by it
		Subagent *keptSubagent `json:"subagent,omitempty"`
	}{base64.StdEncoding.EncodeToString(state), blobs, c.subagent})
	if err != nil {
		return fmt.Errorf("writing what the state says beside its turns: %w", err)
	}
	_, err = c.out.add(entry.Custom{CustomType: StateType, Data: data}, "")
	return err
}

// pending writes the calls that the state says wait, and that are no step.
func (c *converter) pending(ctx context.Context) error {
	m := c.s.Message
	if len(m.PendingToolCalls) == 0 {
		return nil
	}
	known := map[string]bool{}
	if n := c.s.Len(); n > 0 {
		t, err := c.s.Turn(ctx, n-1)
		if err != nil {
			return err
		}
		for _, step := range t.Steps {
			if call := step.GetToolCall(); call != nil {
				known[call.GetToolCallId()], known[callID(call)] = true, true
			}
		}
	}
	a := answerMaker{c: c}
	for _, text := range m.PendingToolCalls {
		part := gjson.Parse(text)
		id, name := part.Get("toolCallId").Str, part.Get("toolName").Str
		if !gjson.Valid(text) || id == "" || name == "" || known[id] {
			continue
		}
		args := part.Get("args")
		if !args.Exists() {
			args = part.Get("input")
		}
		block := entry.ToolCallBlock{ID: id, Name: name}
		if args.IsObject() {
			block.Arguments = json.RawMessage(args.Raw)
		}
		a.blocks, a.calls, a.results = append(a.blocks, block), append(a.calls, nil), append(a.results, nil)
	}
	return a.flush()
}
