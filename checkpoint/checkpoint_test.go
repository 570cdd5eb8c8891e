package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentrun/agentrun/checkpoint"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// project is a directory with a session that records it.
type project struct {
	t   *testing.T
	dir string
	m   *session.Manager
	s   *session.Session
	r   *checkpoint.Recorder
}

func newProject(t *testing.T, o checkpoint.Options, so session.Options) *project {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	p := &project{t: t, dir: filepath.Join(root, "project")}
	check(t, os.Mkdir(p.dir, 0o755))
	p.m, err = session.OpenManager(filepath.Join(root, "home"), so)
	check(t, err)
	p.s, err = p.m.Create(t.Context(), p.dir, session.CreateOptions{})
	check(t, err)
	t.Cleanup(func() { p.s.Close() })
	p.r = checkpoint.New(p.m, p.s, o)
	return p
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *project) path(name string) string { return filepath.Join(p.dir, name) }

func (p *project) write(name, content string) {
	p.t.Helper()
	check(p.t, os.MkdirAll(filepath.Dir(p.path(name)), 0o755))
	check(p.t, os.WriteFile(p.path(name), []byte(content), 0o644))
}

func (p *project) remove(name string) {
	p.t.Helper()
	check(p.t, os.RemoveAll(p.path(name)))
}

func (p *project) checkpoint(names ...string) checkpoint.Checkpoint {
	p.t.Helper()
	var paths []string
	for _, name := range names {
		paths = append(paths, p.path(name))
	}
	c, err := p.r.Checkpoint(p.t.Context(), "", paths...)
	check(p.t, err)
	return c
}

func (p *project) plan(at string, o checkpoint.PlanOptions) *checkpoint.Plan {
	p.t.Helper()
	plan, err := p.r.Plan(p.t.Context(), at, o)
	check(p.t, err)
	return plan
}

func (p *project) rewind(at string) checkpoint.Applied {
	p.t.Helper()
	a, err := p.r.Apply(p.t.Context(), p.plan(at, checkpoint.PlanOptions{}))
	check(p.t, err)
	return a
}

// actions is a plan as text: "name action", sorted.
func (p *project) actions(plan *checkpoint.Plan) string {
	var list []string
	for _, it := range plan.Items {
		name, err := filepath.Rel(p.dir, it.Path)
		check(p.t, err)
		list = append(list, name+" "+string(it.Action))
	}
	return strings.Join(list, ", ")
}

func (p *project) reason(plan *checkpoint.Plan, name string) string {
	for _, it := range plan.Items {
		if it.Path == p.path(name) {
			return it.Reason
		}
	}
	return ""
}

// tree is what is in the project: "name=content".
func (p *project) tree() string {
	var list []string
	check(p.t, filepath.WalkDir(p.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(p.dir, path)
		list = append(list, name+"="+string(data))
		return err
	}))
	slices.Sort(list)
	return strings.Join(list, " ")
}

func (p *project) want(what string) {
	p.t.Helper()
	if got := p.tree(); got != what {
		p.t.Fatalf("there is %q, want %q", got, what)
	}
}

func TestARewindBringsBackWhatToolsChanged(t *testing.T) {
	p := newProject(t, checkpoint.Options{}, session.Options{})
	edit := func(name, content string) string {
		check(t, p.r.Before(t.Context(), p.path(name)))
		if content == "" {
			p.remove(name)
		} else {
			p.write(name, content)
		}
		check(t, p.r.After(t.Context(), p.path(name)))
		leaf, err := p.s.Leaf(t.Context())
		check(t, err)
		return leaf
	}
	p.write("a", "a1")
	p.write("b", "b1")
	p.write("mine", "not recorded")
	begin, err := p.s.Append(t.Context(), entry.Custom{CustomType: "x"})
	check(t, err)
	one := edit("a", "a2")
	two := edit("b", "")
	three := edit("new/c", "c1")
	edit("a", "a3")
	p.want("a=a3 mine=not recorded new/c=c1")
	for _, c := range []struct{ at, want string }{
		{three, "a=a2 mine=not recorded new/c=c1"},
		{two, "a=a2 mine=not recorded"},
		{one, "a=a2 b=b1 mine=not recorded"},
		{begin, "a=a1 b=b1 mine=not recorded"},
		{two, "a=a2 mine=not recorded"},
		{three, "a=a2 mine=not recorded new/c=c1"},
	} {
		p.rewind(c.at)
		p.want(c.want)
	}
}

func TestARewindIsUndoneAndRedone(t *testing.T) {
	p := newProject(t, checkpoint.Options{}, session.Options{})
	p.write("a", "1")
	p.write("dir/sub/b", "1")
	first := p.checkpoint(".").Entry
	p.write("a", "2")
	p.remove("dir")
	p.write("c", "2")
	p.checkpoint()
	rewind := p.rewind(first)
	p.want("a=1 dir/sub/b=1")
	undo := p.rewind(rewind.Entry)
	p.want("a=2 c=2")
	if _, err := os.Lstat(p.path("dir")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory that the rewind made is there: %v", err)
	}
	p.rewind(undo.Entry)
	p.want("a=1 dir/sub/b=1")
	if plan := p.plan(rewind.Entry, checkpoint.PlanOptions{}); plan.Undoes != rewind.Entry || plan.Leaf == rewind.Entry {
		t.Errorf("a rewind to a rewind: %+v", plan)
	}
}

func TestAPlanSaysWhatIsDoneToEachFileAndWhy(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(p *project)
		options checkpoint.PlanOptions
		want    string
	}{
		{"nothing happened", func(p *project) {}, checkpoint.PlanOptions{}, "f unchanged"},
		{"changed by someone else", func(p *project) { p.write("f", "2") }, checkpoint.PlanOptions{}, "f skip"},
		{"changed by someone else, and that is wanted", func(p *project) { p.write("f", "2") }, checkpoint.PlanOptions{Changed: true}, "f restore"},
		{"deleted", func(p *project) { p.remove("f") }, checkpoint.PlanOptions{}, "f recreate"},
		{"another mode", func(p *project) { check(p.t, os.Chmod(p.path("f"), 0o600)); p.checkpoint() }, checkpoint.PlanOptions{}, "f restore"},
		{"a directory in its place", func(p *project) { p.remove("f"); p.write("f/x", "") }, checkpoint.PlanOptions{Changed: true}, "f refuse"},
		{"a link in its place", func(p *project) { p.remove("f"); p.write("g", "2"); check(p.t, os.Symlink("g", p.path("f"))) }, checkpoint.PlanOptions{Changed: true}, "f refuse"},
		{"changed and recorded", func(p *project) { p.write("f", "2"); p.checkpoint() }, checkpoint.PlanOptions{}, "f restore"},
		{"made and recorded", func(p *project) { p.write("g", "2"); p.checkpoint(".") }, checkpoint.PlanOptions{}, "f unchanged, g unchanged"},
		{"a file that another took the place of, with its time", func(p *project) {
			info, err := os.Stat(p.path("f"))
			check(p.t, err)
			p.write("other", "2")
			check(p.t, os.Chtimes(p.path("other"), info.ModTime(), info.ModTime()))
			check(p.t, os.Rename(p.path("other"), p.path("f")))
		}, checkpoint.PlanOptions{}, "f skip"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProject(t, checkpoint.Options{}, session.Options{})
			p.write("f", "1")
			at := p.checkpoint("f").Entry
			c.prepare(p)
			before := p.tree()
			plan := p.plan(at, c.options)
			if got := p.actions(plan); got != c.want {
				t.Errorf("plan %q, want %q", got, c.want)
			}
			for _, it := range plan.Items {
				if it.Reason == "" {
					t.Errorf("%s has no reason", it.Path)
				}
			}
			p.want(before)
		})
	}
}

func TestAFileInADirectoryThatWasRecordedBeforeItWasMadeIsDeleted(t *testing.T) {
	p := newProject(t, checkpoint.Options{MaxFile: 10}, session.Options{})
	p.write("src/a", "1")
	p.write("src/large", "more than ten bytes")
	p.write("other", "1")
	at := p.checkpoint("src").Entry
	p.write("src/sub/new", "2")
	p.write("beside", "2")
	check(t, os.WriteFile(p.path("src/large"), []byte("small"), 0o644))
	p.checkpoint(".")
	plan := p.plan(at, checkpoint.PlanOptions{})
	if got, want := p.actions(plan), "beside unchanged, other unchanged, src/a unchanged, src/large unchanged, src/sub/new delete"; got != want {
		t.Errorf("plan %q, want %q", got, want)
	}
	p.rewind(at)
	p.want("beside=2 other=1 src/a=1 src/large=small")
	// The directory is the user's.
	if _, err := os.Lstat(p.path("src/sub")); err != nil {
		t.Error(err)
	}
}

func TestAFileThatARunOrToolCallChangedIsRestored(t *testing.T) {
	for _, c := range []struct {
		name       string
		begin, end func(p *project)
		skipped    bool
	}{
		{"a tool call of pi", func(p *project) {
			p.say(`{"role":"assistant","content":[{"type":"toolCall","id":"t1","name":"bash","arguments":{}}],"stopReason":"toolUse"}`)
		}, func(p *project) {
			p.say(`{"role":"toolResult","toolCallId":"t1","toolName":"bash","content":[],"isError":false}`)
		}, false},
		{"a tool call that was interrupted", func(p *project) {
			p.say(`{"role":"assistant","content":[{"type":"toolCall","id":"t1","name":"bash","arguments":{}}],"stopReason":"toolUse"}`)
		}, func(p *project) { p.say(`{"role":"user","content":"go on"}`) }, false},
		{"no tool call", func(p *project) { p.say(`{"role":"user","content":"x"}`) }, func(p *project) { p.say(`{"role":"user","content":"y"}`) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProject(t, checkpoint.Options{}, session.Options{})
			p.write("f", "1")
			at := p.checkpoint("f").Entry
			c.begin(p)
			p.write("f", "2")
			c.end(p)
			want := "f restore"
			if c.skipped {
				want = "f skip"
			}
			plan := p.plan(at, checkpoint.PlanOptions{})
			if got := p.actions(plan); got != want {
				t.Errorf("plan %q (%s), want %q", got, p.reason(plan, "f"), want)
			}
		})
	}
}

func (p *project) say(message string) {
	p.t.Helper()
	_, err := p.s.Append(p.t.Context(), entry.MessageBody{Message: []byte(message)})
	check(p.t, err)
}

// opens counts how often files are opened.
type opens struct {
	durable.FS
	n atomic.Int64
}

func (o *opens) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	o.n.Add(1)
	return o.FS.OpenFile(name, flag, perm)
}

func TestAnUnchangedFileIsNeitherReadNorRecordedAgain(t *testing.T) {
	fsys := &opens{FS: durable.OS}
	later := time.Duration(0)
	p := newProject(t, checkpoint.Options{FS: fsys, Now: func() time.Time { return time.Now().Add(later) }}, session.Options{})
	p.write("a", "1")
	for _, c := range []struct {
		name    string
		prepare func()
		changed int
		opened  int64
		files   string
	}{
		{"at first it is read", func() {}, 1, 1, `"files":[{`},
		{"too young to be believed, it is read again", func() {}, 0, 1, `"files":[]`},
		{"old enough, it is read and recorded once more", func() { later = time.Hour }, 0, 1, `"files":[{`},
		{"then a look is enough", func() {}, 0, 0, `"files":[]`},
		{"one with the same size and time is read", func() {
			info, err := os.Stat(p.path("a"))
			check(t, err)
			p.write("a", "2")
			check(t, os.Chtimes(p.path("a"), info.ModTime(), info.ModTime()))
		}, 1, 1, `"files":[{`},
	} {
		c.prepare()
		before := fsys.n.Load()
		got := p.checkpoint("a")
		if opened := fsys.n.Load() - before; got.Files != 1 || got.Changed != c.changed || opened != c.opened {
			t.Errorf("%s: %+v, opened %d times", c.name, got, opened)
		}
		e, err := p.s.Entry(t.Context(), got.Entry)
		check(t, err)
		if !strings.Contains(string(e.Raw()), c.files) {
			t.Errorf("%s: %s", c.name, e.Raw())
		}
	}
}

func TestAFileThatChangesWhileItIsReadIsLeftOut(t *testing.T) {
	p := newProject(t, checkpoint.Options{}, session.Options{})
	p.write("a", "1")
	p.r = checkpoint.New(p.m, p.s, checkpoint.Options{FS: restless{durable.OS, p}})
	c, err := p.r.Checkpoint(t.Context(), "", p.path("a"))
	if !errors.Is(err, checkpoint.ErrNothing) || c.Entry != "" || len(c.Skipped) != 1 || !strings.Contains(c.Skipped[0].Reason, "it changes while it is read") {
		t.Errorf("%+v, %v", c, err)
	}
}

// restless is a file system where a file grows whenever it is opened to be read.
type restless struct {
	durable.FS
	p *project
}

func (r restless) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	f, err := r.FS.OpenFile(name, flag, perm)
	return restlessFile{f, r.p}, err
}

type restlessFile struct {
	durable.File
	p *project
}

func (f restlessFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	old, _ := os.ReadFile(f.Name())
	f.p.write("a", string(old)+"x")
	return n, err
}

func TestASessionThatMovedWithItsProjectRewindsThere(t *testing.T) {
	p := newProject(t, checkpoint.Options{}, session.Options{})
	p.write("src/a", "1")
	at := p.checkpoint("src").Entry
	p.write("src/a", "2")
	p.checkpoint()
	to := p.dir + "-moved"
	check(t, os.Rename(p.dir, to))
	moved, err := p.m.Move(t.Context(), p.s.Path(), to, session.MoveOptions{})
	check(t, err)
	s, err := p.m.Open(t.Context(), moved.Path)
	check(t, err)
	defer s.Close()
	p.dir, p.s, p.r = to, s, checkpoint.New(p.m, s, checkpoint.Options{})
	p.rewind(at)
	p.want("src/a=1")
}

func TestWhatIsReachedThroughALinkOrOutsideIsLeftAlone(t *testing.T) {
	p := newProject(t, checkpoint.Options{}, session.Options{})
	outside := filepath.Join(filepath.Dir(p.dir), "outside")
	check(t, os.Mkdir(outside, 0o755))
	check(t, os.WriteFile(filepath.Join(outside, "a"), []byte("1"), 0o644))
	p.write("src/a", "1")
	at := p.checkpoint("src", "../outside").Entry
	p.write("src/a", "2")
	check(t, os.WriteFile(filepath.Join(outside, "a"), []byte("2"), 0o644))
	p.checkpoint()
	if got, want := p.actions(p.plan(at, checkpoint.PlanOptions{})), "../outside/a skip, src/a restore"; got != want {
		t.Errorf("plan %q, want %q", got, want)
	}
	if got, want := p.actions(p.plan(at, checkpoint.PlanOptions{Outside: true})), "../outside/a restore, src/a restore"; got != want {
		t.Errorf("plan %q, want %q", got, want)
	}
	// A directory on the way becomes a link that leads out.
	p.remove("src")
	check(t, os.Symlink(outside, p.path("src")))
	if got, want := p.actions(p.plan(at, checkpoint.PlanOptions{})), "../outside/a skip, src/a refuse"; got != want {
		t.Errorf("plan %q, want %q", got, want)
	}
	p.rewind(at)
	if data, err := os.ReadFile(filepath.Join(outside, "a")); err != nil || string(data) != "2" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestMoreFilesThanAnEntryHoldsAreSeveralEntries(t *testing.T) {
	if testing.Short() {
		t.Skip("writes thousands of files; run without -short")
	}
	p := newProject(t, checkpoint.Options{Durability: session.Flush}, session.Options{Durability: session.Flush})
	const n = 1100
	for i := range n {
		p.write(fmt.Sprintf("d%d/f%d", i%7, i), fmt.Sprint("one ", i))
	}
	first := p.checkpoint(".")
	if first.Files != n {
		t.Fatalf("%+v", first)
	}
	before := p.tree()
	for i := range n {
		p.write(fmt.Sprintf("d%d/f%d", i%7, i), fmt.Sprint("two ", i))
	}
	p.checkpoint()
	after := p.tree()
	rewind := p.rewind(first.Entry)
	if p.tree() != before || rewind.Changed != n {
		t.Fatalf("%d changed", rewind.Changed)
	}
	p.rewind(rewind.Entry)
	if p.tree() != after {
		t.Error("the undone rewind is not what was")
	}
}

func TestAFileThatChangesBetweenPlanAndApplyIsLeftAlone(t *testing.T) {
	p := newProject(t, checkpoint.Options{}, session.Options{})
	p.write("a", "1")
	p.write("b", "1")
	p.write("c", "1")
	at := p.checkpoint(".").Entry
	p.write("a", "2")
	p.write("b", "2")
	p.remove("c")
	p.write("d", "2")
	p.checkpoint()
	plan := p.plan(at, checkpoint.PlanOptions{})
	p.write("a", "mine")
	p.write("c", "mine")
	p.write("d", "mine")
	a, err := p.r.Apply(t.Context(), plan)
	check(t, err)
	p.want("a=mine b=1 c=mine d=mine")
	if got, want := p.actions(plan), "a skip, b restore, c skip, d skip"; got != want || a.Changed != 1 {
		t.Errorf("plan %q, want %q; %+v", got, want, a)
	}
}

func TestACheckpointEndsWithItsContext(t *testing.T) {
	p := newProject(t, checkpoint.Options{}, session.Options{})
	p.write("a", "1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.r.Checkpoint(ctx, "", p.path("a")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
