package interop_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

// writing is a session as agentrun writes it.
type writing struct {
	name  string
	title string // given when it is made
	// unanswered is set where there is no message of a model.
	unanswered bool
	write      func(t *testing.T, s *session.Session)
}

func user(text string) entry.Body {
	return entry.UserMessage{Content: entry.PlainText(text), Timestamp: 1763697600000}
}

func assistant(blocks ...entry.Block) entry.Body {
	stop := entry.StopStop
	for _, b := range blocks {
		if b.BlockType() == entry.BlockToolCall {
			stop = entry.StopToolUse
		}
	}
	return entry.AssistantMessage{
		Content: entry.Blocks(blocks...), API: "anthropic-messages", Provider: "anthropic", Model: "some-model",
		StopReason: stop, Timestamp: 1763697601000,
	}
}

func text(s string) entry.Block { return entry.TextBlock{Text: s} }

func call(id, args string) entry.Block {
	return entry.ToolCallBlock{ID: id, Name: "bash", Arguments: json.RawMessage(args)}
}

func result(id string, blocks ...entry.Block) entry.Body {
	return entry.ToolResultMessage{
		ToolCallID: id, ToolName: "bash", Content: entry.Blocks(blocks...), Timestamp: 1763697602000,
	}
}

// image is one whose base64 has that many characters, a multiple of four.
func image(seed uint64, chars int) entry.Block {
	data := make([]byte, chars/4*3)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	copy(data, "\x89PNG\r\n\x1a\n")
	return entry.ImageBlock{Data: base64.StdEncoding.EncodeToString(data), MIMEType: "image/png"}
}

var writings = []writing{
	{name: "a conversation", title: "made here", write: func(t *testing.T, s *session.Session) {
		add(t, s, entry.ModelChange{Model: "anthropic/some-model"})
		add(t, s, user("What is in here?"))
		add(t, s, assistant(text("I'll look."), call("call_1", `{"command":"ls"}`), call("call_2", `{"command":"pwd"}`)))
		add(t, s, result("call_1", text("README.md\n")))
		add(t, s, result("call_2", text("/srv\n")))
		add(t, s, assistant(text("A README.")))
	}},
	{name: "no title and no assistant yet", unanswered: true, write: func(t *testing.T, s *session.Session) {
		add(t, s, user("hello"))
	}},
	{name: "images", write: func(t *testing.T, s *session.Session) {
		add(t, s, entry.UserMessage{Content: entry.Blocks(
			text("Compare."), image(1, 1020), image(2, 1024), image(3, 200_000), image(3, 200_000),
		), Timestamp: 1763697600000})
		add(t, s, assistant(call("call_1", `{"path":"a.png"}`)))
		add(t, s, result("call_1", text("it shows"), image(4, 50_000)))
		add(t, s, assistant(text("They differ.")))
	}},
	{name: "a compaction", write: func(t *testing.T, s *session.Session) {
		add(t, s, user("before"))
		add(t, s, assistant(text("gone")))
		keep := add(t, s, user("kept"))
		add(t, s, assistant(text("kept too")))
		add(t, s, entry.Compaction{Summary: "Something was said.", FirstKeptEntryID: keep, TokensBefore: 1000})
		add(t, s, user("after"))
		add(t, s, assistant(text("and on")))
	}},
	{name: "branches", write: func(t *testing.T, s *session.Session) {
		fork := add(t, s, user("Which way?"))
		add(t, s, assistant(text("left")))
		add(t, s, user("go on"))
		if _, err := s.AppendUnder(t.Context(), fork, assistant(text("right"))); err != nil {
			t.Fatal(err)
		}
		from := add(t, s, user("and then"))
		add(t, s, entry.BranchSummary{FromID: from, Summary: "Left was tried."})
		add(t, s, assistant(text("straight on")))
	}},
	{name: "a branch without a message", write: func(t *testing.T, s *session.Session) {
		fork := add(t, s, user("Which way?"))
		add(t, s, assistant(text("left")))
		branch(t, s, fork, "")
	}},
	{name: "a branch with a summary, and labels", write: func(t *testing.T, s *session.Session) {
		fork := add(t, s, user("Which way?"))
		left := add(t, s, assistant(text("left")))
		branch(t, s, fork, "Left was tried.")
		for id, label := range map[string]string{fork: "the fork", left: "left"} {
			if _, err := s.Label(t.Context(), id, label); err != nil {
				t.Fatal(err)
			}
		}
	}},
	{name: "a branch before the first entry", write: func(t *testing.T, s *session.Session) {
		add(t, s, user("hello"))
		add(t, s, assistant(text("hi")))
		branch(t, s, "", "")
	}},
	{name: "a compaction that keeps nothing, with a branch behind it", write: func(t *testing.T, s *session.Session) {
		add(t, s, user("before"))
		add(t, s, assistant(text("gone")))
		c, err := s.Compact(t.Context(), session.CompactOptions{Summary: "Something was said.", TokensBefore: 1000})
		if err != nil {
			t.Fatal(err)
		}
		add(t, s, user("after"))
		branch(t, s, c, "")
	}},
	{name: "runs only", unanswered: true, write: func(t *testing.T, s *session.Session) {
		for _, command := range []string{"true", "seq 3"} {
			start, err := json.Marshal(bash.Start{Run: "01a1fc5d-6a35-7716-be0d-dbe499ee83cf", Command: command, Cwd: s.CWD()})
			if err != nil {
				t.Fatal(err)
			}
			add(t, s, entry.Custom{CustomType: bash.StartType, Data: start})
			finish, err := json.Marshal(bash.Finish{Run: "01a1fc5d-6a35-7716-be0d-dbe499ee83cf", TotalBytes: 6, TotalLines: 3})
			if err != nil {
				t.Fatal(err)
			}
			code := 0
			add(t, s, entry.BashExecutionMessage{
				Command: command, Output: "1\n2\n3", ExitCode: &code, Timestamp: 1763697603000, Details: finish,
			})
		}
	}},
	{name: "renamed twice, the second time to a long title", title: "first", write: func(t *testing.T, s *session.Session) {
		add(t, s, user("hello"))
		add(t, s, assistant(text("hi")))
		rename(t, s, "second")
		rename(t, s, "dritter Titel, größer: "+strings.Repeat("日本語 ", 10)+"\U0001f680")
	}},
	{name: "JSON that is awkward for JavaScript", write: func(t *testing.T, s *session.Session) {
		add(t, s, user("line\u2028separator, nul \x00, quote \" and <html> & \U0001f680"))
		add(t, s, assistant(call("call_1", `{ "10": 1, "2": "b", "z": 1.50, "a": 1e21, "n": [1E2, 0.000001, 1e-7], "half": "\uD83D", "dup": 1, "dup": 2, "e": "\u00e9\/" }`)))
		add(t, s, result("call_1", text("done")))
		add(t, s, assistant(text("ok")))
	}},
	{name: "a text too long for a line", write: func(t *testing.T, s *session.Session) {
		add(t, s, user("print"))
		add(t, s, assistant(call("call_1", `{"command":"yes"}`)))
		add(t, s, result("call_1", text(strings.Repeat("0123456789\n", 60_000))))
		add(t, s, assistant(text("That was long.")))
	}},
	{name: "members that no program knows", write: func(t *testing.T, s *session.Session) {
		add(t, s, entry.MessageBody{Message: json.RawMessage(
			`{"zeta":{"b":1,"a":[null,true]},"role":"user","content":"hello","timestamp":1763697600000,"alpha":""}`)})
		add(t, s, entry.Raw{Type: "agentrun.unheard.of", Fields: json.RawMessage(`{"list":[1,2,3],"deep":{"x":{"y":{}}}}`)})
		add(t, s, assistant(text("hi")))
	}},
}

// TestWritingsHoldWhatTheyAreAbout shows that the writings hold what they are about, so
// that the other tests cannot pass by testing nothing.
func TestWritingsHoldWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	for _, w := range writings {
		t.Run(w.name, func(t *testing.T) {
			home := t.TempDir()
			s := w.new(t, manager(t, home), t.TempDir())
			noDamage(t, s)
			ours, pis := look(t, s, pi)
			lines := strings.Join(records(t, s.Path()), "")
			if !bytes.HasSuffix([]byte(lines), []byte("\"}\n")) || !strings.Contains(lines, `,"crc":"`) {
				t.Fatalf("no checksum:\n%s", lines)
			}
			switch w.name {
			case "images":
				if n := strings.Count(lines, `"blob:sha256:`); n != 4 {
					t.Fatalf("%d references, want 4", n)
				}
				if ours.Messages[0].Images[1] == pis.Messages[0].Images[1] {
					t.Fatal("pi would see the image")
				}
			case "a text too long for a line":
				if ours.Messages[2].Text == pis.Messages[2].Text {
					t.Fatal("the line holds all of the text")
				}
			case "a compaction":
				if len(ours.Messages) != 5 {
					t.Fatalf("%d messages in the context, want 5", len(ours.Messages))
				}
			case "branches":
				if len(ours.Messages) != 5 || len(ours.Entries) != 7 {
					t.Fatalf("%d messages and %d entries, want 5 and 7", len(ours.Messages), len(ours.Entries))
				}
			}
		})
	}
}

func branch(t *testing.T, s *session.Session, id, summary string) {
	t.Helper()
	if _, err := s.Branch(t.Context(), id, session.BranchOptions{Summary: summary}); err != nil {
		t.Fatal(err)
	}
}

// new writes w into a new session.
func (w writing) new(t *testing.T, m *session.Manager, cwd string) *session.Session {
	t.Helper()
	s, err := m.Create(t.Context(), cwd, session.CreateOptions{Title: w.title, TitleSource: session.TitleUser})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w.write(t, s)
	return s
}
