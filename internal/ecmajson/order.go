package ecmajson

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// span is a stretch of the text: of a key literal, or of a whole member.
type span struct{ start, end int }

// unordered is an object whose members JSON.parse would put in another order,
// or of which it would keep only some.
type unordered struct {
	open, close int    // offsets of its braces
	members     []span // in the order to be written
}

// frame is an open object.
type frame struct {
	ordered bool
	names   bool  // a key that is no array index has been seen
	index   int64 // the highest array index among its keys, -1 before the first
	open    int
	first   int    // index into checker.keys of its first key
	seen    uint64 // a bit for each hash of a key seen
	large   int    // 1 + index into checker.large, for an object of many keys
}

// checker reads a value in one pass, and tells whether its tokens are normal
// and which objects are not in order.
type checker struct {
	frames    []frame // of all open objects, innermost last
	keys      []span  // of all open objects, innermost last
	large     []map[string]struct{}
	unordered []unordered
}

// check reports whether b is one value made of normal tokens, without white
// space. The grammar is that of scan.
func (c *checker) check(b []byte) (ok bool) {
	c.frames, c.keys, c.large, c.unordered = c.frames[:0], c.keys[:0], nil, nil
	var open nesting
	object := false // whether the innermost open container is an object
	i := 0
value:
	if i >= len(b) {
		return false
	}
	switch b[i] {
	case '"':
		if i, ok = normalStringEnd(b, i); !ok {
			return false
		}
	case '{':
		c.frames = append(c.frames, frame{ordered: true, index: -1, open: i, first: len(c.keys)})
		open.push(true)
		object = true
		i++
		if i < len(b) && b[i] == '}' {
			break // the closing brace is read below
		}
		goto key
	case '[':
		open.push(false)
		object = false
		i++
		if i < len(b) && b[i] == ']' {
			break
		}
		goto value
	case 't', 'f', 'n':
		if i, ok = wordEnd(b, i); !ok {
			return false
		}
	default:
		start := i
		if i, ok = numberEnd(b, i); !ok || !normalNumber(b[start:i]) {
			return false
		}
	}
after:
	if open.depth == 0 {
		return i == len(b)
	}
	if i >= len(b) {
		return false
	}
	switch {
	case b[i] == ',':
		i++
		if !object {
			goto value
		}
		goto key
	case b[i] == '}' && object:
		c.closeObject(b, i)
	case b[i] == ']' && !object:
	default:
		return false
	}
	object = open.pop()
	i++
	goto after
key:
	if i >= len(b) || b[i] != '"' {
		return false
	}
	start := i
	if i, ok = normalStringEnd(b, i); !ok || i >= len(b) || b[i] != ':' {
		return false
	}
	c.key(b, start, i)
	i++
	goto value
}

// closeObject leaves the innermost object, whose brace is at closing.
func (c *checker) closeObject(b []byte, closing int) {
	f := &c.frames[len(c.frames)-1]
	if !f.ordered {
		c.unordered = append(c.unordered, unordered{open: f.open, close: closing, members: order(b, c.keys[f.first:], closing)})
	}
	c.keys = c.keys[:f.first]
	c.frames = c.frames[:len(c.frames)-1]
}

// manyKeys is the number of members from which a map finds a repeated key.
const manyKeys = 32

// key notes the key literal b[start:end] of the innermost object.
func (c *checker) key(b []byte, start, end int) {
	f := &c.frames[len(c.frames)-1]
	lit := b[start:end]
	if n, ok := arrayIndex(lit); ok {
		if f.names || n <= f.index {
			f.ordered = false
		}
		f.index = max(f.index, n)
	} else {
		f.names = true
		if f.ordered {
			f.ordered = !c.repeated(b, f, lit)
		}
	}
	c.keys = append(c.keys, span{start, end})
}

// repeated reports whether the object has a key lit already, and remembers it.
func (c *checker) repeated(b []byte, f *frame, lit []byte) bool {
	if f.large > 0 {
		known := c.large[f.large-1]
		before := len(known)
		known[string(lit)] = struct{}{}
		return len(known) == before
	}
	keys := c.keys[f.first:]
	if len(keys) >= manyKeys {
		known := make(map[string]struct{}, 2*manyKeys)
		for _, k := range keys {
			known[string(b[k.start:k.end])] = struct{}{}
		}
		c.large = append(c.large, known)
		f.large = len(c.large)
		return c.repeated(b, f, lit)
	}
	bit := uint64(1) << keyHash(lit)
	if f.seen&bit != 0 {
		for _, k := range keys {
			if k.end-k.start == len(lit) && bytes.Equal(b[k.start:k.end], lit) {
				return true
			}
		}
	}
	f.seen |= bit
	return false
}

// keyHash maps a key literal to 0..63, by its length and its first and last bytes.
func keyHash(lit []byte) uint64 {
	const odd = 0x9E3779B97F4A7C15
	n := len(lit)
	h := uint64(n)
	switch {
	case n >= 8:
		h ^= binary.LittleEndian.Uint64(lit) ^ binary.LittleEndian.Uint64(lit[n-8:])*31
	case n >= 4:
		h ^= uint64(binary.LittleEndian.Uint32(lit))<<32 ^ uint64(binary.LittleEndian.Uint32(lit[n-4:]))
	default: // one character at most
		h ^= uint64(lit[1]) << 8
	}
	return h * odd >> 58
}

// arrayIndex reads a key literal that is an array index of ECMAScript: the
// canonical decimal form of an integer from 0 to 2^32-2.
func arrayIndex(lit []byte) (n int64, ok bool) {
	if lit[1]-'0' > 9 {
		return 0, false // nearly always
	}
	digits := lit[1 : len(lit)-1]
	if len(digits) > 10 || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	for _, c := range digits {
		if c-'0' > 9 {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, n <= 1<<32-2
}

// order gives the members of an object as JSON.parse would leave them. Between
// one key and the next there is nothing but a colon, the value and a comma.
func order(b []byte, keys []span, closing int) []span {
	type member struct {
		span
		index int64 // -1 for a name
	}
	members := make([]member, 0, len(keys))
	at := make(map[string]int, len(keys))
	for i, k := range keys {
		end := closing
		if i+1 < len(keys) {
			end = keys[i+1].start - 1
		}
		lit := b[k.start:k.end]
		if first, ok := at[string(lit)]; ok {
			members[first].span = span{k.start, end}
			continue
		}
		index, ok := arrayIndex(lit)
		if !ok {
			index = -1
		}
		at[string(lit)] = len(members)
		members = append(members, member{span{k.start, end}, index})
	}
	slices.SortStableFunc(members, func(a, b member) int {
		// As unsigned numbers, names come last and equal.
		switch x, y := uint64(a.index), uint64(b.index); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	out := make([]span, len(members))
	for i, m := range members {
		out[i] = m.span
	}
	return out
}
