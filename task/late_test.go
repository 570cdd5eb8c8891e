package task_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/task"
	"github.com/agentrun/agentrun/tool"
)

// reports are the messages that handed reports over.
func (r *tree) reports(t testing.TB) []string {
	t.Helper()
	var texts []string
	for _, cm := range must(r.session.Context(t.Context())).Messages {
		if m, ok := must(cm.Message()).(entry.ExtensionMessage); ok && m.CustomType == task.ReportType {
			texts = append(texts, m.Content.Text())
		}
	}
	return texts
}

// say says something to a subagent, as another process does.
func (r *tree) say(t testing.TB, id, text string) {
	t.Helper()
	s := must(r.Open(t.Context(), filepath.Join(r.session.ArtifactsDir(), id+".jsonl")))
	defer s.Close()
	must(agent.Say(t.Context(), s, agent.Said{Text: text}))
}

func (r *tree) resume(t testing.TB) agent.Outcome {
	t.Helper()
	return must(r.agent(t).Resume(t.Context()))
}

func TestWhatIsSaidToASubagentThatEndedMakesANewVersion(t *testing.T) {
	r := newTree(t,
		`{"agent":"main","say":[{"call":"task","args":{"tasks":[{"name":"A","task":"a","schema":{"type":"object","required":["n"]}},{"name":"B","task":"b"}]}}]}`,
		`{"agent":"main","say":[{"text":"Done."}]}`,
		`{"agent":"main","expect":{"last":{"role":"user","text":"version=\"2\""}},"say":[{"text":"Done again."}]}`,
		`{"agent":"main","expect":{"last":{"role":"user","text":"No more."}},"say":[{"text":"Done at last."}]}`,
		`{"agent":"0-A","say":[{"call":"yield","args":{"data":{"n":1}}}]}`,
		`{"agent":"0-A","expect":{"last":{"role":"user","text":"and now?"}},"say":[{"call":"yield","args":{"data":{"n":2}}}]}`,
		`{"agent":"1-B","say":[{"text":"B."}]}`,
		`{"agent":"1-B","say":[{"text":"No more."}]}`,
	)
	r.run(t)
	if out := r.resume(t); out.Resumed || out.Text != "Done." {
		t.Fatalf("nobody said anything: %+v", out)
	}
	r.say(t, "0-A", "and now?")
	if out := r.resume(t); out.Status != agent.Completed || out.Text != "Done again." {
		t.Fatalf("%+v", out)
	}
	for url, want := range map[string]string{"agent://0-A/n": "2", "agent://0-A.v1/n": "1", "agent://0-A.v2": `{"n":2}`, "agent://1-B": "B."} {
		if got := r.read(t, url); got != want {
			t.Errorf("%s is %q, want %q", url, got, want)
		}
	}
	r.say(t, "1-B", "anything else?")
	if out := r.resume(t); out.Text != "Done at last." {
		t.Fatalf("%+v", out)
	}
	if got := r.reports(t); len(got) != 2 {
		t.Errorf("the reports handed over are %q", got)
	}
	if out := r.resume(t); out.Resumed {
		t.Errorf("with everything taken up it went on: %+v", out)
	}
}

func TestWhatIsSaidToASubagentOfASubagentReachesIt(t *testing.T) {
	r := newTree(t,
		`{"agent":"main","say":[{"call":"task","args":{"tasks":[{"name":"A","task":"a"}]}}]}`, `{"agent":"main","say":[{"text":"Done."}]}`,
		`{"agent":"main","expect":{"last":{"role":"user","text":"A has C2"}},"say":[{"text":"Done again."}]}`,
		`{"agent":"0-A","say":[{"call":"task","args":{"tasks":[{"name":"C","task":"c"}]}}]}`, `{"agent":"0-A","say":[{"text":"A has C1"}]}`,
		`{"agent":"0-A","expect":{"last":{"role":"user","text":"C2"}},"say":[{"text":"A has C2"}]}`,
		`{"agent":"0-A.1-C","say":[{"text":"C1"}]}`, `{"agent":"0-A.1-C","say":[{"text":"C2"}]}`,
	)
	r.change = func(o *task.Options) { o.Concurrency = 1 }
	r.run(t)
	r.say(t, "0-A.1-C", "again")
	if out := r.resume(t); out.Text != "Done again." {
		t.Fatalf("%+v", out)
	}
	if got := r.read(t, "agent://0-A.1-C") + " " + r.read(t, "agent://0-A.v1"); got != "C2 A has C1" {
		t.Errorf("the outputs are %q", got)
	}
}

func TestReportsFromTheBackgroundAreHandedOverOnce(t *testing.T) {
	r := newTree(t,
		`{"agent":"main","say":[{"call":"task","args":{"background":true,"tasks":[{"name":"A","task":"a"}]}}]}`,
		`{"agent":"main","times":-1,"expect":{"contains":["0-A (task): agent://0-A"]},"say":[{"text":"Done."}]}`,
		`{"agent":"0-A","say":[{"text":"A is done."}]}`,
	)
	if out := r.run(t); out.Status != agent.Completed || out.Text != "Done." {
		t.Fatalf("%+v", out)
	}
	if got := r.reports(t); len(got) != 1 || !strings.Contains(got[0], `<task-result id="0-A"`) {
		t.Errorf("handed over was %q", got)
	}
	if out := r.resume(t); out.Resumed {
		t.Errorf("it went on: %+v", out)
	}
}

func TestASubagentInTheBackgroundGoesOnWhenItsRunDoes(t *testing.T) {
	r := newTree(t,
		`{"agent":"main","say":[{"call":"task","args":{"background":true,"tasks":[{"name":"A","task":"a"}]}}]}`,
		`{"agent":"main","say":[{"text":"Waiting."}]}`,
		`{"agent":"main","say":[{"text":"Done."}]}`,
		`{"agent":"0-A","say":[{"hang":true}]}`,
	)
	ctx, cancel := context.WithCancel(t.Context())
	r.change = func(o *task.Options) {
		o.Observe = func(_ string, e agent.Event) {
			if _, ok := e.(agent.StateChanged); ok {
				cancel()
			}
		}
	}
	tr, root := r.rooted(t)
	if out := must(tr.Run(ctx, entry.PlainText("go"))); out.Status != agent.Cancelled {
		t.Fatalf("%+v", out)
	}
	root.Stop()
	list := must(task.List(t.Context(), r.Manager, r.session, agent.MainID))
	if len(list) != 1 || list[0].Status != task.Interrupted {
		t.Fatalf("stopped, the subagents are %+v", list)
	}
	r.change = nil
	r.play(t, `{"agent":"main","say":[{"text":"not played"}]}`, `{"agent":"main","say":[{"text":"Waiting."}]}`, `{"agent":"main","times":-1,"say":[{"text":"Done."}]}`, `{"agent":"0-A","say":[{"text":"A."}]}`)
	if out := r.resume(t); out.Status != agent.Completed {
		t.Fatalf("%+v", out)
	}
	if got := r.reports(t); len(got) != 1 || !strings.Contains(got[0], "A.") {
		t.Errorf("handed over was %q", got)
	}
}

func TestASubagentThatIsStoppedWhileItBeginsHasNotCrashed(t *testing.T) {
	for _, background := range []string{"false", "true"} {
		t.Run("in the background: "+background, func(t *testing.T) {
			r := newTree(t,
				`{"agent":"main","say":[{"call":"task","args":{"background":`+background+`,"tasks":[{"name":"A","task":"a"}]}}]}`,
				`{"agent":"main","times":-1,"say":[{"text":"Done."}]}`,
				`{"agent":"0-A","say":[{"text":"A."}]}`,
			)
			ctx, cancel := context.WithCancel(t.Context())
			r.change = func(o *task.Options) {
				o.Tools = func(ctx context.Context, _ task.Subagent) ([]tool.Tool, func(), error) {
					cancel()
					<-ctx.Done()
					return nil, nil, ctx.Err()
				}
			}
			tr, root := r.rooted(t)
			if out := must(tr.Run(ctx, entry.PlainText("go"))); out.Status != agent.Cancelled {
				t.Fatalf("%+v", out)
			}
			root.Stop()
			want, reports := task.Cancelled, 0
			if background == "true" {
				want, reports = task.Interrupted, 1
			}
			if list := must(task.List(t.Context(), r.Manager, r.session, agent.MainID)); len(list) != 1 || list[0].Status != want {
				t.Fatalf("stopped, the subagents are %+v, want %s", list, want)
			}
			r.change = nil
			if out := r.resume(t); out.Status != agent.Completed {
				t.Fatalf("%+v", out)
			}
			if got := r.reports(t); len(got) != reports || reports > 0 && !strings.Contains(got[0], "A.") {
				t.Errorf("handed over was %q", got)
			}
		})
	}
}
