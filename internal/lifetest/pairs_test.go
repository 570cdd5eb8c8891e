package lifetest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

// scene is a home with one session, in which two processes are about to do something.
type scene struct {
	t      *testing.T
	home   string
	dirs   []string
	w      *worker
	before *state
}

func newScene(t *testing.T) *scene {
	dir := t.TempDir()
	s := &scene{t: t, home: filepath.Join(dir, "home")}
	for i := range 3 {
		s.dirs = append(s.dirs, filepath.Join(dir, fmt.Sprint("project", i)))
		if err := os.Mkdir(s.dirs[i], 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if s.w, err = newWorker(s.home, durable.OS); err != nil {
		t.Fatal(err)
	}
	r := s.do(job{Do: "create", CWD: s.dirs[0], Bodies: []body{bodyOf(0), bodyOf(2), bodyOf(4)}})
	on := job{ID: r.Session, Path: r.Path}
	for _, j := range []job{
		{Do: "artifact", Text: strings.Repeat("an output\n", 2000)},
		{Do: "label", Entry: r.IDs[0], Text: "first"},
		{Do: "rename", Text: "the title"},
		{Do: "append", Bodies: []body{bodyOf(7), bodyOf(9)}},
	} {
		j.ID, j.Path = on.ID, on.Path
		s.do(j)
	}
	if err := s.w.close(); err != nil {
		t.Fatal(err)
	}
	s.before = s.look(on.Path)
	return s
}

func (s *scene) do(j job) result {
	s.t.Helper()
	r, err := s.w.do(s.t.Context(), j)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// look reads a session whole, as a process would that has just started.
func (s *scene) look(path string) *state {
	s.t.Helper()
	m, err := session.OpenManager(s.home, session.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	st, err := look(s.t.Context(), m, path)
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// job is one on the session.
func (s *scene) job(do string) job { return job{Do: do, ID: s.before.ID, Path: s.before.Path} }

func (s *scene) appends(n uint32) job {
	j := s.job("append")
	j.Bodies = []body{bodyOf(n), bodyOf(n + 1)}
	return j
}

// pair is what two processes do at once, and what must have become of it.
type pair struct {
	name    string
	prepare func(s *scene) // besides the session itself
	turns   func(s *scene) [2]turn
	// refused are the kinds of errors that either may end with, because the other was
	// faster; the sentence says what to do.
	refused []string
	// away is set where the session is gone for somebody who looks at it meanwhile.
	away  bool
	check func(s *scene, outs [2]outcome, all map[string]*state)
}

// acked are the entries that were acknowledged.
func acked(outs [2]outcome) (ids []string) {
	for _, o := range outs {
		for _, r := range o.Results {
			ids = append(ids, r.IDs...)
		}
	}
	return ids
}

// made are the sessions that were.
func made(outs [2]outcome) (ids []string) {
	for _, o := range outs {
		for _, r := range o.Results {
			if r.Session != "" {
				ids = append(ids, r.Session)
			}
		}
	}
	return ids
}

// grown checks that a session is as it was, with the entries behind it that were
// acknowledged and so many others.
func (s *scene) grown(after *state, acked []string, others int) {
	s.t.Helper()
	if after == nil {
		s.t.Fatalf("session %s is gone", s.before.ID)
	}
	extra, err := extends(s.before.Entries, after.Entries, len(acked)+others)
	if err != nil {
		s.t.Fatal(err)
	}
	have := ids(extra)
	for _, id := range acked {
		if !slices.Contains(have, id) {
			s.t.Fatalf("entry %s was acknowledged and is not there: %v", id, have)
		}
	}
	if len(have) != len(acked)+others {
		s.t.Fatalf("%d entries are new, of which %d were acknowledged: %v", len(have), len(acked), extra)
	}
	for i, l := range extra { // one path: nobody's entry hides another's
		if want := after.Entries[len(s.before.Entries)+i-1].ID; l.Parent != want && l.Type != "branch_summary" && l.Type != "custom" {
			s.t.Errorf("entry %v is not under %s", l, want)
		}
	}
	if !maps.Equal(after.Artifacts, s.before.Artifacts) {
		s.t.Errorf("its artifacts are %v, and were %v", after.Artifacts, s.before.Artifacts)
	}
}

// only checks that these sessions are there, besides the one.
func (s *scene) only(all map[string]*state, others []string) {
	s.t.Helper()
	for id := range all {
		if id != s.before.ID && !slices.Contains(others, id) {
			s.t.Errorf("nobody made session %s", id)
		}
	}
	seen := map[string]bool{}
	for _, id := range others {
		if all[id] == nil || seen[id] {
			s.t.Errorf("session %s is not there, or was made twice", id)
		}
		seen[id] = true
	}
}

// both acknowledged all.
func both(s *scene, turns [2]turn, outs [2]outcome) {
	s.t.Helper()
	for i, o := range outs {
		if len(o.Results) != max(1, turns[i].Times) {
			s.t.Errorf("%s was done %d times of %d", turns[i].Job.Do, len(o.Results), turns[i].Times)
		}
	}
}

func twice(j job, times int) [2]turn { return [2]turn{{Job: j, Times: times}, {Job: j, Times: times}} }

// writes are pairs that only append.
func writes(s *scene, outs [2]outcome, all map[string]*state) {
	s.t.Helper()
	s.grown(all[s.before.ID], acked(outs), 0)
	s.only(all, nil)
}

// copies are pairs that make sessions of the one.
func copies(s *scene, outs [2]outcome, all map[string]*state) {
	s.t.Helper()
	s.only(all, made(outs))
	after := all[s.before.ID]
	s.grown(after, acked(outs), 0)
	for _, id := range made(outs) {
		c := all[id]
		if c == nil {
			continue
		}
		if n := len(c.Entries); n < len(s.before.Entries) || n > len(after.Entries) || !slices.Equal(c.Entries, after.Entries[:n]) {
			s.t.Errorf("session %s is no prefix of the other: it has %v", id, c.Entries)
		}
		if err := sameThings(s.before, c); err != nil || c.Title != s.before.Title {
			s.t.Errorf("session %s, %q: %v", id, c.Title, err)
		}
	}
}

var pairs = []pair{
	{
		name:  "fork and fork",
		turns: func(s *scene) [2]turn { return twice(s.job("fork"), 2) },
		check: copies,
	},
	{
		name: "move and move to two places",
		turns: func(s *scene) [2]turn {
			a, b := s.job("move"), s.job("move")
			a.CWD, b.CWD = s.dirs[1], s.dirs[2]
			return [2]turn{{Job: a}, {Job: b}}
		},
		refused: []string{"locked"},
		check: func(s *scene, outs [2]outcome, all map[string]*state) {
			var to []string
			for i, o := range outs {
				if len(o.Results) > 0 {
					to = append(to, s.dirs[i+1])
				}
			}
			if at := all[s.before.ID]; at == nil || !slices.Contains(to, at.CWD) {
				s.t.Fatalf("it was moved to %v, and is %+v", to, at)
			}
			writes(s, [2]outcome{}, all)
		},
	},
	{
		name:    "rm and append",
		turns:   func(s *scene) [2]turn { return [2]turn{{Job: s.job("rm")}, {Job: s.appends(100), Times: 5}} },
		refused: []string{"gone", "not there", "locked"},
		away:    true,
		check: func(s *scene, outs [2]outcome, all map[string]*state) {
			if len(outs[0].Results) == 1 {
				if at := all[s.before.ID]; at == nil || !at.Trashed {
					s.t.Fatalf("it was removed, and is %+v", at)
				}
				r := s.do(s.job("restore"))
				all[s.before.ID] = s.look(r.Path)
			}
			writes(s, [2]outcome{{}, outs[1]}, all)
		},
	},
	{
		name: "compress and append",
		turns: func(s *scene) [2]turn {
			return [2]turn{{Job: s.job("compress"), Times: 3}, {Job: s.appends(100), Times: 5}}
		},
		check: writes,
	},
	{
		name: "gc and what it would collect being stored again",
		prepare: func(s *scene) {
			// Nothing names these blobs any more, and they are old.
			r := s.do(job{Do: "create", CWD: s.dirs[1], Bodies: []body{bodyOf(16), bodyOf(0)}})
			s.check(s.w.close())
			s.check(os.Remove(r.Path))
			s.check(s.w.age())
		},
		turns: func(s *scene) [2]turn {
			return [2]turn{{Job: job{Do: "collect"}, Times: 3}, {Job: job{Do: "append", ID: s.before.ID, Path: s.before.Path, Bodies: []body{bodyOf(16)}}, Times: 3}}
		},
		check: writes,
	},
	{
		name: "restore and restore",
		prepare: func(s *scene) {
			s.do(s.job("rm"))
		},
		turns:   func(s *scene) [2]turn { return twice(s.job("restore"), 1) },
		refused: []string{"not found"},
		away:    true,
		check: func(s *scene, outs [2]outcome, all map[string]*state) {
			if n := len(outs[0].Results) + len(outs[1].Results); n != 1 {
				s.t.Errorf("it was restored %d times", n)
			}
			writes(s, [2]outcome{}, all)
		},
	},
	{
		name: "branch and branch",
		turns: func(s *scene) [2]turn {
			a, b := s.job("branch"), s.job("branch")
			a.Entry, b.Entry, b.Text = s.before.Entries[0].ID, s.before.Entries[1].ID, "what was done"
			return [2]turn{{Job: a, Times: 5}, {Job: b, Times: 5}}
		},
		check: writes,
	},
	{
		name: "label and rename",
		turns: func(s *scene) [2]turn {
			a, b := s.job("label"), s.job("rename")
			a.Entry, a.Text, b.Text = s.before.Entries[1].ID, "a label", "another title"
			return [2]turn{{Job: a, Times: 5}, {Job: b, Times: 5}}
		},
		check: func(s *scene, outs [2]outcome, all map[string]*state) {
			after := all[s.before.ID]
			if after.Title != "another title" || after.Labels[s.before.Entries[1].ID] != "a label" || after.Labels[s.before.Entries[0].ID] != "first" {
				s.t.Errorf("its title is %q, its labels are %v", after.Title, after.Labels)
			}
			s.grown(after, acked(outs), 10)
			s.only(all, nil)
		},
	},
	{
		name: "export and append",
		turns: func(s *scene) [2]turn {
			a := s.job("export")
			a.File = filepath.Join(filepath.Dir(s.home), "x.agentrun")
			return [2]turn{{Job: a}, {Job: s.appends(100), Times: 5}}
		},
		check: func(s *scene, outs [2]outcome, all map[string]*state) {
			writes(s, outs, all)
			in := s.do(job{Do: "import", File: filepath.Join(filepath.Dir(s.home), "x.agentrun")})
			all[in.Session] = s.look(in.Path)
			outs[0].Results = append(outs[0].Results, in)
			copies(s, outs, all)
		},
	},
	{
		name: "doctor --repair and append",
		prepare: func(s *scene) {
			// A bit of a line flips: the doctor knows which one.
			data, err := os.ReadFile(s.before.Path)
			s.check(err)
			data[bytes.Index(data, []byte(s.before.Entries[1].ID))+100] ^= 1
			s.check(os.WriteFile(s.before.Path, data, 0o600))
		},
		turns: func(s *scene) [2]turn {
			return [2]turn{{Job: job{Do: "doctor", Option: true}}, {Job: s.appends(100), Times: 8}}
		},
		check: writes,
	},
	{
		name: "import and import",
		prepare: func(s *scene) {
			a := s.job("export")
			a.File = filepath.Join(filepath.Dir(s.home), "x.agentrun")
			s.do(a)
		},
		turns: func(s *scene) [2]turn {
			return twice(job{Do: "import", File: filepath.Join(filepath.Dir(s.home), "x.agentrun")}, 1)
		},
		check: copies,
	},
	{
		name: "checkpoint and checkpoint",
		prepare: func(s *scene) {
			for i := range 5 {
				s.check(os.WriteFile(filepath.Join(s.dirs[0], fmt.Sprint("file", i)), []byte(strings.Repeat("content ", i*1000)), 0o600))
			}
		},
		turns: func(s *scene) [2]turn {
			a := s.job("checkpoint")
			a.File = s.dirs[0]
			return twice(a, 2)
		},
		check: func(s *scene, outs [2]outcome, all map[string]*state) {
			// What is recorded already is not recorded again.
			ids := slices.DeleteFunc(acked(outs), func(id string) bool { return id == "" })
			slices.Sort(ids)
			s.grown(all[s.before.ID], slices.Compact(ids), 0)
		},
	},
	{
		name: "compact and append",
		turns: func(s *scene) [2]turn {
			a := s.job("compact")
			a.Text, a.Option = "what was done", true
			return [2]turn{{Job: a, Times: 3}, {Job: s.appends(100), Times: 5}}
		},
		check: writes,
	},
	{
		name: "move and fork",
		turns: func(s *scene) [2]turn {
			a := s.job("move")
			a.CWD = s.dirs[1]
			return [2]turn{{Job: a}, {Job: s.job("fork"), Times: 3}}
		},
		check: func(s *scene, outs [2]outcome, all map[string]*state) {
			if at := all[s.before.ID]; at == nil || at.CWD != s.dirs[1] {
				s.t.Fatalf("it is at %+v", at)
			}
			outs[0].Results = nil
			copies(s, outs, all)
		},
	},
	{
		name: "artifacts and artifacts",
		turns: func(s *scene) [2]turn {
			a := s.job("artifact")
			a.Text = strings.Repeat("more output\n", 300)
			return twice(a, 4)
		},
		check: func(s *scene, outs [2]outcome, all map[string]*state) {
			after := all[s.before.ID]
			if len(after.Artifacts) != 9 {
				s.t.Errorf("its artifacts are %v", after.Artifacts)
			}
			maps.DeleteFunc(after.Artifacts, func(id int64, _ artifact) bool { _, was := s.before.Artifacts[id]; return !was })
			writes(s, outs, all)
		},
	},
}

func (s *scene) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func TestTwoProcessesAtOnceAndAReaderInTheMiddle(t *testing.T) {
	if raceDetector {
		t.Skip("what two processes do to one session is no race that the detector sees; .ci/run kill runs this without it")
	}
	rounds := max(1, length(t)/100)
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			for range rounds {
				p.play(t)
				if t.Failed() {
					return
				}
			}
		})
	}
}

func (p *pair) play(t *testing.T) {
	s := newScene(t)
	if p.prepare != nil {
		p.prepare(s)
	}
	s.check(s.w.close())
	read := startReading(s, p.away)
	turns := p.turns(s)
	outs := atOnce(t, s.home, turns)
	for i, o := range outs {
		if o.Err != "" && !slices.Contains(p.refused, o.Kind) {
			t.Errorf("%s was refused (%s): %s", turns[i].Job.Do, o.Kind, o.Err)
		}
	}
	if p.refused == nil {
		both(s, turns, outs)
	}
	all, err := lookAround(t.Context(), s.home, everything)
	if err != nil {
		read.end(nil)
		t.Fatal(err)
	}
	read.end(all[s.before.ID])
	p.check(s, outs, all)
	found, err := s.w.examine(t.Context(), false)
	if err != nil || len(found.Findings) > 0 {
		t.Errorf("the doctor finds %v, %v", found.Findings, err)
	}
}
