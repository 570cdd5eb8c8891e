package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/agentrun/agentrun/agent/instructions"
	"github.com/agentrun/agentrun/agent/plan"
	"github.com/agentrun/agentrun/session/entry"
)

// told is what files of a project and of the home tell agents.
type told struct {
	docs   []instructions.Document
	skills []instructions.Skill
}

// told reads it. What cannot be read is told of and left out.
func (c *agentCommand) told(b *workbench) (*told, error) {
	p, err := instructions.NewProject(b.session.Home(), b.session.CWD())
	if err != nil {
		return nil, err
	}
	t := &told{}
	var problems, more []error
	t.docs, problems = p.Documents()
	t.skills, more = p.Skills()
	for _, problem := range append(problems, more...) {
		c.remark("%s", sentence(problem))
	}
	return t, nil
}

// documents are the parts of a system prompt that every agent has.
func (t *told) documents() entry.Prompt {
	if text := instructions.Prompt(t.docs); text != "" {
		return entry.Prompt{text}
	}
	return nil
}

// skillPrompt names the skills, for those who can read them.
func (t *told) skillPrompt() entry.Prompt {
	if text := instructions.SkillPrompt(t.skills); text != "" {
		return entry.Prompt{text}
	}
	return nil
}

// said is what a prompt says, and what belongs before it: a slash command is its text, files that are mentioned are shown.
func (c *agentCommand) said(b *workbench, prompt *string) (string, []entry.Body, error) {
	if prompt == nil {
		return "", nil, nil
	}
	text := *prompt
	if name, arguments, ok := instructions.ParseSlash(text); ok {
		p, err := instructions.NewProject(b.session.Home(), b.session.CWD())
		if err != nil {
			return "", nil, err
		}
		command, err := p.Command(name)
		if err != nil {
			return "", nil, fmt.Errorf("%w; a prompt that is to begin with a slash has a space before it", err)
		}
		if text, err = command.Expand(arguments); err != nil {
			return "", nil, err
		}
	}
	// Only what the person wrote mentions files: that of a command is the project's.
	files, problems := instructions.Mention(b.files, instructions.ParseMentions(*prompt))
	for _, problem := range problems {
		c.remark("%s", sentence(problem))
	}
	if files == nil {
		return text, nil, nil
	}
	return text, []entry.Body{*files}, nil
}

// askedMode is the mode that was asked for.
func (c *agentCommand) askedMode() (plan.Mode, error) {
	mode, err := plan.ParseMode(cmp.Or(c.mode, string(plan.Agent)))
	if err != nil {
		return mode, usagef("--mode: %v", err)
	}
	return mode, nil
}

// enterMode reads the mode of the session, and puts the one that was asked for before what belongs to the prompt.
func (c *agentCommand) enterMode(ctx context.Context, b *workbench, with []entry.Body) ([]entry.Body, error) {
	mode, err := c.askedMode()
	if err != nil {
		return nil, err
	}
	if c.board, err = plan.Open(ctx, b.session); err != nil || c.mode == "" {
		return with, err
	}
	return append(c.board.Enter(mode), with...), nil
}
