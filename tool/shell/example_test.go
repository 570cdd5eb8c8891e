package shell_test

import (
	"context"
	"fmt"
	"os"

	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/shell"
)

func Example() {
	// shell.Main() is the first call of main.
	s, err := shell.New(shell.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	for _, script := range []string{"cd /usr; greeting=hello", "echo $greeting from $PWD", "exit 3"} {
		exit, err := s.RunScript(context.Background(), &bash.Script{Text: script, Stdout: os.Stdout, Stderr: os.Stderr})
		fmt.Println(exit.Code, err)
	}
	// Output:
	// 0 <nil>
	// hello from /usr
	// 0 <nil>
	// 3 <nil>
}
