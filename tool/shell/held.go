package shell

import (
	"fmt"
	"io"
	"os"

	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/tool/bash"
)

// maxHeld is how much of what comes between two scripts is kept for the next one.
const maxHeld = 64 << 10

// held is what processes in the background wrote between two scripts.
type held struct {
	pieces  []piece
	bytes   int
	dropped int64
}

type piece struct {
	b      []byte
	stderr bool
}

func (h *held) add(b []byte, stderr bool) {
	h.pieces = append(h.pieces, piece{append([]byte(nil), b...), stderr})
	h.bytes += len(b)
	for h.bytes > maxHeld {
		first := &h.pieces[0]
		n := min(len(first.b), h.bytes-maxHeld)
		first.b = first.b[n:]
		h.bytes -= n
		h.dropped += int64(n)
		if len(first.b) == 0 {
			h.pieces = h.pieces[1:]
		}
	}
}

// deliver gives it to a script's writers.
func (h *held) deliver(c *bash.Script) {
	write := func(w io.Writer, b []byte) {
		if w != nil {
			_, _ = w.Write(b) // it will say so again when the script writes
		}
	}
	if h.dropped > 0 {
		write(c.Stdout, fmt.Appendf(nil, "[%s that the background of the shell wrote before were dropped]\n", quantity.Bytes(h.dropped)))
	}
	for _, p := range h.pieces {
		if p.stderr {
			write(c.Stderr, p.b)
		} else {
			write(c.Stdout, p.b)
		}
	}
	*h = held{}
}

// copyFile makes to what from is.
func copyFile(to, from *os.File) error {
	if _, err := io.Copy(io.NewOffsetWriter(to, 0), io.NewSectionReader(from, 0, maxState)); err != nil {
		return fmt.Errorf("copying the state of the shell: %w", err)
	}
	return nil
}
