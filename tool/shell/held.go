package shell

import (
	"fmt"
	"io"
	"os"

	"github.com/agentrun/agentrun/internal/pipe"
	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/tool/bash"
)

// held is what processes in the background wrote between two scripts, by whether it went to standard error.
type held struct{ pipe.Late[bool] }

// deliver gives it to a script's writers.
func (h *held) deliver(c *bash.Script) {
	write := func(w io.Writer, b []byte) {
		if w != nil {
			_, _ = w.Write(b) // it will say so again when the script writes
		}
	}
	if h.Dropped > 0 {
		write(c.Stdout, fmt.Appendf(nil, "[%s that the background of the shell wrote before were dropped]\n", quantity.Bytes(h.Dropped)))
	}
	for _, p := range h.Pieces {
		if p.From {
			write(c.Stderr, p.Bytes)
		} else {
			write(c.Stdout, p.Bytes)
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
