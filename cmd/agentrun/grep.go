package main

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/find"
	"github.com/agentrun/agentrun/tool/grep"
	"github.com/agentrun/agentrun/tool/workspace"
)

// fileSearch is what grep and find have in common.
type fileSearch struct {
	*environment
	find.Options
	whole bool // --full
}

func (c *fileSearch) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&c.Globs, "glob", nil, "only files that match `GLOB`: *.go, or src/**/*.{c,h} below each PATH; may be repeated")
	f.BoolVar(&c.All, "ignored", false, "also files that git ignores")
	f.BoolVar(&c.whole, "full", false, "print all of it, whatever its size")
	c.addRedact(f)
}

// run has do print to a sink, and prints the view. A result that is more than a view goes to
// an artifact, for which a session is begun if there is none. The status of an error is not that
// of finding nothing.
func (c *fileSearch) run(ctx context.Context, tool string, do func(ctx context.Context, w *workspace.Workspace, s *sources, out *outputsink.Sink) (problems []string, empty bool, err error)) (err error) {
	c.whole = c.whole || c.json // objects are not shortened
	cwd, err := workingDirectory()
	if err != nil {
		return err
	}
	// It is the user who names directories.
	w, err := workspace.Open(workspace.Options{Dir: cwd, Roots: []string{"/"}})
	if err != nil {
		return err
	}
	defer w.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	s := &sources{environment: c.environment}
	defer func() {
		if s.s != nil {
			err = closeSession(s.s, err)
		}
	}()
	out, err := c.cleanOutput(ctx)
	if err != nil {
		return err
	}
	defer func() { err = out.close(err) }()
	var keep *workbench
	options := outputsink.DefaultOptions()
	options.Redact = out.stream()
	options.Open = func() (outputsink.File, error) {
		m, err := s.manage()
		if err != nil {
			return nil, err
		}
		if out != nil && out.session.Exists() { // a new one is not begun twice
			keep = &workbench{environment: c.environment, manager: m, session: out.session, begun: true, files: w}
			return keep.kept().Create(ctx, tool, artifacts.Provenance{})
		}
		kept, err := c.openIn(ctx, m)
		if err != nil {
			return nil, err
		}
		keep = &workbench{environment: c.environment, manager: m, session: kept, begun: kept.Exists(), files: w}
		return keep.kept().Create(ctx, tool, artifacts.Provenance{})
	}
	if c.whole {
		options.Open = nil
	}
	sink := outputsink.New(options)
	problems, empty, err := do(ctx, w, s, sink)
	sum, _ := sink.Close() // its error is what ArtifactState tells
	if out != nil {
		out.kept = sum.Redacted
	}
	if keep != nil && (out == nil || keep.session != out.session) {
		defer func() { err = keep.close(err) }()
	}
	if err != nil {
		return err
	}
	if !c.whole {
		err = c.printText(c.shown(sum.View, sum.Text))
	}
	for _, p := range problems {
		c.say("%s", p)
	}
	switch {
	case err != nil:
		return err
	case empty && len(problems) > 0:
		return &commandError{status: statusUnknown}
	case empty:
		return &commandError{status: statusError}
	}
	return nil
}

// statusUnknown is the status of grep and find when they could not look, as that of grep(1).
const statusUnknown = 2

// search is run with that status.
func (c *fileSearch) search(ctx context.Context, tool string, do func(ctx context.Context, w *workspace.Workspace, s *sources, out *outputsink.Sink) (problems []string, empty bool, err error)) error {
	err := c.run(ctx, tool, do)
	var usage *usageError
	var command *commandError
	if err == nil || errors.As(err, &usage) || errors.As(err, &command) {
		return err
	}
	return &commandError{status: statusUnknown, err: err}
}

// kept is where output goes. A session that is not there yet is begun before an artifact gets
// its number.
func (b *workbench) kept() *artifacts.Dir {
	return b.artifactsWith(b.session, func(ctx context.Context) (int64, error) {
		if !b.session.Exists() {
			if _, err := b.session.Append(ctx, entry.Custom{CustomType: createdType}); err != nil {
				return 0, err
			}
		}
		return b.session.MaxArtifactID(ctx)
	})
}

// grepCommand is the verb grep with its flags.
type grepCommand struct {
	fileSearch
	ignoreCase bool
	context    int
}

func newGrepCommand(env *environment) *cobra.Command {
	c := &grepCommand{fileSearch: fileSearch{environment: env}}
	cmd := &cobra.Command{
		Use:   "grep [-i] [-C N] PATTERN [PATH|URL]...",
		Short: "Find lines by a regular expression, in files and in what was kept",
		Long: `grep prints the lines that match a regular expression (RE2, as in Go; ^ and $
are the ends of a line), as path:line:text, and with -C those around them as
path-line-text. It looks in the working directory or in each PATH, without what
git ignores and without following links, and in each URL. Any PATH can be given
that you can read; agentrun call keeps the tool to the working directory and
--root.

  artifact://3   the output of a command; artifact:// all of the session
  agent://ID     the output of a subagent; agent:// all of the session
  session://ID   the log of a session; session:// all of this directory

What is printed is bounded as with exec; all of it is kept as an artifact when
it does not fit. --full prints everything instead. Where ripgrep is installed it
is used for expressions that it is faster with; the result is the same.

With --json it prints all, an object a line: path, line (null for binary
content), match (false for context), text. The status is 1 when nothing matched,
and 2 when that is not known: the pattern or a PATH is none, or a file could not
be read.`,
		Example: `  agentrun grep -i -C 2 'todo|fixme' src
  agentrun grep 'panic:' artifact://
  agentrun grep --glob '*_test.go' 'func Test'`,
		Annotations: map[string]string{makesSessions: "yes"},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return usagef("grep needs a PATTERN: agentrun grep 'func \\w+' src")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.grep(cmd.Context(), args[0], args[1:])
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&c.ignoreCase, "ignore-case", "i", false, "take upper and lower case for the same")
	f.IntVarP(&c.context, "context", "C", 0, "also print `N` lines before and behind each match")
	c.addFlags(f)
	return cmd
}

func (c *grepCommand) grep(ctx context.Context, pattern string, targets []string) error {
	if c.context < 0 || c.context > grep.MaxContext {
		return usagef("--context %d: give a number from 0 to %d", c.context, grep.MaxContext)
	}
	return c.search(ctx, "grep", func(ctx context.Context, w *workspace.Workspace, s *sources, sink *outputsink.Sink) ([]string, bool, error) {
		out := sink.Stdout()
		if c.whole {
			out = c.stdout
		}
		res, err := grep.Search(ctx, w, s, grep.Options{
			Pattern: pattern, IgnoreCase: c.ignoreCase, Context: c.context, Options: c.Options, JSON: c.json,
		}, out, targets...)
		return res.Problems, res.Matches == 0, err
	})
}
