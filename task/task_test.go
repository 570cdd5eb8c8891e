package task_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/task"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/toolset"
)

func TestMain(m *testing.M) {
	if os.Getenv(killAt) != "" {
		os.Exit(mortal())
	}
	if os.Getenv(temporaryIn) != "" {
		os.Exit(waitInTemporary())
	}
	goleak.VerifyTestMain(m)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// echo answers with its text.
type echo struct{}

func (echo) Name() string        { return "echo" }
func (echo) Description() string { return "answers with its text" }
func (echo) Schema() json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`)
}
func (echo) Idempotent() bool   { return true }
func (echo) ParallelSafe() bool { return true }
func (echo) Call(_ context.Context, raw json.RawMessage) (tool.Result, error) {
	var in struct{ Text string }
	if err := json.Unmarshal(raw, &in); err != nil {
		return tool.Result{}, err
	}
	return tool.Result{Text: "echo: " + in.Text}, nil
}

// tree is a home with a session, and a run over it.
type tree struct {
	*session.Manager
	session *session.Session
	dir     *artifacts.Dir
	model   model.Model
	change  func(*task.Options)
	limits  agent.Limits // of all agents together
	budget  *agent.Budget
}

func newTree(t testing.TB, lines ...string) *tree {
	t.Helper()
	m := must(session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{Durability: session.Flush}))
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	t.Cleanup(func() { s.Close() })
	return &tree{Manager: m, session: s, model: must(script.New("test.jsonl", strings.NewReader(strings.Join(lines, "\n"))))}
}

var fast = agent.Retries{Tries: 2, First: time.Nanosecond, Longest: time.Nanosecond, Patience: time.Second, Silence: time.Minute}

// agent is the root's agent.
func (r *tree) agent(t testing.TB) *agent.Agent {
	t.Helper()
	a, _ := r.rooted(t)
	return a
}

// play changes the script.
func (r *tree) play(t testing.TB, lines ...string) {
	t.Helper()
	r.model = must(script.New("test.jsonl", strings.NewReader(strings.Join(lines, "\n"))))
}

// rooted is the root's agent, and the parent that it is.
func (r *tree) rooted(t testing.TB) (*agent.Agent, task.Parent) {
	t.Helper()
	r.dir = artifacts.Open(r.session.ArtifactsDir(), artifacts.Options{LoggedMax: r.session.MaxArtifactID})
	types, problems := task.Types()
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	o := task.Options{
		Manager: r.Manager, Root: r.session, Artifacts: r.dir, Types: types, Default: r.model, Retries: fast,
		Tools: func(context.Context, task.Subagent) ([]tool.Tool, func(), error) {
			return []tool.Tool{echo{}}, func() {}, nil
		},
	}
	if r.change != nil {
		r.change(&o)
	}
	tr := must(task.New(o))
	r.budget = agent.NewBudget(nil, r.limits)
	root := tr.Root(r.budget)
	t.Cleanup(root.Stop)
	ao := agent.Options{
		Session: r.session, Model: r.model, Tools: must(toolset.New(echo{}, tr.Tool(root))), Budget: r.budget, Retries: fast,
		Artifacts: r.dir,
	}
	root.Attach(&ao)
	return must(agent.New(ao)), root
}

// output is an output of a subagent.
func (r *tree) output(t testing.TB, id string) string {
	t.Helper()
	a, err := r.dir.LookupAgent(t.Context(), must(artifacts.ParseAgentID(id)), 0)
	if err != nil {
		return err.Error()
	}
	return string(must(os.ReadFile(a.Path)))
}

func (r *tree) run(t testing.TB) agent.Outcome {
	t.Helper()
	return must(r.agent(t).Run(t.Context(), entry.PlainText("go")))
}

// results are what the task calls of the root gave back.
func (r *tree) results(t testing.TB) []string {
	t.Helper()
	var texts []string
	for _, cm := range must(r.session.Context(t.Context())).Messages {
		if m, ok := must(cm.Message()).(entry.ToolResultMessage); ok {
			texts = append(texts, m.Content.Text())
		}
	}
	return texts
}

func TestSubagentsWorkAndReport(t *testing.T) {
	r := newTree(t,
		`{"agent":"main","say":[{"text":"I ask two."},{"call":"task","args":{"context":"All of it.","tasks":[{"name":"Review","agent":"reviewer","task":"Review it."},{"name":"Look","agent":"scout","task":"Look for it."}]}}]}`,
		`{"agent":"main","expect":{"results":[{"text":"The review.","isError":false}]},"say":[{"text":"Done."}]}`,
		`{"agent":"0-Review","expect":{"system":"You are a reviewer","contains":["All of it.","Review it."],"noTools":["echo","task"]},"say":[{"text":"The review."},{"usage":{"input":7,"output":1}}]}`,
		`{"agent":"1-Look","say":[{"text":"It is there."}]}`,
	)
	out := r.run(t)
	if out.Status != agent.Completed || out.Text != "Done." {
		t.Fatalf("%+v", out)
	}
	got := r.results(t)[0]
	for _, want := range []string{
		`<task-result id="0-Review" agent="reviewer" status="completed"`, `<output url="agent://0-Review">`, "The review.", `<task-result id="1-Look"`, "It is there.",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the result has no %q:\n%s", want, got)
		}
	}
	if strings.Index(got, "0-Review") > strings.Index(got, "1-Look") {
		t.Error("the results are not in the order of the call")
	}
	if got := r.output(t, "0-Review"); got != "The review." {
		t.Errorf("agent://0-Review is %q", got)
	}
	child := must(r.View(t.Context(), filepath.Join(r.session.ArtifactsDir(), "0-Review.jsonl")))
	defer child.Close()
	if child.ArtifactsDir() != r.session.ArtifactsDir() || child.Parent() != r.session.ID() {
		t.Errorf("the child has artifacts in %s and the parent %s", child.ArtifactsDir(), child.Parent())
	}
}

func TestACallIsRefusedAsAWhole(t *testing.T) {
	for _, tt := range []struct{ name, args, want string }{
		{"an agent that is not there", `{"tasks":[{"task":"a"},{"name":"B","agent":"none","task":"b"}]}`, `task 2 (B) cannot be started, and so none was: there is no agent "none" here; there are reviewer, scout, task`},
		{"a name with a dot", `{"tasks":[{"name":"a.b","task":"a"}]}`, "its name cannot be part of an id"},
		{"a name that is a version by itself", `{"tasks":[{"name":"v2","task":"a"}]}`, "its name cannot be part of an id"},
		{"a name that is a path", `{"tasks":[{"name":"../x","task":"a"}]}`, "its name cannot be part of an id"},
		{"no work", `{"tasks":[{"task":" "}]}`, "it says nothing to do"},
		{"no tasks", `{"tasks":[]}`, "tasks is empty"},
		{"a schema that is none", `{"tasks":[{"task":"a","schema":{"type":7}}]}`, "its schema"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newTree(t, `{"agent":"main","say":[{"call":"task","args":`+tt.args+`}]}`, `{"agent":"main","say":[{"text":"ok"}]}`)
			r.run(t)
			if got := r.results(t)[0]; !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if names, _ := filepath.Glob(filepath.Join(r.session.ArtifactsDir(), "*.jsonl")); len(names) > 0 {
				t.Errorf("something was started: %v", names)
			}
		})
	}
}

func TestStatusesAreTrue(t *testing.T) {
	const schema = `"schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
	call := func(more string) string {
		return `{"agent":"main","say":[{"call":"task","args":{"tasks":[{"name":"A","task":"a"` + more + `}]}}]}`
	}
	for _, tt := range []struct {
		name, more string
		lines      []string
		status     string
		output     string
	}{
		{"one that reports nothing", "", []string{`{"agent":"0-A","say":[]}`}, "completed", "(0-A reported nothing: completed; its transcript is agent://0-A.jsonl)"},
		{"one that speaks before its last call", "", []string{`{"agent":"0-A","say":[{"text":"The report."},{"call":"echo","args":{"text":"x"}}]}`, `{"agent":"0-A","say":[]}`}, "completed", "The report."},
		{"one whose model fails", "", []string{`{"agent":"0-A","say":[{"text":"half"},{"error":{"kind":"auth","message":"no key"}}]}`, `{"agent":"0-A","say":[]}`}, "failed", "(0-A reported nothing: failed: asking script/test.jsonl: no key; its transcript is agent://0-A.jsonl)"},
		{"one over its budget", `,"limits":{"requests":2}`, []string{`{"agent":"0-A","times":-1,"say":[{"text":"more"},{"call":"echo","args":{"text":"x"}}]}`}, "budget", "more"},
		{"one over its time", `,"limits":{"seconds":0.05}`, []string{`{"agent":"0-A","say":[{"hang":true}]}`, `{"agent":"0-A","say":[]}`}, "timeout", "(0-A reported nothing: timeout: the time of the run is over; its transcript is agent://0-A.jsonl)"},
		{"one that yields", "," + schema, []string{`{"agent":"0-A","expect":{"tools":["yield"]},"say":[{"call":"yield","args":{"data":{"n":1}}}]}`}, "completed", `{"n":1}`},
		{"one that mends its report", "," + schema, []string{`{"agent":"0-A","say":[{"call":"yield","args":{"data":{"n":"x"}}}]}`, `{"agent":"0-A","expect":{"results":[{"text":"mend it","isError":true}]},"say":[{"call":"yield","args":{"data":{"n":2}}}]}`}, "completed", `{"n":2}`},
		{"one that never does", "," + schema, []string{`{"agent":"0-A","times":-1,"say":[{"call":"yield","args":{"data":{"n":"x"}}}]}`}, "schema-violation", `{"n":"x"}`},
		{"one that forgets to yield and is reminded", "," + schema, []string{`{"agent":"0-A","say":[{"text":"done"}]}`, `{"agent":"0-A","expect":{"last":{"role":"user","text":"Call yield"}},"say":[{"call":"yield","args":{"data":{"n":3}}}]}`}, "completed", `{"n":3}`},
		{"one that never yields", "," + schema, []string{`{"agent":"0-A","times":-1,"say":[{"text":"done"}]}`}, "schema-violation", "done"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newTree(t, append([]string{call(tt.more), `{"agent":"main","say":[{"text":"ok"}]}`}, tt.lines...)...)
			if out := r.run(t); out.Status != agent.Completed {
				t.Fatalf("%+v", out)
			}
			if got := r.results(t)[0]; !strings.Contains(got, `status="`+tt.status+`"`) {
				t.Errorf("the result is %q, want %s", got, tt.status)
			}
			if got := r.output(t, "0-A"); got != tt.output {
				t.Errorf("the output is %q, want %q", got, tt.output)
			}
		})
	}
}

func TestDepthCannotLockTheTree(t *testing.T) {
	r := newTree(t,
		`{"agent":"main","say":[{"call":"task","args":{"tasks":[{"name":"A","task":"a"},{"name":"B","task":"b"}]}}]}`, `{"agent":"main","say":[{"text":"ok"}]}`,
		`{"agent":"0-A","say":[{"call":"task","args":{"tasks":[{"name":"C","task":"c"}]}}]}`, `{"agent":"0-A","say":[{"text":"A"}]}`,
		`{"agent":"1-B","say":[{"call":"task","args":{"tasks":[{"name":"C","task":"c"}]}}]}`, `{"agent":"1-B","say":[{"text":"B"}]}`,
		`{"agent":"*-C","expect":{"noTools":["task"]},"say":[{"text":"C"}]}`,
	)
	r.change = func(o *task.Options) { o.Concurrency = 1 }
	if out := r.run(t); out.Status != agent.Completed || out.Text != "ok" {
		t.Fatalf("%+v", out)
	}
	ids := must(r.dir.AgentIDs(t.Context()))
	var names []string
	for _, id := range ids {
		names = append(names, id.String())
	}
	if want := []string{"0-A", "0-A.2-C", "1-B", "1-B.3-C"}; !slices.Equal(names, want) {
		if want := []string{"0-A", "0-A.3-C", "1-B", "1-B.2-C"}; !slices.Equal(names, want) {
			t.Errorf("the ids are %v, want %v", names, want)
		}
	}
}

// state is what a tree comes to, without times, usage and ids of entries.
func (r *tree) state(t testing.TB) []string {
	t.Helper()
	var all []string
	paths := must(filepath.Glob(filepath.Join(r.session.ArtifactsDir(), "*.jsonl")))
	for _, path := range append(paths, r.session.Path()) {
		s := must(r.View(t.Context(), path))
		name := filepath.Base(path)
		if path == r.session.Path() {
			name = "main"
		}
		var results []string
		for _, cm := range must(s.Context(t.Context())).Messages {
			switch m := must(cm.Message()).(type) {
			case entry.UserMessage:
				all = append(all, name+" user "+m.Content.Text())
			case entry.AssistantMessage:
				slices.Sort(results)
				all, results = append(all, results...), nil
				line := name + " says " + m.Content.Text()
				for _, c := range m.Content.ToolCalls() {
					line += " " + c.Name + string(c.Arguments)
				}
				all = append(all, line)
			case entry.ToolResultMessage:
				text := m.Content.Text()
				for {
					i := strings.Index(text, ` duration="`)
					if i < 0 {
						break
					}
					j := strings.Index(text[i+11:], `"`)
					text = text[:i] + text[i+12+j:]
				}
				results = append(results, fmt.Sprint(name, " result ", m.IsError, " ", text))
			}
		}
		slices.Sort(results)
		all = append(all, results...)
		s.Close()
	}
	for _, path := range must(filepath.Glob(filepath.Join(r.session.ArtifactsDir(), "*.*"))) {
		if ext := filepath.Ext(path); ext == ".md" || ext == ".json" && !strings.HasPrefix(filepath.Base(path), ".") {
			all = append(all, filepath.Base(path)+" "+string(must(os.ReadFile(path))))
		}
	}
	return all
}
