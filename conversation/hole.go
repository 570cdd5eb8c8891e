package conversation

import (
	"errors"
	"fmt"

	"github.com/agentrun/agentrun/blobref"
)

// ErrNotState means that bytes are no conversation state.
var ErrNotState = errors.New("these bytes are no conversation state")

// ErrTooMuch means that a state claims more than was allowed: see Limits.
var ErrTooMuch = errors.New("the conversation state claims more than is allowed")

// Hole is a blob that a state names and that could not be read. Err is why:
// blobstore.ErrNotFound for an absent one. It is an error too, which wraps Err.
type Hole struct {
	ID   blobref.Ref
	What string // what it holds: "turn", "step", "chunk of the log", ...
	Err  error
}

func (h *Hole) Error() string {
	return fmt.Sprintf("the %s in blob %s is not there: %v", h.What, h.ID.Hex(), h.Err)
}

func (h *Hole) Unwrap() error { return h.Err }
