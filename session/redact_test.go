package session_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func TestSecretsAreReplacedInEntriesAndTitlesAndNotInWhatHasToStay(t *testing.T) {
	m := newManager(t, session.Options{})
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{Title: "about hunter2-title"}))
	defer s.Close()
	s.SetRedactor(redact.New(redact.Options{Values: []string{"hunter2-title", "hunter2-said", "toolResult"}, Number: func(kind string, _ []byte) int64 {
		if s.ArtifactsDir() == "" { // a numbering asks the session
			t.Error("it has no place")
		}
		return 1
	}}))
	appendOK(t, s, user("hunter2-said"))
	appendOK(t, s, entry.ToolResult(entry.ToolCallBlock{ID: "c1", Name: "x"}, entry.PlainText("a toolResult")))
	appendOK(t, s, entry.Custom{CustomType: entry.CustomTypeCheckpoint, Data: json.RawMessage(`{"files":[{"path":"/hunter2-said"}]}`)})
	must(0, s.Rename(t.Context(), "now hunter2-said", session.TitleUser))
	must(s.Label(t.Context(), must(s.Leaf(t.Context())), "label hunter2-said"))
	log := string(must(os.ReadFile(s.Path())))
	if n := strings.Count(log, "hunter2"); n != 1 || !strings.Contains(log, `"path":"/hunter2-said"`) {
		t.Errorf("%d in the clear, want the name of the file alone:\n%s", n, log)
	}
	for _, want := range []string{`"role":"toolResult"`, "a [redacted:variable:1]", "label [redacted:variable:1]"} {
		if !strings.Contains(log, want) {
			t.Errorf("%s is not in the log:\n%s", want, log)
		}
	}
	if got := must(s.Title(t.Context())); got != "now [redacted:variable:1]" {
		t.Errorf("the title is %q", got)
	}
}

func TestAMessageIsShownAsTheLogWillHaveIt(t *testing.T) {
	s := newSession(t, newManager(t, session.Options{}))
	said := entry.AssistantMessage{Content: entry.Blocks(
		entry.TextBlock{Text: "a hunter2-said"}, entry.ThinkingBlock{Thinking: "a hunter2-said", Signature: "c2ln"},
		entry.ToolCallBlock{ID: "c1", Name: "x", Arguments: json.RawMessage(`{"a":"hunter2-said"}`)})}
	if got := must(s.RedactMessage(said)).(entry.AssistantMessage); got.Content.Text() != "a hunter2-said" {
		t.Errorf("without a redactor: %+v", got)
	}
	s.SetRedactor(redact.New(redact.Options{Values: []string{"hunter2-said"}}))
	blocks := must(s.RedactMessage(said)).(entry.AssistantMessage).Content.Blocks()
	if b := blocks[0].(entry.TextBlock); b.Text != "a [redacted:variable:1]" {
		t.Errorf("the text is %q", b.Text)
	}
	if b := blocks[1].(entry.ThinkingBlock); b.Thinking != "a hunter2-said" || b.Signature != "c2ln" {
		t.Errorf("what is signed is %+v", b)
	}
	if b := blocks[2].(entry.ToolCallBlock); string(b.Arguments) != `{"a":"[redacted:variable:1]"}` {
		t.Errorf("the arguments are %s", b.Arguments)
	}
}
