package pipe

import "bytes"

// MaxLate is how much a Late keeps, in bytes.
const MaxLate = 64 << 10

// Late is what came when nobody was there to take it, between two scripts or behind the end of a cell: the last [MaxLate] bytes
// in the order of their arrival, each with where it is from. It is not safe for concurrent use.
type Late[From comparable] struct {
	Pieces  []Piece[From]
	Dropped int64 // bytes that came before them

	size int
}

// Piece is what came from one place.
type Piece[From comparable] struct {
	From  From
	Bytes []byte
}

// Add keeps a copy of b.
func (l *Late[From]) Add(from From, b []byte) {
	if n := len(l.Pieces); n > 0 && l.Pieces[n-1].From == from {
		l.Pieces[n-1].Bytes = append(l.Pieces[n-1].Bytes, b...)
	} else {
		l.Pieces = append(l.Pieces, Piece[From]{from, bytes.Clone(b)})
	}
	l.size += len(b)
	for l.size > MaxLate {
		first := &l.Pieces[0]
		n := min(len(first.Bytes), l.size-MaxLate)
		first.Bytes = first.Bytes[n:]
		l.size -= n
		l.Dropped += int64(n)
		if len(first.Bytes) == 0 {
			l.Pieces = l.Pieces[1:]
		}
	}
}
