package lifetest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session/entry"
)

// model is what must be in a home.
type model struct {
	sessions map[string]*state
	order    []string           // ids, as they were made
	given    map[string][]int64 // numbers of artifacts that each session has ever told
	killed   bool               // since the last repair: unfinished things may lie about
}

func newModel() *model {
	return &model{sessions: map[string]*state{}, given: map[string][]int64{}}
}

// those are the sessions that are there, or in the trash, in the order in which they
// were made.
func (m *model) those(trashed bool) []*state {
	var all []*state
	for _, id := range m.order {
		if s := m.sessions[id]; s != nil && s.Trashed == trashed {
			all = append(all, s)
		}
	}
	return all
}

func (m *model) add(s *state) {
	m.sessions[s.ID] = s
	m.order = append(m.order, s.ID)
	m.tell(s)
}

// tell remembers the numbers of artifacts.
func (m *model) tell(s *state) {
	for id := range s.Artifacts {
		if !slices.Contains(m.given[s.ID], id) {
			m.given[s.ID] = append(m.given[s.ID], id)
		}
	}
}

// unchanged compares the sessions that a job did not touch, or left as they were.
func unchanged(before, after *state) error {
	switch {
	case after == nil:
		return fmt.Errorf("session %s is gone", before.ID)
	case before.Trashed || after.Trashed:
		if before.Trashed != after.Trashed {
			return fmt.Errorf("session %s is in the trash: %v, must be: %v", before.ID, after.Trashed, before.Trashed)
		}
		return nil
	case after.Listed:
		if before.ID != after.ID || before.CWD != after.CWD || before.Path != after.Path {
			return fmt.Errorf("%s of %s is listed at %s, and must be %s of %s at %s", after.ID, after.CWD, after.Path, before.ID, before.CWD, before.Path)
		}
		return nil
	case before.ID != after.ID || before.CWD != after.CWD || before.Title != after.Title || before.Path != after.Path:
		return fmt.Errorf("it is %s of %s, %q, at %s, and must be %s of %s, %q, at %s",
			after.ID, after.CWD, after.Title, after.Path, before.ID, before.CWD, before.Title, before.Path)
	case after.Torn && !before.Torn:
		return fmt.Errorf("session %s has a torn record", after.ID)
	}
	if _, err := extends(before.Entries, after.Entries, 0); err != nil {
		return err
	}
	return sameThings(before, after)
}

// sameThings compares labels and artifacts.
func sameThings(before, after *state) error {
	if !maps.Equal(before.Labels, after.Labels) {
		return fmt.Errorf("its labels are %v, and must be %v", after.Labels, before.Labels)
	}
	if !maps.Equal(before.Artifacts, after.Artifacts) {
		return fmt.Errorf("its artifacts are %v, and must be %v", after.Artifacts, before.Artifacts)
	}
	return nil
}

// extends reports what after has behind before, at most so many entries.
func extends(before, after []line, most int) ([]line, error) {
	if len(after) < len(before) {
		return nil, fmt.Errorf("it has %d entries, and must have %d", len(after), len(before))
	}
	for i, l := range before {
		if after[i] != l {
			return nil, fmt.Errorf("entry %d is %v, and must be %v", i, after[i], l)
		}
	}
	extra := after[len(before):]
	if len(extra) > most {
		return nil, fmt.Errorf("it has %v behind what it must have", extra)
	}
	return extra, nil
}

// says reports whether extra are the first of bodies, each under the one before.
func says(extra []line, parent string, bodies []body) error {
	for i, l := range extra {
		want, err := sumOf(bodies[i].Fields)
		if err != nil {
			return err
		}
		if l.Type != bodies[i].Type || l.Sum != want || l.Parent != parent {
			return fmt.Errorf("entry %v must be a %s under %q with %s", l, bodies[i].Type, parent, want)
		}
		parent = l.ID
	}
	return nil
}

// ids are those of lines.
func ids(lines []line) []string {
	var all []string
	for _, l := range lines {
		all = append(all, l.ID)
	}
	return all
}

// most is how many entries an operation may append.
var most = map[string]int{"under": 1, "artifact": 1, "branch": 1, "label": 1, "rename": 2, "compact": 1}

// wrote judges a session that was written to. r is nil for an operation that was
// killed: all of it may be there, some or nothing.
func (m *model) wrote(before, after *state, j job, r *result) error {
	n := most[j.Do]
	if j.Do == "append" {
		n = len(j.Bodies)
	}
	extra, err := extends(before.Entries, after.Entries, n)
	if err != nil {
		return err
	}
	want := *before
	want.Entries, want.Path = after.Entries, after.Path
	if r != nil {
		if j.Do != "rename" && !slices.Equal(ids(extra), r.IDs) {
			return fmt.Errorf("it acknowledged %v, and has %v", r.IDs, ids(extra))
		}
	} else if after.Torn {
		want.Torn = true // and stays in the file until a repair
	}
	switch done := r != nil || len(extra) > 0; j.Do {
	case "append":
		err = says(extra, before.leaf(), j.Bodies)
	case "under":
		err = says(extra, j.Entry, j.Bodies)
	case "branch":
		if done && extra[0].Parent != j.Entry {
			err = fmt.Errorf("%v must be under %q", extra[0], j.Entry)
		}
	case "label":
		if done {
			want.Labels = maps.Clone(before.Labels)
			if want.Labels[j.Entry] = j.Text; j.Text == "" {
				delete(want.Labels, j.Entry)
			}
		}
	case "rename":
		if r != nil || len(extra) == 2 || after.Title == j.Text {
			want.Title = j.Text
		}
	case "artifact":
		want.Artifacts, err = m.kept(before, after, j, r)
	case "compact":
		if done && (extra[0].Type != entry.TypeCompaction || extra[0].Parent != before.leaf()) {
			err = fmt.Errorf("%v is no compaction under %s", extra[0], before.leaf())
		}
	}
	if err != nil {
		return err
	}
	return unchanged(&want, after)
}

// kept are the artifacts that before must have after one more came.
func (m *model) kept(before, after *state, j job, r *result) (map[int64]artifact, error) {
	all := maps.Clone(before.Artifacts)
	for id, a := range after.Artifacts {
		if _, was := before.Artifacts[id]; was {
			continue
		}
		if slices.Contains(m.given[before.ID], id) {
			return nil, fmt.Errorf("number %d was given twice", id)
		}
		if r == nil {
			all[id] = a // what was written until then
			if a.State == artifacts.Complete && a.Sum != sum([]byte(j.Text)) {
				return nil, fmt.Errorf("artifact %d is said to be complete and is not", id)
			}
		}
	}
	if r != nil {
		all[r.Artifact] = artifact{artifacts.Complete, sum([]byte(j.Text))}
	}
	if len(all) > len(before.Artifacts)+1 {
		return nil, fmt.Errorf("artifacts are %v, were %v", after.Artifacts, before.Artifacts)
	}
	return all, nil
}

// forked judges what was made of a session.
func forked(from, fork *state, j job) error {
	want := *from
	want.ID, want.Path, want.Title = fork.ID, fork.Path, fork.Title
	if j.Entry == "" && !j.Option {
		want.Title = from.Title
		return unchanged(&want, fork)
	}
	at := j.Entry
	if at == "" {
		at = from.leaf()
	}
	last := slices.IndexFunc(from.Entries, func(l line) bool { return l.ID == at })
	want.Entries = from.Entries[:last+1]
	if !j.Option {
		want.Labels = fork.Labels
		return unchanged(&want, fork)
	}
	return cutOut(from, fork, &want, at)
}

// cutOut judges a fork of a path: its entries and their artifacts, and behind them what others say
// of these.
func cutOut(from, fork, want *state, at string) error {
	byID := map[string]line{}
	for _, l := range from.Entries {
		byID[l.ID] = l
	}
	var path []line
	want.Labels = map[string]string{}
	for l, there := byID[at]; there; l, there = byID[l.Parent] {
		path = append(path, l)
		if text, is := from.Labels[l.ID]; is {
			want.Labels[l.ID] = text
		}
	}
	slices.Reverse(path)
	want.Artifacts = maps.Clone(from.Artifacts)
	maps.DeleteFunc(want.Artifacts, func(id int64, _ artifact) bool {
		return !slices.ContainsFunc(path, func(l line) bool { return l.cites(id) })
	})
	// A label that was taken away on another branch is taken away here as well.
	extra, err := extends(path, fork.Entries, len(path)+1)
	if err != nil {
		return err
	}
	for _, l := range extra {
		if l.Type != entry.TypeLabel && l.Type != entry.TypeSessionInfo {
			return fmt.Errorf("%v is behind the path", l)
		}
	}
	if fork.Title != from.Title {
		return fmt.Errorf("its title is %q, and was %q", fork.Title, from.Title)
	}
	return sameThings(want, fork)
}
