package task

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/task/isolation"
)

// Info is what the logs tell of one subagent.
type Info struct {
	ID       string     `json:"id"`
	Parent   string     `json:"parent"` // the id of the agent that started it; agent.MainID for the root
	Agent    string     `json:"agent"`  // its type
	Status   Status     `json:"status"`
	Reason   string     `json:"reason,omitempty"`
	URL      string     `json:"url"`
	Artifact *string    `json:"artifact"` // the file of its output, null when there is none
	Session  *string    `json:"session"`  // its log, null when there is none
	Started  time.Time  `json:"started"`
	Ended    *time.Time `json:"ended"`
	// Tokens and Cost are what it spent in all of its runs that ended, those below it aside: all of them and what the root spent
	// are the whole.
	Tokens int64   `json:"tokens"`
	Cost   float64 `json:"cost"` // US dollars

	Isolation isolation.Kind `json:"isolation,omitempty"` // what files of its own it had
	Patch     *Patch         `json:"patch,omitempty"`     // what it changed in them
	Merged    bool           `json:"merged,omitempty"`    // and that this is in those of its parent
}

// maxDepth bounds how deep logs are followed, which may be hostile.
const maxDepth = 16

// List returns the subagents of a session in the order in which they were started, those of a subagent behind it. It reads
// the logs alone, so any process may ask; one whose end is in no log is running when somebody drives its session, queued when
// somebody drives its parent's, and interrupted otherwise.
func List(ctx context.Context, m *session.Manager, root *session.Session, rootID string) ([]Info, error) {
	return listBelow(ctx, m, root, rootID, 0)
}

func listBelow(ctx context.Context, m *session.Manager, s *session.Session, parent string, depth int) ([]Info, error) {
	if depth > maxDepth {
		return nil, nil
	}
	f, err := readFamily(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("listing subagents: %w", err)
	}
	driven, err := s.Driven()
	if err != nil {
		return nil, err
	}
	var all []Info
	for _, spawn := range f.spawns {
		for _, sp := range spawn.Agents {
			info, below, err := describe(ctx, m, s, sp, f, driven, parent, depth)
			if err != nil {
				return nil, err
			}
			all = append(append(all, info), below...)
		}
	}
	return all, nil
}

// describe is one subagent, and those below it.
func describe(ctx context.Context, m *session.Manager, s *session.Session, sp Spawned, f family, driven bool, parent string, depth int) (Info, []Info, error) {
	info := Info{ID: sp.ID, Parent: parent, Agent: sp.Agent, URL: "agent://" + sp.ID, Started: sp.Began, Status: Interrupted}
	if driven {
		info.Status = Queued
	}
	var below []Info
	busy := false // at work, of which there is no doubt
	child, err := m.View(ctx, filepath.Join(s.ArtifactsDir(), filepath.Base(sp.ID)+".jsonl"))
	switch {
	case err == nil:
		defer child.Close()
		path := child.Path()
		info.Session = &path
		busy, err = child.Driven()
		if err != nil {
			return info, nil, err
		}
		if busy {
			info.Status = Running
		} else if info.Status == Queued {
			info.Status = Running // between two steps of its life
		}
		if below, err = listBelow(ctx, m, child, sp.ID, depth+1); err != nil {
			return info, nil, err
		}
	case !errors.Is(err, session.ErrNotFound) && !errors.Is(err, fs.ErrNotExist):
		info.Reason = err.Error()
	}
	if end, ok := f.ends[sp.ID]; ok {
		info.Isolation, info.Patch = end.Isolation, end.Patch
		info.Merged = end.Patch != nil && f.merged[end.Patch.Artifact]
		if info.Reason = end.Reason; info.Status != Running || !busy {
			info.Status, info.Ended = end.Status, &end.Ended
		}
		info.Tokens, info.Cost = f.spent[sp.ID].Tokens, f.spent[sp.ID].Cost
		if end.Version > 0 {
			file := filepath.Join(s.ArtifactsDir(), outputName(sp.ID, end.Version))
			info.Artifact = &file
		}
	}
	return info, below, nil
}

// outputName is the file of an output.
func outputName(id string, version int) string {
	if version == 1 {
		return id + ".md"
	}
	return fmt.Sprintf("%s.v%d.md", id, version)
}

// StatusOf tells what a subagent does, for people and models: its status, and the reason for it. dir is the artifact directory
// of its root's session.
func StatusOf(ctx context.Context, m *session.Manager, dir string, id artifacts.AgentID) (string, error) {
	path := dir + ".jsonl"
	if parent := id.Parent(); !parent.IsZero() {
		path = filepath.Join(dir, parent.String()+".jsonl")
	}
	s, err := m.View(ctx, path)
	if err != nil {
		return "", fmt.Errorf("looking for the parent of %s: %w", id, err)
	}
	defer s.Close()
	driven, err := s.Driven()
	if err != nil {
		return "", err
	}
	f, err := readFamily(ctx, s)
	if err != nil {
		return "", err
	}
	info, _, err := describe(ctx, m, s, Spawned{ID: id.String()}, f, driven, "", maxDepth)
	if err != nil {
		return "", err
	}
	if info.Reason != "" {
		return string(info.Status) + ": " + info.Reason, nil
	}
	if info.Status == Interrupted {
		return string(info.Status) + ", and agentrun resume goes on with it", nil
	}
	return string(info.Status), nil
}
