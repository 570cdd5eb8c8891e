package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/instructions"
	"github.com/agentrun/agentrun/agent/permission"
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

// said is what a prompt says: a slash command is its text.
func (c *agentCommand) said(b *workbench, prompt *string) (string, error) {
	if prompt == nil {
		return "", nil
	}
	text := *prompt
	if name, arguments, ok := instructions.ParseSlash(text); ok {
		p, err := instructions.NewProject(b.session.Home(), b.session.CWD())
		if err != nil {
			return "", err
		}
		command, err := p.Command(name)
		if err != nil {
			return "", fmt.Errorf("%w; a prompt that is to begin with a slash has a space before it", err)
		}
		if text, err = command.Expand(arguments); err != nil {
			return "", err
		}
	}
	return text, nil
}

// mention puts the files that a prompt mentions behind with, if the rules let the agent read them. What is not shown is told.
// Only what the person wrote mentions files: that of a command is the project's.
func (w *work) mention(ctx context.Context, b *workbench, prompt *string, with []entry.Body) []entry.Body {
	if prompt == nil {
		return with
	}
	files, problems := instructions.Mention(b.files, instructions.ParseMentions(*prompt), func(name string) error {
		return w.mayRead(ctx, b, name)
	})
	for _, problem := range problems {
		text := b.cleared(sentence(problem))
		if w.view.json {
			w.view.remark("%s", text)
		}
		w.view.observe(agent.MainID, agent.Warned{Text: text})
	}
	if files != nil {
		with = append(with, *files)
	}
	return with
}

// mayRead asks the rules, and where they say so a person, whether the agent may read a file.
func (w *work) mayRead(ctx context.Context, b *workbench, name string) error {
	arguments, err := json.Marshal(map[string]string{"path": name})
	if err != nil {
		return err
	}
	d := permission.Decide(b.files.Dir(), w.rules, "read", arguments)
	switch {
	case d.Action == permission.Allow:
		return nil
	case d.Action == permission.Deny:
		return errors.New(d.String())
	case w.ask == nil:
		return fmt.Errorf("%v, and nobody is there to be asked", d)
	}
	yes, err := w.ask(ctx, agent.Question{Agent: agent.MainID, Tool: "read", Arguments: arguments, Decision: d})
	switch {
	case err != nil:
		return fmt.Errorf("%v, and the question failed: %w", d, err)
	case !yes:
		return fmt.Errorf("%v, and the person who was asked refused", d)
	}
	return nil
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
	if c.board, err = plan.Open(ctx, b.session); err != nil {
		return with, err
	}
	if c.mode == "" {
		c.tellMode()
		return with, nil
	}
	return append(c.board.Enter(mode), with...), nil
}

// tellMode says which mode holds though nobody asked for it now; a chat does once.
func (c *agentCommand) tellMode() {
	held := c.board.Mode()
	if c.chat != nil {
		if c.chat.modeTold == held {
			return
		}
		c.chat.modeTold = held
	}
	if held != plan.Agent {
		c.remark("the mode of the session is %s, as it was: --mode agent leaves it", held)
	}
}
