package python

import (
	"bytes"
	"fmt"

	"github.com/agentrun/agentrun/internal/quantity"
)

// maxLate is how much of what comes behind the end of its cell is kept for the next one, in bytes.
const maxLate = 64 << 10

// late is what threads and processes wrote when their cell had ended.
type late struct {
	pieces  []lately
	size    int
	dropped int64
}

type lately struct {
	cell int
	b    []byte
}

func (l *late) add(cell int, b []byte) {
	if n := len(l.pieces); n > 0 && l.pieces[n-1].cell == cell {
		l.pieces[n-1].b = append(l.pieces[n-1].b, b...)
	} else {
		l.pieces = append(l.pieces, lately{cell, bytes.Clone(b)})
	}
	l.size += len(b)
	for l.size > maxLate {
		first := &l.pieces[0]
		n := min(len(first.b), l.size-maxLate)
		first.b = first.b[n:]
		l.size -= n
		l.dropped += int64(n)
		if len(first.b) == 0 {
			l.pieces = l.pieces[1:]
		}
	}
}

// bytes are what is there, without a word about it.
func (l *late) bytes() []byte {
	var all []byte
	for _, p := range l.pieces {
		all = append(all, p.b...)
	}
	return all
}

// take returns what is there as it is shown, and forgets it; nil for nothing.
func (l *late) take() []byte {
	if len(l.pieces) == 0 {
		return nil
	}
	var out []byte
	line := func() {
		if n := len(out); n > 0 && out[n-1] != '\n' {
			out = append(out, '\n')
		}
	}
	if l.dropped > 0 {
		out = fmt.Appendf(out, "[%s that came behind the end of their cells were dropped]\n", quantity.Bytes(l.dropped))
	}
	for _, p := range l.pieces {
		line()
		if p.cell == 0 {
			out = append(out, "[printed while Python started:]\n"...)
		} else {
			out = fmt.Appendf(out, "[printed by cell %d behind its end:]\n", p.cell)
		}
		out = append(out, p.b...)
	}
	line()
	out = append(out, "[end of that]\n"...)
	*l = late{}
	return out
}
