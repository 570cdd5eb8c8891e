// Command agentrun runs commands for agents and keeps what must not be lost: a
// bounded view of the output is printed, output that does not fit into it is kept whole
// in an artifact, and the run is recorded in the log of a session.
//
// The command line only chooses and prints; what is promised is promised by the
// packages session, tool/bash, tool/read, artifacts and internalurl.
//
// # Streams
//
// What was asked for goes to standard output, with exec, bash and ssh the output of the
// command and the notice that tells what of it is not shown. Everything else that
// agentrun has to say goes to standard error, on lines that begin with
// "agentrun: ".
//
// # Exit status
//
// 0 for success, 2 for wrong usage, 1 for every other error. exec, bash and ssh exit
// with the status of the command, 128+n when signal n ended it, 124 after a
// timeout, 126 and 127 when it can not be executed or is not found, 125 when
// agentrun itself failed, and 128+n when agentrun got signal n and ended the command.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/agentrun/agentrun/cmd/agentrun/internal/anew"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/read"
	"github.com/agentrun/agentrun/tool/shell"
)

func main() {
	shell.Main()
	read.Main()
	if err := anew.Err; err != nil {
		fmt.Fprintf(os.Stderr, "agentrun: %v\n", err)
		os.Exit(bash.CodeFailure)
	}
	os.Exit(run(os.Args[1:]))
}

// run is the whole program; its result is the exit status.
func run(args []string) int {
	env := &environment{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, args: args}
	root := newRootCommand(env)
	root.SetArgs(commandFirst(root, args))
	err := root.ExecuteContext(context.Background())
	env.tellVaults()
	env.guard.Close()
	return env.conclude(err)
}
