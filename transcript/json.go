package transcript

import (
	"bufio"
	"context"
	"encoding/json"
	"time"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// writeJSON writes one object: session, leaf, path, repairs, labels, artifacts, agents,
// damage, tree, entries, missing. Each entry is as it was appended.
func writeJSON(ctx context.Context, w *bufio.Writer, r *reader) error {
	head := struct {
		Session   sessionJSON       `json:"session"`
		Leaf      *string           `json:"leaf"`
		Path      []string          `json:"path"` // ids from the root to the leaf, as a context is built of them
		Repairs   []repairJSON      `json:"repairs"`
		Labels    map[string]string `json:"labels"`
		Artifacts []artifactJSON    `json:"artifacts"`
		Agents    []agentJSON       `json:"agents"`
		Damage    []session.Damage  `json:"damage"`
	}{Path: []string{}, Repairs: []repairJSON{}, Labels: r.labels, Artifacts: []artifactJSON{}, Agents: []agentJSON{}, Damage: r.tree.Damage()}
	s := r.s
	head.Session = sessionJSON{s.ID(), s.Path(), s.CWD(), orNull(r.title), orNull(s.Parent()), s.Version(), when(s.Created())}
	if r.leaf >= 0 {
		head.Leaf = orNull(r.tree.Node(r.leaf).ID)
	}
	for _, i := range r.path {
		head.Path = append(head.Path, r.tree.Node(i).ID)
	}
	for _, gap := range r.gaps {
		head.Repairs = append(head.Repairs, repairJSON{gap.Kind, gap.EntryID, gap.What()})
	}
	if head.Labels == nil {
		head.Labels = map[string]string{}
	}
	if head.Damage == nil {
		head.Damage = []session.Damage{}
	}
	for _, a := range r.arts {
		x := artifactJSON{ID: a.ID, URL: a.URL(), Tool: orNull(a.Tool), Bytes: a.Bytes, State: string(a.State), Note: a.Note, Run: a.Run, Created: when(a.Created)}
		if a.Lines >= 0 {
			x.Lines = &a.Lines
		}
		head.Artifacts = append(head.Artifacts, x)
	}
	for _, a := range r.agents {
		head.Agents = append(head.Agents, agentJSON{a.ID.String(), a.URL(), a.Versions, a.Bytes})
	}
	begin, err := json.Marshal(head)
	if err != nil {
		return err
	}
	w.Write(begin[:len(begin)-1])
	if err := r.treeJSON(ctx, w); err != nil {
		return err
	}
	missing, err := r.entriesJSON(ctx, w)
	if err != nil {
		return err
	}
	end, err := json.Marshal(missing)
	if err != nil {
		return err
	}
	w.WriteString(`,"missing":`)
	w.Write(end)
	_, err = w.WriteString("}\n")
	return err
}

// repairJSON is a place where path is not the way that the parents lead.
type repairJSON struct {
	Kind  entry.RepairKind `json:"kind"`
	Entry string           `json:"entry"`
	What  string           `json:"what"`
}

type sessionJSON struct {
	ID      string     `json:"id"`
	Path    string     `json:"path"`
	CWD     string     `json:"cwd"`
	Title   *string    `json:"title"`
	Parent  *string    `json:"parent"`
	Version int        `json:"version"`
	Created *time.Time `json:"created"`
}

type artifactJSON struct {
	ID      int64      `json:"id"`
	URL     string     `json:"url"`
	Tool    *string    `json:"tool"`
	Bytes   int64      `json:"bytes"`
	Lines   *int64     `json:"lines"`
	State   string     `json:"state"`
	Note    string     `json:"note,omitempty"`
	Run     string     `json:"run,omitempty"`
	Created *time.Time `json:"created"`
}

type agentJSON struct {
	ID       string `json:"id"`
	URL      string `json:"url"`
	Versions []int  `json:"versions"`
	Bytes    int64  `json:"bytes"`
}

// missingJSON is a reference that could not be resolved.
type missingJSON struct {
	Entry string `json:"entry"`
	Ref   string `json:"ref"`
}

// treeJSON writes id, parent and children of every entry.
func (r *reader) treeJSON(ctx context.Context, w *bufio.Writer) error {
	children, _ := r.tree.Children()
	w.WriteString(`,"tree":[`)
	for i, n := range r.tree.All() {
		if err := ctx.Err(); err != nil {
			return err
		}
		x := struct {
			ID       string   `json:"id"`
			Parent   *string  `json:"parent"`
			Children []string `json:"children"`
		}{ID: n.ID, Children: []string{}}
		if n.Parent >= 0 {
			x.Parent = orNull(r.tree.Node(n.Parent).ID)
		}
		for _, c := range children[i] {
			x.Children = append(x.Children, r.tree.Node(c).ID)
		}
		data, err := json.Marshal(x)
		if err != nil {
			return err
		}
		if i > 0 {
			w.WriteByte(',')
		}
		w.Write(data)
	}
	return w.WriteByte(']')
}

// entriesJSON writes every entry in file order.
func (r *reader) entriesJSON(ctx context.Context, w *bufio.Writer) ([]missingJSON, error) {
	missing := []missingJSON{}
	w.WriteString(`,"entries":[`)
	for i := range r.tree.Len() {
		e, err := r.tree.Entry(i)
		if err != nil {
			return nil, err
		}
		var lost []session.Missing
		if e, lost, err = r.s.Restore(ctx, e); err != nil {
			return nil, err
		}
		for _, m := range lost {
			missing = append(missing, missingJSON{e.ID(), m.Ref.String()})
			r.sum.Missing++
		}
		for _, image := range e.Images() {
			if !image.IsRef() {
				r.sum.Images++
			}
		}
		if i > 0 {
			w.WriteByte(',')
		}
		w.WriteByte('\n')
		if _, err := w.Write(oneValue(e)); err != nil {
			return nil, err
		}
	}
	w.WriteString("\n]")
	return missing, nil
}

// oneValue is the JSON of an entry. What opens as an entry is one value; should it
// ever not be, the transcript is still JSON.
func oneValue(e entry.Entry) []byte {
	if json.Valid(e.Raw()) {
		return e.Raw()
	}
	text, _ := json.Marshal(string(e.Raw()))
	return text
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
