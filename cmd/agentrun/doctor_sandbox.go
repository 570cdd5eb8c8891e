package main

import (
	"fmt"

	"github.com/agentrun/agentrun/sandbox"
)

// doctorSandbox says what this machine can do for --sandbox, --net and --limits.
func (e *environment) doctorSandbox() error {
	p := sandbox.NewProbe()
	status := 0
	for _, list := range [][]sandbox.Ability{p.Modes, p.Limits} {
		for _, a := range list {
			if !a.OK {
				status = statusFindings
			}
		}
	}
	if e.json {
		if err := printJSON(e.stdout, p); err != nil {
			return err
		}
	} else {
		t := table(e.stdout)
		fmt.Fprintf(t, "kernel\t\t%s, user %d\n", p.Kernel, p.UID)
		for _, part := range []struct {
			what string
			list []sandbox.Ability
		}{{"sandbox", p.Modes}, {"limit", p.Limits}, {"means", p.Means}} {
			for _, a := range part.list {
				ok := "yes"
				if !a.OK {
					ok = "no"
				}
				fmt.Fprintf(t, "%s %s\t%s\t%s\n", part.what, a.Name, ok, a.What)
			}
		}
		if err := t.Flush(); err != nil {
			return fmt.Errorf("printing what is possible: %w", err)
		}
	}
	if status != 0 {
		return &commandError{status: status}
	}
	return nil
}
