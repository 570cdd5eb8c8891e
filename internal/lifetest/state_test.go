package lifetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
)

// state is a session as it must be, and as it was found to be.
type state struct {
	ID, Path, CWD, Title string
	Entries              []line
	Labels               map[string]string
	Artifacts            map[int64]artifact
	Torn                 bool // a killed writer left the beginning of a record behind
	Trashed              bool
	Listed               bool // only the list was looked at
}

// line is an entry: what it says is a digest, and the artifacts it cites.
type line struct{ ID, Parent, Type, Sum, Cites string }

// cites reports whether the entry cites artifact id.
func (l line) cites(id int64) bool {
	return slices.Contains(strings.Fields(l.Cites), fmt.Sprintf("artifact://%d", id))
}

var citation = regexp.MustCompile(`artifact://[0-9]+`)

type artifact struct {
	State artifacts.State
	Sum   string
}

func (s *state) leaf() string {
	if len(s.Entries) == 0 {
		return ""
	}
	return s.Entries[len(s.Entries)-1].ID
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:6])
}

// sumOf is the digest of what an entry says, whatever the order of its members.
func sumOf(raw []byte) (string, error) {
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", err
	}
	for _, envelope := range []string{"type", "id", "parentId", "timestamp", "crc"} {
		delete(v, envelope)
	}
	b, err := json.Marshal(v)
	return sum(b), err
}

// look reads everything of the session at path in every way there is, as a process
// would that has just started.
func look(ctx context.Context, m *session.Manager, path string) (*state, error) {
	s, err := m.View(ctx, path)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	st := &state{ID: s.ID(), Path: s.Path(), CWD: s.CWD(), Artifacts: map[int64]artifact{}}
	if st.Title, err = s.Title(ctx); err != nil {
		return nil, err
	}
	if err := lookAtEntries(ctx, s, st); err != nil {
		return nil, err
	}
	if st.Labels, err = s.Labels(ctx); err != nil {
		return nil, err
	}
	// A path that was cut out may hold labels of entries that it does not.
	maps.DeleteFunc(st.Labels, func(id, label string) bool {
		return label == "" || !slices.ContainsFunc(st.Entries, func(l line) bool { return l.ID == id })
	})
	if err := lookAtArtifacts(ctx, s, st); err != nil {
		return nil, err
	}
	if _, missing, err := s.ContextWith(ctx, session.ContextOptions{Restore: true}); err != nil || len(missing) > 0 {
		return nil, fmt.Errorf("context: %w, missing %v", err, missing)
	}
	if _, err := s.Resume(ctx, session.ResumeOptions{}); err != nil {
		return nil, fmt.Errorf("resume: %w", err)
	}
	return st, nil
}

func lookAtEntries(ctx context.Context, s *session.Session, st *state) error {
	tree, err := s.Tree(ctx)
	if err != nil {
		return err
	}
	for _, d := range tree.Damage() {
		if d.Kind != session.KindTorn {
			return fmt.Errorf("damage: %+v", d)
		}
		st.Torn = true
	}
	seen := map[string]bool{}
	for e, err := range s.Entries(ctx) {
		if err != nil {
			return err
		}
		said, err := sumOf(e.Raw())
		if err != nil {
			return fmt.Errorf("entry %s: %w", e.ID(), err)
		}
		if seen[e.ID()] {
			return fmt.Errorf("id %s is there twice", e.ID())
		}
		seen[e.ID()] = true
		st.Entries = append(st.Entries, line{
			e.ID(), e.Parent(), e.Type(), said, strings.Join(citation.FindAllString(string(e.Raw()), -1), " "),
		})
	}
	if tree.Len() != len(st.Entries) {
		return fmt.Errorf("the tree has %d entries, the log %d", tree.Len(), len(st.Entries))
	}
	for i, n := range tree.All() {
		parent := ""
		if n.Parent >= 0 {
			parent = tree.Node(n.Parent).ID
		}
		if l := st.Entries[i]; l.ID != n.ID || l.Parent != parent {
			return fmt.Errorf("entry %d is %v in the log, and %s under %q in the tree", i, l, n.ID, parent)
		}
	}
	if leaf, err := s.Leaf(ctx); err != nil || leaf != st.leaf() {
		return fmt.Errorf("the leaf is %q (%w), the last entry %q", leaf, err, st.leaf())
	}
	return nil
}

func lookAtArtifacts(ctx context.Context, s *session.Session, st *state) error {
	d := artifacts.Open(s.ArtifactsDir(), artifacts.Options{})
	list, err := d.List(ctx)
	if err != nil {
		return err
	}
	for _, info := range list {
		a := artifact{State: info.State}
		if info.Path != "" {
			r, err := d.Open(ctx, info.ID)
			if err != nil {
				return fmt.Errorf("artifact %d: %w", info.ID, err)
			}
			size, err := r.Size()
			b := make([]byte, size)
			if n, readErr := r.ReadAt(b, 0); int64(n) != size {
				err = errors.Join(err, readErr)
			}
			if err = errors.Join(err, r.Close()); err != nil {
				return fmt.Errorf("artifact %d: %w", info.ID, err)
			}
			a.Sum = sum(b)
		}
		st.Artifacts[info.ID] = a
	}
	return nil
}

func everything(string) bool { return true }

// lookAround lists a home, and reads the sessions that it is to read.
func lookAround(ctx context.Context, home string, reads func(id string) bool) (map[string]*state, error) {
	var events error
	m, err := session.OpenManager(home, session.Options{Report: func(e session.Event) { events = errors.Join(events, errors.New(e.String())) }})
	if err != nil {
		return nil, err
	}
	l, err := m.List(ctx, "")
	if err != nil {
		return nil, err
	}
	if len(l.Unreadable) > 0 {
		return nil, fmt.Errorf("unreadable: %+v", l.Unreadable)
	}
	all := map[string]*state{}
	for _, info := range l.Sessions {
		if !reads(info.ID) && all[info.ID] == nil {
			all[info.ID] = &state{ID: info.ID, CWD: info.CWD, Path: strings.TrimSuffix(info.Path, ".zst"), Listed: true}
			continue
		}
		st, err := look(ctx, m, info.Path)
		if err != nil {
			return nil, fmt.Errorf("session %s: %w", info.Path, err)
		}
		if st.ID != info.ID || st.CWD != info.CWD {
			return nil, fmt.Errorf("it is listed as %s of %s, and %s of %s", info.ID, info.CWD, st.ID, st.CWD)
		}
		if all[st.ID] != nil {
			return nil, fmt.Errorf("session %s is at %s and at %s", st.ID, all[st.ID].Path, st.Path)
		}
		all[st.ID] = st
	}
	trash, err := m.ListTrash(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range trash.Sessions {
		if all[t.ID] != nil {
			return nil, fmt.Errorf("session %s is there and in the trash", t.ID)
		}
		all[t.ID] = &state{ID: t.ID, Trashed: true}
	}
	return all, events
}
