package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/permission"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/toolset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// echo answers with its text. It counts how often it was called with each.
type echo struct {
	name       string
	idempotent bool
	parallel   bool
	calls      *sync.Map
	do         func(ctx context.Context, text string) (tool.Result, error)
}

func (e echo) Name() string      { return e.name }
func (echo) Description() string { return "answers with its text" }
func (echo) Schema() json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}`)
}
func (e echo) Idempotent() bool   { return e.idempotent }
func (e echo) ParallelSafe() bool { return e.parallel }
func (e echo) Call(ctx context.Context, raw json.RawMessage) (tool.Result, error) {
	var in struct{ Text string }
	if err := json.Unmarshal(raw, &in); err != nil {
		return tool.Result{}, err
	}
	if e.calls != nil {
		n, _ := e.calls.LoadOrStore(tool.CallOf(ctx), new(int))
		*n.(*int)++
	}
	if e.do != nil {
		return e.do(ctx, in.Text)
	}
	return tool.Result{Text: "echo: " + in.Text}, nil
}

// house is a home with a session.
type house struct {
	*session.Manager
	session *session.Session
}

func newHouse(t testing.TB) house {
	t.Helper()
	m := must(session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{Durability: session.Flush}))
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	t.Cleanup(func() { s.Close() })
	return house{m, s}
}

func play(t testing.TB, lines ...string) *script.Model {
	t.Helper()
	return must(script.New("test.jsonl", strings.NewReader(strings.Join(lines, "\n"))))
}

// fast are retries without a wait.
var fast = agent.Retries{Tries: 3, First: time.Nanosecond, Longest: time.Nanosecond, Patience: time.Second, Silence: time.Minute}

func run(t testing.TB, o agent.Options, prompt string) agent.Outcome {
	t.Helper()
	if o.Retries == (agent.Retries{}) {
		o.Retries = fast
	}
	out, err := must(agent.New(o)).Run(t.Context(), entry.PlainText(prompt))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// told is the conversation of a session: a line for each message. Results of calls that were made at once are sorted:
// the log has them in the order of their ends.
func told(t testing.TB, s *session.Session) []string {
	t.Helper()
	var lines []string
	results := 0
	for _, m := range must(s.Context(t.Context())).Messages {
		message := must(m.Message())
		if m.Role != entry.RoleToolResult {
			slices.Sort(lines[len(lines)-results:])
			results = 0
		}
		switch message := message.(type) {
		case entry.AssistantMessage:
			line := "assistant: " + message.Content.Text()
			for _, c := range message.Content.ToolCalls() {
				line += fmt.Sprintf(" [%s %s]", c.Name, c.Arguments)
			}
			lines = append(lines, line)
		case entry.ToolResultMessage:
			kind := "result"
			if message.IsError {
				kind = "error"
			}
			lines = append(lines, kind+": "+message.Content.Text())
			results++
		case entry.UserMessage:
			lines = append(lines, "user: "+message.Content.Text())
		default:
			lines = append(lines, fmt.Sprintf("%T", message))
		}
	}
	return lines
}

func equal(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestARunAsksCallsAndEnds(t *testing.T) {
	h := newHouse(t)
	var events []string
	out := run(t, agent.Options{
		Session: h.session, Tools: must(toolset.New(echo{name: "echo", parallel: true, idempotent: true})),
		System: entry.Prompt{"Be brief."},
		Model: play(t,
			`{"agent":"main","expect":{"system":"brief","tools":["echo"],"last":{"role":"user","text":"go"}},"say":[{"text":"I call."},{"call":"echo","args":{"text":"a"}},{"call":"echo","args":{"text":"b"}},{"usage":{"input":10,"output":5}}]}`,
			`{"agent":"main","expect":{"results":[{"text":"echo: a"},{"text":"echo: b"}]},"say":[{"text":"Done."},{"usage":{"input":20,"output":1}}]}`,
		),
		Observe: func(e agent.Event) { events = append(events, strings.TrimPrefix(fmt.Sprintf("%T", e), "agent.")) },
	}, "go")
	if out.Status != agent.Completed || out.Text != "Done." || out.Calls != 2 || out.Spent.Requests != 2 || out.Spent.Tokens != 36 {
		t.Errorf("the outcome is %+v", out)
	}
	equal(t, told(t, h.session), "user: go", `assistant: I call. [echo {"text":"a"}] [echo {"text":"b"}]`, "result: echo: a", "result: echo: b", "assistant: Done.")
	for _, want := range []string{"StateChanged", "Answering", "Answered", "CallStarted", "CallFinished", "Ended"} {
		if !slices.Contains(events, want) {
			t.Errorf("no event %s in %v", want, events)
		}
	}
	if events[len(events)-1] != "Ended" {
		t.Errorf("the last event is %s", events[len(events)-1])
	}
}

func TestCallsThatCannotBeMadeGetAResult(t *testing.T) {
	fails := echo{name: "fails", do: func(context.Context, string) (tool.Result, error) {
		return tool.Result{Text: "half"}, errors.New("the disk is gone")
	}}
	panics := echo{name: "panics", do: func(context.Context, string) (tool.Result, error) { panic("oh") }}
	for _, tt := range []struct{ name, call, want string }{
		{"an unknown tool", `{"call":"none","args":{}}`, `error: [there is no tool "none"; there are echo, fails, panics]`},
		{"arguments that are no JSON", `{"call":"echo","rawArgs":"{\"text\""}`, `error: [echo was not called: the arguments are no JSON object: "{\"text\""]`},
		{"arguments against the schema", `{"call":"echo","args":{"n":1}}`, `error: [echo was not called: the arguments are not as the schema says: there is no field "n"; there is text]`},
		{"a tool that fails", `{"call":"fails","args":{"text":""}}`, "error: half\n[the disk is gone]"},
		{"a tool that panics", `{"call":"panics","args":{"text":""}}`, "error: [calling panics: it panicked: oh]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			out := run(t, agent.Options{
				Session: h.session, Tools: must(toolset.New(echo{name: "echo"}, fails, panics)),
				Model: play(t, `{"agent":"main","say":[`+tt.call+`]}`, `{"agent":"main","say":[{"text":"ok"}]}`),
			}, "go")
			got := told(t, h.session)
			if out.Status != agent.Completed || len(got) != 4 || got[2] != tt.want {
				t.Errorf("%+v\ngot %q, want %q", out, got, tt.want)
			}
		})
	}
}

func TestCallsOfOneIDAreToldApart(t *testing.T) {
	h := newHouse(t)
	calls := &sync.Map{}
	run(t, agent.Options{
		Session: h.session, Tools: must(toolset.New(echo{name: "echo", calls: calls})),
		Model: play(t,
			`{"agent":"main","say":[{"call":"echo","id":"c","args":{"text":"a"}},{"call":"echo","id":"c","args":{"text":"b"}}]}`,
			`{"agent":"main","say":[{"call":"echo","id":"c","args":{"text":"c"}}]}`,
			`{"agent":"main","expect":{"results":[{"text":"echo: c"}]},"say":[{"text":"ok"}]}`,
		),
	}, "go")
	for _, id := range []string{"c", "c-2", "c-3"} {
		if n, ok := calls.Load(id); !ok || *n.(*int) != 1 {
			t.Errorf("call %s was not made once", id)
		}
	}
	equal(t, told(t, h.session)[2:], "result: echo: a", "result: echo: b", `assistant:  [echo {"text":"c"}]`, "result: echo: c", "assistant: ok")
}

func TestRulesDecideOnCalls(t *testing.T) {
	rules := must(permission.Parse("rules.json", []byte(`{"default":"allow","rules":[
		{"action":"deny","tool":"echo","match":{"text":"bad*"},"reason":"it is bad"},
		{"action":"ask","tool":"echo","match":{"text":"risky*"}}]}`)))
	var asked []string
	for _, tt := range []struct {
		name, text, want string
		ask              func(context.Context, agent.Question) (bool, error)
	}{
		{"what is allowed is made", "good", "result: echo: good", nil},
		{"what is denied is not", "bad one", `error: [echo was not called: deny by the rule "deny echo text=\"bad*\" (it is bad)" of rules.json]`, nil},
		{"what is to be asked is denied when nobody is there", "risky", `error: [echo was not called: ask by the rule "ask echo text=\"risky*\"" of rules.json, and nobody is there to be asked]`, nil},
		{"a person may allow it", "risky", "result: echo: risky", func(_ context.Context, q agent.Question) (bool, error) {
			asked = append(asked, q.Tool)
			return true, nil
		}},
		{"a person may refuse it", "risky", `error: [echo was not called: ask by the rule "ask echo text=\"risky*\"" of rules.json, and the person who was asked refused]`, func(context.Context, agent.Question) (bool, error) {
			return false, nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			run(t, agent.Options{
				Session: h.session, Tools: must(toolset.New(echo{name: "echo"})), Rules: []*permission.Rules{&rules}, Ask: tt.ask,
				Model: play(t, `{"agent":"main","say":[{"call":"echo","args":{"text":"`+tt.text+`"}}]}`, `{"agent":"main","say":[{"text":"ok"}]}`),
			}, "go")
			if got := told(t, h.session); got[2] != tt.want {
				t.Errorf("got %q, want %q", got[2], tt.want)
			}
		})
	}
	if !slices.Equal(asked, []string{"echo"}) {
		t.Errorf("asked about %v", asked)
	}
}

func TestARunEndsAsItsStatusSays(t *testing.T) {
	const again = `{"agent":"main","times":-1,"say":[{"text":"more"},{"call":"echo","args":{"text":"a"}},{"usage":{"input":100,"output":10}}]}`
	head := `{"script":1,"model":{"prices":{"input":10000,"output":0}}}`
	for _, tt := range []struct {
		name   string
		script []string
		limits agent.Limits
		want   agent.Status
		reason string
	}{
		{"requests are limited", []string{again}, agent.Limits{Requests: 3}, agent.BudgetEnd, "its budget of 3 requests is spent"},
		{"tokens are limited", []string{again}, agent.Limits{Tokens: 200}, agent.BudgetEnd, "its budget of 200 tokens is spent: 220"},
		{"cost is limited", []string{head, again}, agent.Limits{Cost: 2.5}, agent.BudgetEnd, "its budget of $2.5 is spent: $3.0000"},
		{"a provider that fails for good", []string{`{"agent":"main","say":[{"error":{"kind":"auth","message":"no key"}}]}`, again}, agent.Limits{}, agent.FailedRun, "no key"},
		{"a provider that never recovers", []string{`{"agent":"main","times":100,"say":[{"error":{"kind":"server","status":500,"message":"oh"}}]}`, again}, agent.Limits{}, agent.FailedRun, "oh (after 3 tries)"},
		{"a provider that asks for too much patience", []string{`{"agent":"main","say":[{"error":{"kind":"rate-limit","retryAfter":"1h","message":"slow"}}]}`, again}, agent.Limits{}, agent.FailedRun, "it asks to wait 1h0m0s"},
		{"one that recovers", []string{`{"agent":"main","times":2,"say":[{"text":"half"},{"cut":true}]}`, `{"agent":"main","say":[{"text":"ok"}]}`}, agent.Limits{}, agent.Completed, ""},
		{"a model that only asks for what it may not have", []string{`{"agent":"main","times":-1,"say":[{"call":"none","args":{}},{"call":"echo","args":{}}]}`}, agent.Limits{}, agent.FailedRun, `every call of its last 25 answers was refused, the last one so: [echo was not called`},
		{"a model that is refused often and then finds its way", []string{`{"agent":"main","times":24,"say":[{"call":"none","args":{}}]}`, `{"agent":"main","say":[{"call":"none","args":{}},{"call":"echo","args":{"text":"a"}}]}`, `{"agent":"main","times":24,"say":[{"call":"none","args":{}}]}`, `{"agent":"main","say":[{"text":"ok"}]}`}, agent.Limits{}, agent.Completed, ""},
		{"time is limited", []string{`{"agent":"main","say":[{"text":"half"},{"hang":true}]}`, again}, agent.Limits{Time: 50 * time.Millisecond}, agent.TimeoutEnd, "the time of the run is over"},
		{"an overflow that nothing can be done about", []string{`{"agent":"main","say":[{"error":{"kind":"context-overflow","message":"too long"}}]}`, again}, agent.Limits{}, agent.FailedRun, "too long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			out := run(t, agent.Options{
				Session: h.session, Tools: must(toolset.New(echo{name: "echo"})), Limits: tt.limits, Model: play(t, tt.script...),
			}, "go")
			if out.Status != tt.want || !strings.Contains(out.Reason, tt.reason) || (out.Reason == "") != (tt.want == agent.Completed) {
				t.Errorf("the outcome is %+v, want %s: %s", out, tt.want, tt.reason)
			}
			// Every call has its result, whichever the end.
			c := must(h.session.Context(t.Context()))
			for _, r := range c.Repairs {
				t.Errorf("the log needs a repair: %s", r.What())
			}
		})
	}
}

func TestACancelledRunIsResumed(t *testing.T) {
	h := newHouse(t)
	ctx, cancel := context.WithCancel(t.Context())
	calls := &sync.Map{}
	started := echo{name: "wait", calls: calls, do: func(ctx context.Context, text string) (tool.Result, error) {
		if ctx.Done() != nil && text == "cancel" {
			cancel()
			<-ctx.Done()
			return tool.Result{Text: "half"}, ctx.Err()
		}
		return tool.Result{Text: "all"}, nil
	}}
	o := agent.Options{
		Session: h.session, Tools: must(toolset.New(started)), Retries: fast,
		Model: play(t, `{"agent":"main","say":[{"call":"wait","args":{"text":"cancel"}},{"call":"wait","args":{"text":"b"}}]}`, `{"agent":"main","say":[{"text":"ok"}]}`),
	}
	out, err := must(agent.New(o)).Run(ctx, entry.PlainText("go"))
	if err != nil || out.Status != agent.Cancelled {
		t.Fatalf("%+v, %v", out, err)
	}
	out, err = must(agent.New(o)).Resume(t.Context())
	if err != nil || out.Status != agent.Completed || !out.Resumed || out.Text != "ok" {
		t.Fatalf("%+v, %v", out, err)
	}
	equal(t, told(t, h.session)[2:], "error: [not called: the run was cancelled]", "error: half\n[the run was cancelled]", "assistant: ok")
	// And a run that is over is left alone.
	leaf := must(h.session.Leaf(t.Context()))
	out, err = must(agent.New(o)).Resume(t.Context())
	if err != nil || out.Status != agent.Completed || out.Resumed || out.Text != "ok" || must(h.session.Leaf(t.Context())) != leaf {
		t.Errorf("%+v, %v", out, err)
	}
}

// killed is the session as a kill leaves it behind so many lines.
func killed(t *testing.T, h house, lines int) *session.Session {
	t.Helper()
	data := must(os.ReadFile(h.session.Path()))
	all := strings.SplitAfter(string(data), "\n")
	path := filepath.Join(filepath.Dir(h.session.Path()), "2026-01-01T00-00-00-000Z_01a1fa9b-5c1e-7a37-8f4b-0c2d91d8a001.jsonl")
	text := strings.Join(all[:lines], "")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := must(h.Open(t.Context(), path))
	t.Cleanup(func() { s.Close() })
	return s
}

func TestARunThatWasKilledAtAnyEntryEndsAsIfItWereNot(t *testing.T) {
	lines := []string{
		`{"agent":"main","say":[{"text":"one"},{"call":"echo","args":{"text":"a"}},{"call":"echo","args":{"text":"b"}},{"call":"alone","args":{"text":"c"}}]}`,
		`{"agent":"main","expect":{"results":[{"text":"echo: a"},{"text":"echo: b"},{"text":"echo: c"}]},"say":[{"call":"echo","args":{"text":"d"}}]}`,
		`{"agent":"main","expect":{"results":[{"text":"echo: d"}]},"say":[{"text":"Done."}]}`,
	}
	tools := func(calls *sync.Map) *toolset.Set {
		return must(toolset.New(echo{name: "echo", idempotent: true, parallel: true, calls: calls}, echo{name: "alone", idempotent: true, calls: calls}))
	}
	h := newHouse(t)
	run(t, agent.Options{Session: h.session, Tools: tools(nil), Model: play(t, lines...)}, "go")
	want := told(t, h.session)
	total := strings.Count(string(must(os.ReadFile(h.session.Path()))), "\n")
	// The beginning of a run is one write: the first lines are there together or not at all.
	first := 0
	for i, line := range strings.Split(string(must(os.ReadFile(h.session.Path()))), "\n") {
		if strings.Contains(line, `"role":"user"`) {
			first = i + 1
			break
		}
	}
	for n := first; n <= total; n++ {
		t.Run(fmt.Sprintf("after %d of %d lines", n, total), func(t *testing.T) {
			s := killed(t, h, n)
			finished := map[string]bool{}
			for _, m := range must(s.Context(t.Context())).Messages {
				if m.Role == entry.RoleToolResult && !m.Synthetic {
					finished[m.ToolCallIDs[0]] = true
				}
			}
			calls := &sync.Map{}
			out, err := must(agent.New(agent.Options{Session: s, Tools: tools(calls), Model: play(t, lines...), Retries: fast})).Resume(t.Context())
			if err != nil || out.Status != agent.Completed {
				t.Fatalf("%+v, %v", out, err)
			}
			equal(t, told(t, s), want...)
			for id := range finished {
				if _, again := calls.Load(id); again {
					t.Errorf("call %s had finished, and was made again", id)
				}
			}
		})
	}
}

func TestACallThatIsNotIdempotentIsToldToBeInterrupted(t *testing.T) {
	lines := []string{
		`{"agent":"main","say":[{"call":"once","args":{"text":"a"}},{"call":"once","args":{"text":"b"}}]}`,
		`{"agent":"main","say":[{"text":"Done."}]}`,
	}
	h := newHouse(t)
	run(t, agent.Options{Session: h.session, Tools: must(toolset.New(echo{name: "once"})), Model: play(t, lines...)}, "go")
	data := string(must(os.ReadFile(h.session.Path())))
	upTo := strings.Count(data[:strings.Index(data, "echo: a")], "\n") + 1 // with the first result
	s := killed(t, h, upTo)
	dir := artifacts.Open(s.ArtifactsDir(), artifacts.Options{})
	f := must(dir.Create(t.Context(), "once", artifacts.Provenance{Run: "a run", Call: tool.Origin(agent.MainID, must(s.Context(t.Context())).Messages[1].ToolCallIDs[1])}))
	must(f.Write([]byte("half of it")))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	calls := &sync.Map{}
	out, err := must(agent.New(agent.Options{
		Session: s, Tools: must(toolset.New(echo{name: "once", calls: calls})), Model: play(t, lines...), Artifacts: dir,
	})).Resume(t.Context())
	if err != nil || out.Status != agent.Completed {
		t.Fatalf("%+v, %v", out, err)
	}
	equal(t, told(t, s)[2:], "error: ["+entry.InterruptedResult+"]\n[What it had printed is in artifact://0 (10 B)]",
		"result: echo: a", "assistant: Done.")
	calls.Range(func(id, _ any) bool {
		t.Errorf("call %v was made again", id)
		return true
	})
}

func TestWhatIsSaidIsTakenUpOnce(t *testing.T) {
	h := newHouse(t)
	lines := []string{
		`{"agent":"main","say":[{"call":"say","args":{"text":"while you work"}}]}`,
		`{"agent":"main","expect":{"last":{"role":"user","text":"while you work"}},"say":[{"text":"Heard."}]}`,
		`{"agent":"main","expect":{"last":{"role":"user","text":"at the end"}},"say":[{"text":"Heard again."}]}`,
		`{"agent":"main","expect":{"last":{"role":"user","text":"later"}},"say":[{"text":"Heard later."}]}`,
	}
	other := must(h.Open(t.Context(), func() string {
		must(h.session.Append(t.Context(), entry.UserText("before")))
		return h.session.Path()
	}()))
	defer other.Close()
	speak := echo{name: "say", do: func(ctx context.Context, text string) (tool.Result, error) {
		must(agent.Say(ctx, other, agent.Said{Text: text}))
		return tool.Result{Text: "said"}, nil
	}}
	said := false
	o := agent.Options{
		Session: h.session, Tools: must(toolset.New(speak)), Model: play(t, lines...), Retries: fast,
		Observe: func(e agent.Event) {
			if e, ok := e.(agent.Answered); ok && e.Message.Content.Text() == "Heard." && !said {
				said = true
				must(agent.Say(t.Context(), other, agent.Said{Text: "at the end"}))
			}
		},
	}
	out := run(t, o, "go")
	if out.Status != agent.Completed || out.Text != "Heard again." {
		t.Fatalf("%+v", out)
	}
	must(agent.Say(t.Context(), other, agent.Said{Text: "later"}))
	out, err := must(agent.New(o)).Resume(t.Context())
	if err != nil || out.Text != "Heard later." || !out.Resumed {
		t.Fatalf("%+v, %v", out, err)
	}
	equal(t, told(t, h.session), "user: before", "user: go", `assistant:  [say {"text":"while you work"}]`, "result: said",
		"user: while you work", "assistant: Heard.", "user: at the end", "assistant: Heard again.", "user: later", "assistant: Heard later.")
	for _, refused := range []string{"", strings.Repeat("x", agent.MaxSaid+1)} {
		if _, err := agent.Say(t.Context(), other, agent.Said{Text: refused}); err == nil {
			t.Errorf("%d bytes were said", len(refused))
		}
	}
}

// asked does something when its Info is asked for.
type asked struct {
	model.Model
	do func()
}

func (a asked) Info() model.Info {
	a.do()
	return a.Model.Info()
}

func TestWhatIsSaidWhileARunBeginsIsTakenUpOnce(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed: %v", killed), func(t *testing.T) {
			h := newHouse(t)
			must(h.session.Append(t.Context(), entry.UserText("before")))
			other := must(h.Open(t.Context(), h.session.Path()))
			defer other.Close()
			once := func(text string) func() {
				said := sync.OnceFunc(func() { must(agent.Say(t.Context(), other, agent.Said{Text: text})) })
				return func() { said() }
			}
			early, late := once("before its first entry"), once("behind it")
			o := agent.Options{
				Session: h.session, Model: asked{play(t, `{"agent":"main","times":-1,"say":[{"text":"Done."}]}`), early}, Retries: fast,
				Hooks: agent.Hooks{Start: func(context.Context, bool) { late() }},
			}
			begin := func() { // the model's name is asked for between what the log says and the first entry
				if !killed {
					run(t, o, "go")
					return
				}
				must(must(agent.New(o)).Begin(t.Context(), entry.PlainText("go")))
				if out, err := must(agent.New(o)).Resume(t.Context()); err != nil || out.Status != agent.Completed {
					t.Fatalf("%+v, %v", out, err)
				}
			}
			begin()
			if out, err := must(agent.New(o)).Resume(t.Context()); err != nil || out.Resumed {
				t.Errorf("it went on: %+v, %v", out, err)
			}
			equal(t, told(t, h.session), "user: before", "user: go", "user: before its first entry", "user: behind it", "assistant: Done.")
		})
	}
}

func TestASessionHasOneDriver(t *testing.T) {
	h := newHouse(t)
	o := agent.Options{Session: h.session, Model: play(t, `{"agent":"main","say":[{"text":"ok"}]}`), Retries: fast}
	must(h.session.Append(t.Context(), entry.UserText("before")))
	other := must(h.Open(t.Context(), h.session.Path()))
	defer other.Close()
	lease := must(other.Drive())
	_, err := must(agent.New(o)).Run(t.Context(), entry.PlainText("go"))
	var locked *session.LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("a driven session was run: %v", err)
	}
	if err := lease.Close(); err != nil {
		t.Fatal(err)
	}
	if out := run(t, o, "go"); out.Status != agent.Completed {
		t.Errorf("%+v", out)
	}
}

// watched keeps the requests of a model.
type watched struct {
	model.Model
	each func(*model.Request)
}

func (w watched) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	w.each(req)
	return w.Model.Stream(ctx, req)
}

func TestTheContextThatGrowsIsTheOneThatIsBuilt(t *testing.T) {
	h := newHouse(t)
	other := (*session.Session)(nil)
	busy := echo{name: "busy", parallel: true, idempotent: true, do: func(ctx context.Context, text string) (tool.Result, error) {
		if other == nil {
			other = must(h.Open(ctx, h.session.Path()))
		}
		must(other.Append(ctx, entry.BashExecutionMessage{Command: "true", Output: text}))
		return tool.Result{Text: "did " + text, Images: []tool.Image{{MIMEType: "image/png", Data: make([]byte, 2000)}}}, nil
	}}
	var lines []string
	for i := range 8 {
		lines = append(lines, fmt.Sprintf(`{"agent":"main","say":[{"thinking":"hm","signature":"c2ln"},{"call":"busy","args":{"text":"%d"}},{"usage":{"input":10,"output":5}}]}`, i))
	}
	lines = append(lines, `{"agent":"main","say":[{"text":"ok"}]}`)
	requests := 0
	run(t, agent.Options{
		Session: h.session, Tools: must(toolset.New(busy)),
		Model: watched{play(t, lines...), func(req *model.Request) {
			requests++
			r := must(h.session.Resume(t.Context(), session.ResumeOptions{Restore: true}))
			want, got := must(json.Marshal(must(model.Messages(r.Context)))), must(json.Marshal(req.Messages))
			if string(got) != string(want) {
				t.Errorf("request %d has\n%s\nwant\n%s", requests, got, want)
			}
		}},
	}, "go")
	other.Close()
	if requests != 9 {
		t.Errorf("%d requests were made", requests)
	}
}

func TestALongResultIsKeptWhole(t *testing.T) {
	h := newHouse(t)
	text := strings.Repeat("a line of some length\n", 10_000)
	flood := echo{name: "flood", do: func(context.Context, string) (tool.Result, error) { return tool.Result{Text: text}, nil }}
	dir := artifacts.Open(filepath.Join(t.TempDir(), "artifacts"), artifacts.Options{})
	run(t, agent.Options{
		Session: h.session, Tools: must(toolset.New(flood)), Artifacts: dir,
		Model: play(t, `{"agent":"main","say":[{"call":"flood","args":{"text":""}}]}`, `{"agent":"main","expect":{"results":[{"text":"artifact://0"}]},"say":[{"text":"ok"}]}`),
	}, "go")
	info := must(dir.Lookup(t.Context(), 0))
	if got := string(must(os.ReadFile(info.Path))); got != text {
		t.Errorf("the artifact has %d bytes, want %d", len(got), len(text))
	}
}
