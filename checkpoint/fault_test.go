package checkpoint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/checkpoint"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
)

// What the project holds at its first checkpoint, and when it is rewound.
const (
	then = "a=a1 b=b1 dir/c=c1 mine=mine"
	late = "a=a2 b=b2 mine=mine new=n2"
)

// changedProject is a project with a checkpoint, changed since.
func changedProject(t *testing.T) (p *project, at string) {
	p = newProject(t, checkpoint.Options{}, session.Options{})
	p.write("a", "a1")
	p.write("b", "b1")
	p.write("dir/c", "c1")
	at = p.checkpoint("a", "b", "dir/c").Entry
	p.write("a", "a2")
	p.write("b", "b2")
	p.remove("dir")
	check(t, p.r.Before(t.Context(), p.path("new")))
	p.write("new", "n2")
	check(t, p.r.After(t.Context(), p.path("new")))
	p.write("mine", "mine")
	p.checkpoint()
	check(t, p.s.Close())
	return p, at
}

// with opens the project on a file system.
func (p *project) with(fsys durable.FS) error {
	m, err := session.OpenManager(p.m.Home(), session.Options{FS: fsys})
	if err != nil {
		return err
	}
	s, err := m.Open(p.t.Context(), p.s.Path())
	if err != nil {
		return err
	}
	p.m, p.s, p.r = m, s, checkpoint.New(m, s, checkpoint.Options{FS: fsys})
	return nil
}

// whole reports whether every file is as it was at one of the two times, and nothing
// of anybody else is gone.
func (p *project) whole() {
	p.t.Helper()
	for _, c := range []struct{ name, one, two string }{{"a", "a1", "a2"}, {"b", "b1", "b2"}, {"dir/c", "c1", ""}, {"new", "n2", ""}, {"mine", "mine", "mine"}} {
		data, err := os.ReadFile(p.path(c.name))
		if err != nil && !os.IsNotExist(err) {
			p.t.Fatal(err)
		}
		if string(data) != c.one && string(data) != c.two {
			p.t.Errorf("%s holds %q", c.name, data)
		}
	}
}

var faults = map[string]func(f *faultfs.FS, n int){
	"an error":    func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
	"a full disk": func(f *faultfs.FS, n int) { f.FullAt(n) },
	"a crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
}

func TestARewindWithAFaultAnywhereIsFinishedByAnother(t *testing.T) {
	for name, set := range faults {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				p, at := changedProject(t)
				fsys := faultfs.New(durable.OS)
				set(fsys, n)
				err := p.with(fsys)
				var rewind checkpoint.Applied
				if err == nil {
					var plan *checkpoint.Plan
					if plan, err = p.r.Plan(t.Context(), at, checkpoint.PlanOptions{}); err == nil {
						rewind, err = p.r.Apply(t.Context(), plan)
					}
					if cerr := p.s.Close(); err == nil {
						err = cerr
					}
				}
				p.whole()
				if err == nil {
					p.want(then)
				}
				fired := fsys.Fired()
				check(t, p.with(durable.OS))
				p.rewind(at)
				p.want(then)
				if left := temporaries(t, p.dir); left != "" {
					t.Errorf("fault at operation %d: left behind %s", n, left)
				}
				// Nothing that was overwritten is lost: back to before the first of them.
				if list := p.rewinds(); len(list) > 0 {
					p.rewind(list[0])
					p.want(late)
				}
				check(t, p.s.Close())
				if t.Failed() {
					t.Fatalf("fault at operation %d of %v; %+v, %v", n, fsys.Ops(), rewind, err)
				}
				if !fired {
					if n < 20 {
						t.Errorf("only %d operations", n)
					}
					return
				}
			}
		})
	}
}

// rewinds are the records of rewinds in the log.
func (p *project) rewinds() (ids []string) {
	p.t.Helper()
	for e, err := range p.s.Entries(p.t.Context()) {
		check(p.t, err)
		if strings.Contains(string(e.Raw()), `"cause":"rewind"`) {
			ids = append(ids, e.ID())
		}
	}
	return ids
}

func temporaries(t *testing.T, dir string) string {
	t.Helper()
	var left []string
	check(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), ".tmp-") {
			left = append(left, path)
		}
		return err
	}))
	return strings.Join(left, " ")
}

func TestACheckpointWithAFaultAnywhereIsThereOrNot(t *testing.T) {
	for name, set := range faults {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				p := newProject(t, checkpoint.Options{}, session.Options{})
				p.write("a", "a1")
				first := p.checkpoint("a").Entry
				check(t, p.s.Close())
				p.write("a", "a2")
				p.write("b", strings.Repeat("b", 300<<10)) // more than a chunk of the store
				fsys := faultfs.New(durable.OS)
				set(fsys, n)
				var made checkpoint.Checkpoint
				err := p.with(fsys)
				if err == nil {
					made, err = p.r.Checkpoint(t.Context(), "", p.path("a"), p.path("b"))
					if cerr := p.s.Close(); err == nil {
						err = cerr
					}
				}
				fired := fsys.Fired()
				before := p.tree()
				check(t, p.with(durable.OS))
				if err == nil {
					p.rewind(first)
					p.write("b", "later")
					p.checkpoint()
					p.rewind(made.Entry)
				}
				if p.tree() != before {
					t.Errorf("fault at operation %d of %v: %v", n, fsys.Ops(), err)
				}
				check(t, p.s.Close())
				if t.Failed() || !fired {
					return
				}
			}
		})
	}
}

// A tool changes a file once Before has returned, and not when that failed.
func TestWhatAToolChangesAfterBeforeComesBackWithAFaultAnywhere(t *testing.T) {
	for name, set := range faults {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				p := newProject(t, checkpoint.Options{}, session.Options{})
				p.write("mine", "mine")
				begin := p.checkpoint("mine").Entry
				check(t, p.s.Close())
				old := strings.Repeat("old ", 100<<10) // more than a chunk of the store
				p.write("old", old)
				fsys := faultfs.New(durable.OS)
				set(fsys, n)
				err := p.with(fsys)
				if err == nil {
					for _, name := range []string{"old", "new"} {
						if berr := p.r.Before(t.Context(), p.path(name)); berr != nil {
							err = berr
							break
						}
						p.write(name, "changed")
						if aerr := p.r.After(t.Context(), p.path(name)); aerr != nil {
							err = aerr
						}
					}
					if cerr := p.s.Close(); err == nil {
						err = cerr
					}
				}
				fired := fsys.Fired()
				if !fired && err != nil {
					t.Fatal(err)
				}
				check(t, p.with(durable.OS))
				// What the tool did is not told from what someone else did if its end
				// was not recorded.
				plan := p.plan(begin, checkpoint.PlanOptions{Changed: true})
				if _, err := p.r.Apply(t.Context(), plan); err != nil {
					t.Errorf("fault at operation %d: %v", n, err)
				}
				if p.tree() != "mine=mine old="+old {
					t.Errorf("fault at operation %d of %v (%v): there is %.100q", n, fsys.Ops(), err, p.tree())
				}
				check(t, p.s.Close())
				if t.Failed() || !fired {
					return
				}
			}
		})
	}
}
