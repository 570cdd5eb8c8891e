package conversation_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/session/entry"
)

// randomLog draws a log: entries of all kinds on several branches, damage, odd lines, and
// an end with a newline or without. ends are where whole lines end.
func randomLog(t *rapid.T) (data []byte, ends []int) {
	version := rapid.SampledFrom([]string{`,"version":3`, `,"version":3`, `,"version":2`, ``}).Draw(t, "version")
	if rapid.IntRange(0, 9).Draw(t, "headerless") > 0 {
		if rapid.Bool().Draw(t, "slot") {
			data = append(data, `{"type":"title","v":1,"title":"t","updatedAt":"2026-01-01T00:00:00.000Z","pad":"   "}`+"\n"...)
		}
		data = fmt.Appendf(data, `{"type":"session"%s,"id":"s","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/w"}`+"\n", version)
	}
	ends = append(ends, len(data))
	var ids, calls []string
	add := func(typ, members string) {
		id := fmt.Sprintf("e%d", len(ids))
		parent := "null"
		if len(ids) > 0 {
			p := ids[len(ids)-1]
			if rapid.IntRange(0, 5).Draw(t, "branch") == 0 {
				p = rapid.SampledFrom(append(ids, "nobody", "s")).Draw(t, "parent")
			}
			parent = `"` + p + `"`
		}
		ids = append(ids, id)
		data = fmt.Appendf(data, `{"type":"%s","id":"%s","parentId":%s,"timestamp":"2026-01-02T03:%02d:%02d.000Z"%s}`, typ, id, parent, len(ids)/60%60, len(ids)%60, members)
		if rapid.IntRange(0, 30).Draw(t, "joined") > 0 {
			data = append(data, '\n')
			ends = append(ends, len(data))
		}
	}
	message := func(m string) { add("message", `,"message":`+m) }
	text := func() string {
		return strings.Trim(string(jsonString(rapid.OneOf(rapid.String(), rapid.Just(strings.Repeat("long ", 5000))).Draw(t, "text"))), " ")
	}
	for range rapid.IntRange(0, 40).Draw(t, "entries") {
		switch rapid.IntRange(0, 17).Draw(t, "kind") {
		case 0, 1, 2:
			message(`{"role":"user","content":` + text() + `,"timestamp":1}`)
		case 3:
			image := base64.StdEncoding.EncodeToString([]byte(rapid.StringN(0, 2000, -1).Draw(t, "image")))
			if rapid.Bool().Draw(t, "reference") {
				image = blobref.Of([]byte(image)).String()
			}
			message(`{"role":"user","content":[{"type":"text","text":` + text() + `},{"type":"image","data":"` + image + `","mimeType":"image/png"}],"timestamp":1}`)
		case 4, 5:
			call := fmt.Sprintf("c%d", len(ids))
			calls = append(calls, call)
			name := rapid.SampledFrom([]string{"bash", "read", "edit", "write", "grep", "find", "task", "todo", "other"}).Draw(t, "tool")
			args := rapid.SampledFrom([]string{
				`{"command":"ls","path":"p","pattern":"x","content":"c","prompt":"do","items":[{"text":"a","status":"done"}]}`, `{}`, `null`, `{"command":3,"deep":[[{"a":1e400}]]}`,
			}).Draw(t, "args")
			message(`{"role":"assistant","content":[{"type":"thinking","thinking":` + text() + `},{"type":"text","text":` + text() + `},{"type":"toolCall","id":"` + call + `","name":"` + name + `","arguments":` + args + `}],"usage":{"input":5,"output":7},"stopReason":"toolUse","timestamp":1}`)
		case 6, 7:
			call := "nobody"
			if len(calls) > 0 {
				call = rapid.SampledFrom(calls).Draw(t, "call")
			}
			message(`{"role":"toolResult","toolCallId":"` + call + `","toolName":"x","content":[{"type":"text","text":` + text() + `}],"isError":` + fmt.Sprint(rapid.Bool().Draw(t, "failed")) + `,"timestamp":1}`)
		case 8:
			message(`{"role":"assistant","content":` + text() + `,"stopReason":"stop","timestamp":1}`)
		case 9:
			message(`{"role":"bashExecution","command":"make","output":` + text() + `,"exitCode":2,"cancelled":false,"truncated":false,"timestamp":1}`)
		case 10:
			kept := "nobody"
			if len(ids) > 0 {
				kept = rapid.SampledFrom(ids).Draw(t, "kept")
			}
			add("compaction", `,"summary":`+text()+`,"firstKeptEntryId":"`+kept+`","tokensBefore":9`)
		case 11:
			add("custom_message", `,"customType":"x","content":`+text()+`,"display":true`)
		case 12:
			add("custom", `,"customType":"agentrun.todo","data":{"items":[{"text":`+text()+`,"status":"active"}]}`)
		case 13:
			add(rapid.SampledFrom([]string{"mode_change", "reset_boundary", "session_init", "label", "strange", "branch_summary"}).Draw(t, "type"), `,"mode":"plan","systemPrompt":["a","b"],"summary":"s","fromId":"e0"`)
		case 14:
			add("custom", `,"customType":"agentrun.checkpoint","data":{"files":[{"path":"/a","before":{"ref":"`+blobref.Of([]byte("b")).String()+`"},"after":null}]}`)
		case 15:
			add("custom", `,"customType":"agentrun.state","data":{"state":"`+rapid.SampledFrom([]string{"", "!", "kgEDL2Ev", "////"}).Draw(t, "state")+`"}`)
		default:
			data = append(data, rapid.SampledFrom([]string{"\n", "garbage\n", "{\"type\":\"message\",\"id\":\"torn\n", "\x00\x00\x00\n", "[1]\n", "{}\n", "\xff\xfe\n", "  \t\r\n"}).Draw(t, "odd")...)
			ends = append(ends, len(data))
		}
	}
	if rapid.IntRange(0, 5).Draw(t, "open") == 0 && len(data) > 0 {
		data = data[:len(data)-rapid.IntRange(1, min(20, len(data))).Draw(t, "cut")]
	}
	return data, ends
}

func jsonString(s string) []byte {
	b, err := entry.AppendFields(nil, entry.SessionInfo{Name: s})
	if err != nil {
		return []byte(`""`)
	}
	return bytes.TrimPrefix(b, []byte(`,"name":`))
}

func TestAnyLogComesBackToTheByteHoweverItGrew(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		data, ends := randomLog(rt)
		store := memory.New(blobstore.Verified)
		p := conversation.NewProjector(store, conversation.ProjectorOptions{})
		for range rapid.IntRange(0, 4).Draw(rt, "steps") {
			at := min(len(data), rapid.SampledFrom(append(ends, rapid.IntRange(0, len(data)).Draw(rt, "anywhere"))).Draw(rt, "at"))
			got, err := p.Project(t.Context(), logOf(data[:at]))
			if err != nil {
				rt.Fatal(err)
			}
			if back, r := restore(t, load(t, store, got.Root)); !bytes.Equal(back, data[:at]) || !r.Exact {
				rt.Fatalf("of %d bytes came back %d: %+v", at, len(back), r)
			}
		}
		got, err := p.Project(t.Context(), logOf(data))
		if err != nil {
			rt.Fatal(err)
		}
		back, r := restore(t, load(t, store, got.Root))
		if !bytes.Equal(back, data) || !r.Exact {
			rt.Fatalf("%d bytes came back as %d: %+v", len(data), len(back), r)
		}
		if once := project(t, memory.New(blobstore.Verified), data); once.Root != got.Root {
			rt.Fatalf("in one step it is %v, in several %v", once.Root, got.Root)
		}
		// Everything that the state names is there, but for the blobs of the session.
		for ref, err := range conversation.Walk(t.Context(), store, got.Root, conversation.Limits{}) {
			if err != nil {
				rt.Fatalf("%v: %v", ref, err)
			}
		}
	})
}

// What another program has done to the turns goes on from the last one that it left
// alone, and no line is lost.
func TestAChangedStateKeepsEveryLineAndHasTheTurnsOfTheState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		data, _ := randomLog(rt)
		if len(data) > 0 && data[len(data)-1] != '\n' {
			data = append(data, '\n')
		}
		store := memory.New(blobstore.Verified)
		p := project(t, store, data)
		m := &maker{t, store, map[blobref.Ref]string{}}
		s := change(t, store, p.Root, func(c *agentv1.ConversationStateStructure) {
			fresh := func() []byte {
				text := rapid.StringN(1, 5, -1).Draw(rt, "fresh")
				return m.message("turn", &agentv1.ConversationTurnStructure{Turn: &agentv1.ConversationTurnStructure_AgentConversationTurn{
					AgentConversationTurn: &agentv1.AgentConversationTurnStructure{
						UserMessage: m.message("user", &agentv1.UserMessage{Text: text, MessageId: rapid.SampledFrom([]string{"", "e1", "new", "no id"}).Draw(rt, "id")}),
						Steps: [][]byte{m.message("step", &agentv1.ConversationStep{Message: &agentv1.ConversationStep_AssistantMessage{
							AssistantMessage: &agentv1.AssistantMessage{Text: "answer to " + text},
						}})},
					},
				}})
			}
			switch n := len(c.Turns); rapid.IntRange(0, 4).Draw(rt, "change") {
			case 0:
				c.Turns = append(c.Turns, fresh())
			case 1:
				c.Turns = c.Turns[:rapid.IntRange(0, n).Draw(rt, "keep")]
			case 2:
				if n > 0 {
					c.Turns[rapid.IntRange(0, n-1).Draw(rt, "replace")] = fresh()
				}
			case 3:
				if n > 0 {
					c.Turns = append(c.Turns, c.Turns[rapid.IntRange(0, n-1).Draw(rt, "again")])
				}
			}
			c.PendingToolCalls = nil // their turn may be another one now
			c.ReadPaths = append(c.ReadPaths, "/new path")
			if len(c.TurnTimings) > len(c.Turns) {
				c.TurnTimings = c.TurnTimings[:len(c.Turns)]
			}
		})
		back, r := restore(t, s)
		if r.Exact || len(r.Holes) > 0 {
			rt.Fatalf("%+v", r)
		}
		if !bytes.Contains(data, []byte(`"version":2`)) && bytes.Contains(data, []byte(`"version":3`)) && !bytes.HasPrefix(back, data) {
			rt.Fatalf("the log does not begin with the one that was there:\n%s\n\n%s", data, back)
		}
		again := load(t, store, project(t, store, back).Root)
		if again.Len() != s.Len() {
			rt.Fatalf("%d turns became %d: %+v\n%s\n\n%s", s.Len(), again.Len(), r, data, back)
		}
		for i := range s.Len() {
			a, err := s.Turn(t.Context(), i)
			if err != nil {
				rt.Fatal(err)
			}
			b, err := again.Turn(t.Context(), i)
			if err != nil {
				rt.Fatal(err)
			}
			if a.User.GetText() != b.User.GetText() || len(a.Steps) != len(b.Steps) || a.Output.GetStdout() != b.Output.GetStdout() {
				rt.Fatalf("turn %d: %v\nbecame %v", i, a, b)
			}
		}
		if n := len(again.Message.ReadPaths); n == 0 || again.Message.ReadPaths[n-1] != "/new path" {
			rt.Fatalf("read paths %q", again.Message.ReadPaths)
		}
		if !proto.Equal(again.Message.TokenDetails, s.Message.TokenDetails) {
			rt.Fatalf("%v became %v", s.Message.TokenDetails, again.Message.TokenDetails)
		}
	})
}
