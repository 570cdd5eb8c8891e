package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/task"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/shell"
	"github.com/agentrun/agentrun/tool/workspace"
)

// mainTools are those of the agent of the session. In a chat its shell goes on between the runs.
func (c *agentCommand) mainTools(b *workbench) (tools []tool.Tool, release func(), err error) {
	if c.chat == nil {
		return agentTools(b)
	}
	if c.chat.tools == nil {
		if c.chat.tools, c.chat.release, err = agentTools(b); err != nil {
			return nil, nil, err
		}
	}
	return slices.Clip(c.chat.tools), func() {}, nil
}

// agentTools are the tools of an agent, with a shell that goes on between its calls.
func agentTools(b *workbench) (tools []tool.Tool, release func(), err error) {
	sh, err := shell.New(shell.Options{Dir: b.files.Dir(), Sandbox: b.policy})
	if err != nil {
		return nil, nil, err
	}
	set, err := toolsOf(b)
	if err != nil {
		return nil, nil, errors.Join(err, sh.Close())
	}
	tools = set.Tools()
	for _, t := range tools {
		if t, ok := t.(*bash.Tool); ok {
			t.Shell, t.Sandbox = sh, nil // the shell has its sandbox for its life
		}
	}
	return tools, func() { _ = sh.Close() }, nil // what it ran is over, and in the log
}

// spacesOf is where a home has the files of isolated subagents.
func spacesOf(home string) string { return filepath.Join(home, "isolated") }

// subagentTools are the tools of a subagent, which work where it does.
func subagentTools(b *workbench, of task.Subagent) (tools []tool.Tool, release func(), err error) {
	own := *b
	own.session = of.Session
	if !of.Isolated {
		return agentTools(&own)
	}
	own.files, err = workspace.Open(workspace.Options{
		Dir: of.Dir, Roots: []string{of.Dir}, Sync: b.durability.value == session.Sync, Seen: seenBy(of.Session),
	})
	if err != nil {
		return nil, nil, err
	}
	own.policy = policyOf(b, of)
	tools, done, err := agentTools(&own)
	if err != nil {
		return nil, nil, errors.Join(err, own.files.Close())
	}
	return tools, func() { done(); _ = own.files.Close() }, nil // which only was looked through
}

// policyOf is what commands of a subagent may do.
func policyOf(b *workbench, of task.Subagent) *sandbox.Policy {
	if b.policy == nil || !of.Isolated {
		return b.policy
	}
	policy := *b.policy
	policy.Roots = []string{of.Dir}
	if of.Repository != "" { // below /tmp it would not be there
		policy.Protected = append(slices.Clone(policy.Protected), of.Repository)
	}
	return &policy
}

// runProgram runs a program that is a subagent, in a shell of its own: what it has started ends with that.
func runProgram(ctx context.Context, b *workbench, of task.Subagent, argv []string, stdin string) (res bash.Result, err error) {
	sh, err := shell.New(shell.Options{Dir: of.Dir, Sandbox: policyOf(b, of), Once: true})
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	o := bash.Options{
		Script: bash.Quote(argv), Shell: sh, Dir: of.Dir, Log: of.Session, Artifacts: b.kept(), Redact: b.session.Redactor(),
	}
	if stdin != "" {
		f, err := durable.CreateTemp(durable.OS, of.Session.ArtifactsDir(), "stdin")
		if err != nil {
			return res, fmt.Errorf("keeping what the program reads: %w", err)
		}
		_, err = f.Write([]byte(stdin))
		defer func() { _ = durable.OS.Remove(f.Name()) }() // else gc does
		if err = errors.Join(err, f.Close()); err != nil {
			return res, fmt.Errorf("keeping what the program reads: %w", err)
		}
		o.StdinPath = f.Name()
	}
	return bash.Run(ctx, o)
}
