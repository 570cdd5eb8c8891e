package plan_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/agent/permission"
	"github.com/agentrun/agentrun/agent/plan"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/toolset"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestTheLastListOnThePathCounts(t *testing.T) {
	m := must(session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{Durability: session.Flush}))
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	defer s.Close()
	b := must(plan.Open(t.Context(), s))
	set := must(toolset.New(b.Tools()...))
	start := must(s.Append(t.Context(), entry.UserText("hello")))
	for _, text := range []string{"first", "second"} {
		must(set.Call(t.Context(), "todo", []byte(`{"items":[{"text":"`+text+`","status":"done"}]}`)))
		must(set.Call(t.Context(), "mode", []byte(`{"mode":"plan"}`)))
	}
	again := must(plan.Open(t.Context(), s))
	if want := []plan.Item{{Text: "second", Status: plan.Done}}; !slices.Equal(again.Todo(), want) || again.Mode() != plan.Plan {
		t.Errorf("the list is %v, the mode %s", again.Todo(), again.Mode())
	}
	must(s.Branch(t.Context(), start, session.BranchOptions{}))
	if again = must(plan.Open(t.Context(), s)); len(again.Todo()) != 0 || again.Mode() != plan.Agent {
		t.Errorf("on another branch the list is %v, the mode %s", again.Todo(), again.Mode())
	}
	if len(again.Enter(plan.Agent)) != 0 || len(again.Enter(plan.Ask)) != 2 || again.Mode() != plan.Ask {
		t.Error("entering a mode is two entries, and none when it is the mode already")
	}
}

func TestModesDenyWhatChangesSomething(t *testing.T) {
	for _, m := range plan.Modes() {
		b := &plan.Board{}
		b.Entered(m)
		for _, name := range []string{"write", "edit", "bash", "python", "ssh", "other", "read", "todo", "mode"} {
			rules := append([]*permission.Rules{{Source: "all", Default: permission.Allow}}, b.Rules()...)
			want := permission.Allow
			switch {
			case m != plan.Ask && m != plan.Plan:
			case name == "mode":
				want = permission.Ask
			case name != "read" && name != "todo":
				want = permission.Deny
			}
			if got := permission.Decide("", rules, name, nil); got.Action != want {
				t.Errorf("%s in the mode %s: %v, want %v", name, m, got, want)
			}
		}
	}
}

func FuzzTodo(f *testing.F) {
	f.Add([]byte(`{"items":[{"text":"a","status":"active"}]}`))
	f.Add([]byte(`{"items":[{"text":"","status":"x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		items, err := plan.ParseTodo(data)
		if err != nil && items != nil || len(items) > plan.MaxItems {
			t.Errorf("%v beside %v", items, err)
		}
		if n := strings.Count(plan.Text(items), "\n"); n != len(items) {
			t.Errorf("%d items have %d lines", len(items), n)
		}
	})
}
