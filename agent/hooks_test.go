package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/permission"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/toolset"
)

func TestHooksDenyRemarkAndMakeTheRunGoOn(t *testing.T) {
	h := newHouse(t)
	var seen []string
	out := run(t, agent.Options{
		Session: h.session, Tools: must(toolset.New(echo{name: "echo"})),
		Model: play(
			t,
			`{"agent":"main","say":[{"call":"echo","id":"a","args":{"text":"no"}},{"call":"echo","id":"b","args":{"text":"yes"}}]}`,
			`{"agent":"main","expect":{"results":[{"call":"a","text":"echo was not called: too bad","isError":true},{"call":"b","text":"echo: yes\n[well done]"}]},"say":[{"text":"Done."}]}`,
			`{"agent":"main","times":-1,"expect":{"last":{"role":"user","text":"and the tests?"}},"say":[{"text":"Still done."}]}`,
		),
		Hooks: agent.Hooks{
			Start: func(_ context.Context, resumed bool) {
				if resumed {
					t.Error("a first run is called resumed")
				}
				seen = append(seen, "start")
			},
			BeforeCall: func(_ context.Context, c agent.Call) error {
				seen = append(seen, "before "+c.Agent+" "+c.ID)
				if strings.Contains(string(c.Arguments), `"no"`) {
					return errors.New("too bad")
				}
				return nil
			},
			AfterCall: func(_ context.Context, c agent.Call, res tool.Result) string {
				seen = append(seen, "after "+c.ID+" "+res.Text)
				return " well done\n"
			},
			Stop: func(_ context.Context, answer string) string {
				seen = append(seen, "stop "+answer)
				return "and the tests?"
			},
		},
	}, "go")
	if out.Status != agent.Completed || out.Text != "Still done." {
		t.Errorf("the outcome is %+v", out)
	}
	want := []string{"start", "before main a", "before main b", "after b echo: yes", "stop Done."}
	for range agent.MaxStops - 1 {
		want = append(want, "stop Still done.")
	}
	if !slices.Equal(seen, want) {
		t.Errorf("the hooks saw %q, want %q", seen, want)
	}
}

func TestALongRemarkIsShortened(t *testing.T) {
	h := newHouse(t)
	var res tool.Result
	run(t, agent.Options{
		Session: h.session, Tools: must(toolset.New(echo{name: "echo"})),
		Model: play(t, `{"agent":"main","say":[{"call":"echo","args":{"text":"x"}}]}`, `{"agent":"main","say":[{"text":"Done."}]}`),
		Hooks: agent.Hooks{AfterCall: func(context.Context, agent.Call, tool.Result) string { return strings.Repeat("é\xff", 10<<20) }},
		Observe: func(e agent.Event) {
			if e, ok := e.(agent.CallFinished); ok {
				res = e.Result
			}
		},
	}, "go")
	if len(res.Text) > agent.MaxRemark+200 || !strings.HasSuffix(res.Text, "left out)]") {
		t.Errorf("the result has %d bytes and ends in %q", len(res.Text), res.Text[max(0, len(res.Text)-40):])
	}
}

func TestRulesOfTheMomentHoldBesideTheOthers(t *testing.T) {
	h := newHouse(t)
	calls := 0
	run(t, agent.Options{
		Session: h.session, Tools: must(toolset.New(echo{name: "echo"})),
		Model: play(
			t, `{"agent":"main","say":[{"call":"echo","args":{"text":"x"}},{"call":"echo","args":{"text":"y"}}]}`,
			`{"agent":"main","expect":{"results":[{"text":"echo: x"},{"text":"deny by default of the moment","isError":true}]},"say":[{"text":"Done."}]}`,
		),
		More: func() []*permission.Rules {
			if calls++; calls == 1 {
				return nil
			}
			return []*permission.Rules{{Source: "the moment"}}
		},
	}, "go")
	if calls != 2 {
		t.Errorf("the rules were asked for %d times", calls)
	}
}

func TestWhatComesWithAPromptIsBeforeIt(t *testing.T) {
	h := newHouse(t)
	a := must(agent.New(agent.Options{Session: h.session, Model: play(t, `{"agent":"main","say":[{"text":"Done."}]}`)}))
	if _, err := a.Run(t.Context(), entry.PlainText("go"), entry.ModeChange{Mode: "plan"}, entry.FileMentionMessage{Files: []entry.MentionedFile{{Path: "a.txt", Content: "hello"}}}); err != nil {
		t.Fatal(err)
	}
	c := must(h.session.Context(t.Context()))
	if c.Settings.Mode != "plan" || c.Messages[0].Role != entry.RoleFileMention || c.Messages[1].Role != entry.RoleUser {
		t.Errorf("the mode is %q, the messages are %+v", c.Settings.Mode, c.Messages)
	}
}
