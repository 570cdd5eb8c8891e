package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/toolset"
)

// forEver is a model that never ends, whose requests cost $1 and have 10 tokens.
var forEver = []string{
	`{"script":1,"model":{"prices":{"input":100000}}}`,
	`{"agent":"main","times":-1,"say":[{"usage":{"input":10}},{"call":"echo","args":{"text":"a"}}]}`,
}

// bounded are options of a run with limits.
func bounded(t *testing.T, s *session.Session, limits agent.Limits) agent.Options {
	t.Helper()
	return agent.Options{Session: s, Model: play(t, forEver...), Tools: must(toolset.New(echo{name: "echo", idempotent: true})), Limits: limits, Retries: fast}
}

// answers is how many answers a log has.
func answers(t *testing.T, s *session.Session) (n int) {
	t.Helper()
	for e, err := range s.Backward(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Role() == entry.RoleAssistant {
			n++
		}
	}
	return n
}

func TestARunThatIsKilledHasWhatIsLeftOfItsLimits(t *testing.T) {
	for name, limits := range map[string]agent.Limits{"requests": {Requests: 4}, "tokens": {Tokens: 40}, "dollars": {Cost: 3.5}} {
		h := newHouse(t)
		out := run(t, bounded(t, h.session, limits), "go")
		total := strings.Count(string(must(os.ReadFile(h.session.Path()))), "\n")
		for n := 6; n <= total; n++ {
			t.Run(fmt.Sprintf("%s, killed after %d of %d lines", name, n, total), func(t *testing.T) {
				s := killed(t, h, n)
				got, err := must(agent.New(bounded(t, s, limits))).Resume(t.Context())
				if err != nil || got.Status != agent.BudgetEnd || got.Reason != out.Reason || answers(t, s) != 4 {
					t.Errorf("%d answers, %s: %s, %v; want 4, and %s", answers(t, s), got.Status, got.Reason, err, out.Reason)
				}
				spent := agent.Spent{}
				for e, err := range s.Backward(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					var end struct {
						Data agent.End `json:"data"`
					}
					if c, ok := e.Custom(); ok && c.CustomType == agent.EndType && e.Decode(&end) == nil {
						spent.Requests += end.Data.Spent.Requests
						spent.Cost += end.Data.Spent.Cost
					}
				}
				if spent.Requests != 4 || spent.Cost != 4 {
					t.Errorf("the ends in the log tell of %+v, and 4 requests were made", spent)
				}
			})
		}
	}
}

func TestALimitIsThatOfTheWorkThatAPromptBegins(t *testing.T) {
	h := newHouse(t)
	resume := func(limits agent.Limits) agent.Outcome {
		t.Helper()
		return must(must(agent.New(bounded(t, h.session, limits))).Resume(t.Context()))
	}
	run(t, bounded(t, h.session, agent.Limits{Requests: 2}), "go")
	if out := resume(agent.Limits{Requests: 2}); out.Status != agent.BudgetEnd || answers(t, h.session) != 2 || out.Spent.Requests != 0 {
		t.Errorf("resumed with the same limit: %+v, %d answers", out, answers(t, h.session))
	}
	if out := resume(agent.Limits{Requests: 5}); out.Status != agent.BudgetEnd || answers(t, h.session) != 5 || out.Spent.Requests != 3 {
		t.Errorf("resumed with a limit of 5: %+v, %d answers", out, answers(t, h.session))
	}
	must(agent.Say(t.Context(), h.session, agent.Said{Text: "and now that"}))
	if out := resume(agent.Limits{Requests: 2}); out.Status != agent.BudgetEnd || answers(t, h.session) != 7 {
		t.Errorf("with something more to do: %+v, %d answers", out, answers(t, h.session))
	}
	if out := run(t, bounded(t, h.session, agent.Limits{Requests: 2}), "else"); out.Status != agent.BudgetEnd || answers(t, h.session) != 9 {
		t.Errorf("with another prompt: %+v, %d answers", out, answers(t, h.session))
	}
}

func TestTheTimeOfARunCountsOn(t *testing.T) {
	h := newHouse(t)
	o := bounded(t, h.session, agent.Limits{Time: 30 * time.Millisecond})
	o.Model = play(t, `{"agent":"main","say":[{"hang":true}]}`, `{"agent":"main","say":[{"text":"Late."}]}`)
	if out := run(t, o, "go"); out.Status != agent.TimeoutEnd {
		t.Fatalf("%+v", out)
	}
	o.Model = play(t, `{"agent":"main","say":[{"text":"Late."}]}`)
	if out := must(must(agent.New(o)).Resume(t.Context())); out.Status != agent.TimeoutEnd || answers(t, h.session) != 0 {
		t.Errorf("resumed with the same time: %+v", out)
	}
	o.Limits.Time = time.Hour
	if out := must(must(agent.New(o)).Resume(t.Context())); out.Status != agent.Completed || out.Text != "Late." {
		t.Errorf("resumed with more time: %+v", out)
	}
}

func TestALogGivesNobodyMoreThanTheLimits(t *testing.T) {
	h := newHouse(t)
	run(t, bounded(t, h.session, agent.Limits{Requests: 3}), "go")
	data := string(must(os.ReadFile(h.session.Path())))
	data = strings.ReplaceAll(data, `"agent":"main","model"`, `"before":{"since":"2020-01-01T00:00:00Z","spent":{"requests":-99,"tokens":-9999,"cost":-99},"untold":{"requests":99,"tokens":9999,"cost":99},"tookMs":-9999999999},"agent":"main","model"`)
	data = strings.ReplaceAll(data, `"spent":{"requests":3`, `"spent":{"requests":-3`)
	if err := os.WriteFile(h.session.Path(), []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	s := must(h.Open(t.Context(), h.session.Path()))
	defer s.Close()
	if out := must(must(agent.New(bounded(t, s, agent.Limits{Requests: 3}))).Resume(t.Context())); out.Spent.Requests > 3 || out.Status != agent.BudgetEnd {
		t.Errorf("%+v", out)
	}
}
