package task_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/task"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/toolset"
)

// A process of its own works a tree, and kills itself behind its nth change of a file.
const (
	killAt   = "AGENTRUN_TEST_KILL_AT" // 0 is never
	killHome = "AGENTRUN_TEST_KILL_HOME"
	killTool = "AGENTRUN_TEST_KILL_TOOL" // the tool that is not idempotent; "" for none
	killTree = "AGENTRUN_TEST_KILL_TREE" // lines of a script in the place of theTree's
)

// deadly kills this process behind its nth change of a file.
type deadly struct {
	durable.FS
	left *atomic.Int64
}

type deadlyFile struct {
	durable.File
	left *atomic.Int64
}

func die(left *atomic.Int64) {
	if left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	}
}

func (d deadly) OpenFile(name string, flag int, perm os.FileMode) (durable.File, error) {
	f, err := d.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return deadlyFile{f, d.left}, nil
}

func (d deadly) Rename(from, to string) error {
	defer die(d.left)
	return d.FS.Rename(from, to)
}

func (d deadly) Link(from, to string) error {
	defer die(d.left)
	return d.FS.Link(from, to)
}

func (f deadlyFile) Write(p []byte) (int, error) {
	defer die(f.left)
	return f.File.Write(p)
}

// theTree is a root with two children, one of which has a child of its own.
var theTree = []string{
	`{"agent":"main","say":[{"text":"I ask."},{"call":"echo","args":{"text":"first"}},{"call":"task","args":{"tasks":[{"name":"A","task":"a"},{"name":"B","task":"b","schema":{"type":"object","required":["n"]}}]}}]}`,
	`{"agent":"main","say":[{"call":"echo","args":{"text":"last"}}]}`,
	`{"agent":"main","say":[{"text":"Done."}]}`,
	`{"agent":"0-A","say":[{"call":"task","args":{"tasks":[{"name":"C","agent":"task","task":"c"}]}}]}`,
	`{"agent":"0-A","say":[{"text":"A is done."}]}`,
	`{"agent":"0-A.2-C","say":[{"call":"echo","args":{"text":"c"}}]}`,
	`{"agent":"0-A.2-C","say":[{"text":"C is done."}]}`,
	`{"agent":"1-B","say":[{"call":"echo","args":{"text":"b"}}]}`,
	`{"agent":"1-B","say":[{"call":"yield","args":{"data":{"n":1}}}]}`,
}

// once is echo, and not idempotent.
type once struct{ echo }

func (once) Idempotent() bool { return false }

func tools(notIdempotent bool) []tool.Tool {
	if notIdempotent {
		return []tool.Tool{once{}}
	}
	return []tool.Tool{echo{}}
}

// live begins the run in a home, or resumes it. There is one session.
func live(ctx context.Context, home string, fsys durable.FS, notIdempotent bool) (*tree, agent.Outcome, error) {
	return liveSynced(ctx, home, fsys, session.Flush, notIdempotent)
}

// liveSynced is live with a durability.
func liveSynced(ctx context.Context, home string, fsys durable.FS, durability session.Durability, notIdempotent bool) (*tree, agent.Outcome, error) {
	m, err := session.OpenManager(home, session.Options{Durability: durability, FS: fsys})
	if err != nil {
		return nil, agent.Outcome{}, err
	}
	r := &tree{Manager: m}
	list, err := m.List(ctx, "")
	if err != nil {
		return nil, agent.Outcome{}, err
	}
	if len(list.Sessions) == 0 {
		r.session, err = m.Create(ctx, filepath.Dir(home), session.CreateOptions{})
	} else {
		r.session, err = m.Open(ctx, list.Sessions[0].Path)
	}
	if err != nil {
		return nil, agent.Outcome{}, err
	}
	ok := false
	defer func() {
		if !ok {
			r.session.Close()
		}
	}()
	if r.model, err = script.New("tree.jsonl", strings.NewReader(cmp.Or(os.Getenv(killTree), strings.Join(theTree, "\n")))); err != nil {
		return nil, agent.Outcome{}, err
	}
	r.dir = artifacts.Open(r.session.ArtifactsDir(), artifacts.Options{LoggedMax: r.session.MaxArtifactID, FS: fsys, Sync: durability == session.Sync})
	types, _ := task.Types()
	tr, err := task.New(task.Options{
		Manager: m, Root: r.session, Artifacts: r.dir, Types: types, Default: r.model, Retries: fast, Concurrency: 1,
		Dir: home + projectExt, Spaces: filepath.Join(home, "isolated"), FS: fsys,
		Tools: func(_ context.Context, of task.Subagent) ([]tool.Tool, func(), error) {
			return append(tools(notIdempotent), put{of.Dir}), func() {}, nil
		},
	})
	if err != nil {
		return nil, agent.Outcome{}, err
	}
	r.budget = agent.NewBudget(nil, agent.Limits{Agents: 100})
	root := tr.Root(r.budget)
	defer root.Stop()
	set, err := toolset.New(append(tools(notIdempotent), tr.Tool(root))...)
	if err != nil {
		return nil, agent.Outcome{}, err
	}
	o := agent.Options{Session: r.session, Model: r.model, Tools: set, Retries: fast, Artifacts: r.dir, Budget: r.budget}
	root.Attach(&o)
	a, err := agent.New(o)
	if err != nil {
		return nil, agent.Outcome{}, err
	}
	var out agent.Outcome
	if r.session.Exists() {
		out, err = a.Resume(ctx)
	} else {
		out, err = a.Run(ctx, entry.PlainText("go"))
	}
	ok = true
	return r, out, err
}

// mortal is the process that dies. It returns 0 if it came to the end.
func mortal() int {
	n, err := strconv.ParseInt(os.Getenv(killAt), 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	left := new(atomic.Int64)
	left.Store(n)
	_, out, err := live(context.Background(), os.Getenv(killHome), deadly{durable.OS, left}, os.Getenv(killTool) != "")
	if err != nil || out.Status != agent.Completed {
		fmt.Fprintln(os.Stderr, out, err)
		return 1
	}
	return 0
}

// lifeUpTo lets a process live in a home until its nth change of a file, and reports whether it came to the end.
func lifeUpTo(t *testing.T, home string, n int, notIdempotent bool) (ended bool) {
	t.Helper()
	child := exec.Command(must(os.Executable()))
	child.Env = append(os.Environ(), killAt+"="+strconv.Itoa(n), killHome+"="+home)
	if notIdempotent {
		child.Env = append(child.Env, killTool+"=yes")
	}
	said, err := child.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		return false
	}
	t.Fatalf("killed at change %d: %v\n%s", n, err, said)
	return false
}

// again lives on in a home, in this process.
func again(t *testing.T, home string, notIdempotent bool) *tree {
	t.Helper()
	r, out, err := live(t.Context(), home, nil, notIdempotent)
	if err != nil || out.Status != agent.Completed {
		t.Fatalf("resumed: %+v, %v", out, err)
	}
	t.Cleanup(func() { r.session.Close() })
	return r
}

// spentByAll is what the subagents have spent, as agentrun tasks tells it.
func (r *tree) spentByAll(t *testing.T) (tokens int64) {
	t.Helper()
	for _, info := range must(task.List(t.Context(), r.Manager, r.session, agent.MainID)) {
		tokens += info.Tokens
	}
	return tokens
}

func TestATreeThatIsKilledAtAnyChangeComesToTheSameEnd(t *testing.T) {
	undisturbed := again(t, filepath.Join(t.TempDir(), "home"), false)
	want := undisturbed.state(t)
	kills := 0
	for n := 1; ; n++ {
		home := filepath.Join(t.TempDir(), "home")
		if lifeUpTo(t, home, n, false) {
			break
		}
		kills++
		r := again(t, home, false)
		if got := r.state(t); !slices.Equal(got, want) {
			t.Fatalf("killed at change %d, the end is\n  %s\nand not\n  %s", n, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
		// What was spent before counts on, once. A run that was killed behind its end has nothing to count.
		if got := r.budget.Spent(); got != undisturbed.budget.Spent() && got != (agent.Spent{}) {
			t.Fatalf("killed at change %d, the tree has spent %+v, and %+v if it is not", n, got, undisturbed.budget.Spent())
		}
		if all := r.spentByAll(t); all != undisturbed.spentByAll(t) {
			t.Fatalf("killed at change %d, the logs tell of %+v, and of %+v if it is not", n, all, undisturbed.spentByAll(t))
		}
	}
	t.Logf("killed at %d changes", kills)
	if kills < 30 {
		t.Errorf("only %d changes were made: is each counted?", kills)
	}
}

func TestATreeWithCallsThatCannotBeRepeatedTellsOfEachOnce(t *testing.T) {
	for n := 1; ; n++ {
		home := filepath.Join(t.TempDir(), "home")
		if lifeUpTo(t, home, n, true) {
			break
		}
		r := again(t, home, true)
		interrupted := 0
		for _, path := range append(must(filepath.Glob(filepath.Join(r.session.ArtifactsDir(), "*.jsonl"))), r.session.Path()) {
			s := must(r.View(t.Context(), path))
			c := must(s.Context(t.Context()))
			for _, repair := range c.Repairs {
				t.Errorf("killed at change %d, %s needs a repair: %s", n, path, repair.What())
			}
			for _, cm := range c.Messages {
				if m, ok := must(cm.Message()).(entry.ToolResultMessage); ok && strings.Contains(m.Content.Text(), entry.InterruptedResult) {
					interrupted++
				}
			}
			s.Close()
		}
		if interrupted > 1 {
			t.Errorf("killed at change %d, %d calls are told to be interrupted, and one was at work", n, interrupted)
		}
	}
}

// lateTree is a root with a subagent in the background.
const lateTree = `{"agent":"main","say":[{"call":"task","args":{"background":true,"tasks":[{"name":"A","task":"a"}]}}]}
{"agent":"main","times":-1,"say":[{"text":"So be it."}]}
{"agent":"0-A","say":[{"call":"echo","args":{"text":"a"}}]}
{"agent":"0-A","say":[{"text":"A is done."}]}
{"agent":"0-A","say":[{"text":"A is done again."}]}`

func TestAReportFromTheBackgroundIsHandedOverOnceWhereverItsRunIsKilled(t *testing.T) {
	t.Setenv(killTree, lateTree)
	kills := 0
	for n := 1; ; n++ {
		home := filepath.Join(t.TempDir(), "home")
		if lifeUpTo(t, home, n, false) {
			break
		}
		kills++
		r := again(t, home, false)
		if got := r.reports(t); len(got) != 1 || !strings.Contains(got[0], "A is done.") {
			t.Errorf("killed at change %d, handed over was %q", n, got)
		}
		if got := must(r.dir.LookupAgent(t.Context(), must(artifacts.ParseAgentID("0-A")), 0)); got.Version != 1 {
			t.Errorf("killed at change %d, the report has %d versions", n, got.Version)
		}
		if out := r.resume(t); out.Resumed {
			t.Errorf("killed at change %d, something was left to do: %+v", n, out)
		}
	}
	t.Logf("killed at %d changes", kills)
	if kills < 10 {
		t.Errorf("only %d changes were made: is each counted?", kills)
	}
}

func TestASubagentThatIsSpokenToReportsOnceMoreWhereverThatIsKilled(t *testing.T) {
	t.Setenv(killTree, lateTree)
	kills := 0
	for n := 1; ; n++ {
		home := filepath.Join(t.TempDir(), "home")
		r := again(t, home, false)
		r.say(t, "0-A", "once more")
		r.session.Close()
		if lifeUpTo(t, home, n, false) {
			break
		}
		kills++
		r = again(t, home, false)
		if got := r.reports(t); len(got) != 2 || !strings.Contains(got[1], "A is done again.") {
			t.Errorf("killed at change %d, handed over was %q", n, got)
		}
		if got := must(r.dir.LookupAgent(t.Context(), must(artifacts.ParseAgentID("0-A")), 0)); got.Version != 2 {
			t.Errorf("killed at change %d, the report has %d versions", n, got.Version)
		}
	}
	t.Logf("killed at %d changes", kills)
	if kills < 5 {
		t.Errorf("only %d changes were made: is each counted?", kills)
	}
}
