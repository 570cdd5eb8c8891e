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
	pathCache
	changed map[int64]entry.Entry // by offset: entries in which notes or other ids stand
}

// wholePath reads the path to the leaf as far as its context needs it, and looks
// besides whether other programs would go another way.
func (s *Session) wholePath(ctx context.Context, st state) (*whole, error) {
	ids := &shadows{low: math.MaxInt64}
	p, err := readPath(ctx, st, st.leaf, ids)
	if err == nil {
		err = s.heal(ctx, st, p)
	}
	if err != nil {
		return nil, err
	}
	w := &whole{pathCache: *p}
	for i := range w.entries {
		if e := &w.entries[i]; ids.shadowed[e.Offset()] {
			w.broken = append(w.broken, i)
			w.repair(entry.RepairDuplicateID, *e)
		}
	}
	slices.Sort(w.broken)
	return w, nil
}

// heal tells what was left out of a path. Where the path breaks off, because a parent is
// missing or is a descendant, it goes on with the nearest entry before.
func (s *Session) heal(ctx context.Context, st state, p *pathCache) error {
	if t := p.torn; t != nil {
		p.repair(entry.RepairTorn, t.marker)
		if t.at < len(p.entries) {
			p.broken = append(p.broken, t.at)
		}
	}
	if len(p.entries) == 0 || !p.reach.NeedMessages() {
		return nil
	}
	if parent := p.entries[0].Parent(); parent == st.header.ID || parent == st.origin() {
		return nil
	}
	// The file was read to its beginning, and the parent was not in it.
	return s.bridge(ctx, p)
}

func (p *pathCache) repair(kind entry.RepairKind, e entry.Entry) {
	p.repairs = append(p.repairs, entry.Repair{Kind: kind, EntryID: e.ID(), Offset: e.Offset()})
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
func (s *Session) bridge(ctx context.Context, p *pathCache) error {
	t, err := s.Tree(ctx)
	if err != nil {
		return err
	}
	first := p.entries[0]
	at := t.at(first.Offset())
	if at < 0 || string(t.nodes.id(int32(at))) != first.ID() {
		return nil // the file changed meanwhile
	}
	onPath := make([]bool, t.Len())
	for _, e := range p.entries {
		if i := t.at(e.Offset()); i >= 0 {
			onPath[i] = true
		}
	}
	var above []entry.Entry // the leaf's side first
	var gaps []int          // places in above that follow a gap, counted from there
	for p.reach.NeedMessages() && ctx.Err() == nil {
		next, broken, err := t.above(at, onPath)
		if err != nil {
			return err
		}
		if broken != "" {
			gaps = append(gaps, len(above))
			p.repair(broken, first)
		}
		if next < 0 {
			break
		}
		if first, err = t.entry(next); err != nil {
			return err
		}
		onPath[next] = true
		above = append(above, first)
		p.reach.Visit(first)
		at = next
	}
	for i := range p.broken {
		p.broken[i] += len(above)
	}
	// Place i of above comes to stand at len(above)-1-i; what breaks there is the entry
	// below it.
	for _, g := range gaps {
		p.broken = append(p.broken, len(above)-g)
	}
	slices.Reverse(above)
	p.entries = append(above, p.entries...)
	return ctx.Err()
}

// above returns the entry that entry at follows, and what is broken between the two. It
// is -1 when it follows none, or when all that is before it is on the path already.
func (t *Tree) above(at int, onPath []bool) (next int, broken entry.RepairKind, err error) {
	if p := t.nodes.list[at].parent; p != noParent && !onPath[p] {
		return int(p), "", nil
	}
	e, err := t.entry(at)
	if err != nil {
		return -1, "", err
	}
	parent := e.Parent()
	if parent == "" || parent == t.session || parent == t.origin {
		return -1, "", nil
	}
	broken = entry.RepairParent
	if later := t.Find(parent); later >= 0 {
		if !onPath[later] {
			return later, "", nil // written in another order, which other programs do not mind
		}
		broken = entry.RepairCycle
	}
	if broken == entry.RepairParent && at == 0 {
		return -1, "", nil // the first entry of the file does no harm as a root
	}
	for next = at - 1; next >= 0 && onPath[next]; next-- {
	}
	return next, broken, nil
}

// ContextPath returns the entries on the way from the root to entry i as a context is
// built of them. It is Path where the log is whole. Where the way breaks off,
// because a parent is missing or is a descendant, it goes on with the nearest entry
// before; repairs that were not written to their end are passed by. Both are told.
func (t *Tree) ContextPath(i int) (path []int, repairs []entry.Repair, err error) {
	if path, repairs, err = t.way(i); err != nil {
		return nil, nil, err
	}
	return t.settle(path, repairs)
}

// way is ContextPath, and goes through repairs without an end too.
func (t *Tree) way(i int) (path []int, repairs []entry.Repair, err error) {
	onPath := make([]bool, t.Len())
	for at := i; at >= 0; {
		onPath[at] = true
		path = append(path, at)
		next, broken, err := t.above(at, onPath)
		if err != nil {
			return nil, nil, err
		}
		if broken != "" {
			repairs = append(repairs, t.repair(broken, at))
		}
		at = next
	}
	slices.Reverse(path)
	return path, repairs, nil
}

func (t *Tree) repair(kind entry.RepairKind, i int) entry.Repair {
	return entry.Repair{Kind: kind, EntryID: string(t.nodes.id(int32(i))), Offset: t.nodes.list[i].off}
}

// settle leaves repairs without an end out of a path, as that of a pathCache does.
func (t *Tree) settle(path []int, repairs []entry.Repair) ([]int, []entry.Repair, error) {
	for k, i := range path {
		if t.nodes.list[i].kind != kindCustom {
			continue
		}
		e, err := t.entry(i)
		if err != nil {
			return nil, nil, err
		}
		start, ok := startOfRepairs(e)
		if !ok || slices.ContainsFunc(path[k:], func(i int) bool { return string(t.nodes.id(int32(i))) == start.Last }) {
			continue
		}
		var old []int
		told := []entry.Repair{t.repair(entry.RepairTorn, i)}
		if leaf := t.before(i, start.Leaf); leaf >= 0 {
			var more []entry.Repair
			if old, more, err = t.ContextPath(leaf); err != nil {
				return nil, nil, err
			}
			told = append(told, more...)
		}
		broken := make(map[int64]entry.Repair, len(repairs))
		for _, r := range repairs {
			broken[r.Offset] = r
		}
		for _, below := range path[k+1:] {
			e, err := t.entry(below)
			if err != nil {
				return nil, nil, err
			}
			if belongs(e, string(t.nodes.id(int32(i)))) {
				continue
			}
			old = append(old, below)
			if r, ok := broken[e.Offset()]; ok {
				told = append(told, r)
			}
		}
		return old, told, nil
	}
	return path, repairs, nil
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
