package conversation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/session/entry"
)

// callLog is a log with one call and its result.
func callLog(name, args, result string) []byte {
	return fmt.Appendf(nil, `{"type":"session","version":3,"id":"s","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/w"}
{"type":"message","id":"u","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"go","timestamp":1}}
{"type":"message","id":"a","parentId":"u","timestamp":"2026-01-02T03:04:06.000Z","message":{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"%s","arguments":%s}],"stopReason":"toolUse","timestamp":1}}
{"type":"message","id":"r","parentId":"a","timestamp":"2026-01-02T03:04:07.000Z","message":{"role":"toolResult","toolCallId":"c","toolName":"%[1]s",%[3]s,"timestamp":1}}
`, name, args, result)
}

func TestToolCallsAreMappedBothWays(t *testing.T) {
	text := func(s string) string { return `"content":[{"type":"text","text":"` + s + `"}],"isError":false` }
	failed := func(s string) string { return `"content":[{"type":"text","text":"` + s + `"}],"isError":true` }
	for name, c := range map[string]struct {
		tool, args, result string
		want               string // in the ToolCall's JSON
		back               string // arguments, where they are others
	}{
		"bash": {
			"bash", `{"command":"ls","cwd":"/x","timeout":1.5}`, text("a") + `,"details":{"exitCode":0,"durationMs":12,"cwd":"/x"}`,
			`"shellToolCall":{"args":{"command":"ls","workingDirectory":"/x","timeout":1500,"toolCallId":"c"},"result":{"success":{"command":"ls","workingDirectory":"/x","stdout":"a","executionTime":12,"interleavedOutput":"a"}}}`, "",
		},
		"bash that fails": {
			"bash", `{"command":"ls"}`, failed("no") + `,"details":{"exitCode":2,"signal":null}`,
			`"result":{"failure":{"command":"ls","exitCode":2,"stdout":"no","interleavedOutput":"no"}}`, "",
		},
		"read": {
			"read", `{"path":"/a","offset":3,"limit":4}`, text("x") + `,"details":{"lines":9,"size":99,"firstLine":3,"lastLine":6}`,
			`"readToolCall":{"args":{"path":"/a","offset":3,"limit":4},"result":{"success":{"content":"x","exceededLimit":true,"totalLines":9,"fileSize":99,"path":"/a","readRange":{"startLine":3,"endLine":6}}}}`, "",
		},
		"read that fails": {"read", `{"path":"/a"}`, failed("gone"), `"result":{"error":{"errorMessage":"gone"}}`, ""},
		"edit": {
			"edit", `{"path":"/a","edits":[{"old":"x","new":"y"}]}`, text("edited") + `,"details":{"added":1,"removed":2,"diff":"-x"}`,
			`"editToolCall":{"args":{"path":"/a"},"result":{"success":{"path":"/a","linesAdded":1,"linesRemoved":2,"diffString":"-x","message":"edited"}}}`, `{"patch":"-x","path":"/a"}`,
		},
		"write": {
			"write", `{"content":"text","path":"/a"}`, text("written"),
			`"editToolCall":{"args":{"path":"/a","streamContent":"text"},"result":{"success":{"path":"/a","afterFullFileContent":"text","message":"written"}}}`, "",
		},
		"grep": {
			"grep", `{"context":1,"glob":"*.go","ignoreCase":true,"paths":["/w"],"pattern":"x"}`, text(`/w/a.go:3:x\n/w/a.go-4-y\n(no more)`),
			`"workspaceResults":{"":{"content":{"matches":[{"file":"/w/a.go","matches":[{"lineNumber":3,"content":"x"},{"lineNumber":4,"content":"y","isContextLine":true}]},{"matches":[{"content":"(no more)"}]}],"totalLines":3,"totalMatchedLines":1}}}`, "",
		},
		"find": {
			"find", `{"glob":"*.go","paths":["/w"]}`, text(`a.go\nb.go`),
			`"globToolCall":{"args":{"targetDirectory":"/w","globPattern":"*.go"},"result":{"success":{"pattern":"*.go","path":"/w","files":["a.go","b.go"],"totalFiles":2}}}`, "",
		},
		"task": {
			"task", `{"agent":"reviewer","description":"d","prompt":"look"}`, text("fine"),
			`"taskToolCall":{"args":{"description":"d","prompt":"look","subagentType":{"custom":{"name":"reviewer"}}},"result":{"success":{"conversationSteps":[{"assistantMessage":{"text":"fine"}}]}}}`, "",
		},
		"todo": {
			"todo", `{"items":[{"status":"active","text":"a"},{"status":"done","text":"b"}]}`, failed("no"),
			`"updateTodosToolCall":{"args":{"todos":[{"id":"1","content":"a","status":"TODO_STATUS_IN_PROGRESS"},{"id":"2","content":"b","status":"TODO_STATUS_COMPLETED"}]},"result":{"error":{"error":"no"}}}`, "",
		},
		"another tool": {
			"browser", `{"deep":{"list":[1,true,null,"x"]},"url":"https://x"}`, `"content":[{"type":"text","text":"a"},{"type":"image","data":"aGk=","mimeType":"image/png"}],"isError":true`,
			`"mcpToolCall":{"args":{"name":"browser","args":{"deep":{"list":[1,true,null,"x"]},"url":"https://x"},"toolCallId":"c","toolName":"browser"},"result":{"success":{"content":[{"text":{"text":"a"}},{"image":{"data":"aGk=","mimeType":"image/png"}}],"isError":true}}}`, "",
		},
		"a tool without its arguments": {"bash", `{"script":"ls"}`, text("a"), `"mcpToolCall":{"args":{"name":"bash","args":{"script":"ls"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			store := memory.New(blobstore.Verified)
			s := load(t, store, project(t, store, callLog(c.tool, c.args, c.result)).Root)
			turn, err := s.Turn(t.Context(), 0)
			if err != nil || len(turn.Steps) != 1 {
				t.Fatal(err, turn)
			}
			raw, err := protojson.Marshal(turn.Steps[0].GetToolCall())
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := json.Compact(&got, raw); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(got.String(), c.want) {
				t.Errorf("%s\nhas not %s", got.String(), c.want)
			}
			bare := change(t, store, s.Root(), func(m *agentv1.ConversationStateStructure) { m.ProtoReflect().SetUnknown(nil) })
			log, _ := restore(t, bare)
			want := c.back
			if want == "" {
				want = c.args
			}
			seen := 0
			for _, e := range entriesOf(log) {
				m, err := e.Message()
				if err != nil {
					continue
				}
				switch m := m.(type) {
				case entry.AssistantMessage:
					call := m.Content.ToolCalls()[0]
					var a, b any
					if json.Unmarshal(call.Arguments, &a) != nil || json.Unmarshal([]byte(want), &b) != nil || !reflect.DeepEqual(a, b) || call.Name != c.tool || call.ID != "c" {
						t.Errorf("%s %s %s, not %s", call.ID, call.Name, call.Arguments, want)
					}
					seen++
				case entry.ToolResultMessage:
					if m.IsError != strings.Contains(c.result, `"isError":true`) || m.ToolCallID != "c" {
						t.Errorf("%+v", m)
					}
					seen++
				}
			}
			if seen != 2 {
				t.Errorf("%s", log)
			}
		})
	}
}

// A call of a program that has other tools is there with what it said.
func TestACallThatSessionsHaveNoToolForKeepsItsWords(t *testing.T) {
	m := newMaker(t)
	call := &agentv1.ToolCall{Tool: &agentv1.ToolCall_DeleteToolCall{DeleteToolCall: &agentv1.DeleteToolCall{
		Args:   &agentv1.DeleteArgs{Path: "/a", ToolCallId: "d1"},
		Result: &agentv1.DeleteResult{Result: &agentv1.DeleteResult_FileNotFound{FileNotFound: &agentv1.DeleteFileNotFound{Path: "/a"}}},
	}}}
	turn := m.message("turn", &agentv1.ConversationTurnStructure{Turn: &agentv1.ConversationTurnStructure_AgentConversationTurn{AgentConversationTurn: &agentv1.AgentConversationTurnStructure{
		Steps: [][]byte{m.message("step", &agentv1.ConversationStep{Message: &agentv1.ConversationStep_ToolCall{ToolCall: call}})},
	}}})
	log, _ := restore(t, load(t, m.store, ref(m.message("root", &agentv1.ConversationStateStructure{Turns: [][]byte{turn}}))))
	for _, want := range []string{`"id":"d1","name":"delete","arguments":{"path":"/a","toolCallId":"d1"}`, `"toolCallId":"d1","toolName":"delete"`, `fileNotFound`, `"isError":true`} {
		if !bytes.Contains(log, []byte(want)) {
			t.Errorf("%s is not in\n%s", want, log)
		}
	}
}

func TestWhatIsMissingIsAHoleAndTheRestIsThere(t *testing.T) {
	data := callLog("bash", `{"command":"ls"}`, `"content":"a","isError":false`)
	data = append(data, `{"type":"message","id":"u2","parentId":"r","timestamp":"2026-01-02T03:05:05.000Z","message":{"role":"user","content":"more","timestamp":1}}
{"type":"message","id":"a2","parentId":"u2","timestamp":"2026-01-02T03:05:06.000Z","message":{"role":"assistant","content":[{"type":"text","text":"yes"}],"stopReason":"stop","timestamp":1}}
`...)
	all := memory.New(blobstore.Verified)
	root := project(t, all, data).Root
	for lost, err := range conversation.Walk(t.Context(), all, root, conversation.Limits{}) {
		if err != nil || lost == root {
			continue
		}
		s, err := conversation.Load(t.Context(), without{all, lost}, root, conversation.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		holes := 0
		for turn, err := range s.Turns(t.Context(), 0, s.Len()) {
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range turn.Holes {
				if holes++; h.ID != lost || !errors.Is(h, blobstore.ErrNotFound) {
					t.Errorf("hole %v, and %v is missing", h, lost)
				}
			}
		}
		log, r := restore(t, s)
		if r.Exact != bytes.Equal(log, data) || r.Exact != (len(r.Holes) == 0) {
			t.Errorf("%v is missing: %+v", lost, r)
		}
		for _, h := range r.Holes {
			if holes++; h.ID != lost {
				t.Errorf("hole %v, and %v is missing", h, lost)
			}
		}
		if holes == 0 && !r.Exact {
			t.Errorf("nobody misses %v", lost)
		}
	}
}

// without is a store that lacks a blob.
type without struct {
	*memory.Store
	lost blobref.Ref
}

func (w without) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	if ref == w.lost {
		return nil, blobstore.ErrNotFound
	}
	return w.Store.Get(ctx, ref)
}

func TestAProjectionTellsWhatCouldNotBeCopied(t *testing.T) {
	image := blobref.Of([]byte("an image"))
	data := fmt.Appendf(nil, `{"type":"message","id":"u","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":[{"type":"image","data":"%s","mimeType":"image/png"}],"timestamp":1}}`+"\n", image)
	from, to := memory.New(blobstore.Verified), memory.New(blobstore.Verified)
	p := conversation.NewProjector(to, conversation.ProjectorOptions{Blobs: from})
	got, err := p.Project(t.Context(), logOf(data))
	if err != nil || len(got.Holes) != 1 || got.Holes[0].ID != image {
		t.Fatalf("%+v, %v", got.Holes, err)
	}
	if _, err := blobstore.Put(t.Context(), from, []byte("an image")); err != nil {
		t.Fatal(err)
	}
	got, err = conversation.NewProjector(to, conversation.ProjectorOptions{Blobs: from}).Project(t.Context(), logOf(data))
	if err != nil || len(got.Holes) != 0 {
		t.Fatalf("%+v, %v", got.Holes, err)
	}
	if _, err := to.Get(t.Context(), image); err != nil {
		t.Error(err)
	}
}
