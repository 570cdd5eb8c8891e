package compact_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/compact"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/toolset"
)

// diesEnv names a home and a log: the process runs the script dying there, and kills itself between a summary and its entry.
const diesEnv = "AGENTRUN_TEST_COMPACT_DIES"

func TestMain(m *testing.M) {
	if where := os.Getenv(diesEnv); where != "" {
		home, log, _ := strings.Cut(where, "\n")
		die(home, log)
	}
	goleak.VerifyTestMain(m)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// say answers with as many lines as it is asked for.
type say struct{}

func (say) Name() string        { return "say" }
func (say) Description() string { return "says lines" }
func (say) Schema() json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{"lines":{"type":"integer"},"what":{"type":"string"}}}`)
}
func (say) Idempotent() bool   { return true }
func (say) ParallelSafe() bool { return true }
func (say) Call(_ context.Context, raw json.RawMessage) (tool.Result, error) {
	var in struct {
		Lines int
		What  string
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return tool.Result{}, err
	}
	return tool.Result{Text: in.What + strings.Repeat(" word word word\n", in.Lines)}, nil
}

type house struct {
	*session.Manager
	home    string
	session *session.Session
}

func newHouse(t testing.TB) house {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	m := must(session.OpenManager(home, session.Options{Durability: session.Flush}))
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	t.Cleanup(func() { s.Close() })
	return house{m, home, s}
}

func play(lines ...string) *script.Model {
	return must(script.New("test.jsonl", strings.NewReader(strings.Join(lines, "\n"))))
}

func options(s *session.Session, m model.Model) agent.Options {
	c := compact.New(compact.Options{Session: s, Model: m, Wait: time.Nanosecond})
	return agent.Options{
		Session: s, Model: m, Tools: must(toolset.New(say{})), Compact: c.Compact, CompactAt: c.At(), Count: compact.Count,
		Retries: agent.Retries{Tries: 3, First: time.Nanosecond, Longest: time.Nanosecond, Patience: time.Second, Silence: time.Minute},
	}
}

func run(t testing.TB, o agent.Options) agent.Outcome {
	t.Helper()
	defer compactions(t, o.Session)
	return must(must(agent.New(o)).Run(t.Context(), entry.PlainText("do it, with artifact://7")))
}

// compactions are those of a log, and usages how many requests for summaries it has.
func compactions(t testing.TB, s *session.Session) (found []entry.Compaction, prunes, usages int) {
	t.Helper()
	for e, err := range s.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		switch b := must(e.Body()).(type) {
		case entry.Compaction:
			found = append(found, b)
		case entry.Custom:
			if b.CustomType == entry.PruneType {
				prunes++
			}
		case entry.ModelUsage:
			if b.Purpose == agent.CompactPurpose {
				usages++
				if b.ErrorMessage != "" {
					t.Log("a summary failed: ", b.ErrorMessage)
				}
			}
		}
	}
	return found, prunes, usages
}

// paired fails if a context has a call without its result right behind it, or the other way round.
func paired(t testing.TB, s *session.Session) *entry.Context {
	t.Helper()
	c := must(s.Context(t.Context()))
	if len(c.Repairs) > 0 {
		t.Errorf("the context had to be repaired: %+v", c.Repairs)
	}
	return c
}

// head is a model of 10,000 tokens: the threshold is 6,500.
const head = `{"script":1,"model":{"contextWindow":10000}}`

func turn(n, lines int, tokens int) string {
	return fmt.Sprintf(`{"agent":"main","say":[{"text":"Turn %d."},{"call":"say","args":{"what":"result %d, see agent://0-Review.","lines":%d}},{"usage":{"input":%d,"output":10}}]}`, n, n, lines, tokens)
}

func TestAContextOverItsBudgetIsSummarized(t *testing.T) {
	h := newHouse(t)
	var events []string
	m := play(head,
		turn(0, 300, 2000), turn(1, 300, 4000),
		`{"agent":"main","say":[{"text":"`+strings.Repeat("I think about this. ", 100)+`"},{"call":"say","args":{"what":"last"}},{"usage":{"input":8800,"output":10}}]}`,
		`{"agent":"main/compact","expect":{"messages":1,"system":"summaries","contains":["[person] do it","[call of say]","result 1"]},"say":[{"text":"It was begun."},{"usage":{"input":900,"output":7}}]}`,
		`{"agent":"main","expect":{"contains":["It was begun.","- artifact://7\n- agent://0-Review"]},"say":[{"text":"Done."},{"usage":{"input":700,"output":10}}]}`,
	)
	o := options(h.session, m)
	o.Observe = func(e agent.Event) {
		switch e := e.(type) {
		case agent.Compacted:
			events = append(events, "compacted")
		case agent.StateChanged:
			events = append(events, string(e.State))
		}
	}
	out := run(t, o)
	if out.Status != agent.Completed || out.Text != "Done." {
		t.Fatalf("%+v", out)
	}
	if want := int64(2010 + 4010 + 8810 + 907 + 710); out.Spent.Tokens != want || out.Spent.Requests != 5 {
		t.Errorf("spent %+v, want %d tokens of 5 requests", out.Spent, want)
	}
	found, _, usages := compactions(t, h.session)
	if len(found) != 1 || usages != 1 || found[0].TokensAfter == nil || *found[0].TokensAfter >= found[0].TokensBefore {
		t.Errorf("the log has %d compactions and %d usages: %+v", len(found), usages, found)
	}
	if got := strings.Join(events, " "); !strings.Contains(got, "compacting thinking compacted") && !strings.Contains(got, "compacting calling compacted") {
		t.Errorf("the events are %s", got)
	}
	paired(t, h.session)
	if left := m.Unplayed(); len(left) > 0 {
		t.Errorf("lines %v were not played", left)
	}
}

func TestOldToolOutputIsPrunedFirst(t *testing.T) {
	h := newHouse(t)
	m := play(head,
		turn(0, 1500, 2000), turn(1, 100, 6700),
		`{"agent":"main","expect":{"contains":["tool output at session://","result 1"]},"say":[{"text":"Done."},{"usage":{"input":1700,"output":10}}]}`,
		`{"agent":"main","expect":{"contains":["tool output at session://","result 1"]},"say":[{"text":"Again."},{"usage":{"input":1700,"output":10}}]}`,
	)
	if out := run(t, options(h.session, m)); out.Status != agent.Completed {
		t.Fatalf("%+v", out)
	}
	found, prunes, usages := compactions(t, h.session)
	if len(found) != 0 || usages != 0 || prunes != 1 {
		t.Errorf("%d compactions, %d prunes, %d requests", len(found), prunes, usages)
	}
	c := paired(t, h.session)
	if c.Prune == "" {
		t.Error("the context does not say that it is pruned")
	}
	// Another process sees the same context, and the log has the text.
	if out := run(t, options(h.session, m)); out.Text != "Again." {
		t.Errorf("%+v", out)
	}
	if raw := string(must(os.ReadFile(h.session.Path()))); strings.Count(raw, "word word word") < 1600 {
		t.Error("the log lacks what was pruned")
	}
}

func TestParallelCallsAreNotCutApart(t *testing.T) {
	h := newHouse(t)
	calls := strings.TrimSuffix(strings.Repeat(`{"call":"say","args":{"what":"x","lines":150}},`, 6), ",")
	m := play(head,
		`{"agent":"main","say":[{"text":"`+strings.Repeat("a plan ", 1500)+`"},{"call":"say","args":{"what":"first"}},{"usage":{"input":3000,"output":1}}]}`,
		`{"agent":"main","say":[`+calls+`,{"usage":{"input":3900,"output":1}}]}`,
		`{"agent":"main/compact","say":[{"text":"A plan."}]}`,
		`{"agent":"main","expect":{"contains":"A plan."},"say":[{"text":"Done."}]}`,
	)
	if out := run(t, options(h.session, m)); out.Status != agent.Completed {
		t.Fatalf("%+v", out)
	}
	c := paired(t, h.session)
	roles := ""
	for _, m := range c.Messages {
		roles += m.Role + " "
	}
	if want := "compactionSummary assistant " + strings.Repeat("toolResult ", 6) + "assistant "; roles != want {
		t.Errorf("the context has %swant %s", roles, want)
	}
}

func TestAnOverflowIsCompactedAndRetriedOnce(t *testing.T) {
	const overflow = `{"agent":"main","say":[{"error":{"kind":"context-overflow","message":"too long"}}]`
	begin := []string{head, turn(0, 10, 100), turn(1, 10, 200)}
	summary := `{"agent":"main/compact","say":[{"text":"Two turns."}]}`
	for _, tt := range []struct {
		name  string
		lines []string
		want  agent.Status
		text  string
	}{
		{"a retry that fits goes on", []string{overflow + "}", summary, `{"agent":"main","expect":{"contains":"Two turns."},"say":[{"text":"Done."}]}`}, agent.Completed, "Done."},
		{"one that does not ends the run", []string{overflow + `,"times":2}`, summary, `{"agent":"main","say":[{"text":"no"}]}`}, agent.FailedRun, "does not fit though it was compacted"},
		{"a summary that fails ends it", []string{overflow + "}", `{"agent":"main/compact","say":[{"error":{"kind":"auth","message":"no key"}}]}`, `{"agent":"main","say":[{"text":"no"}]}`}, agent.FailedRun, "no key"},
		{"a failure that passes is met by another try", []string{overflow + "}", `{"agent":"main/compact","say":[{"error":{"kind":"overloaded","message":"busy"}}],"times":2}`, summary, `{"agent":"main","say":[{"text":"Done."}]}`}, agent.Completed, "Done."},
		{"a summary that is too long is made of parts", []string{overflow + "}", `{"agent":"main/compact","say":[{"error":{"kind":"context-overflow","message":"too long"}}]}`, summary, `{"agent":"main","say":[{"text":"Done."}]}`}, agent.Completed, "Done."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			out := run(t, options(h.session, play(append(append([]string{}, begin...), tt.lines...)...)))
			if out.Status != tt.want || !strings.Contains(out.Text+out.Reason, tt.text) {
				t.Errorf("%+v", out)
			}
			paired(t, h.session)
		})
	}
	t.Run("a prompt that does not fit ends it", func(t *testing.T) {
		h := newHouse(t)
		out := run(t, options(h.session, play(head, overflow+"}", `{"agent":"main","say":[{"text":"no"}]}`)))
		if out.Status != agent.FailedRun || !strings.Contains(out.Reason, "cannot be made shorter") {
			t.Errorf("%+v", out)
		}
	})
}

func TestASummaryThatFailsDoesNotEndARunThatFits(t *testing.T) {
	h := newHouse(t)
	m := play(head, turn(0, 400, 3000), turn(1, 400, 7000),
		`{"agent":"main/compact","say":[{"error":{"kind":"refused","message":"no"}}],"times":1}`,
		`{"agent":"main/compact","say":[{"text":"not asked for"}]}`,
		`{"agent":"main","say":[{"text":"Done."}]}`)
	if out := run(t, options(h.session, m)); out.Status != agent.Completed {
		t.Fatalf("%+v", out)
	}
	if found, _, usages := compactions(t, h.session); len(found) != 0 || usages != 1 {
		t.Errorf("%d compactions, %d requests", len(found), usages)
	}
}

// long is a script of two compactions; the second one's summary knows the first.
func long() []string {
	lines := []string{head}
	text := strings.Repeat("something to keep in mind ", 250)
	for i := range 8 {
		lines = append(lines, fmt.Sprintf(`{"agent":"main","say":[{"text":"Turn %d: %s"},{"call":"say","args":{"what":"see artifact://%d"}},{"usage":{"input":%d,"output":10}}]}`, i, text, i, 2000+(i%4)*1600))
	}
	return append(lines,
		`{"agent":"main","expect":{"contains":["Second summary.","artifact://0"]},"say":[{"text":"Done."},{"usage":{"input":2000,"output":10}}]}`,
		`{"agent":"main/compact","expect":{"contains":["Turn 0"]},"say":[{"text":"First summary."}]}`,
		`{"agent":"main/compact","expect":{"contains":["First summary.","Turn 5"]},"say":[{"text":"Second summary."}]}`)
}

func TestARunCompactsAgain(t *testing.T) {
	h := newHouse(t)
	m := play(long()...)
	if out := run(t, options(h.session, m)); out.Status != agent.Completed || out.Text != "Done." {
		t.Fatalf("%+v", out)
	}
	found, _, usages := compactions(t, h.session)
	if len(found) != 2 || usages != 2 {
		t.Errorf("%d compactions, %d requests", len(found), usages)
	}
	paired(t, h.session)
	if left := m.Unplayed(); len(left) > 0 {
		t.Errorf("lines %v were not played", left)
	}
}

func die(home, log string) {
	m := must(session.OpenManager(home, session.Options{Durability: session.Flush}))
	s := must(m.Open(context.Background(), log))
	compact.BeforeEntry(func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
	must(must(agent.New(options(s, play(long()...)))).Run(context.Background(), entry.PlainText("do it, with artifact://7")))
}

func TestAKillBetweenSummaryAndEntryLosesASummaryOnly(t *testing.T) {
	h := newHouse(t)
	must(h.session.Append(t.Context(), entry.UserText("before")))
	cmd := exec.Command(must(os.Executable()))
	cmd.Env = append(os.Environ(), diesEnv+"="+h.home+"\n"+h.session.Path())
	if out, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child was not killed: %v\n%s", err, out)
	}
	if found, _, usages := compactions(t, h.session); len(found) != 0 || usages != 1 {
		t.Fatalf("%d compactions, %d requests", len(found), usages)
	}
	out := must(must(agent.New(options(h.session, play(long()...)))).Resume(t.Context()))
	if out.Status != agent.Completed || out.Text != "Done." {
		t.Fatalf("%+v", out)
	}
	if found, _, usages := compactions(t, h.session); len(found) != 2 || usages != 3 {
		t.Errorf("%d compactions, %d requests", len(found), usages)
	}
	paired(t, h.session)
}

func TestAForkFromBeforeACompactionHasEverything(t *testing.T) {
	h := newHouse(t)
	run(t, options(h.session, play(long()...)))
	var at string
	for e, err := range h.session.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type() == entry.TypeCompaction {
			break
		}
		at = e.ID()
	}
	f, err := h.Fork(t.Context(), h.session.Path(), session.ForkOptions{At: at})
	if err != nil {
		t.Fatal(err)
	}
	fork := must(h.Open(t.Context(), f.Path))
	defer fork.Close()
	c := paired(t, fork)
	if c.Compaction != "" || len(c.Messages) < 7 {
		t.Errorf("the fork has %d messages, compaction %q", len(c.Messages), c.Compaction)
	}
	// It goes on by itself, and counts its own summaries.
	o := options(fork, play(long()...))
	if out := must(must(agent.New(o)).Resume(t.Context())); out.Status != agent.Completed || out.Text != "Done." {
		t.Errorf("%+v", out)
	}
	if found, _, _ := compactions(t, fork); len(found) != 2 {
		t.Errorf("the fork has %d compactions", len(found))
	}
}

func TestAProviderThatHangsIsGivenUp(t *testing.T) {
	h := newHouse(t)
	m := play(head, turn(0, 400, 3000), turn(1, 400, 7000), `{"agent":"main/compact","say":[{"hang":true}],"times":3}`, `{"agent":"main/compact","say":[{"text":"no"}]}`, `{"agent":"main","say":[{"text":"Done."}]}`)
	o := options(h.session, m)
	o.Compact = compact.New(compact.Options{Session: h.session, Model: m, Wait: time.Nanosecond, Silence: time.Millisecond}).Compact
	if out := run(t, o); out.Status != agent.Completed {
		t.Errorf("%+v", out)
	}
}

func TestTokensAreCounted(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int64
	}{{"", 0}, {"hello world", 2}, {"日本語", 3}, {"\xff\xfe", 2}} {
		if got := compact.Count(tt.text); got < min(tt.want, 1) || got > tt.want+3 {
			t.Errorf("%q has %d tokens, want about %d", tt.text, got, tt.want)
		}
	}
	for _, unit := range []string{"a", " ", "\n", "€", "word ", "0"} {
		text := strings.Repeat(unit, 200_000/len(unit))
		if n := compact.Count(text); n < 1 || n > int64(len(text)) {
			t.Errorf("%q repeated has %d tokens", unit, n)
		}
	}
}

func TestTheThresholdLeavesRoom(t *testing.T) {
	for _, tt := range []struct{ window, output, want int64 }{{200_000, 64_000, 130_000}, {200_000, 8000, 172_000}, {8192, 0, 8192 - 819 - 2048}, {1, 0, 1}} {
		if got := compact.Threshold(model.Info{ContextWindow: tt.window, MaxOutput: tt.output}); got != tt.want {
			t.Errorf("a window of %d with %d of output has the threshold %d, want %d", tt.window, tt.output, got, tt.want)
		}
	}
}
