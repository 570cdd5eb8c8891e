package bash

import "github.com/agentrun/agentrun/internal/process"

// Owner says which process ran a command, well enough to tell later whether it still does.
type Owner = process.ID

// Life is what can be said from here about the process of a run.
type Life process.Life

const (
	Gone    = Life(process.Gone)    // it has ended
	Alive   = Life(process.Alive)   // it runs on this host
	Unknown = Life(process.Unknown) // it ran on another host
)

// String returns the word that is shown for a run of such a process.
func (l Life) String() string {
	switch l {
	case Gone:
		return "interrupted"
	case Alive:
		return "running"
	}
	return "unknown"
}
