package python

import (
	"fmt"

	"github.com/agentrun/agentrun/internal/pipe"
	"github.com/agentrun/agentrun/internal/quantity"
)

// late is what threads and processes wrote when their cell had ended, by the number of that.
type late struct{ pipe.Late[int] }

// bytes are what is there, without a word about it.
func (l *late) bytes() []byte {
	var all []byte
	for _, p := range l.Pieces {
		all = append(all, p.Bytes...)
	}
	return all
}

// take returns what is there as it is shown, and forgets it; nil for nothing.
func (l *late) take() []byte {
	if len(l.Pieces) == 0 {
		return nil
	}
	var out []byte
	line := func() {
		if n := len(out); n > 0 && out[n-1] != '\n' {
			out = append(out, '\n')
		}
	}
	if l.Dropped > 0 {
		out = fmt.Appendf(out, "[%s that came behind the end of their cells were dropped]\n", quantity.Bytes(l.Dropped))
	}
	for _, p := range l.Pieces {
		line()
		if p.From == 0 {
			out = append(out, "[printed while Python started:]\n"...)
		} else {
			out = fmt.Appendf(out, "[printed by cell %d behind its end:]\n", p.From)
		}
		out = append(out, p.Bytes...)
	}
	line()
	out = append(out, "[end of that]\n"...)
	*l = late{}
	return out
}
