package task_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/task"
)

// read is what a URL of the tree stands for.
func (r *tree) read(t testing.TB, url string) string {
	t.Helper()
	router := internalurl.ForSession(r.Manager, r.session, func(ctx context.Context, dir string, id artifacts.AgentID) (string, error) {
		return task.StatusOf(ctx, r.Manager, dir, id)
	})
	res, err := router.Open(t.Context(), url)
	if err != nil {
		return "error: " + err.Error()
	}
	defer res.Close()
	n := must(res.Size())
	return string(must(io.ReadAll(io.NewSectionReader(res, 0, n))))
}

func TestTheURLOfASubagentAnswersWhateverBecameOfIt(t *testing.T) {
	r := newTree(t,
		`{"agent":"main","say":[{"call":"task","args":{"tasks":[{"name":"Slow","task":"a"},{"name":"Late","task":"b"}]}}]}`,
		`{"agent":"*","say":[{"text":"looking"},{"hang":true}]}`,
	)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan struct{}, 1)
	r.change = func(o *task.Options) {
		o.Concurrency = 1
		o.Observe = func(id string, e agent.Event) {
			if _, ok := e.(agent.Answering); ok && id == "0-Slow" {
				select {
				case asked <- struct{}{}:
				default:
				}
			}
		}
	}
	a := r.agent(t)
	ended := make(chan error, 1)
	go func() {
		_, err := a.Run(ctx, entry.PlainText("go"))
		ended <- err
	}()
	<-asked
	for url, want := range map[string]string{
		"agent://0-Slow":         "(0-Slow is running; it has a session of its own and has handed back nothing yet; its transcript is agent://0-Slow.jsonl)\n",
		"agent://1-Late":         "(1-Late is queued; its id is reserved and it has handed back nothing yet; it has no transcript yet)\n",
		"agent://0-Slow/found/0": "error: Nothing can be extracted: 0-Slow is running; it has a session of its own and has handed back nothing yet; its transcript is agent://0-Slow.jsonl",
	} {
		if got := r.read(t, url); got != want {
			t.Errorf("%s is %q, want %q", url, got, want)
		}
	}
	if got := r.read(t, "agent://0-Slow.jsonl"); !strings.Contains(got, `"customType":"agentrun.agent.start"`) {
		t.Errorf("agent://0-Slow.jsonl is %q", got)
	}
	if got := r.read(t, "agent://7-Nobody"); !strings.HasPrefix(got, "error: Not found: 7-Nobody") {
		t.Errorf("one that there never was is %q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got, want := r.read(t, "agent://1-Late"), "(1-Late is cancelled: "; !strings.HasPrefix(got, want) {
		t.Errorf("agent://1-Late is %q, want %s", got, want)
	}
}

func TestAReportHasThreeTriesWhateverIsSaidBetweenThem(t *testing.T) {
	const bad = `{"agent":"0-R","say":[{"call":"yield","args":{"data":{"n":"no"}}}]}`
	r := newTree(t,
		`{"agent":"main","say":[{"call":"task","args":{"tasks":[{"name":"R","task":"a","schema":{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}}]}}]}`,
		`{"agent":"main","say":[{"text":"ok"}]}`,
		bad, bad, `{"agent":"0-R","say":[{"text":"Is that not good?"}]}`, bad,
	)
	if out := r.run(t); out.Status != agent.Completed {
		t.Fatalf("%+v", out)
	}
	got := must(task.List(t.Context(), r.Manager, r.session, agent.MainID))
	if len(got) != 1 || got[0].Status != task.BadAnswer || got[0].Reason != "its report is not as its schema says, after 3 tries; what it handed in last is kept" {
		t.Errorf("%+v", got)
	}
	if out := r.output(t, "0-R"); !strings.Contains(out, `"no"`) {
		t.Errorf("the output is %q", out)
	}
}
