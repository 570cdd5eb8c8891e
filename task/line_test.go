package task_test

import (
	"context"
	"testing"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/task"
	"github.com/agentrun/agentrun/tool"
)

// named is echo under another name.
type named struct {
	echo
	name string
}

func (n named) Name() string { return n.name }

func TestASubagentHasNoToolThatAnAgentAboveItMayNotHave(t *testing.T) {
	for _, tt := range []struct {
		name  string
		above task.Type
	}{
		{"by the list of its type", task.Type{Name: "above", Description: "d", Tools: []string{"read", "task"}}},
		{"because it changes nothing", task.Type{Name: "above", Description: "d", ReadOnly: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newTree(t,
				`{"agent":"main","say":[{"call":"task","args":{"tasks":[{"name":"A","agent":"above","task":"a"},{"name":"B","task":"b"}]}}]}`, `{"agent":"main","say":[{"text":"ok"}]}`,
				`{"agent":"0-A","expect":{"tools":["read","task"],"noTools":["write"]},"say":[{"call":"task","args":{"tasks":[{"name":"C","agent":"task","task":"c"}]}}]}`, `{"agent":"0-A","say":[{"text":"A"}]}`,
				`{"agent":"1-B","expect":{"tools":["read","write","task"]},"say":[{"text":"B"}]}`,
				`{"agent":"*-C","expect":{"tools":["read"],"noTools":["write"]},"say":[{"text":"C"}]}`,
			)
			r.change = func(o *task.Options) {
				o.Types = append(o.Types, tt.above)
				o.Tools = func(context.Context, task.Subagent) ([]tool.Tool, func(), error) {
					return []tool.Tool{named{name: "read"}, named{name: "write"}}, func() {}, nil
				}
			}
			if out := r.run(t); out.Status != agent.Completed {
				t.Fatalf("%+v", out)
			}
			for id, want := range map[string]string{"0-A": "A", "0-A.2-C": "C", "1-B": "B"} {
				if got := r.output(t, id); got != want {
					t.Errorf("%s reports %q, want %q", id, got, want)
				}
			}
		})
	}
}
