package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/instructions"
	"github.com/agentrun/agentrun/cmd/agentrun/internal/chat"
	"github.com/agentrun/agentrun/cmd/agentrun/internal/picker"
)

func newChatCommand(env *environment) *cobra.Command {
	c := &agentCommand{environment: env}
	pick := false
	cmd := &cobra.Command{
		Use:   "chat [ID]",
		Short: "Work with an agent at the terminal",
		Long: `chat goes on with the session ID, by default the newest of the working directory
or a new one, with a person: what is typed is a prompt as that of agentrun run,
and while the agent works it is said to it before its next step. Slash commands
and @path are as there; the chat's own commands are

  /tree       the entries of the session: enter has it go on from one (ctrl+t)
  /artifacts  kept output and reports: enter opens one in $PAGER (ctrl+o)
  /sessions   another session from a list
  /resume     go on with a run that was interrupted
  /mode       /mode plan has the next prompts worked on in that mode
  /help, /quit

Enter sends; alt+enter, ctrl+j or a \ before enter begins a line; up and down go
through the prompts before, which the home keeps in chat.history. Esc cancels
the run, which can be resumed; ctrl+c does too, and the second one quits.
The path of a picture, pasted or dropped, is the picture; ctrl+v pastes from the
clipboard.

Where the rules say ask, the chat shows the call and the rule, and takes y
(once), a (always, by this rule and until the chat ends) or n. What models,
tools and files say has no control sequences on the screen.

The exit status is 128+n when signal n ended the chat.`,
		Example: `  agentrun chat --model script:testdata/script/two-subagents.jsonl
  agentrun chat --resume`,
		Annotations: map[string]string{makesSessions: "yes"},
		Args:        positional(0, 1, "at most one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.talk(cmd.Context(), strings.Join(args, ""), pick)
		},
	}
	c.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&pick, "resume", false, "choose the session from a list first")
	cmd.Flags().StringVar(&c.typ, "agent", "", "work as the agent `NAME`, see agentrun agents")
	cmd.Flags().StringVar(&c.mode, "mode", "", "work in the mode `MODE`: agent, ask, plan (both change nothing) or debug")
	return cmd
}

// talk is a chat, and another one where the person chooses another session.
func (c *agentCommand) talk(ctx context.Context, id string, pick bool) error {
	out, ok := c.stdout.(*os.File)
	switch {
	case c.json:
		return usagef("chat is for people: agentrun run --json is for programs")
	case !ok || c.stdin == nil || !isTerminal(c.stdin) || !isTerminal(out) || os.Getenv("TERM") == "dumb":
		return usagef("chat needs a terminal: agentrun run works without one")
	case pick && (id != "" || c.session != "" || c.fresh):
		return usagef("--resume asks for a session: leave out the ID, --session and --new")
	}
	if id != "" {
		if c.fresh || c.session != "" {
			return usagef("%s and --session or --new exclude each other: give one of them", id)
		}
		c.session = id
	}
	begun := *c
	back, from := false, "" // the session that the person left for the list; "" is one that has nothing yet
	for {
		if pick {
			l := &sessionsList{environment: c.environment}
			item, how, err := l.fromList(ctx, c.stdin, out)
			switch {
			case err != nil || how != picker.Choose && !back:
				return err
			case how == picker.Choose:
				c.session, c.fresh = item.Path, false
			default: // back to where the person came from
				c.session, c.fresh = from, from == ""
			}
		}
		end, err := c.talkIn(ctx, out)
		if err != nil || end != chat.Sessions {
			return err
		}
		env := c.environment
		back, from = true, c.at
		*c = begun // what the last session's run began with is not that of the next one's
		c.environment, pick = env, true
	}
}

// talkIn is a chat in one session.
func (c *agentCommand) talkIn(ctx context.Context, out *os.File) (end chat.End, err error) {
	if err := c.rememberIfThere(ctx); err != nil {
		return end, err
	}
	b, err := c.workbench(ctx, c.confine.roots)
	if err != nil {
		return end, err
	}
	defer func() { err = b.close(err) }()
	mdl, err := c.chooseModel(b)
	if err != nil {
		return end, err
	}
	back := &chatBackend{agentCommand: c, bench: b}
	if back.settings, err = c.settings(b.files.Dir()); err != nil {
		return end, err
	}
	if err := c.confined(b); err != nil {
		return end, err
	}
	if back.models, err = c.recording(mdl, b.session); err != nil {
		return end, err
	}
	defer back.models.close()
	c.chat = back
	defer func() {
		c.chat = nil
		if back.release != nil {
			back.release()
		}
	}()
	o := chat.Options{Session: shortID(b.session.ID()), Model: c.model, Coloured: coloured(out), Notes: back.notes(ctx)}
	if o.History, err = chat.ReadHistory(b.session.Home()); err != nil {
		o.Notes = append(o.Notes, err.Error())
	}
	if p, err := instructions.NewProject(b.session.Home(), b.session.CWD()); err == nil {
		o.Commands = p.Commands()
	}
	if strings.HasPrefix(o.Model, "script:") {
		o.Model = "script:" + filepath.Base(o.Model)
	}
	stderr := c.stderr
	defer func() { c.stderr = stderr }()
	end, err = chat.Run(ctx, c.stdin, out, back, o, func(f *chat.Front) { back.front, c.stderr = f, f })
	c.stderr = stderr
	if c.at = ""; b.session.Exists() {
		c.at = b.session.Path()
	}
	var sig chat.SignalError
	if errors.As(err, &sig) {
		end, err = chat.Quit, nil
	}
	if err != nil {
		return end, fmt.Errorf("showing the chat: %w", err)
	}
	if end == chat.Quit && b.session.Exists() {
		b.begun = true // which this says
		c.remark("agentrun chat %s goes on with the session", b.session.ID())
	}
	if sig != 0 {
		return end, &commandError{status: statusSignal + int(sig)}
	}
	return end, nil
}

// rememberIfThere chooses the session, and takes from its last run what the flags do not say.
func (c *agentCommand) rememberIfThere(ctx context.Context) error {
	if c.fresh {
		return nil
	}
	_, s, err := c.view(ctx, "")
	if errors.Is(err, errNoSession) {
		return nil
	}
	if err != nil {
		return err
	}
	start, err := agent.LastStart(ctx, s, agent.MainID)
	if err == nil && start != nil {
		c.session = s.Path()
		err = c.remember(ctx, s)
	}
	return errors.Join(err, s.Close())
}
