package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/tool/toolset"
)

// cut is a line of a script whose answer ends at the output limit.
func cut(say string) string { return `{"agent":"main","say":[` + say + `],"stop":"length"}` }

const wholeLine = `{"agent":"main","expect":{"last":{"role":"user","text":"Go on exactly where it stopped"}},"say":[{"text":" three."}]}`

func TestAnAnswerThatWasCutGoesOnWhereItStopped(t *testing.T) {
	h := newHouse(t)
	lines := []string{cut(`{"text":"One,"}`), cut(`{"text":" two,"}`), wholeLine}
	out := run(t, agent.Options{Session: h.session, Model: play(t, lines...)}, "count")
	if out.Status != agent.Completed || out.Text != "One, two, three." || out.Spent.Requests != 3 {
		t.Errorf("%+v", out)
	}
	const on = "user: [Your answer was cut at the limit of what you can say at once. Go on exactly where it stopped, and repeat nothing.]"
	equal(t, told(t, h.session), "user: count", "assistant: One,", on, "assistant:  two,", on, "assistant:  three.")

	want := told(t, h.session)
	all := strings.SplitAfter(string(must(os.ReadFile(h.session.Path()))), "\n")
	first := 0
	for i, line := range all {
		if strings.Contains(line, `"role":"user"`) {
			first = i + 1
			break
		}
	}
	for n := first; n < len(all); n++ {
		t.Run(fmt.Sprintf("also behind a kill after %d lines", n), func(t *testing.T) {
			s := killed(t, h, n)
			out, err := must(agent.New(agent.Options{Session: s, Model: play(t, lines...), Retries: fast})).Resume(t.Context())
			if err != nil || out.Status != agent.Completed || out.Text != "One, two, three." {
				t.Errorf("%+v, %v", out, err)
			}
			equal(t, told(t, s), want...)
		})
	}
}

func TestAModelThatIsCutAgainAndAgainFailsAndCanBeResumed(t *testing.T) {
	h := newHouse(t)
	lines := []string{
		`{"script":1,"model":{"maxOutput":8}}`, cut(`{"text":"a"}`), cut(`{"text":"b"}`), cut(`{"text":"c"}`), cut(`{"text":"d"}`),
		cut(`{"text":"e"}`), `{"agent":"main","say":[{"text":"f"}]}`,
	}
	o := agent.Options{Session: h.session, Model: play(t, lines...), Retries: fast}
	out := run(t, o, "go")
	if out.Status != agent.FailedRun || out.Text != "abcd" || out.Spent.Requests != 1+agent.MaxContinuations ||
		!strings.HasPrefix(out.Reason, "4 answers in a row were cut at the output limit of 8 tokens of script/test.jsonl") {
		t.Errorf("%+v", out)
	}
	out, err := must(agent.New(o)).Resume(t.Context())
	if err != nil || out.Status != agent.Completed || out.Text != "abcdef" {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestACallWhoseArgumentsWereCutIsNotMade(t *testing.T) {
	const want = "error: [last was not called: your answer was cut at the limit of what you can say at once, and its arguments with it; call it again, with less at once, such as a long file in parts]"
	for _, tt := range []struct{ name, call string }{
		{"in their middle", `{"call":"last","rawArgs":"{\"text\": \"hal"}`},
		{"before anything came of them", `{"call":"last","rawArgs":""}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			calls := &sync.Map{}
			out := run(t, agent.Options{
				Session: h.session, Tools: must(toolset.New(echo{name: "echo"}, free{echo{name: "last", calls: calls}})),
				Model: play(t, cut(`{"call":"echo","args":{"text":"whole"}},`+tt.call), `{"agent":"main","say":[{"text":"ok"}]}`),
			}, "go")
			if got := told(t, h.session); out.Status != agent.Completed || len(got) != 5 || got[2] != want && got[3] != want {
				t.Errorf("%+v\ngot %q, want %q", out, got, want)
			}
			calls.Range(func(id, _ any) bool {
				t.Errorf("call %s was made", id)
				return true
			})
		})
	}
}

// free is an echo that needs no arguments.
type free struct{ echo }

func (free) Schema() json.RawMessage { return json.RawMessage(`{"type":"object"}`) }
