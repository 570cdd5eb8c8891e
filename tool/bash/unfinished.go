package bash

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session/entry"
)

// Unfinished is a run that is in a log with its start and without its end.
type Unfinished struct {
	Start
	Entry    string          // id of the entry it began with
	Life     Life            // Gone: the run was interrupted
	Artifact *artifacts.Info // what was kept of its output; nil when nothing was
}

// ArtifactFinder finds what a run left. *artifacts.Dir is one.
type ArtifactFinder interface {
	ByRun(ctx context.Context, run string) (artifacts.Info, bool, error)
}

// FindUnfinished reads the entries of a session, in file order, and lists the runs that have no end, in the order of
// their starts. find may be nil; an artifact that can not be looked up is left out, and the first reason is
// returned beside the list. Entries that merely look like a start or an end are passed over: a log may hold anything.
func FindUnfinished(ctx context.Context, entries iter.Seq2[entry.Entry, error], find ArtifactFinder) ([]Unfinished, error) {
	var open []Unfinished
	at := map[string]int{}
	for e, err := range entries {
		if err != nil {
			return nil, fmt.Errorf("looking for unfinished runs: %w", err)
		}
		if s, ok := StartOf(e); ok {
			if _, twice := at[s.Run]; !twice {
				at[s.Run] = len(open)
				open = append(open, Unfinished{Start: s, Entry: e.ID()})
			}
		} else if run, ok := EndOf(e); ok {
			if i, ok := at[run]; ok {
				open[i].Run = "" // ended
			}
		}
	}
	var list []Unfinished
	var first error
	for _, u := range open {
		if u.Run == "" {
			continue
		}
		u.Life = Life(u.Owner.Life())
		if find != nil {
			switch info, ok, err := find.ByRun(ctx, u.Run); {
			case err != nil && first == nil:
				first = fmt.Errorf("looking for the output of run %s: %w", u.Run, err)
			case err == nil && ok:
				u.Artifact = &info
			}
		}
		list = append(list, u)
	}
	return list, first
}

var startWord, endWord = []byte(StartType), []byte("Execution") // of the roles below

// StartOf returns what e says about the start of a run. Most entries are told apart by a search for bytes.
func StartOf(e entry.Entry) (Start, bool) {
	if e.Type() != entry.TypeCustom || !bytes.Contains(e.Raw(), startWord) {
		return Start{}, false
	}
	var b struct {
		CustomType string `json:"customType"`
		Data       Start  `json:"data"`
	}
	if e.Decode(&b) != nil || b.CustomType != StartType || b.Data.Run == "" {
		return Start{}, false
	}
	return b.Data, true
}

// EndOf returns the run whose end e is.
func EndOf(e entry.Entry) (run string, ok bool) {
	if e.Type() != entry.TypeMessage || !bytes.Contains(e.Raw(), endWord) {
		return "", false
	}
	var b struct {
		Message struct {
			Role    string `json:"role"`
			Details struct {
				Run string `json:"run"`
			} `json:"details"`
		} `json:"message"`
	}
	if e.Decode(&b) != nil || b.Message.Role != entry.RoleBashExecution && b.Message.Role != entry.RolePythonExecution {
		return "", false
	}
	return b.Message.Details.Run, b.Message.Details.Run != ""
}
