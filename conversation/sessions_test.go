package conversation_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func home(t *testing.T) *session.Manager {
	t.Helper()
	m, err := session.OpenManager(t.TempDir(), session.Options{Durability: session.Flush})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func appendAll(t *testing.T, s *session.Session, bodies ...entry.Body) (ids []string) {
	t.Helper()
	ids, err := s.AppendAll(t.Context(), bodies...)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func user(text string) entry.Body {
	return entry.UserMessage{Content: entry.PlainText(text), Timestamp: 1}
}

func assistant(blocks ...entry.Block) entry.Body {
	return entry.AssistantMessage{Content: entry.Blocks(blocks...), API: "x", Provider: "p", Model: "m", StopReason: entry.StopStop, Timestamp: 1}
}

// busy is a session with all that can belong to one: images and long strings in the blob
// store, branches, a compaction, artifacts, a subagent and one of its own.
func busy(t *testing.T, m *session.Manager) *session.Session {
	t.Helper()
	s, err := m.Create(t.Context(), t.TempDir(), session.CreateOptions{Title: "busy"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	image := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("image"), 1000))
	ids := appendAll(
		t, s, user("first"),
		assistant(entry.ThinkingBlock{Thinking: "hm"}, entry.TextBlock{Text: "I look."}, entry.ToolCallBlock{ID: "c1", Name: "bash", Arguments: []byte(`{"command":"ls"}`)}),
		entry.ToolResultMessage{ToolCallID: "c1", ToolName: "bash", Content: entry.Blocks(entry.TextBlock{Text: "a\nb"}), Timestamp: 1},
		entry.UserMessage{Content: entry.Blocks(entry.TextBlock{Text: "what is this?"}, entry.ImageBlock{Data: image, MIMEType: "image/png"}), Timestamp: 1},
		assistant(entry.TextBlock{Text: "an image"}),
		entry.BashExecutionMessage{Command: "make", Output: strings.Repeat("long ", 150_000), Timestamp: 1},
	)
	if _, err := s.Branch(t.Context(), ids[2], session.BranchOptions{Summary: "another way was tried"}); err != nil {
		t.Fatal(err)
	}
	appendAll(t, s, user("the other way"), assistant(entry.TextBlock{Text: "yes"}))
	if _, err := s.Compact(t.Context(), session.CompactOptions{Summary: "all of it"}); err != nil {
		t.Fatal(err)
	}
	appendAll(t, s, entry.ModeChange{Mode: "plan"}, user("and now?"), assistant(entry.TextBlock{Text: "now the end"}))
	dir, _, err := s.LocateArtifacts(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	d := artifacts.Open(dir, artifacts.Options{})
	root := s
	for range 2 {
		id, err := d.Reserve(t.Context(), artifacts.AgentID{}, "helper", artifacts.Provenance{})
		if err != nil {
			t.Fatal(err)
		}
		sub, err := m.CreateNested(t.Context(), root, id, s.CWD())
		if err != nil {
			t.Fatal(err)
		}
		appendAll(t, sub, entry.SessionInit{SystemPrompt: entry.Prompt{"Help."}, Task: "t", Agent: "scout"}, user("do it"), assistant(entry.TextBlock{Text: "done"}))
		t.Cleanup(func() { sub.Close() })
		root = sub
	}
	if err := os.WriteFile(filepath.Join(dir, "note.txt"), bytes.Repeat([]byte("n"), 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

func fileTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil || !artifacts.Carried(rel) {
			return err
		}
		data, err := os.ReadFile(path)
		files[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestASessionGoesToAnotherHomeThroughAStateAndIsTheSame(t *testing.T) {
	m := home(t)
	s := busy(t, m)
	store := memory.New(blobstore.Verified)
	p, err := conversation.NewSessionProjector(m, s, store).Project(t.Context())
	if err != nil || len(p.Holes) > 0 {
		t.Fatal(err, p.Holes)
	}
	// By one file, as to another machine.
	var file bytes.Buffer
	tr, err := conversation.StateForTransfer(t.Context(), store, p.Root, conversation.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if holes, err := tr.Write(&file); err != nil || len(holes) > 0 {
		t.Fatal(holes, err)
	}
	there := memory.New(blobstore.Verified)
	root, err := conversation.ReadTransfer(t.Context(), &file, there)
	if err != nil {
		t.Fatal(err)
	}
	other := home(t)
	got, err := conversation.Import(t.Context(), other, load(t, there, root), conversation.ImportOptions{})
	if err != nil || len(got.Holes) > 0 {
		t.Fatal(err, got.Holes)
	}
	if got.Session != s.ID() || !got.Exact || got.Subagents != 2 || got.Files == 0 {
		t.Errorf("%+v", got)
	}
	// Where that session is, it becomes another one.
	second, err := conversation.Import(t.Context(), m, load(t, there, root), conversation.ImportOptions{})
	if err != nil || second.Session == s.ID() || second.Path == s.Path() || len(second.Holes) > 0 {
		t.Errorf("%+v, %v", second, err)
	}
	was, err := os.ReadFile(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	is, err := os.ReadFile(got.Path)
	if err != nil || !bytes.Equal(was, is) {
		t.Errorf("the log is another one: %v, %d bytes of %d", err, len(is), len(was))
	}
	a, b := fileTree(t, s.ArtifactsDir()), fileTree(t, session.ArtifactsPath(got.Path))
	for name := range a {
		if a[name] != b[name] {
			t.Errorf("%s is another one: %d bytes of %d", name, len(b[name]), len(a[name]))
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			t.Errorf("%s was not there", name)
		}
	}
	back, err := other.Open(t.Context(), got.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	ctx, missing, err := back.ContextWith(t.Context(), session.ContextOptions{Restore: true})
	if err != nil || len(missing) > 0 || len(ctx.Messages) == 0 {
		t.Errorf("%v, %v, %v", ctx, missing, err)
	}
	for e, err := range back.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if _, missing, err := back.Restore(t.Context(), e); err != nil || len(missing) > 0 {
			t.Errorf("%s: %v, %v", e.ID(), missing, err)
		}
	}
	if d, err := back.Damage(t.Context()); err != nil || len(d) > 0 {
		t.Errorf("%v, %v", d, err)
	}
}

func TestASecondProjectionStoresOnlyWhatIsNew(t *testing.T) {
	m := home(t)
	s := busy(t, m)
	store := memory.New(blobstore.Verified)
	p := conversation.NewSessionProjector(m, s, store)
	first, err := p.Project(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same, err := p.Project(t.Context())
	if err != nil || same.Root != first.Root || same.Blobs != 0 {
		t.Errorf("the same session again: %v, %d blobs", err, same.Blobs)
	}
	appendAll(t, s, user("one more"), assistant(entry.TextBlock{Text: "yes"}))
	more, err := p.Project(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// A turn, its message and step, its chunk, two nodes of one tree and the roots.
	if more.Turns != first.Turns+1 || more.Blobs > 12 {
		t.Errorf("%d turns and %d blobs behind %d", more.Turns, more.Blobs, first.Turns)
	}
	fresh, err := conversation.NewSessionProjector(m, s, memory.New(blobstore.Verified)).Project(t.Context())
	if err != nil || fresh.Root != more.Root {
		t.Errorf("in one step it is %v, in two %v (%v)", fresh.Root, more.Root, err)
	}
}

func TestAStateOfAnotherProgramBecomesASession(t *testing.T) {
	mk := newMaker(t)
	state := fullState(mk)
	state.PreviousWorkspaceUris = []string{"file:///somewhere"}
	root := ref(mk.message("root", state))
	m := home(t)
	got, err := conversation.Import(t.Context(), m, load(t, mk.store, root), conversation.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Exact || got.Converted != 2 || got.CWD != "/somewhere" || got.Subagents != 4 {
		t.Errorf("%+v", got)
	}
	s, err := m.Open(t.Context(), got.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if d, err := s.Damage(t.Context()); err != nil || len(d) > 0 {
		t.Errorf("%v, %v", d, err)
	}
	check, err := m.Check(t.Context(), got.Path)
	if err != nil || len(check.Damage) > 0 || check.Unsealed > 0 {
		t.Errorf("%+v, %v", check, err)
	}
	c, err := s.Resume(context.Background(), session.ResumeOptions{Restore: true})
	if err != nil || len(c.Context.Messages) < 3 {
		t.Errorf("%v, %v", c, err)
	}
	// It becomes the same state again: the same turns, and all that it said beside them, in
	// a store that had nothing of it.
	to := memory.New(blobstore.Verified)
	p, err := conversation.NewSessionProjector(m, s, to).Project(t.Context())
	if err != nil || len(p.Holes) > 0 {
		t.Fatal(err, p.Holes)
	}
	again := load(t, to, p.Root)
	for i := range state.Turns {
		if again.Len() != len(state.Turns) || !bytes.Equal(again.Message.Turns[i], state.Turns[i]) {
			t.Errorf("turn %d is another one", i)
		}
	}
	for r, err := range conversation.Walk(t.Context(), to, p.Root, conversation.Limits{}) {
		if err != nil {
			t.Errorf("%s: %v", mk.names[r], err)
		}
		if _, err := to.Get(t.Context(), r); err != nil {
			t.Errorf("%s is not there: %v", mk.names[r], err)
		}
	}
	want := proto.CloneOf(state)
	is := proto.CloneOf(again.Message)
	for name := range is.SubagentStates {
		if name != "a" && name != "b" {
			t.Errorf("a subagent %s", name)
		}
	}
	// Subagents by reference are inline now; of when it began there was nothing.
	want.SubagentStates, is.SubagentStates, want.SubagentStateRefs, is.SubagentStateRefs = nil, nil, nil, nil
	want.TurnTimings, is.TurnTimings = nil, nil
	// What is old has its new form.
	if f := is.FileStatesV2["/a"]; f == nil || f.InitialContent != nil || !bytes.Equal(f.Content, mk.text("x")) {
		t.Errorf("/a is %v", f)
	}
	delete(is.FileStatesV2, "/a")
	want.SummaryArchives = append([][]byte{want.SummaryArchive}, want.SummaryArchives...)
	want.SummaryArchive, want.FileStates = nil, nil
	is.ProtoReflect().SetUnknown(nil)
	if !proto.Equal(want, is) {
		t.Errorf("%v\nbecame %v", want, is)
	}
}
