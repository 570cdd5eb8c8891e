package task_test

import (
	"strings"
	"testing"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/session/entry"
)

// within runs a tree whose agents share a budget.
func (r *tree) within(t *testing.T, limits agent.Limits) agent.Outcome {
	t.Helper()
	r.limits = limits
	return must(r.agent(t).Run(t.Context(), entry.PlainText("go")))
}

func TestATreeThatStartsSubagentsForEverEndsAtItsLimit(t *testing.T) {
	const spawns = `,"times":-1,"say":[{"call":"task","args":{"tasks":[{"name":"A","task":"a"},{"name":"B","task":"b"}]}}]}`
	r := newTree(t, `{"agent":"main"`+spawns, `{"agent":"*-A"`+spawns, `{"agent":"*-B","say":[{"text":"B."}]}`)
	out := r.within(t, agent.Limits{Agents: 9})
	if out.Status != agent.BudgetEnd || out.Reason != "its budget of 9 subagents is spent, together with other agents" {
		t.Errorf("the outcome is %s: %s", out.Status, out.Reason)
	}
	ids := must(r.dir.AgentIDs(t.Context()))
	deep := 0
	for _, id := range ids {
		deep = max(deep, strings.Count(id.String(), ".")+1)
	}
	if len(ids) != 8 || deep != 2 {
		t.Errorf("%d subagents were started, %d levels deep; want 8 and 2", len(ids), deep)
	}
	got := r.results(t)
	if last := got[len(got)-1]; !strings.Contains(last, `status="budget"`) && !strings.Contains(last, "a run may start 9 subagents, and has started 8") {
		t.Errorf("the last result is %q", last)
	}
	for _, found := range examine(t, r.Home()) {
		t.Errorf("the doctor finds %s: %s", found.Kind, found.What)
	}
}

func TestWhatSubagentsCostCountsForTheTree(t *testing.T) {
	r := newTree(t,
		`{"script":1,"model":{"prices":{"input":1000000}}}`,
		`{"agent":"main","times":-1,"say":[{"call":"task","args":{"tasks":[{"name":"A","task":"a"}]}}]}`,
		`{"agent":"*-A","say":[{"text":"A."},{"usage":{"input":2}}]}`,
	)
	out := r.within(t, agent.Limits{Cost: 5})
	if out.Status != agent.BudgetEnd || !strings.Contains(out.Reason, "its budget of $5 is spent, together with other agents: $6") {
		t.Errorf("the outcome is %s: %s", out.Status, out.Reason)
	}
}
