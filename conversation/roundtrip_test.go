package conversation_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func logOf(data []byte) conversation.Log {
	return conversation.Log{ReaderAt: bytes.NewReader(data), Size: int64(len(data))}
}

func project(t testing.TB, store blobstore.Store, data []byte) conversation.Projection {
	t.Helper()
	p, err := conversation.NewProjector(store, conversation.ProjectorOptions{}).Project(t.Context(), logOf(data))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func load(t testing.TB, store blobstore.Store, root blobref.Ref) *conversation.State {
	t.Helper()
	s, err := conversation.Load(t.Context(), store, root, conversation.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func restore(t testing.TB, s *conversation.State) ([]byte, conversation.Restored) {
	t.Helper()
	var out bytes.Buffer
	r, err := s.WriteLog(t.Context(), &out, conversation.RestoreOptions{ID: "converted", CWD: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Bytes != int64(out.Len()) {
		t.Errorf("%d bytes are said to be written, of %d", r.Bytes, out.Len())
	}
	return out.Bytes(), r
}

// change stores a state that another program has made of one: it reads and writes it
// with its unknown fields.
func change(t testing.TB, store blobstore.Store, root blobref.Ref, do func(m *agentv1.ConversationStateStructure)) *conversation.State {
	t.Helper()
	m := proto.CloneOf(load(t, store, root).Message)
	do(m)
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := blobstore.Put(t.Context(), store, data)
	if err != nil {
		t.Fatal(err)
	}
	return load(t, store, ref)
}

func entriesOf(data []byte) (list []entry.Entry) {
	n := 0
	for line := range bytes.Lines(data) {
		n++
		list = append(list, session.LineEntries(bytes.TrimSuffix(line, []byte("\n")), 0, n)...)
	}
	return list
}

func TestRealSessionsComeBackToTheByte(t *testing.T) {
	for _, path := range realSessions(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			store := memory.New(blobstore.Verified)
			p := project(t, store, data)
			back, r := restore(t, load(t, store, p.Root))
			if !bytes.Equal(back, data) || !r.Exact || len(r.Holes) > 0 {
				t.Fatalf("%d bytes came back as %d: %+v", len(data), len(back), r)
			}
		})
	}
}

// Another program that knows nothing of the sidecar converts the whole of it.
func TestRealSessionsAreConvertedWithoutTheirSidecar(t *testing.T) {
	for _, path := range realSessions(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			store := memory.New(blobstore.Verified)
			p := project(t, store, data)
			s := change(t, store, p.Root, func(m *agentv1.ConversationStateStructure) { m.ProtoReflect().SetUnknown(nil) })
			back, r := restore(t, s)
			if r.Exact || r.Converted != p.Turns || len(r.Holes) > 0 {
				t.Fatalf("%+v of %d turns", r, p.Turns)
			}
			// What was converted says the same: the same user messages, and steps.
			again := load(t, store, project(t, store, back).Root)
			if again.Len() != s.Len() {
				t.Fatalf("%d turns became %d", s.Len(), again.Len())
			}
			for i := range s.Len() {
				a, err := s.Turn(t.Context(), i)
				if err != nil {
					t.Fatal(err)
				}
				b, err := again.Turn(t.Context(), i)
				if err != nil {
					t.Fatal(err)
				}
				if a.User.GetText() != b.User.GetText() || a.User.GetMessageId() != b.User.GetMessageId() {
					t.Fatalf("turn %d: %q became %q", i, a.User, b.User)
				}
				if a.ID != b.ID {
					t.Fatalf("turn %d is %v, and was %v", i, b.ID, a.ID)
				}
				if len(a.Steps) != len(b.Steps) {
					t.Fatalf("turn %d: %d steps became %d", i, len(a.Steps), len(b.Steps))
				}
				for k := range a.Steps {
					sameStep(t, a.Steps[k], b.Steps[k])
				}
			}
		})
	}
}

func sameStep(t *testing.T, a, b *agentv1.ConversationStep) {
	t.Helper()
	if a.GetAssistantMessage().GetText() != b.GetAssistantMessage().GetText() || a.GetThinkingMessage().GetText() != b.GetThinkingMessage().GetText() {
		t.Fatalf("%v became %v", a, b)
	}
	ca, cb := a.GetToolCall(), b.GetToolCall()
	if ca.GetToolCallId() != cb.GetToolCallId() || ca.GetShellToolCall().GetArgs().GetCommand() != cb.GetShellToolCall().GetArgs().GetCommand() {
		t.Fatalf("%v became %v", ca, cb)
	}
	if s := ca.GetShellToolCall().GetResult().GetSuccess(); s != nil && s.Stdout != cb.GetShellToolCall().GetResult().GetSuccess().GetStdout() {
		t.Fatalf("%v became %v", ca, cb)
	}
	if (ca.GetMcpToolCall() == nil) != (cb.GetMcpToolCall() == nil) {
		t.Fatalf("%v became %v", ca, cb)
	}
}
