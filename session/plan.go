package session

import (
	"bytes"
	"slices"
	"sort"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/internal/ecmajson"
	"github.com/agentrun/agentrun/session/internal/record"
)

// plan is how the tree of a damaged log is mended. Entries are named by their index
// in the tree.
type plan struct {
	edits   map[int32]map[string][]byte // members that change, as JSON literals
	renamed map[int32]string            // new ids of entries whose id an earlier one has
	lost    map[int32][]lostEntry       // what is put before an entry
	before  map[int32][]int32           // entries that are moved before one, in order
	moved   map[int32]bool
	leaf    string // the entry that was the leaf, when it is not the last one any more
	headers int    // that were taken out of the body
}

// lostEntry stands in for an entry that is not in the file.
type lostEntry struct{ id, parent string }

func newPlan(x *examined) (*plan, error) {
	p := &plan{
		edits: map[int32]map[string][]byte{}, renamed: map[int32]string{}, lost: map[int32][]lostEntry{},
		before: map[int32][]int32{}, moved: map[int32]bool{},
	}
	t := x.tree
	for _, i := range t.repeats {
		p.renamed[i] = record.NewID()
		p.edit(i, "id", p.renamed[i])
	}
	if len(p.renamed) > 0 {
		if err := p.follow(t); err != nil {
			return nil, err
		}
	}
	known := map[string]bool{}
	for _, a := range t.astray {
		at := t.nodes.find([]byte(a.parent))
		switch {
		case a.kind == KindCycle:
			p.edit(a.node, "parentId", p.idBefore(t, a.node))
		case at != noParent:
			p.moveUp(t, a.node, at)
		case !known[a.parent]:
			known[a.parent] = true
			p.lost[a.node] = append(p.lost[a.node], lostEntry{a.parent, p.id(t, x.gapBefore(a.node))})
		}
	}
	if last := int32(t.Len() - 1); last >= 0 && p.moved[last] {
		p.leaf = p.id(t, last)
	}
	return p, nil
}

// edit notes that a member of entry i becomes a string, or null.
func (p *plan) edit(i int32, name, value string) {
	if p.edits[i] == nil {
		p.edits[i] = map[string][]byte{}
	}
	if value == "" {
		p.edits[i][name] = []byte("null")
		return
	}
	p.edits[i][name] = ecmajson.AppendString(nil, value)
}

// id is the id that entry i will have, "" for none.
func (p *plan) id(t *Tree, i int32) string {
	if i == noParent {
		return ""
	}
	if id := p.renamed[i]; id != "" {
		return id
	}
	return string(t.nodes.id(i))
}

func (p *plan) idBefore(t *Tree, i int32) string { return p.id(t, i-1) }

// follow has those who mean a renamed entry name it by its new id: its children, and
// what names entries otherwise.
func (p *plan) follow(t *Tree) error {
	for i := range t.nodes.list {
		x := t.nodes.list[i]
		if p.renamed[x.parent] != "" {
			p.edit(int32(i), "parentId", p.renamed[x.parent])
		}
		if x.kind != kindLabel && x.kind != kindCompaction && x.kind != kindOther {
			continue
		}
		raw, err := readSpan(t.src, x.off, x.off+int64(x.size), nil)
		if err != nil {
			return err
		}
		for _, name := range []string{"targetId", "firstKeptEntryId", "fromId"} {
			if !bytes.Contains(raw, []byte(name)) {
				continue
			}
			if to := p.meant(t, int32(i), gjson.GetBytes(raw, name).String()); to != "" {
				p.edit(int32(i), name, to)
			}
		}
	}
	return nil
}

// meant returns the new id of the entry that id means to entry i: the one on the way
// to its root, else the nearest before it. "" when that keeps its id.
func (p *plan) meant(t *Tree, i int32, id string) string {
	if id == "" {
		return ""
	}
	for at := t.nodes.list[i].parent; at != noParent; at = t.nodes.list[at].parent {
		if string(t.nodes.id(at)) == id {
			return p.renamed[at]
		}
	}
	nearest := noParent
	for n := range p.renamed {
		if n < i && n > nearest && string(t.nodes.id(n)) == id {
			nearest = n
		}
	}
	return p.renamed[nearest]
}

// moveUp has the parent of a child, which stands behind it, written before it, with
// all ancestors that do.
func (p *plan) moveUp(t *Tree, child, parent int32) {
	var up []int32
	for at := parent; at > child && !p.moved[at]; at = t.nodes.list[at].parent {
		up = append(up, at)
		p.moved[at] = true
	}
	slices.Reverse(up)
	p.before[child] = append(p.before[child], up...)
}

// gapBefore returns the entry behind which a lost ancestor of entry i most likely
// was: the last one before the nearest lost stretch, else the one before i.
func (x *examined) gapBefore(i int32) int32 {
	list := x.tree.nodes.list
	gap := int32(noParent)
	for _, d := range x.damage {
		if d.Line > int(list[i].line) || d.Line == int(list[i].line) && d.Offset >= list[i].off {
			break
		}
		switch d.Kind {
		case KindTorn, KindNUL, KindGarbage:
			n := sort.Search(len(list), func(k int) bool {
				return int(list[k].line) > d.Line || int(list[k].line) == d.Line && list[k].off > d.Offset
			})
			gap = int32(n)
		}
	}
	if gap != noParent {
		return gap - 1
	}
	return i - 1
}

// headerOnce reports whether a header in the body is the one that goes to the
// beginning of the file. Later ones are copies that pi made.
func (p *plan) headerOnce(raw []byte, id string) bool {
	h, err := record.ParseHeader(raw)
	if err != nil || h.ID != id || p.headers > 0 {
		return false
	}
	p.headers++
	return true
}
