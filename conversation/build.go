package conversation

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/conversation/internal/sidecar"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/session/entry"
)

// Custom entry types that a projection reads.
const (
	// StateType is the custom entry that keeps what a restored state said beside its
	// turns, in the words of agent.v1: a later projection begins with it.
	StateType = entry.CustomTypeState

	// TurnType is the custom entry behind a turn that was converted: it names the turn of
	// the state, which a projection uses again as long as nothing was added. Without a
	// turn it begins one in which no user says anything.
	TurnType = entry.CustomTypeStateTurn

	todoType = "agentrun.todo" // package agent/plan
)

// marshal is how messages are written. The same message gives the same bytes, and so
// the same id, within one version of this program; no more is needed of it.
var marshal = proto.MarshalOptions{Deterministic: true}

// builder makes the turns of a path, entry by entry, and what a state says beside them.
type builder struct {
	w      *writer
	header header

	state *agentv1.ConversationStateStructure // all but turns, timings, pending calls and subagents
	todos []*agentv1.TodoItem                 // behind state.Todos
	read  map[string]bool                     // state.ReadPaths

	turns   []builtTurn
	records sidecar.Builder // of turns, but for the last one
	last    *turn           // the last one, nil before the first

	// subagent is what a restored state said of this one as a subagent: JSON, a
	// keptSubagent.
	subagent []byte

	// named are blobs of the session that the state names, and that nobody has copied.
	named []blobref.Ref

	// said are the messages on the path, for the next compaction.
	said []saidMessage
	from int // of said, that no compaction has summarised
	// again reads an entry of the path once more, and get a blob of the session.
	again func(i int32) (entry.Entry, error)
	get   func(ctx context.Context, ref blobref.Ref) ([]byte, error)
}

// saidMessage is a message of the path.
type saidMessage struct {
	at int32 // of its entry
	id string
}

// builtTurn is a turn that is complete.
type builtTurn struct {
	id     blobref.Ref
	timing *agentv1.StepTiming
}

func newBuilder(w *writer) *builder {
	return &builder{w: w, state: &agentv1.ConversationStateStructure{}, read: map[string]bool{}}
}

// start takes what the header says, before the first entry.
func (b *builder) start(h header) {
	b.header = h
	if h.CWD != "" {
		b.state.PreviousWorkspaceUris = []string{fileURI(h.CWD)}
	}
	if at, err := time.Parse(time.RFC3339Nano, h.Time); err == nil && at.UnixMilli() > 0 {
		b.state.ConversationStartedTimestampMs = proto.Uint64(uint64(at.UnixMilli()))
	}
}

// put stores a message and returns its id.
func (b *builder) put(ctx context.Context, m proto.Message) ([]byte, error) {
	data, err := marshal.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("writing a %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return b.putBytes(ctx, data)
}

func (b *builder) putBytes(ctx context.Context, data []byte) ([]byte, error) {
	ref, err := b.w.put(ctx, data)
	return idOf(ref), err
}

func idOf(ref blobref.Ref) []byte {
	sum := ref.Sum()
	return sum[:]
}

// add takes the next entry of the path, the i-th of the log.
func (b *builder) add(ctx context.Context, i int32, e entry.Entry, span sidecar.Span) error {
	role := e.Role()
	if beginsTurn(role) || role == entry.RoleAssistant && (b.last == nil || b.last.shell != nil) || isBegin(e) {
		if err := b.close(ctx); err != nil {
			return err
		}
		b.last = &turn{first: e.ID()}
	}
	if b.last != nil {
		if role != "" || e.Type() == entry.TypeCustom && isBegin(e) {
			b.last.entries++
			b.last.kept = nil
		}
		b.last.line(span, e.Time())
	}
	if role != "" && e.Type() != entry.TypeCompaction {
		b.said = append(b.said, saidMessage{i, strings.Clone(e.ID())}) // the line is not kept
	}
	switch e.Type() {
	case entry.TypeMessage, entry.TypeCustomMessage, entry.TypeBranchSummary:
		return b.message(ctx, role, e)
	case entry.TypeCompaction:
		return b.compaction(ctx, e)
	case entry.TypeResetBoundary:
		b.from = len(b.said)
	case entry.TypeModeChange:
		mode := modeNumber(gjson.GetBytes(e.Raw(), "mode").Str)
		b.state.Mode = &mode
	case entry.TypeSessionInit:
		return b.prompt(ctx, e)
	case entry.TypeCustom:
		return b.custom(ctx, e)
	}
	return nil
}

// isBegin reports whether an entry begins a turn without a user message.
func isBegin(e entry.Entry) bool {
	if e.Type() != entry.TypeCustom {
		return false
	}
	m := gjson.GetManyBytes(e.Raw(), "customType", "data.turn")
	return m[0].Str == TurnType && !m[1].Exists()
}

// keptTurn says which turn of a state some entries were made of.
type keptTurn struct {
	Turn    blobref.Ref   `json:"turn"`
	First   string        `json:"first"`   // the first of them
	Entries int           `json:"entries"` // that are messages, or begin the turn
	Began   uint64        `json:"began,omitempty"`
	Took    uint64        `json:"took,omitempty"`
	Blobs   []blobref.Ref `json:"blobs"` // that it names
}

// same takes the turn that the last entries were made of, if they are still all of it.
func (b *builder) same(data string) {
	var k keptTurn
	if b.last == nil || json.Unmarshal([]byte(data), &k) != nil || k.Turn.IsZero() || k.First != b.last.first || k.Entries != b.last.entries {
		return
	}
	b.last.kept = &k
}

// close ends the last turn.
func (b *builder) close(ctx context.Context) error {
	if b.last == nil {
		return nil
	}
	id, timing, record, err := b.turn(ctx, b.last)
	if err != nil {
		return err
	}
	b.turns = append(b.turns, builtTurn{id, timing})
	b.last = nil
	return b.records.Push(ctx, b.w.put, record)
}

// turn stores a turn.
func (b *builder) turn(ctx context.Context, t *turn) (id blobref.Ref, timing *agentv1.StepTiming, r sidecar.Record, err error) {
	if k := t.kept; k != nil {
		timing = &agentv1.StepTiming{DurationMs: k.Took, TimestampMs: k.Began}
		return k.Turn, timing, sidecar.Record{ID: k.Turn, Weight: 1, Count: 1, Spans: t.spans}, nil
	}
	m, err := t.message(ctx, b)
	if err != nil {
		return id, nil, r, err
	}
	data, err := marshal.Marshal(m)
	if err != nil {
		return id, nil, r, fmt.Errorf("writing a turn: %w", err)
	}
	if id, err = b.w.put(ctx, data); err != nil {
		return id, nil, r, err
	}
	return id, t.timing(), sidecar.Record{ID: id, Weight: 1, Count: 1, Spans: t.spans}, nil
}

// compaction archives what a compaction stands for: all that was said since the one
// before it, up to what it keeps.
func (b *builder) compaction(ctx context.Context, e entry.Entry) error {
	m := gjson.GetManyBytes(e.Raw(), "summary", "firstKeptEntryId")
	summary, kept := valid(m[0].String()), len(b.said)
	for i, s := range slices.Backward(b.said) {
		if i < b.from {
			break
		}
		if s.id == m[1].Str {
			kept = i
			break
		}
	}
	a := &agentv1.ConversationSummaryArchive{Summary: summary, WindowTail: uint32(len(b.said) - kept)}
	for _, s := range b.said[b.from:kept] {
		id, err := b.saidJSON(ctx, s)
		if err != nil {
			return err
		}
		a.SummarizedMessages = append(a.SummarizedMessages, id)
	}
	b.from = kept
	text, err := json.Marshal(promptMessage{entry.RoleUser, []promptText{{"text", summary}}})
	if err != nil {
		return fmt.Errorf("writing a summary: %w", err)
	}
	if a.SummaryMessage, err = b.putBytes(ctx, text); err != nil {
		return err
	}
	id, err := b.put(ctx, a)
	if err != nil {
		return err
	}
	b.state.SummaryArchives = append(b.state.SummaryArchives, id)
	b.state.SelfSummaryCount++
	b.state.Summary, err = b.put(ctx, &agentv1.ConversationSummary{Summary: summary})
	return err
}

// promptMessage is a message as prompts have them.
type promptMessage struct {
	Role    string       `json:"role"`
	Content []promptText `json:"content"`
}

type promptText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// saidJSON stores a message of the path as the JSON that the log has of it.
func (b *builder) saidJSON(ctx context.Context, s saidMessage) ([]byte, error) {
	e, err := b.again(s.at)
	if err != nil {
		return nil, err
	}
	text := []byte(gjson.GetBytes(e.Raw(), "message").Raw)
	if e.Type() != entry.TypeMessage {
		m, err := e.Message()
		if err != nil {
			text = e.Raw()
		} else if text, err = json.Marshal(m); err != nil {
			return nil, fmt.Errorf("writing message %.100s: %w", s.id, err)
		}
	}
	return b.putBytes(ctx, bytes.Clone(text))
}

// prompt takes what a subagent started from.
func (b *builder) prompt(ctx context.Context, e entry.Entry) error {
	b.state.RootPromptMessagesJson = nil
	at := gjson.GetBytes(e.Raw(), "systemPrompt")
	blocks := []gjson.Result{at}
	if at.IsArray() {
		blocks = at.Array()
	}
	for _, block := range blocks {
		if block.Str == "" {
			continue
		}
		text, err := json.Marshal(promptMessage{"system", []promptText{{"text", valid(block.Str)}}})
		if err != nil {
			return fmt.Errorf("writing a prompt: %w", err)
		}
		id, err := b.putBytes(ctx, text)
		if err != nil {
			return err
		}
		b.state.RootPromptMessagesJson = append(b.state.RootPromptMessagesJson, id)
	}
	return nil
}

// custom takes what programs of ours note down.
func (b *builder) custom(ctx context.Context, e entry.Entry) error {
	m := gjson.GetManyBytes(e.Raw(), "customType", "data")
	switch m[0].Str {
	case todoType:
		return b.todo(ctx, m[1].Get("items"), e.Time())
	case entry.CustomTypeCheckpoint:
		b.files(m[1].Get("files"))
	case StateType:
		b.subagent = bytes.Clone([]byte(m[1].Get("subagent").Raw))
		return b.base(ctx, m[1].Get("state").Str)
	case TurnType:
		b.same(m[1].Raw)
	}
	return nil
}

// base begins anew with what a restored state said. What is no state changes nothing.
func (b *builder) base(ctx context.Context, text string) error {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	state := &agentv1.ConversationStateStructure{}
	if proto.Unmarshal(data, state) != nil {
		return nil
	}
	b.state, b.todos = state, nil
	for _, id := range state.Todos {
		// One that is not there has nothing to hand on to a later list.
		item := &agentv1.TodoItem{}
		if b.kept(ctx, id, item) == nil {
			b.todos = append(b.todos, item)
		}
	}
	clear(b.read)
	for _, p := range state.ReadPaths {
		b.read[p] = true
	}
	if b.header.CWD != "" {
		b.state.PreviousWorkspaceUris = appendNew(b.state.PreviousWorkspaceUris, fileURI(b.header.CWD))
	}
	b.from = len(b.said)
	return nil
}

// kept reads a message that the state names, from the session's own blobs or the store.
func (b *builder) kept(ctx context.Context, id []byte, m proto.Message) error {
	if len(id) != 32 {
		return ErrNotState
	}
	ref := blobref.FromSum([32]byte(id))
	data, err := b.get(ctx, ref)
	if err != nil {
		return err
	}
	return proto.Unmarshal(data, m)
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// files takes a record of how files were before and after.
func (b *builder) files(list gjson.Result) {
	list.ForEach(func(_, f gjson.Result) bool {
		path := strings.Clone(valid(f.Get("path").String()))
		if path == "" {
			return true
		}
		if b.state.FileStatesV2 == nil {
			b.state.FileStatesV2 = map[string]*agentv1.FileStateStructure{}
		}
		s := b.state.FileStatesV2[path]
		if s == nil {
			s = &agentv1.FileStateStructure{InitialContent: contentID(f.Get("before.ref"))}
			b.state.FileStatesV2[path] = s
		}
		s.Content = contentID(f.Get("after.ref"))
		return true
	})
}

// contentID is the id of a reference, nil for none.
func contentID(ref gjson.Result) []byte {
	r, err := blobref.Parse(ref.Str)
	if err != nil {
		return nil
	}
	return idOf(r)
}
