package session

import (
	"hash/maphash"
	"slices"
)

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
	// table is an open-addressed hash table; its length is a power of two. A Go map
	// of strings would cost three times the memory and time for a million short ids.
	table []slot
	used  int
}

// slot holds the hash of an id and the index of its newest entry plus one; 0 is an
// empty slot. With the hash in it a look at another id's slot touches no other
// memory, and growing the table none at all.
type slot uint64

func newSlot(h uint32, i int32) slot { return slot(h)<<32 | slot(uint32(i)+1) }
func (s slot) hash() uint32          { return uint32(s >> 32) }
func (s slot) index() int32          { return int32(uint32(s) - 1) }

func (n *nodes) id(i int32) []byte { return n.list[i].id.in(n.arena) }

// seed keys the hash anew in each process, so that no file can be made whose ids
// all fall on one place of the table.
var seed = maphash.MakeSeed()

func hash(id []byte) uint32 { return uint32(maphash.Bytes(seed, id)) }

// find returns the newest entry with that id, or noParent.
func (n *nodes) find(id []byte) int32 {
	if len(n.table) == 0 {
		return noParent
	}
	if at := n.place(hash(id), id); n.table[at] != 0 {
		return n.table[at].index()
	}
	return noParent
}

// place returns where in the table an id is, or would go.
func (n *nodes) place(h uint32, id []byte) int {
	mask := uint32(len(n.table) - 1)
	at := h & mask
	for n.table[at] != 0 && (n.table[at].hash() != h || string(n.id(n.table[at].index())) != string(id)) {
		at = (at + 1) & mask
	}
	return int(at)
}

// add appends x, whose id and its hash are given, and returns the entry that had
// the id before, or noParent.
func (n *nodes) add(x node, id []byte, h uint32) (previous int32) {
	if 2*(n.used+1) > len(n.table) {
		n.resize(max(1024, 4*len(n.table)))
	}
	i := int32(len(n.list))
	at := n.place(h, id)
	x.id = span{uint32(len(n.arena)), uint32(len(id))}
	n.arena = append(n.arena, id...)
	n.list = append(n.list, x)
	if previous = n.table[at].index(); previous == noParent {
		n.used++
	}
	n.table[at] = newSlot(h, i)
	return previous
}

func (n *nodes) resize(size int) {
	old := n.table
	n.table = make([]slot, size)
	mask := uint32(size - 1)
	for _, v := range old {
		if v == 0 {
			continue
		}
		at := v.hash() & mask
		for n.table[at] != 0 {
			at = (at + 1) & mask
		}
		n.table[at] = v
	}
}

// reserve makes room for about count entries with ids of idBytes together.
func (n *nodes) reserve(count, idBytes int) {
	n.list = slices.Grow(n.list, count)
	n.arena = slices.Grow(n.arena, idBytes)
	size := 1024
	for size < 2*count {
		size *= 2
	}
	if size > len(n.table) {
		n.resize(size)
	}
}
