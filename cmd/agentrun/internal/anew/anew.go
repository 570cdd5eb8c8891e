// Package anew executes the program without variables that look like secrets, see package withhold, when it is
// initialised: before the packages behind it in the order of initialisation, which the Go specification makes that of
// import paths. What they would have done would be done twice. It is for a program alone, and not for a library.
package anew

import (
	"os"

	"github.com/agentrun/agentrun/internal/withhold"
)

// Err is why the environment could not be cleared, nil when it was.
var Err error

func init() {
	if len(os.Args) > 0 && os.Args[0] == "agentrun-shim" || len(os.Args) > 1 && os.Args[1] == "agentrun-sandbox" {
		return // its environment is that of the command that it starts, made by who started it
	}
	Err = withhold.Main()
}
