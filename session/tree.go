package session

import (
	"bytes"
	"context"
	"iter"
	"slices"
)

// Tree is every entry of a session: ids, parents and places in the file. It is
// a snapshot: entries appended later are not in it. A Tree is safe for
// concurrent use.
type Tree struct {
	nodes  nodes
	lines  int // read so far, to number the next ones
	damage damageList
	src    source
	begin  int64 // of the first entry's line
	end    int64
	closed bool // the last line had its newline, so the tree can be extended
	// session is the id of the session: some programs make it the parent of the
	// first entry. origin is that of the session it was forked from, "" for none.
	session, origin string
	// orphans are the entries whose parent was not found before them, with the
	// id they ask for.
	orphans []orphan
	// repeated is set after a second header: pi writes a file again from its
	// first line in some cases, and lines like earlier ones are then no damage.
	repeated bool
	folded   int
	// cited is what the entries refer to outside of the log, nil when nobody asked;
	// then repeats and astray are not gathered either.
	cited   *outside
	repeats []int32 // entries whose id an earlier one has
	astray  []astray
	// unsealed counts the entries without a crc.
	unsealed int
}

// astray is an entry whose parent is not before it.
type astray struct {
	node   int32
	parent string
	kind   Kind
}

type orphan struct {
	node   int32
	parent string
}

// extend reads the lines in [t.end, to) into the tree.
func (t *Tree) extend(ctx context.Context, src source, to int64) error {
	t.src = src
	if err := scan(ctx, src, t.end, to, t.cited != nil, func(s *segment) error {
		if t.nodes.list == nil && len(s.nodes) > 0 {
			// As many as there would be if all of the file were like this.
			blocks := int(min((to-t.end)/blockSize+1, 4096))
			t.nodes.reserve(len(s.nodes)*blocks, len(s.arena)/2*blocks)
		}
		return t.merge(s)
	}); err != nil {
		return err
	}
	t.end = to
	t.resolveOrphans()
	return nil
}

// clone returns a tree that can be extended while t is in use.
func (t *Tree) clone() *Tree {
	c := *t
	c.nodes.list = slices.Clone(t.nodes.list)
	c.nodes.arena = slices.Clone(t.nodes.arena)
	c.nodes.table = slices.Clone(t.nodes.table)
	c.damage = slices.Clone(t.damage)
	return &c
}

// merge appends a segment's entries and resolves their parents.
func (t *Tree) merge(s *segment) error {
	for _, d := range s.damage {
		d.Line += t.lines + 1
		t.damage.add(d)
	}
	headers, cites := s.headers, s.cites
	for i := range s.nodes {
		for len(headers) > 0 && headers[0] <= i {
			// The first header of a file lies before the scanned part.
			t.repeated, headers = true, headers[1:]
		}
		x := s.nodes[i]
		id := x.id.in(s.arena)
		x.line += uint32(t.lines) + 1
		if t.repeated {
			if same := t.nodes.find(id); same != noParent && t.sameLine(same, x) {
				t.folded++
				continue
			}
		}
		parent := s.parent[i].in(s.arena)
		at := int32(len(t.nodes.list))
		if len(parent) > 0 && string(parent) != t.session && string(parent) != t.origin {
			// Most entries follow their parent.
			if at > 0 && string(t.nodes.id(at-1)) == string(parent) {
				x.parent = at - 1
			} else if x.parent = t.nodes.find(parent); x.parent == noParent {
				t.orphans = append(t.orphans, orphan{at, string(parent)})
			}
		}
		for ; len(cites) > 0 && cites[0].node <= i; cites = cites[1:] {
			t.cited.add(cites[0], string(id), x)
		}
		if previous := t.nodes.add(x, id, s.hash[i]); previous != noParent {
			t.damage.add(Damage{Line: int(x.line), Offset: x.off, Bytes: int64(x.size), Kind: KindDuplicate, ID: string(id)})
			if t.cited != nil {
				t.repeats = append(t.repeats, at)
			}
		}
	}
	t.repeated = t.repeated || len(headers) > 0
	t.lines += s.lines
	t.unsealed += s.unsealed
	return nil
}

// sameLine reports whether x is, byte for byte, the line of an earlier entry.
func (t *Tree) sameLine(earlier int32, x node) bool {
	y := t.nodes.list[earlier]
	if x.size != y.size {
		return false
	}
	a, errA := readSpan(t.src, x.off, x.off+int64(x.size), nil)
	b, errB := readSpan(t.src, y.off, y.off+int64(y.size), nil)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// resolveOrphans tells a missing parent from a circle.
func (t *Tree) resolveOrphans() {
	for _, o := range t.orphans {
		x := t.nodes.list[o.node]
		d := Damage{Line: int(x.line), Offset: x.off, Bytes: int64(x.size), Kind: KindOrphan, ID: string(t.nodes.id(o.node))}
		for at := t.nodes.find([]byte(o.parent)); at != noParent; at = t.nodes.list[at].parent {
			if at == o.node {
				d.Kind = KindCycle
				break
			}
		}
		t.damage.add(d)
		if t.cited != nil {
			t.astray = append(t.astray, astray{o.node, o.parent, d.Kind})
		}
	}
	t.orphans = nil
	slices.SortStableFunc(t.damage, func(a, b Damage) int { return int(min(max(a.Offset-b.Offset, -1), 1)) })
}

// Node is one entry in a Tree.
type Node struct {
	ID     string
	Parent int // index of the parent, -1 for a root
	Offset int64
	Size   int // of the line, without its newline
	Line   int // in the file, from 1
}

// Len is the number of entries.
func (t *Tree) Len() int { return len(t.nodes.list) }

// Node returns entry i in file order.
func (t *Tree) Node(i int) Node {
	x := t.nodes.list[i]
	return Node{ID: string(t.nodes.id(int32(i))), Parent: int(x.parent), Offset: x.off, Size: int(x.size), Line: int(x.line)}
}

// All yields every entry in file order.
func (t *Tree) All() iter.Seq2[int, Node] {
	return func(yield func(int, Node) bool) {
		for i := range t.nodes.list {
			if !yield(i, t.Node(i)) {
				return
			}
		}
	}
}

// Find returns the index of the newest entry with that id, or -1.
func (t *Tree) Find(id string) int { return int(t.nodes.find([]byte(id))) }

// Leaf returns the index of the last entry of the file, or -1.
func (t *Tree) Leaf() int { return len(t.nodes.list) - 1 }

// Path returns the indexes from the root to entry i.
func (t *Tree) Path(i int) []int {
	var path []int
	// A parent always lies before its child, so this ends.
	for at := int32(i); at != noParent; at = t.nodes.list[at].parent {
		path = append(path, int(at))
	}
	slices.Reverse(path)
	return path
}

// Children returns, for each entry, the indexes of its children in file order,
// and the roots.
func (t *Tree) Children() (children [][]int, roots []int) {
	children = make([][]int, len(t.nodes.list))
	for i, x := range t.nodes.list {
		if x.parent == noParent {
			roots = append(roots, i)
		} else {
			children[x.parent] = append(children[x.parent], i)
		}
	}
	return children, roots
}

// Damage lists what is wrong with the file, in file order.
func (t *Tree) Damage() []Damage { return slices.Clone(t.damage) }
