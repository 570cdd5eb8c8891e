package search

import "math/bits"

// tokenSet collects tokens, each once, as a text with spaces between them.
type tokenSet struct {
	doc   []byte
	slots []tokenSlot
	used  int
	round uint32
}

type tokenSlot struct {
	round uint32
	hash  uint32
	off   uint32
	size  uint32
}

func (t *tokenSet) reset() {
	if t.slots == nil {
		t.slots = make([]tokenSlot, 1<<12)
	}
	t.doc, t.used = t.doc[:0], 0
	if t.round++; t.round == 0 {
		clear(t.slots)
		t.round = 1
	}
}

func (t *tokenSet) add(token []byte) {
	h := hashToken(token)
	mask := uint32(len(t.slots) - 1)
	at := h & mask
	for {
		s := &t.slots[at]
		if s.round != t.round {
			break
		}
		if s.hash == h && int(s.size) == len(token) && string(t.doc[s.off:s.off+s.size]) == string(token) {
			return
		}
		at = (at + 1) & mask
	}
	t.slots[at] = tokenSlot{t.round, h, uint32(len(t.doc)), uint32(len(token))}
	t.doc = append(append(t.doc, token...), ' ')
	if t.used++; 2*t.used > len(t.slots) {
		t.grow()
	}
}

func (t *tokenSet) grow() {
	old := t.slots
	t.slots = make([]tokenSlot, 2*len(old))
	mask := uint32(len(t.slots) - 1)
	for _, s := range old {
		if s.round != t.round {
			continue
		}
		at := s.hash & mask
		for t.slots[at].round == t.round {
			at = (at + 1) & mask
		}
		t.slots[at] = s
	}
}

// hashToken hashes at most maxToken bytes.
func hashToken(b []byte) uint32 {
	const k = 0x9E3779B97F4A7C15
	n := len(b)
	h := uint64(n) * k
	switch {
	case n >= 8:
		for i := 0; i+8 < n; i += 8 {
			h = bits.RotateLeft64(h^le64(b[i:]), 29) * k
		}
		h = (h ^ le64(b[n-8:])) * k // it may overlap what was hashed
	case n >= 4:
		h = (h ^ uint64(le32(b)) ^ uint64(le32(b[n-4:]))<<32) * k
	case n > 0:
		h = (h ^ uint64(b[0]) ^ uint64(b[n/2])<<8 ^ uint64(b[n-1])<<16) * k
	}
	return uint32((h ^ h>>29) * k >> 32)
}

func le32(b []byte) uint32 {
	_ = b[3]
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}
