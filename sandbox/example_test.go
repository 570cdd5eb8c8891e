package sandbox_test

import (
	"context"
	"fmt"
	"os"

	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/tool/bash"
)

// The main of a program that does this calls sandbox.Main before anything else.
func Example() {
	dir, err := os.MkdirTemp("", "workspace")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	res, err := bash.Run(context.Background(), bash.Options{
		Script: "echo mine >file && cat file; echo no >/etc/agentrun 2>/dev/null || echo refused",
		Dir:    dir,
		Sandbox: &sandbox.Policy{
			Mode: sandbox.Workspace, Roots: []string{dir}, NetOff: true,
			Limits: sandbox.Limits{File: 1 << 30},
		},
	})
	if err != nil { // sandbox.ErrImpossible, where this machine can not do that
		fmt.Println(err)
		return
	}
	fmt.Println(res.Output)
}
