package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/toolset"
)

func TestWhereSecretsAreReplacedARunShowsWhatItsLogHasAndToolsGetWhatTheModelSaid(t *testing.T) {
	h := newHouse(t)
	secrets := map[string]string{"hunter2-said": "1", "hunter2-prompt": "2", "hunter2-tool": "3", "hunter2-system": "4", "hunter2-hook": "5"}
	var values []string
	for v := range secrets {
		values = append(values, v)
	}
	h.session.SetRedactor(redact.New(redact.Options{Values: values, Number: func(_ string, secret []byte) int64 { return int64(secrets[string(secret)][0] - '0') }}))
	var called string
	tools := must(toolset.New(echo{name: "echo", do: func(_ context.Context, text string) (tool.Result, error) {
		called = text
		return tool.Result{Text: strings.Repeat("a line with hunter2-tool\n", 10_000), Details: json.RawMessage(`{"a":"hunter2-tool"}`)}, nil
	}}))
	dir := artifacts.Open(h.session.ArtifactsDir(), artifacts.Options{})
	var streamed strings.Builder
	var events []string
	out := run(t, agent.Options{
		Session: h.session, Tools: tools, Artifacts: dir, System: entry.Prompt{"a system with hunter2-system"},
		Hooks: agent.Hooks{AfterCall: func(context.Context, agent.Call, tool.Result) string { return "a remark with hunter2-hook" }},
		Model: play(t,
			`{"agent":"main","expect":{"system":"a system with [redacted:variable:4]"},"say":[{"text":["I say hunt","er2-sai","d and call"]},{"call":"echo","args":{"text":"hunter2-said"}}]}`,
			`{"agent":"main","expect":{"results":[{"text":"a line with [redacted:variable:3]"}]},"say":[{"text":"done, hunter2-said"}]}`),
		Observe: func(e agent.Event) {
			if a, ok := e.(agent.Answering); ok {
				if d, ok := a.Event.(model.TextDelta); ok {
					streamed.WriteString(d.Text)
				}
			}
			events = append(events, fmt.Sprintf("%T %+v", e, e))
		},
	}, "a prompt with hunter2-prompt")
	if out.Status != agent.Completed || out.Text != "done, [redacted:variable:1]" {
		t.Errorf("%+v", out)
	}
	if called != "hunter2-said" {
		t.Errorf("the tool was called with %q", called)
	}
	if got, want := streamed.String(), "I say [redacted:variable:1] and calldone, [redacted:variable:1]"; got != want {
		t.Errorf("streamed: %q, want %q", got, want)
	}
	for _, e := range events {
		if strings.Contains(e, "hunter2") {
			t.Errorf("an event tells a secret: %.300s", e)
		}
	}
	log := string(must(os.ReadFile(h.session.Path())))
	kept := string(must(os.ReadFile(must(dir.List(t.Context()))[0].Path)))
	if strings.Contains(log, "hunter2") || strings.Contains(kept, "hunter2") || !strings.Contains(kept, "redacted:variable:3") || !strings.Contains(log, "redacted:variable:5") {
		t.Errorf("the log: %.2000s\nthe artifact: %.200s", log, kept)
	}
}

func TestACallWhoseArgumentsTheLogLacksIsNotMadeAgainFromIt(t *testing.T) {
	lines := []string{
		`{"agent":"main","say":[{"call":"write","args":{"text":"key hunter2-key"}},{"call":"write","args":{"text":"no key"}}]}`,
		`{"agent":"main","say":[{"text":"Done."}]}`,
	}
	h := newHouse(t)
	h.session.SetRedactor(redact.New(redact.Options{Values: []string{"hunter2-key"}}))
	run(t, agent.Options{Session: h.session, Tools: must(toolset.New(echo{name: "write", idempotent: true})), Model: play(t, lines...)}, "go")
	data := string(must(os.ReadFile(h.session.Path())))
	s := killed(t, h, strings.Count(data[:strings.Index(data, `"role":"toolResult"`)], "\n")) // without a result
	var written []string
	out, err := must(agent.New(agent.Options{
		Session: s, Model: play(t, lines...), Tools: must(toolset.New(echo{name: "write", idempotent: true, do: func(_ context.Context, text string) (tool.Result, error) {
			written = append(written, text)
			return tool.Result{Text: "written"}, nil
		}})),
	})).Resume(t.Context())
	if err != nil || out.Status != agent.Completed {
		t.Fatalf("%+v, %v", out, err)
	}
	if len(written) != 1 || written[0] != "no key" {
		t.Errorf("written: %q", written)
	}
	if got := strings.Join(told(t, s), "\n"); !strings.Contains(got, "had a secret in them, which the log lacks") {
		t.Errorf("the model was told\n%s", got)
	}
}
