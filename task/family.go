package task

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// family is what the log of an agent says of its subagents.
type family struct {
	spawns []Spawn                // in their order
	ends   map[string]End         // the last of each
	spent  map[string]agent.Spent // by each in all of its runs that ended
	all    []End                  // of all of these runs
	late   []End                  // those that no call waits for, in their order
	merged map[string]bool        // the patches that were merged, by artifact
	told   map[told]bool          // the reports that were handed to the agent
}

// told is a report that was handed to an agent without a call that waited for it: the details of the message.
type told struct {
	ID      string `json:"id"`
	Version int    `json:"version"`
	Run     string `json:"run"` // of the subagent
}

// readFamily reads the whole log.
func readFamily(ctx context.Context, s *session.Session) (family, error) {
	f := family{ends: map[string]End{}, told: map[told]bool{}}
	for e, err := range s.Backward(ctx) {
		if err != nil {
			return f, err
		}
		if e.Type() != entry.TypeCustom && e.Type() != entry.TypeCustomMessage {
			continue
		}
		body, err := e.Body()
		if err != nil {
			continue
		}
		switch c := body.(type) {
		case entry.CustomMessage:
			var of told
			if c.CustomType == ReportType && json.Unmarshal(c.Details, &of) == nil {
				f.told[of] = true
			}
		case entry.Custom:
			f.note(c)
		}
	}
	slices.Reverse(f.spawns)
	slices.Reverse(f.late)
	return f, nil
}

// note reads an entry; those that come later were noted before.
func (f *family) note(c entry.Custom) {
	switch c.CustomType {
	case EndType:
		var end End
		if json.Unmarshal(c.Data, &end) == nil {
			if end.Late {
				f.late = append(f.late, end)
			}
			if _, later := f.ends[end.ID]; !later {
				f.ends[end.ID] = end
			}
			f.spend(end)
			f.all = append(f.all, end)
		}
	case MergeType:
		var m Merged
		if json.Unmarshal(c.Data, &m) == nil {
			if f.merged == nil {
				f.merged = map[string]bool{}
			}
			f.merged[m.Artifact] = true
		}
	case SpawnType:
		var spawn Spawn
		if json.Unmarshal(c.Data, &spawn) == nil {
			f.spawns = append(f.spawns, spawn)
		}
	}
}

// spend adds what a run of a subagent took.
func (f *family) spend(end End) {
	if f.spent == nil {
		f.spent = map[string]agent.Spent{}
	}
	f.spent[end.ID] = f.spent[end.ID].Plus(end.Spent)
}

// has reports whether the agent has started a subagent.
func (f *family) has(id string) bool {
	return slices.ContainsFunc(f.spawns, func(s Spawn) bool {
		return slices.ContainsFunc(s.Agents, func(a Spawned) bool { return a.ID == id })
	})
}
