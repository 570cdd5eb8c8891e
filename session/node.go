package session

import "hash/maphash"

// kind is the type of an entry as far as the tree needs to know it.
type kind uint8

const (
	kindOther kind = iota
	kindMessage
	kindCompaction
	kindCustom
	kindLabel
	kindTitle
	kindSettings // any entry that changes a setting
)

// kindOf classifies an entry type.
func kindOf(typ []byte) kind {
	switch string(typ) {
	case "message":
		return kindMessage
	case "compaction":
		return kindCompaction
	case "custom", "custom_message":
		return kindCustom
	case "label":
		return kindLabel
	case "title_change", "session_info":
		return kindTitle
	case "model_change", "thinking_level_change", "service_tier_change", "mode_change", "ttsr_injection":
		return kindSettings
	}
	return kindOther
}

const noParent int32 = -1

// node is one entry of the tree: where it lies, not what it says. A session of
// a million entries costs 40 MB of nodes.
type node struct {
	off    int64
	id     span // in nodes.arena
	size   uint32
	line   uint32
	parent int32 // index of the parent, or noParent
	kind   kind
}

// nodes is a growing list of entries with an index by id. A repeated id finds
// its newest entry, so that a parentId looked up while the list grows means the
// nearest preceding line with that id.
type nodes struct {
	list  []node
	arena []byte
	// table is an open-addressed hash table of indexes into list, plus one; its
	// length is a power of two. A Go map of strings would cost three times the
	// memory and time for a million short ids.
	table []uint32
	used  int
}

func (n *nodes) id(i int32) []byte { return n.list[i].id.in(n.arena) }

// seed keys the hash anew in each process, so that no file can be made whose ids
// all fall on one place of the table.
var seed = maphash.MakeSeed()

func hash(id []byte) uint64 { return maphash.Bytes(seed, id) }

// find returns the newest entry with that id, or noParent.
func (n *nodes) find(id []byte) int32 {
	if len(n.table) == 0 {
		return noParent
	}
	mask := uint64(len(n.table) - 1)
	for at := hash(id) & mask; ; at = (at + 1) & mask {
		v := n.table[at]
		if v == 0 {
			return noParent
		}
		if i := int32(v - 1); string(n.id(i)) == string(id) {
			return i
		}
	}
}

// add appends x, whose id is given, and returns the entry that had the id
// before, or noParent.
func (n *nodes) add(x node, id []byte) (previous int32) {
	x.id = span{uint32(len(n.arena)), uint32(len(id))}
	n.arena = append(n.arena, id...)
	n.list = append(n.list, x)
	if 2*(n.used+1) > len(n.table) {
		n.grow()
	}
	return n.insert(int32(len(n.list) - 1))
}

func (n *nodes) insert(i int32) (previous int32) {
	id := n.id(i)
	mask := uint64(len(n.table) - 1)
	for at := hash(id) & mask; ; at = (at + 1) & mask {
		v := n.table[at]
		if v == 0 {
			n.table[at] = uint32(i) + 1
			n.used++
			return noParent
		}
		if p := int32(v - 1); string(n.id(p)) == string(id) {
			n.table[at] = uint32(i) + 1
			return p
		}
	}
}

func (n *nodes) grow() {
	old := n.table
	n.table = make([]uint32, max(1024, 4*len(old)))
	n.used = 0
	for _, v := range old {
		if v != 0 {
			n.insert(int32(v - 1))
		}
	}
}

// reserve makes room for about count entries.
func (n *nodes) reserve(count int) {
	if cap(n.list)-len(n.list) < count {
		list := make([]node, len(n.list), len(n.list)+count)
		copy(list, n.list)
		n.list = list
	}
}
