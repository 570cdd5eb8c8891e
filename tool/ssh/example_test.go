package ssh_test

import (
	"context"
	"fmt"

	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/ssh"
)

func Example() {
	host, err := ssh.ParseHost("me@build.example.com:2222")
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := ssh.New(ssh.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := bash.Run(context.Background(), bash.Options{
		Script: "make 2>&1 | tail",
		Host:   host.String(),
		Shell:  client.On(host, "~/src"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Code, res.Output)
}

func ExampleParseHost() {
	_, err := ssh.ParseHost("-oProxyCommand=x")
	fmt.Println(err != nil)
	// Output: true
}
