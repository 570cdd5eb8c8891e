package conversation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// maker makes blobs that a test knows the names of.
type maker struct {
	t     *testing.T
	store *memory.Store
	names map[blobref.Ref]string
}

func (m *maker) text(name string) []byte {
	return m.bytes(name, []byte(name))
}

func (m *maker) bytes(name string, data []byte) []byte {
	m.t.Helper()
	ref, err := blobstore.Put(m.t.Context(), m.store, data)
	if err != nil {
		m.t.Fatal(err)
	}
	m.names[ref] = name
	sum := ref.Sum()
	return sum[:]
}

func (m *maker) message(name string, msg proto.Message) []byte {
	m.t.Helper()
	data, err := proto.Marshal(msg)
	if err != nil {
		m.t.Fatal(err)
	}
	return m.bytes(name, data)
}

// fullState is a state with an id in every field that has ids.
func fullState(m *maker) *agentv1.ConversationStateStructure {
	link := protowire.AppendBytes(protowire.AppendTag(nil, 6, protowire.BytesType), m.text("external link"))
	chosen := &agentv1.SelectedContext{
		SelectedImages: []*agentv1.SelectedImage{
			{DataOrBlobId: &agentv1.SelectedImage_BlobId{BlobId: m.text("image")}},
			{DataOrBlobId: &agentv1.SelectedImage_BlobIdWithData_{BlobIdWithData: &agentv1.SelectedImage_BlobIdWithData{BlobId: m.text("image with data")}}},
		},
		ExtraContextEntries: []*agentv1.ExtraContextEntry{{DataOrBlobId: &agentv1.ExtraContextEntry_BlobId{BlobId: m.text("extra context")}}},
	}
	// A message of a field that is not known here, with an id in it.
	chosen.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), append(link, "\x0a\x03abc"...)))
	before := m.message("state before a message", &agentv1.ConversationStateStructure{Plan: m.message("plan before", &agentv1.ConversationPlan{Plan: "before"})})
	user := m.message("user message", &agentv1.UserMessage{
		Text: "t", SelectedContext: chosen, ConversationStateBlobId: before,
		TextBlobId: m.text("text of a message"), RichTextBlobId: m.text("rich text of a message"),
	})
	original := m.message("original step", &agentv1.ConversationStep{Message: &agentv1.ConversationStep_ToolCall{ToolCall: &agentv1.ToolCall{
		Tool: &agentv1.ToolCall_ReadToolCall{ReadToolCall: &agentv1.ReadToolCall{Result: &agentv1.ReadToolResult{Result: &agentv1.ReadToolResult_Success{
			Success: &agentv1.ReadToolSuccess{Output: &agentv1.ReadToolSuccess_DataBlobId{DataBlobId: m.text("data of a file")}},
		}}}},
	}}})
	truncated := &agentv1.ConversationStep{Message: &agentv1.ConversationStep_ToolCall{ToolCall: &agentv1.ToolCall{
		Tool: &agentv1.ToolCall_TruncatedToolCall{TruncatedToolCall: &agentv1.TruncatedToolCall{OriginalStepBlobId: original}},
	}}}
	read := &agentv1.ConversationStep{Message: &agentv1.ConversationStep_ToolCall{ToolCall: &agentv1.ToolCall{
		Tool: &agentv1.ToolCall_ReadToolCall{ReadToolCall: &agentv1.ReadToolCall{Result: &agentv1.ReadToolResult{Result: &agentv1.ReadToolResult_Success{
			Success: &agentv1.ReadToolSuccess{Output: &agentv1.ReadToolSuccess_ContentBlobId{ContentBlobId: m.text("content of a file")}},
		}}}},
	}}}
	task := &agentv1.ConversationStep{Message: &agentv1.ConversationStep_ToolCall{ToolCall: &agentv1.ToolCall{
		Tool: &agentv1.ToolCall_TaskToolCall{TaskToolCall: &agentv1.TaskToolCall{Result: &agentv1.TaskResult{Result: &agentv1.TaskResult_Success{
			Success: &agentv1.TaskSuccess{ConversationSteps: []*agentv1.ConversationStep{truncated}},
		}}}},
	}}}
	turn := &agentv1.ConversationTurnStructure{Turn: &agentv1.ConversationTurnStructure_AgentConversationTurn{
		AgentConversationTurn: &agentv1.AgentConversationTurnStructure{UserMessage: user, Steps: [][]byte{m.message("step read", read), m.message("step task", task)}},
	}}
	shell := &agentv1.ConversationTurnStructure{Turn: &agentv1.ConversationTurnStructure_ShellConversationTurn{
		ShellConversationTurn: &agentv1.ShellConversationTurnStructure{
			ShellCommand: m.message("shell command", &agentv1.ShellCommand{Command: "ls"}),
			ShellOutput:  m.message("shell output", &agentv1.ShellOutput{Stdout: "out"}),
		},
	}}
	archive := func(name string) []byte {
		return m.message(name, &agentv1.ConversationSummaryArchive{
			SummarizedMessages: [][]byte{m.text(name + ": message")}, SummaryMessage: m.text(name + ": summary message"), Summary: name,
		})
	}
	sub := func(name string) *agentv1.SubagentPersistedState {
		return &agentv1.SubagentPersistedState{ConversationState: &agentv1.ConversationStateStructure{
			Todos: [][]byte{m.message(name+": thing to do", &agentv1.TodoItem{Content: name})},
			SubagentStates: map[string]*agentv1.SubagentPersistedState{"x": {ConversationState: &agentv1.ConversationStateStructure{
				Summary: m.message(name+": summary below", &agentv1.ConversationSummary{Summary: name}),
			}}},
		}}
	}
	return &agentv1.ConversationStateStructure{
		RootPromptMessagesJson: [][]byte{m.text(`{"role":"system"}`)},
		TurnsOld:               [][]byte{m.text("old turn"), []byte("no id at all")},
		Todos:                  [][]byte{m.message("thing to do", &agentv1.TodoItem{Content: "c", Dependencies: []string{"1"}})},
		Summary:                m.message("summary", &agentv1.ConversationSummary{Summary: "s"}),
		Plan:                   m.message("plan", &agentv1.ConversationPlan{Plan: "p"}),
		Turns:                  [][]byte{m.message("turn", turn), m.message("shell turn", shell)},
		SummaryArchive:         archive("archive"),
		SummaryArchives:        [][]byte{archive("archives")},
		FileStates:             map[string][]byte{"/a": m.message("file state", &agentv1.FileState{Content: proto.String("x")})},
		FileStatesV2:           map[string]*agentv1.FileStateStructure{"/b": {Content: m.text("content"), InitialContent: m.text("initial content")}},
		SubagentStates:         map[string]*agentv1.SubagentPersistedState{"a": sub("inline")},
		SubagentStateRefs:      map[string][]byte{"b": m.message("subagent by reference", sub("by reference"))},
		TokenDetails:           &agentv1.ConversationTokenDetails{PromptContextUsageSnapshotBlobId: m.text("usage snapshot")},
	}
}

func newMaker(t *testing.T) *maker {
	return &maker{t, memory.New(blobstore.Verified), map[blobref.Ref]string{}}
}

func ref(id []byte) blobref.Ref { return blobref.FromSum([32]byte(id)) }

func TestWalkYieldsEveryReachableBlobOnceAndBeforeWhatItNames(t *testing.T) {
	m := newMaker(t)
	root := ref(m.message("root", fullState(m)))
	m.text("nobody names this") // in the store, and not reachable
	var order []string
	for r, err := range conversation.Walk(t.Context(), m.store, root, conversation.Limits{Parallel: 3}) {
		if err != nil {
			t.Fatalf("%s: %v", m.names[r], err)
		}
		if slices.Contains(order, m.names[r]) {
			t.Errorf("%s is yielded twice", m.names[r])
		}
		order = append(order, m.names[r])
	}
	for _, name := range m.names {
		if (name == "nobody names this") == slices.Contains(order, name) {
			t.Errorf("%s: yielded is %v", name, slices.Contains(order, name))
		}
	}
	for _, pair := range [][2]string{{"root", "turn"}, {"turn", "user message"}, {"user message", "state before a message"}, {"state before a message", "plan before"}, {"step task", "original step"}, {"original step", "data of a file"}} {
		if slices.Index(order, pair[0]) > slices.Index(order, pair[1]) {
			t.Errorf("%s comes behind %s", pair[0], pair[1])
		}
	}
}

func TestABlobThatIsMissingIsAHoleAndTheWalkGoesOn(t *testing.T) {
	m := newMaker(t)
	root := ref(m.message("root", fullState(m)))
	var lost blobref.Ref
	for r, name := range m.names {
		if name == "user message" {
			lost = r
		}
	}
	if err := m.store.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	holes, found := 0, map[string]bool{}
	for r, err := range conversation.Walk(t.Context(), m.store, root, conversation.Limits{}) {
		var h *conversation.Hole
		if errors.As(err, &h) {
			holes++
			if h.ID != lost || h.What != "user message" || !errors.Is(h, blobstore.ErrNotFound) || r != lost {
				t.Errorf("hole %v", h)
			}
			continue
		}
		found[m.names[r]] = true
	}
	if holes != 1 || !found["subagent by reference"] || !found["step task"] || found["rich text of a message"] {
		t.Errorf("%d holes, %v", holes, found)
	}
}

func TestAWalkEndsAtItsLimit(t *testing.T) {
	m := newMaker(t)
	root := ref(m.message("root", fullState(m)))
	n := 0
	var last error
	for _, err := range conversation.Walk(t.Context(), m.store, root, conversation.Limits{Blobs: 5}) {
		n, last = n+1, err
	}
	if n != 6 || !errors.Is(last, conversation.ErrTooMuch) {
		t.Errorf("%d, %v", n, last)
	}
}

// An opaque store may answer with a state that names itself.
func TestAWalkOfAStateThatNamesItselfEnds(t *testing.T) {
	store := memory.New(blobstore.Opaque)
	id := blobref.Of([]byte("me"))
	sum := id.Sum()
	user := blobref.Of([]byte("user"))
	userSum := user.Sum()
	turn := blobref.Of([]byte("turn"))
	turnSum := turn.Sum()
	for r, msg := range map[blobref.Ref]proto.Message{
		id:   &agentv1.ConversationStateStructure{Turns: [][]byte{turnSum[:], turnSum[:]}},
		turn: &agentv1.ConversationTurnStructure{Turn: &agentv1.ConversationTurnStructure_AgentConversationTurn{AgentConversationTurn: &agentv1.AgentConversationTurnStructure{UserMessage: userSum[:]}}},
		user: &agentv1.UserMessage{ConversationStateBlobId: sum[:]},
	} {
		data, err := proto.Marshal(msg)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Set(t.Context(), r, data); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, err := range conversation.Walk(t.Context(), store, id, conversation.Limits{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 3 {
		t.Errorf("%d blobs of 3", n)
	}
}

func TestATransferCarriesAStateToAnEmptyStore(t *testing.T) {
	m := newMaker(t)
	state := fullState(m)
	root := ref(m.message("root", state))
	var file bytes.Buffer
	tr, err := conversation.StateForTransfer(t.Context(), m.store, root, conversation.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if holes, err := tr.Write(&file); err != nil || len(holes) > 0 {
		t.Fatal(holes, err)
	}
	// To everybody else the file is the state.
	plain := &agentv1.ConversationStateStructure{}
	if err := proto.Unmarshal(file.Bytes(), plain); err != nil || len(plain.Turns) != 2 {
		t.Fatal(plain, err)
	}
	there := memory.New(blobstore.Verified)
	got, err := conversation.ReadTransfer(t.Context(), bytes.NewReader(file.Bytes()), there)
	if err != nil || got != root {
		t.Fatalf("%v, %v", got, err)
	}
	for r, err := range conversation.Walk(t.Context(), m.store, root, conversation.Limits{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := there.Get(t.Context(), r); err != nil {
			t.Errorf("%s: %v", m.names[r], err)
		}
	}
	for _, cut := range []int{1, len(tr.State) / 2, len(tr.State) + 3, file.Len() - 1} {
		if _, err := conversation.ReadTransfer(t.Context(), bytes.NewReader(file.Bytes()[:cut]), memory.New(blobstore.Verified)); !errors.Is(err, conversation.ErrNotState) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	changed := bytes.Clone(file.Bytes())
	changed[len(changed)-1] ^= 1
	if _, err := conversation.ReadTransfer(t.Context(), bytes.NewReader(changed), memory.New(blobstore.Verified)); !errors.Is(err, blobstore.ErrMismatch) && !errors.Is(err, conversation.ErrNotState) {
		t.Errorf("a changed byte: %v", err)
	}
}

func TestAStateIsReadFromItsTextForms(t *testing.T) {
	data, err := proto.Marshal(&agentv1.ConversationStateStructure{ReadPaths: []string{"/a/b>?"}, SelfSummaryCount: 300})
	if err != nil {
		t.Fatal(err)
	}
	text := conversation.Text(data)
	for name, form := range map[string]string{
		"base64":             text,
		"without padding":    strings.TrimRight(text, "="),
		"of the URL's kind":  strings.NewReplacer("+", "-", "/", "_").Replace(text),
		"hexadecimal":        fmt.Sprintf("%x", data),
		"in capital letters": fmt.Sprintf(" %X\n", data),
	} {
		got, err := conversation.FromText(form)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if s, err := conversation.Parse([]byte(form), nil, conversation.Limits{}); err != nil || s.Message.SelfSummaryCount != 300 {
			t.Errorf("%s: %v", name, err)
		}
		root, err := conversation.ReadTransfer(t.Context(), strings.NewReader(form), memory.New(blobstore.Verified))
		if err != nil || root != blobref.Of(data) {
			t.Errorf("%s: %v, %v", name, root, err)
		}
	}
	for _, bad := range []string{"~!", "abc", "zz", "~A"} {
		if _, err := conversation.FromText(bad); !errors.Is(err, conversation.ErrNotState) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if got, err := conversation.FromText("~"); err != nil || len(got) != 0 {
		t.Errorf("a bare ~: %v, %v", got, err)
	}
}

// counting counts what is got of a store.
type counting struct {
	blobstore.Store
	gets atomic.Int64
}

func (c *counting) Get(ctx context.Context, r blobref.Ref) ([]byte, error) {
	c.gets.Add(1)
	return c.Store.Get(ctx, r)
}

func TestStatesOfOneConversationAreWalkedForWhatIsNew(t *testing.T) {
	store := &counting{Store: memory.New(blobstore.Verified)}
	p := conversation.NewProjector(store, conversation.ProjectorOptions{})
	var roots []blobref.Ref
	for n := 80; n < 84; n++ {
		got, err := p.Project(t.Context(), logOf(manyTurns(n)))
		if err != nil {
			t.Fatal(err)
		}
		roots = append(roots, got.Root)
	}
	w := conversation.NewWalker(store, conversation.Limits{})
	all := map[blobref.Ref]bool{}
	for i, root := range roots {
		before := store.gets.Load()
		news := 0
		for r, err := range w.Walk(t.Context(), root) {
			if err != nil || all[r] {
				t.Fatalf("walk %d yields %v once more, or %v", i, r, err)
			}
			all[r], news = true, news+1
		}
		if read := store.gets.Load() - before; i > 0 && (read > 12 || news == 0 || news > 20) {
			t.Errorf("state %d: %d blobs were read, %d are new", i, read, news)
		}
		for r, err := range conversation.Walk(t.Context(), store, root, conversation.Limits{}) {
			if err != nil || !all[r] {
				t.Errorf("state %d names %v, which was not yielded (%v)", i, r, err)
			}
		}
	}
	before := store.gets.Load()
	for _, root := range roots {
		for r, err := range w.Walk(t.Context(), root) {
			t.Errorf("yields %v, %v", r, err)
		}
	}
	if n := store.gets.Load() - before; n > 0 {
		t.Errorf("%d blobs were read again", n)
	}
}

func TestAWalkThatWasBrokenOffIsBegunAnew(t *testing.T) {
	store := memory.New(blobstore.Verified)
	root := project(t, store, manyTurns(20)).Root
	w := conversation.NewWalker(store, conversation.Limits{})
	for range w.Walk(t.Context(), root) {
		break
	}
	got := map[blobref.Ref]bool{}
	for r, err := range w.Walk(t.Context(), root) {
		if err != nil {
			t.Fatal(err)
		}
		got[r] = true
	}
	for r := range conversation.Walk(t.Context(), store, root, conversation.Limits{}) {
		if !got[r] {
			t.Errorf("%v is missing", r)
		}
	}
}
