package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/supervisor"
	"github.com/agentrun/agentrun/tool/bash"
)

// sending is what jobs send has to say to a job.
type sending struct {
	text      string
	line      bool // the text is one: it ends as lines end
	keys      keyNames
	eof, bare bool
	size      terminalSize
}

func newJobsSendCommand(env *environment) *cobra.Command {
	var m sending
	cmd := &cobra.Command{
		Use:   "send ID [TEXT]",
		Short: "Give a job a line to read",
		Long: `send writes TEXT and a newline to the standard input of a job. --eof ends that
input.

At the terminal of a job (jobs start --pty) TEXT is typed, and the key Enter
behind it. --key types a key by its name, behind TEXT, and then there is no
Enter unless it is one of them: ctrl-a to ctrl-z, enter, tab, escape, space,
backspace, delete, insert, up, down, left, right, home, end, pageup, pagedown,
f1 to f12. --eof types ctrl-d, which ends the input at the beginning of a line.
--size gives the terminal another size, before anything is typed.`,
		Example: `  agentrun jobs send 0 yes
  agentrun jobs send 0 --key ctrl-c
  agentrun jobs send 0 ':wq' --key enter
  agentrun jobs send 0 --size 120x40`,
		Args: positional(1, 2, "the id of a job and a text"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m.text, m.line = only(args, 1), len(args) == 2 && !m.bare && len(m.keys) == 0
			if len(args) < 2 && !m.eof && len(m.keys) == 0 && m.size == (terminalSize{}) {
				return usagef("jobs send takes the id of a job and a text, or --key, --size or --eof")
			}
			return env.withJob(cmd.Context(), args[0], func(ctx context.Context, s *session.Session, j supervisor.Job) error {
				if err := m.send(ctx, env.supervisorOf(s), j); err != nil {
					return aboutJob(j, err)
				}
				return env.quietly(ctx, s, j.Number)
			})
		},
	}
	cmd.Flags().BoolVar(&m.eof, "eof", false, "end the input behind the text")
	cmd.Flags().BoolVar(&m.bare, "no-newline", false, "send the text alone")
	cmd.Flags().Var(&m.keys, "key", "type the key called `NAME`, behind the text; may be repeated")
	cmd.Flags().Var(&m.size, "size", "resize the terminal to `SIZE`, as 120x40")
	return cmd
}

func (m *sending) send(ctx context.Context, c *supervisor.Client, j supervisor.Job) error {
	if j.Terminal == nil && (len(m.keys) > 0 || m.size != terminalSize{}) {
		return usagef("job %s has no terminal, so it has no keys and no size: start one with agentrun jobs start --pty", j.ID)
	}
	if m.size != (terminalSize{}) {
		if err := c.Resize(ctx, j.Number, bash.TerminalSize(m.size)); err != nil {
			return err
		}
	}
	text := m.text
	switch {
	case m.line && j.Terminal != nil:
		text += "\r"
	case m.line:
		text += "\n"
	}
	for _, name := range m.keys {
		key, err := bash.Key(name)
		if err != nil {
			return err
		}
		text += key
	}
	if text == "" && !m.eof {
		return nil
	}
	return c.Send(ctx, j.Number, text, m.eof)
}

// showScreen prints what the terminal of a job shows now.
func (e *environment) showScreen(ctx context.Context, s *session.Session, j supervisor.Job) error {
	text, err := e.supervisorOf(s).Screen(ctx, j.Number)
	if err != nil {
		return aboutJob(j, err)
	}
	if e.json {
		return printJSON(e.stdout, struct {
			supervisor.Job
			Output string `json:"output"`
		}{j, text})
	}
	_, err = io.WriteString(e.stdout, text)
	return err
}

// keyNames is the value of --key.
type keyNames []string

func (k *keyNames) String() string { return "" }
func (k *keyNames) Type() string   { return "NAME" }

func (k *keyNames) Set(name string) error {
	if _, err := bash.Key(name); err != nil {
		return err
	}
	*k = append(*k, name)
	return nil
}
