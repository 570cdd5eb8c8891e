package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/supervisor"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/edit"
	"github.com/agentrun/agentrun/tool/find"
	"github.com/agentrun/agentrun/tool/grep"
	"github.com/agentrun/agentrun/tool/python"
	"github.com/agentrun/agentrun/tool/read"
	"github.com/agentrun/agentrun/tool/ssh"
	"github.com/agentrun/agentrun/tool/toolset"
	"github.com/agentrun/agentrun/tool/workspace"
	"github.com/agentrun/agentrun/tool/write"
)

// toolsOf are the tools there are, at work in a session; nil is for those who only want
// to know what there is.
func toolsOf(b *workbench) (*toolset.Set, error) {
	if b == nil {
		b = &workbench{files: &workspace.Workspace{}} // which is not asked for a file
	}
	var (
		shell = &bash.Tool{Background: &supervisor.Background{}} // which is not asked either
		code  = &python.Tool{Services: &python.Services{Files: b.files}}
		pages = read.Tool{Files: b.files}
		out   edit.Output
		urls  find.Sources
		hosts = &ssh.Tool{}
	)
	if b.environment != nil {
		settings, err := b.sshTool()
		switch {
		case err == nil:
			hosts = settings
		case b.session != nil:
			return nil, err
		}
	}
	if b.session != nil {
		out = b.output()
		shell.Dir, shell.Artifacts = b.files.Dir(), out.Artifacts
		shell.Background = &inSession{b}
		hosts.Artifacts = out.Artifacts
		if b.policy != nil && b.policy.NetOff {
			hosts.Off = errOffline
		}
		urls = &sources{b.environment, b.manager, b.session}
		pages.Router, pages.Blobs = routerOf(b.manager, b.session), b.manager.Blobs()
		code.Dir, code.Artifacts, code.Blobs = b.files.Dir(), out.Artifacts, b.session
		shell.Redact, code.Redact, hosts.Redact, code.Services.Bash.Redact = b.session.Redactor(), b.session.Redactor(), b.session.Redactor(), b.session.Redactor()
		shell.Sandbox, code.Sandbox, code.Services.Bash.Sandbox = b.policy, b.policy, b.policy
		code.Services.Router, code.Services.Artifacts, code.Services.Bash.Artifacts = pages.Router, out.Artifacts, out.Artifacts
	}
	var change, fill tool.Tool = edit.Tool{Workspace: b.files, Output: out}, write.Tool{Workspace: b.files, Output: out}
	if out.Sink != nil {
		change, fill = careful{change}, careful{fill}
	}
	if b.policy != nil && b.policy.Mode == sandbox.ReadOnly {
		change, fill = refusing{change, errReadOnly}, refusing{fill, errReadOnly}
	}
	return toolset.New(
		shell,
		code,
		hosts,
		pages,
		change,
		fill,
		grep.Tool{Workspace: b.files, Sources: urls, Artifacts: out.Artifacts, Sink: out.Sink},
		find.Tool{Workspace: b.files, Sources: urls, Artifacts: out.Artifacts, Sink: out.Sink},
	)
}

var errReadOnly = errors.New("no file is changed here, because --sandbox, or sandbox.mode in config.json of the home, is read-only")

// refusing is a tool that is not carried out.
type refusing struct {
	tool.Tool
	reason error
}

// Call answers with the reason.
func (r refusing) Call(context.Context, json.RawMessage) (tool.Result, error) {
	return tool.Refuse(r.reason), nil
}

func newToolsCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "tools",
		Short: "List the tools that a model can be given",
		Long: `tools lists what agentrun call can call: the name of each tool, and what it
does. An agent's run has more, about the run itself, which cannot be called
here: they are listed behind them.

With --json it prints one object a line: name, description, schema (a JSON
Schema of the arguments), of those that can be called.`,
		Example: `  agentrun tools
  agentrun tools --json | jq -s 'map({name, description, schema})'`,
		Args: positional(0, 0, "no argument"),
		RunE: func(*cobra.Command, []string) error { return env.listTools() },
	}
}

// listedTool is what tools --json prints.
type listedTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
}

// ofRuns are the tools that only a run has, for which there is nothing to work on elsewhere.
var ofRuns = [][2]string{
	{"task", "(in a run) Has subagents work on something, and returns what they report"},
	{"merge", "(in a run) Brings in what a subagent has changed in files of its own"},
	{"yield", "(in a run) Hands in the report of a subagent that has to have a form"},
	{"todo", "(in a run) Sets the list of what is to be done"},
	{"mode", "(in a run) Changes how the agent works: agent, ask, plan, debug"},
	{"skill", "(in a run) Reads a skill of the project or the home, where there are some"},
}

func (e *environment) listTools() error {
	set, err := toolsOf(&workbench{environment: e, files: &workspace.Workspace{}})
	if err != nil {
		return err
	}
	t := table(e.stdout)
	for _, tool := range set.Tools() {
		if e.json {
			if err := printJSON(e.stdout, listedTool{tool.Name(), tool.Description(), tool.Schema()}); err != nil {
				return err
			}
			continue
		}
		first, _, _ := strings.Cut(tool.Description(), ". ")
		fmt.Fprintf(t, "%s\t%s\n", tool.Name(), strings.TrimSuffix(first, "."))
	}
	for _, row := range ofRuns {
		if !e.json {
			fmt.Fprintf(t, "%s\t%s\n", row[0], row[1])
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("printing the tools: %w", err)
	}
	return nil
}

// callCommand is the verb call with its flags.
type callCommand struct {
	*environment
	confinement
}

func newCallCommand(env *environment) *cobra.Command {
	c := &callCommand{environment: env}
	cmd := &cobra.Command{
		Use:   "call TOOL JSON",
		Short: "Call a tool as a model does",
		Long: `call calls one of agentrun tools with arguments that its schema describes, - for
standard input, and prints one object: isError, content (blocks of type text, or
image with mimeType, data, and original, the blob of the picture as it was where
data is a smaller one), details (an object for programs, or null) and
artifact (the URL that holds everything when the text does not, or null).

The status is 0 whatever the tool answers, also when the arguments are not as
the schema says: isError tells that, with a sentence for the model. It is 1 when
agentrun itself failed, and 2 when there is no such tool.

The tools work in the working directory and in the directories of --root, and
refuse what is outside, also behind links. The verbs read, grep and find open
whatever they are given: there a person names it, here a model does. ssh reaches
the hosts of ssh.hosts in config.json (see agentrun ssh --help).

--sandbox, --net and --limits, else the settings of config.json, bound what the
tools bash and python run, and no argument of theirs changes that. With
--sandbox read-only the tools edit and write are refused.

With --redact what is printed has no secrets either, and edit and write refuse a
text with [redacted:KIND:N] in it, which would take the place of one.`,
		Example: `  agentrun call read '{"path": "main.go", "limit": 50}'
  agentrun call edit '{"path": "a.txt", "edits": [{"old": "x", "new": "y"}]}'`,
		Annotations: map[string]string{makesSessions: "yes"},
		Args:        positional(2, 2, "a tool and its arguments as JSON"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args[0], args[1])
		},
	}
	c.roots.addFlag(cmd.Flags())
	c.confinement.addFlags(cmd.Flags())
	c.addRedact(cmd.Flags())
	return cmd
}

// called is what call prints.
type called struct {
	IsError  bool            `json:"isError"`
	Content  []any           `json:"content"`
	Details  json.RawMessage `json:"details"`
	Artifact *string         `json:"artifact"`
}

type textContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type imageContent struct {
	Type     string `json:"type"`
	MIMEType string `json:"mimeType"`
	Data     []byte `json:"data"`
	Original string `json:"original,omitempty"`
}

// describeCall is a result in the form in which it is printed.
func describeCall(r *tool.Result) called {
	c := called{IsError: r.IsError, Content: []any{}, Details: r.Details, Artifact: orNull(r.Artifact)}
	if c.Details == nil {
		c.Details = json.RawMessage("null")
	}
	if r.Text != "" || len(r.Images) == 0 {
		c.Content = append(c.Content, textContent{"text", strings.ToValidUTF8(r.Text, "\uFFFD")})
	}
	for _, image := range r.Images {
		c.Content = append(c.Content, imageContent{"image", image.MIMEType, image.Data, image.Original})
	}
	return c
}

func (c *callCommand) run(ctx context.Context, name, arguments string) (err error) {
	input := []byte(arguments)
	if arguments == "-" {
		if input, err = c.readInput("-", toolset.MaxInput); err != nil {
			return err
		}
	}
	// Before a session is opened, or begun.
	if set, err := toolsOf(nil); err != nil {
		return err
	} else if err := set.Knows(name); err != nil {
		return usagef("%w: see agentrun tools", err)
	}
	b, err := c.workbench(ctx, c.roots)
	if err != nil {
		return err
	}
	defer func() { err = b.close(err) }()
	if b.policy, err = c.policy(b.session, &c.confinement, ""); err != nil {
		return err
	}
	set, err := toolsOf(b)
	if err != nil {
		return err
	}
	sigs := c.catchSignals(ctx, endsCommand)
	defer sigs.release()
	res, err := set.Call(sigs.ctx, name, input)
	res = res.Redacted(b.session.Redactor())
	got := sigs.release()
	if err != nil && res.Text == "" {
		if got != 0 && errors.Is(err, context.Canceled) {
			return &commandError{status: statusSignal + int(got)}
		}
		return err
	}
	return errors.Join(err, printJSON(c.stdout, describeCall(&res)))
}
