package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/bundle"
	"github.com/agentrun/agentrun/outputsink"
)

// sessionExport is the command export.
type sessionExport struct {
	*environment
	out            outputFile
	format         string
	passphraseFile string
}

func newExportCommand(env *environment) *cobra.Command {
	x := sessionExport{environment: env}
	cmd := &cobra.Command{
		Use:   "export [ID]",
		Short: "Write a session to one file, to be imported elsewhere or read",
		Long: `export writes a session to one file: its log, its artifacts, the sessions of its
subagents and the blobs they cite. agentrun import brings it into another home,
of another user or on another machine. Others may go on writing to it meanwhile.

A bundle holds all that the session said, with whatever secrets are in it. With
--passphrase-file it is encrypted by age (age -d opens it).

With --json it prints an object: file, bytes, entries, artifacts, blobs. What
could not come along, a blob that is not there for example, is said on the
standard error, and listed as missing (name, reason).`,
		Example: `  agentrun export -o work.agentrun
  agentrun export 0199 -o - | ssh there 'cat > work.agentrun'
  agentrun export 0199 -o work.agentrun --passphrase-file ~/.secret`,
		Args:              positional(0, 1, "at most one session"),
		ValidArgsFunction: completeSession(env),
		RunE:              func(cmd *cobra.Command, args []string) error { return x.run(cmd.Context(), only(args, 0)) },
	}
	f := cmd.Flags()
	f.StringVarP(&x.out.name, "output", "o", "", "write to `FILE`, - for the standard output")
	f.BoolVar(&x.out.force, "force", false, "replace a file that is there")
	f.StringVar(&x.passphraseFile, "passphrase-file", "", "encrypt with the passphrase that is in `FILE`")
	return cmd
}

func (x *sessionExport) run(ctx context.Context, arg string) (err error) {
	switch {
	case x.out.name == "":
		return usagef("say where to: agentrun export -o FILE")
	case x.out.name == "-" && isTerminal(x.stdout):
		return usagef("a bundle is no text for a terminal: give -o FILE, or a pipe")
	}
	o := bundle.ExportOptions{}
	if x.passphraseFile != "" {
		if o.Passphrase, err = bundle.ReadPassphrase(x.passphraseFile); err != nil {
			return err
		}
	}
	if err := x.out.check(); err != nil {
		return err
	}
	m, s, err := x.view(ctx, arg)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	p := x.progress("exporting, MB")
	defer p.end()
	o.Progress = func(done, total int64) { p.step(int(done>>20), int(total>>20)) }
	var made bundle.Summary
	err = x.out.write(x.stdout, func(w io.Writer) (err error) {
		made, err = bundle.Export(ctx, w, m, s, o)
		return err
	})
	if err != nil {
		return err
	}
	p.end()
	return x.report(made)
}

// report says what was written.
func (x *sessionExport) report(made bundle.Summary) error {
	file := x.out.name
	for _, m := range made.Missing {
		x.remark("not in it: %s", oneLine(m.String()))
	}
	if x.json && file != "-" {
		return printJSON(x.stdout, struct {
			File      string           `json:"file"`
			Bytes     int64            `json:"bytes"`
			Entries   int              `json:"entries"`
			Artifacts int              `json:"artifacts"`
			Blobs     int              `json:"blobs"`
			Missing   []bundle.Missing `json:"missing,omitempty"`
		}{file, made.Bytes, made.Entries, made.Artifacts, made.Blobs, made.Missing})
	}
	x.remark("%s: %s: %s, %s, %s", oneLine(file), outputsink.FormatBytes(made.Bytes), count(int64(made.Entries), "entry", "entries"),
		count(int64(made.Artifacts), "artifact", "artifacts"), count(int64(made.Blobs), "blob", "blobs"))
	return nil
}
