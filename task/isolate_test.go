package task_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/task"
	"github.com/agentrun/agentrun/task/isolation"
	"github.com/agentrun/agentrun/tool"
)

// projectExt is behind the name of a home in that of the directory where its agents work.
const projectExt = ".project"

// put writes a file where its agent works.
type put struct{ dir string }

func (put) Name() string        { return "put" }
func (put) Description() string { return "writes a file" }
func (put) Schema() json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"text":{"type":"string"}}}`)
}
func (put) Idempotent() bool   { return true }
func (put) ParallelSafe() bool { return true }
func (p put) Call(_ context.Context, raw json.RawMessage) (tool.Result, error) {
	var in struct{ Path, Text string }
	err := json.Unmarshal(raw, &in)
	if err == nil {
		err = os.WriteFile(filepath.Join(p.dir, in.Path), []byte(in.Text), 0o644)
	}
	return tool.Result{Text: "written"}, err
}

const isolatedTree = `{"agent":"main","say":[{"call":"task","args":{"tasks":[{"name":"A","task":"a","isolation":"copy"}]}}]}
{"agent":"main","times":-1,"say":[{"text":"So be it."}]}
{"agent":"0-A","say":[{"call":"put","args":{"path":"one.txt","text":"one\n"}}]}
{"agent":"0-A","say":[{"call":"put","args":{"path":"two.txt","text":"two\n"}}]}
{"agent":"0-A","say":[{"text":"A is done."}]}`

func isolatedHome(t *testing.T) string {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(home+projectExt, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home+projectExt, "one.txt"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return home
}

// patchOf is the patch of a subagent, and its end.
func (r *tree) patchOf(t *testing.T, id string) (task.Info, string) {
	t.Helper()
	for _, info := range must(task.List(t.Context(), r.Manager, r.session, agent.MainID)) {
		if info.ID != id || info.Patch == nil {
			continue
		}
		if info.Patch.Artifact == "" {
			return info, ""
		}
		n := must(artifacts.Open(r.session.ArtifactsDir(), artifacts.Options{}).List(t.Context()))
		for _, a := range n {
			if a.URL() == info.Patch.Artifact {
				if a.State != artifacts.Complete {
					t.Errorf("the patch is %s", a.State)
				}
				return info, string(must(os.ReadFile(a.Path)))
			}
		}
	}
	t.Fatalf("%s has no patch", id)
	return task.Info{}, ""
}

func TestWhatAnIsolatedSubagentChangesIsKeptWhereverItsRunIsKilled(t *testing.T) {
	t.Setenv(killTree, isolatedTree)
	home := isolatedHome(t)
	r := again(t, home, false)
	info, want := r.patchOf(t, "0-A")
	if info.Patch.Added != 1 || info.Patch.Changed != 1 || !strings.Contains(want, "+two") {
		t.Fatalf("%+v %q", info.Patch, want)
	}
	kills := 0
	for n := 1; ; n += max(1, stride()/2) {
		home := isolatedHome(t)
		if lifeUpTo(t, home, n, false) {
			break
		}
		kills++
		r := again(t, home, false)
		if _, got := r.patchOf(t, "0-A"); got != want {
			t.Errorf("killed at change %d, the patch is %q", n, got)
		}
		if got := string(must(os.ReadFile(filepath.Join(home+projectExt, "one.txt")))); got != "1\n" {
			t.Errorf("killed at change %d, the file of the parent is %q", n, got)
		}
		if left, _ := filepath.Glob(filepath.Join(home, "isolated", "*", "*")); len(left) > 0 {
			t.Errorf("killed at change %d, %q is left", n, left)
		}
	}
	t.Logf("killed at %d changes", kills)
	if kills < 4 {
		t.Errorf("only %d changes were made: is each counted?", kills)
	}
}

func TestLeftoversOfIsolationAreThoseThatNobodyNeeds(t *testing.T) {
	t.Setenv(killTree, isolatedTree)
	home := isolatedHome(t)
	spaces := filepath.Join(home, "isolated")
	// The first change of a file behind which there is a space that was begun, and no end.
	n := 0
	for {
		if n++; lifeUpTo(t, home, n, false) {
			t.Fatal("it came to the end")
		}
		if found, _ := filepath.Glob(filepath.Join(spaces, "*", "0-A", "base.git")); len(found) > 0 {
			break
		}
		if err := errors.Join(os.RemoveAll(home), os.RemoveAll(home+projectExt)); err != nil {
			t.Fatal(err)
		}
		n += 4
		home = isolatedHome(t)
		spaces = filepath.Join(home, "isolated")
	}
	r := &tree{Manager: must(session.OpenManager(home, session.Options{}))}
	left := must(task.RemoveLeftovers(t.Context(), r.Manager, spaces, true))
	if left.Count != 0 {
		t.Errorf("%+v of an interrupted run were removed", left)
	}
	list := must(r.List(t.Context(), ""))
	trashed := must(r.Trash(t.Context(), list.Sessions[0].Path))
	if left = must(task.RemoveLeftovers(t.Context(), r.Manager, spaces, true)); left.Count != 0 {
		t.Errorf("%+v of a session in the trash were removed", left)
	}
	if err := r.DeleteTrashed(t.Context(), trashed.Dir); err != nil {
		t.Fatal(err)
	}
	if left = must(task.RemoveLeftovers(t.Context(), r.Manager, spaces, false)); left.Count != 1 || left.Bytes == 0 {
		t.Errorf("a look says %+v", left)
	}
	if left = must(task.RemoveLeftovers(t.Context(), r.Manager, spaces, true)); left.Count != 1 {
		t.Errorf("of a session that is gone, %+v were removed", left)
	}
	if _, err := os.Stat(filepath.Join(spaces, "0-A")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestASubagentThatIsSpokenToGoesOnWithWhatItHadChanged(t *testing.T) {
	dir := t.TempDir()
	r := newTree(t,
		`{"agent":"main","say":[{"call":"task","args":{"tasks":[{"name":"A","task":"a","isolation":"copy"}]}}]}`,
		`{"agent":"main","times":-1,"say":[{"text":"So be it."}]}`,
		`{"agent":"0-A","say":[{"call":"put","args":{"path":"one.txt","text":"one\n"}}]}`,
		`{"agent":"0-A","say":[{"text":"Done."}]}`,
		`{"agent":"0-A","say":[{"call":"put","args":{"path":"two.txt","text":"two\n"}}]}`,
		`{"agent":"0-A","say":[{"text":"Done again."}]}`,
	)
	spaces := filepath.Join(t.TempDir(), "spaces")
	r.change = func(o *task.Options) {
		o.Dir, o.Spaces = dir, spaces
		o.Tools = func(_ context.Context, of task.Subagent) ([]tool.Tool, func(), error) {
			return []tool.Tool{put{of.Dir}}, func() {}, nil
		}
	}
	r.run(t)
	if info, _ := r.patchOf(t, "0-A"); info.Patch.Added != 1 || info.Isolation != isolation.Copy {
		t.Errorf("first it is %+v", info)
	}
	r.say(t, "0-A", "and two")
	r.resume(t)
	info, patch := r.patchOf(t, "0-A")
	if info.Patch.Added != 2 || !strings.Contains(patch, "+one") || !strings.Contains(patch, "+two") {
		t.Errorf("then it is %+v: %s", info, patch)
	}
	if left, _ := filepath.Glob(filepath.Join(spaces, "*")); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
}
