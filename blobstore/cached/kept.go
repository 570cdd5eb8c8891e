package cached

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentrun/agentrun/blobref"
)

// overhead is about what an entry takes beside its bytes: itself, its key and
// its place in the map.
const overhead = 256

// kept is a bounded set of entries: a map that is read without a lock, and a list
// by which the least useful one is found when room is wanted. Which one that is
// follows SIEVE (Zhang and others, NSDI 2024): new entries come to one end, a
// hand goes from the other end towards them, spares who was asked for since it
// last came by, and takes the first who was not. A hit moves nothing, it only
// leaves a mark; and a scan through many blobs that nobody wants twice passes
// without driving out those that are.
//
// All methods but find and fits are called under the mutex of the Store.
type kept struct {
	limit   int64    // bytes
	entries sync.Map // blobref.Ref: *entry

	count          int
	bytes          int64
	newest, oldest *entry
	hand           *entry // nil: begins at the oldest
}

// entry is a blob, or that there is none. Its data never changes.
type entry struct {
	ref    blobref.Ref
	data   []byte
	absent bool
	until  time.Time // of an absence: when it is no longer believed

	wanted       atomic.Bool // since the hand came by
	newer, older *entry
}

func (e *entry) cost() int64 { return overhead + int64(cap(e.data)) }

// fits reports whether a blob of size bytes can be kept.
func (k *kept) fits(size int) bool { return overhead+int64(size) <= k.limit }

// find returns the entry of ref, or nil.
func (k *kept) find(ref blobref.Ref) *entry {
	found, ok := k.entries.Load(ref)
	if !ok {
		return nil
	}
	e := found.(*entry)
	if e.absent && !time.Now().Before(e.until) {
		return nil
	}
	// A mark that is there is not set again, so that processors can share it.
	if !e.wanted.Load() {
		e.wanted.Store(true)
	}
	return e
}

// add keeps e in the place of what was kept under its ref, and makes room for it.
func (k *kept) add(e *entry) {
	k.remove(e.ref)
	if e.cost() > k.limit {
		return
	}
	for k.bytes+e.cost() > k.limit {
		k.evict()
	}
	if e.older = k.newest; e.older != nil {
		e.older.newer = e
	} else {
		k.oldest = e
	}
	k.newest = e
	k.count++
	k.bytes += e.cost()
	k.entries.Store(e.ref, e)
}

// evict removes one entry; there is one.
func (k *kept) evict() {
	e := k.hand
	// Twice around is enough to find one that is not wanted, but for readers who
	// want all of them again while the hand passes.
	for range 2 * k.count {
		if e == nil {
			e = k.oldest
		}
		if !e.wanted.Swap(false) {
			break
		}
		e = e.newer
	}
	if e == nil {
		e = k.oldest
	}
	k.hand = e
	k.unlink(e)
}

// remove forgets ref.
func (k *kept) remove(ref blobref.Ref) {
	if found, ok := k.entries.Load(ref); ok {
		k.unlink(found.(*entry))
	}
}

func (k *kept) unlink(e *entry) {
	k.entries.Delete(e.ref)
	if k.hand == e {
		k.hand = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		k.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		k.oldest = e.newer
	}
	e.newer, e.older = nil, nil
	k.count--
	k.bytes -= e.cost()
}

// clear forgets everything.
func (k *kept) clear() {
	for k.oldest != nil {
		k.unlink(k.oldest)
	}
}
