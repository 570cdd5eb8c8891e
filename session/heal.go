package session

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/maphash"
	"math"
	"slices"

	"github.com/agentrun/agentrun/session/entry"
)

// whole is the path that a resumed session goes on from.
type whole struct {
	entries []entry.Entry
	reach   entry.Reach
	// broken are the entries, by their place in entries, that other programs do not
	// reach, or do not come back from, on the way to the root.
	broken  []int
	repairs []entry.Repair
	changed map[int64]entry.Entry // by offset: entries in which notes stand
}

// wholePath reads the path to the leaf as far as its context needs it. Where it
// breaks off, because a parent is missing or is a descendant, it goes on with the
// nearest entry before.
func (s *Session) wholePath(ctx context.Context, st state) (*whole, error) {
	ids := &shadows{low: math.MaxInt64}
	p, err := readPath(ctx, st, st.leaf, ids)
	if err != nil {
		return nil, err
	}
	w := &whole{entries: p.entries, reach: p.reach}
	if t := p.torn; t != nil {
		w.repair(entry.RepairTorn, t.marker, "")
		if t.at < len(w.entries) {
			w.broken = append(w.broken, t.at)
		}
	}
	if n := len(p.entries); n > 0 && p.reach.NeedMessages() && p.entries[0].Parent() != st.header.ID {
		// The file was read to its beginning, and the parent was not in it.
		if err := s.bridge(ctx, st, w); err != nil {
			return nil, err
		}
	}
	for i := range w.entries {
		if e := &w.entries[i]; ids.shadowed[e.Offset()] {
			w.broken = append(w.broken, i)
			w.repair(entry.RepairDuplicateID, *e, "")
		}
	}
	slices.Sort(w.broken)
	return w, nil
}

func (w *whole) repair(kind entry.RepairKind, e entry.Entry, detail string) {
	w.repairs = append(w.repairs, entry.Repair{Kind: kind, EntryID: e.ID(), Offset: e.Offset(), Detail: detail})
}

// shadows finds entries whose id a later one has too.
type shadows struct {
	shadowed map[int64]bool // by offset
	low      int64          // everything from there on was seen

	// As long as ids only grow, as those of agentrun mostly do, none is there twice, and
	// they need not be remembered one by one.
	sorted [][]entry.Entry
	first  string // the smallest of them
	seed   maphash.Seed
	seen   map[uint64]struct{} // nil while they are sorted
}

// see takes a block of entries, the last block of the file first. What it has seen
// already it passes over.
func (s *shadows) see(block []entry.Entry) {
	n := len(block)
	for n > 0 && block[n-1].Offset() >= s.low {
		n--
	}
	if block = block[:n]; n == 0 {
		return
	}
	s.low = block[0].Offset()
	if s.seen == nil {
		if s.grows(block) {
			s.sorted = append(s.sorted, block)
			return
		}
		s.seed, s.seen = maphash.MakeSeed(), map[uint64]struct{}{}
		for _, b := range s.sorted {
			s.remember(b)
		}
		s.sorted = nil
	}
	s.remember(block)
}

// grows reports whether each id of block is smaller than the one behind it.
func (s *shadows) grows(block []entry.Entry) bool {
	first := s.first
	for i := len(block) - 1; i >= 0; i-- {
		id := block[i].ID()
		if first != "" && id >= first || id == "" {
			return false
		}
		first = id
	}
	s.first = first
	return true
}

func (s *shadows) remember(block []entry.Entry) {
	for i := len(block) - 1; i >= 0; i-- {
		h := maphash.String(s.seed, block[i].ID())
		if _, ok := s.seen[h]; !ok {
			s.seen[h] = struct{}{}
			continue
		}
		if s.shadowed == nil {
			s.shadowed = map[int64]bool{}
		}
		s.shadowed[block[i].Offset()] = true
	}
}

// bridge continues a path that broke off at its first entry. It walks up the tree of the
// whole file.
func (s *Session) bridge(ctx context.Context, st state, w *whole) error {
	t, err := s.Tree(ctx)
	if err != nil {
		return err
	}
	at := t.Find(w.entries[0].ID())
	for at >= 0 && t.nodes.list[at].off != w.entries[0].Offset() {
		at = t.before(at, w.entries[0].ID())
	}
	if at < 0 {
		return nil // the file changed meanwhile
	}
	onPath := make([]bool, t.Len())
	for _, e := range w.entries {
		if i := t.at(e.Offset()); i >= 0 {
			onPath[i] = true
		}
	}
	first := w.entries[0]
	var above []entry.Entry // the leaf's side first
	var gaps []int          // places in above that follow a gap, counted from there
	for w.reach.NeedMessages() && ctx.Err() == nil {
		next, broken := t.above(at, first, onPath, st.header.ID)
		if broken == "" && next < 0 || broken == entry.RepairParent && at == 0 {
			break // a root, or the first entry of the file, which does no harm as one
		}
		if broken != "" {
			gaps = append(gaps, len(above))
			w.repair(broken, first, "")
		}
		if next < 0 {
			break // all that is before it is on the path already: it becomes a root
		}
		if first, err = t.entry(next); err != nil {
			return err
		}
		onPath[next] = true
		above = append(above, first)
		w.reach.Visit(first)
		at = next
	}
	// Place i of above comes to stand at len(above)-1-i; what breaks there is the entry
	// below it.
	for _, g := range gaps {
		w.broken = append(w.broken, len(above)-g)
	}
	for i := range w.broken[:len(w.broken)-len(gaps)] {
		w.broken[i] += len(above)
	}
	slices.Reverse(above)
	w.entries = append(above, w.entries...)
	return ctx.Err()
}

// above returns the entry that e, entry at of the tree, follows, and what is broken
// between the two; -1 when e follows none.
func (t *Tree) above(at int, e entry.Entry, onPath []bool, session string) (next int, broken entry.RepairKind) {
	if p := t.nodes.list[at].parent; p != noParent && !onPath[p] {
		return int(p), ""
	}
	if e.Parent() == "" || e.Parent() == session {
		return -1, ""
	}
	broken = entry.RepairParent
	if later := t.Find(e.Parent()); later >= 0 {
		if !onPath[later] {
			return later, "" // written in another order, which other programs do not mind
		}
		broken = entry.RepairCycle
	}
	for next = at - 1; next >= 0 && onPath[next]; next-- {
	}
	return next, broken
}

// at returns the entry whose line begins at off, or -1.
func (t *Tree) at(off int64) int {
	i, ok := slices.BinarySearchFunc(t.nodes.list, off, func(x node, off int64) int { return int(min(max(x.off-off, -1), 1)) })
	if !ok {
		return -1
	}
	return i
}

// before returns the entry with that id nearest before entry i, or -1.
func (t *Tree) before(i int, id string) int {
	for i--; i >= 0 && string(t.nodes.id(int32(i))) != id; i-- {
	}
	return i
}

// customTypeRepair is the customType of the entry that repairs begin with.
const customTypeRepair = "agentrun.repair"

// repairMember is a member of every entry that belongs to repairs: the id of the entry
// that they begin with.
const repairMember = "repair"

// repairStart is the data of that entry. Repairs are one write, of which a crash may
// leave a beginning; whoever reads a path through them looks whether the last of
// them is there, and goes the old way if not.
type repairStart struct {
	Leaf    string        `json:"leaf"` // before the repairs
	Last    string        `json:"last"` // entry of the repairs
	Repairs []repairNotes `json:"repairs"`
	More    int           `json:"more,omitempty"` // repairs that are not listed
}

// repairNotes says what was repaired.
type repairNotes struct {
	Kind  entry.RepairKind `json:"kind"`
	Entry string           `json:"entry"`
	What  string           `json:"what"`
}

// tornRepair is the beginning of repairs on a path, and where the path goes on behind
// what was left out of it.
type tornRepair struct {
	marker entry.Entry
	at     int
}

var repairWord = []byte(customTypeRepair)

// startOfRepairs returns the data of e if repairs begin with it.
func startOfRepairs(e entry.Entry) (repairStart, bool) {
	if e.Type() != entry.TypeCustom || !bytes.Contains(e.Raw(), repairWord) {
		return repairStart{}, false
	}
	var b struct {
		CustomType string          `json:"customType"`
		Data       json.RawMessage `json:"data"`
	}
	var start repairStart
	if e.Decode(&b) != nil || b.CustomType != customTypeRepair || json.Unmarshal(b.Data, &start) != nil || start.Last == "" {
		return repairStart{}, false
	}
	return start, true
}

// belongs reports whether e is one of the repairs that began with marker.
func belongs(e entry.Entry, marker string) bool {
	if !bytes.Contains(e.Raw(), []byte(`"`+repairMember+`":"`)) {
		return false
	}
	var b struct {
		Repair string `json:"repair"`
	}
	return e.Decode(&b) == nil && b.Repair == marker
}

// settle leaves repairs without an end out of a path: it goes the way that the leaf had
// before them, and then on with what was appended since.
func (p *pathCache) settle(ctx context.Context, st state, past *shadows) (*pathCache, error) {
	for i, e := range p.entries {
		start, ok := startOfRepairs(e)
		if !ok || slices.ContainsFunc(p.entries[i:], func(e entry.Entry) bool { return e.ID() == start.Last }) {
			continue
		}
		before := st
		before.src.size = e.Offset() // the leaf they had lies before them
		old, err := readPath(ctx, before, start.Leaf, past)
		if err != nil {
			return nil, err
		}
		old.torn, old.end = &tornRepair{e, len(old.entries)}, p.end
		for _, e := range p.entries[i+1:] {
			if !belongs(e, p.entries[i].ID()) {
				old.entries = append(old.entries, e)
			}
		}
		return old, nil
	}
	return p, nil
}
