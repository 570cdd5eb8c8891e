package transcript

import (
	"context"
	"slices"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

// reader reads a session for a transcript.
type reader struct {
	s      *session.Session
	dir    *artifacts.Dir
	o      Options
	tree   *session.Tree
	labels map[string]string
	title  string
	leaf   int
	path   []int                    // from the root to the leaf, as a context is built of it
	gaps   []entry.Repair           // places where path is not the way that the parents lead
	gapAt  map[int64][]entry.Repair // by the offset of their entries
	arts   []artifacts.Info
	agents []artifacts.Agent

	results map[asked][]int // entries that answer a tool call
	ended   map[string]bool // runs that have an end
	moved   map[string]bool // runs that have a second start, as jobs
	told    []bool          // entries that are in the transcript
	sum     Summary
}

func newReader(ctx context.Context, s *session.Session, dir *artifacts.Dir, o Options) (*reader, error) {
	r := &reader{s: s, dir: dir, o: o, results: map[asked][]int{}, ended: map[string]bool{}, moved: map[string]bool{}}
	var err error
	if r.tree, err = s.Tree(ctx); err != nil {
		return nil, err
	}
	if r.title, err = s.Title(ctx); err != nil {
		return nil, err
	}
	if r.labels, err = s.Labels(ctx); err != nil {
		return nil, err
	}
	r.leaf, r.told = r.tree.Leaf(), make([]bool, r.tree.Len())
	r.sum.Entries = r.tree.Len()
	if r.leaf >= 0 {
		if r.path, r.gaps, err = r.tree.ContextPath(r.leaf); err != nil {
			return nil, err
		}
	}
	r.gapAt = map[int64][]entry.Repair{}
	for _, gap := range r.gaps {
		r.gapAt[gap.Offset] = append(r.gapAt[gap.Offset], gap)
	}
	if err := r.look(ctx); err != nil {
		return nil, err
	}
	if dir == nil {
		return r, nil
	}
	if r.arts, err = dir.List(ctx); err != nil {
		return nil, err
	}
	for _, a := range r.arts {
		if a.State != artifacts.Missing {
			r.sum.Artifacts++
		}
	}
	ids, err := dir.AgentIDs(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		a, err := dir.LookupAgent(ctx, id, 0)
		if err != nil {
			return nil, err
		}
		r.agents = append(r.agents, a)
	}
	return r, nil
}

// asked is a tool call: ids of calls may come again in later turns.
type asked struct {
	turn int // the entry that it is in
	id   string
}

// maxWayUp is how many entries a result may stand behind the turn that it answers, where
// other turns have calls of the same id.
const maxWayUp = 1000

// asker returns which of turns, all before entry i, a result in entry i answers: the
// nearest on its way to the root.
func (r *reader) asker(i int, turns []int) int {
	if len(turns) > 1 {
		at := r.tree.Node(i).Parent
		for range maxWayUp {
			if at < 0 {
				break
			}
			if _, ok := slices.BinarySearch(turns, at); ok {
				return at
			}
			at = r.tree.Node(at).Parent
		}
	}
	return turns[len(turns)-1]
}

// look notes what belongs together: calls and results, starts and ends of runs.
func (r *reader) look(ctx context.Context) error {
	turns := map[string][]int{} // by the ids of their calls
	for i := range r.tree.Len() {
		if i%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		e, err := r.tree.Entry(i)
		if err != nil {
			return err
		}
		if start, ok := bash.StartOf(e); ok && start.Moved {
			r.moved[start.Run] = true
		}
		if e.Type() != entry.TypeMessage {
			continue
		}
		for _, id := range e.ToolCallIDs() {
			if t := turns[id]; len(t) == 0 || t[len(t)-1] != i {
				turns[id] = append(t, i)
			}
		}
		if e.Role() == entry.RoleToolResult {
			id := e.ToolCallID()
			if t := turns[id]; len(t) > 0 {
				call := asked{r.asker(i, t), id}
				r.results[call] = append(r.results[call], i)
			}
		}
		if run, ok := bash.EndOf(e); ok {
			r.ended[run] = true
		}
	}
	return nil
}

// entry reads entry i, with what the persistence rules took out put back.
func (r *reader) entry(ctx context.Context, i int) (entry.Entry, error) {
	return r.s.EntryAt(ctx, r.tree, i)
}

// branches are the leaves that are not on the active branch, with the entries that
// lead to each and that no branch before it had: from the end of a branch up to what
// others share.
func (r *reader) branches() [][]int {
	children, _ := r.tree.Children()
	seen := make([]bool, r.tree.Len())
	for _, i := range r.path {
		seen[i] = true
	}
	var out [][]int
	for i := range children {
		if len(children[i]) > 0 || seen[i] {
			continue
		}
		path := r.tree.Path(i)
		from := len(path)
		for from > 0 && !seen[path[from-1]] {
			from--
			seen[path[from]] = true
		}
		out = append(out, path[from:])
	}
	return out
}

// turn is one entry as it is told, with what belongs to it.
type turn struct {
	id    string
	time  time.Time
	kind  string // a class: user, assistant, run, tool, note
	who   string
	aside string // what else the heading says
	label string
	parts []part
}

// part is a piece of a turn: one of the types below.
type part any

type (
	// prose is what somebody wrote. Models write Markdown.
	prose struct {
		text     string
		markdown bool
	}
	// reasoning is what a model thought.
	reasoning struct{ text string }
	// output is text of a program, to the letter. notice says what is not shown.
	output struct{ text, notice string }
	// picture is an image. why says why there is none.
	picture struct {
		mime string
		data []byte
		why  string
	}
	// call is a tool call with its result, or a command and its output.
	call struct {
		name     string
		brief    string // the beginning of what was asked, on one line
		asked    string // all of it
		status   string // "exit 1", "failed", "no result"
		bad      bool
		parts    []part // of the result
		artifact *int64
	}
	// remark is something about the session.
	remark struct{ text string }
	// raw is what is not known here: JSON.
	raw struct{ what, text string }
)
