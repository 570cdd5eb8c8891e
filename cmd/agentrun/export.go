package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/bundle"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/transcript"
)

// sessionExport is the command export.
type sessionExport struct {
	*environment
	out            outputFile
	format         string
	passphraseFile string
	redact         bool // --redact
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

--format writes a transcript to be read instead. md tells the active branch;
html is one page with everything in it, to be opened in a browser: all branches,
images, output, artifacts; only of a single output or artifact above 4 MiB it
has the beginning, which is said there and on the standard error. json has all
entries of all branches, with images and long strings put back. A FILE called
*.md, *.html or *.json says as much. Without -o it goes to the standard output.

With --redact secrets in a transcript become [redacted:KIND:N], by about
280 rules, those of gitleaks among them; in a bundle nothing is changed.

With --json it prints an object: file, bytes, entries, artifacts, blobs. What
could not come along, a blob that is not there for example, is said on the
standard error, and listed as missing (name, reason); so are artifacts whose
bytes are not those that were kept, which come along, as damaged.`,
		Example: `  agentrun export -o work.agentrun
  agentrun export -o work.html
  agentrun export --format md | less
  agentrun export 0199 -o - | ssh there 'cat > work.agentrun'
  agentrun export 0199 -o work.agentrun --passphrase-file ~/.secret`,
		Args:              positional(0, 1, "at most one session"),
		ValidArgsFunction: completeSession(env),
		RunE:              func(cmd *cobra.Command, args []string) error { return x.run(cmd.Context(), only(args, 0)) },
	}
	f := cmd.Flags()
	f.StringVarP(&x.out.name, "output", "o", "", "write to `FILE`, - for the standard output")
	f.StringVar(&x.format, "format", "", "write a transcript: `FORMAT` is md, html or json")
	f.BoolVar(&x.redact, "redact", false, "replace secrets in a transcript")
	f.BoolVar(&x.out.force, "force", false, "replace a file that is there")
	f.StringVar(&x.passphraseFile, "passphrase-file", "", "encrypt with the passphrase that is in `FILE`")
	return cmd
}

func (x *sessionExport) run(ctx context.Context, arg string) error {
	format, err := x.transcriptFormat()
	if err != nil {
		return err
	}
	if x.out.name == "" && format != "" {
		x.out.name = "-"
	}
	switch {
	case x.out.name == "":
		return usagef("say where to: agentrun export -o FILE")
	case format != "" && x.passphraseFile != "":
		return usagef("a transcript is not encrypted: leave out --passphrase-file, or --format")
	case format == "" && x.redact:
		return usagef("a bundle has everything as it is: leave out --redact, or write a transcript with --format, or encrypt it with --passphrase-file")
	case format == "" && x.out.name == "-" && isTerminal(x.stdout):
		return usagef("a bundle is no text for a terminal: give -o FILE, or a pipe")
	}
	if err := x.out.check(); err != nil {
		return err
	}
	do := func(ctx context.Context) error {
		if format != "" {
			return x.transcript(ctx, arg, format)
		}
		return x.bundle(ctx, arg)
	}
	if x.out.name == "-" {
		return do(ctx) // a signal leaves nothing that could be removed
	}
	return x.interruptible(ctx, do)
}

// transcriptFormat is the format of a transcript that was asked for, "" for a bundle.
func (x *sessionExport) transcriptFormat() (transcript.Format, error) {
	if x.format == "" {
		format, err := transcript.ParseFormat(strings.TrimPrefix(filepath.Ext(x.out.name), "."))
		if err != nil {
			return "", nil
		}
		return format, nil
	}
	format, err := transcript.ParseFormat(x.format)
	if err != nil {
		return "", usagef("--format: %w", err)
	}
	return format, nil
}

// bundle writes a file for agentrun import.
func (x *sessionExport) bundle(ctx context.Context, arg string) (err error) {
	o := bundle.ExportOptions{}
	if x.passphraseFile != "" {
		if o.Passphrase, err = bundle.ReadPassphrase(x.passphraseFile); err != nil {
			return err
		}
	}
	m, s, err := x.view(ctx, arg)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	p := x.progress("exporting, MB")
	defer p.end()
	o.Progress = p.megabytes
	var made bundle.Summary
	err = x.out.write(ctx, x.stdout, func(w io.Writer) (err error) {
		made, err = bundle.Export(ctx, w, m, s, o)
		return err
	})
	if err != nil {
		return err
	}
	p.end()
	for _, m := range made.Missing {
		x.remark("not in it: %s", oneLine(m.String()))
	}
	for _, d := range made.Damaged {
		x.remark("damaged, and in it as it is: %s; agentrun doctor looks for it elsewhere", oneLine(d.String()))
	}
	return x.report(exportReport{x.out.name, made.Bytes, made.Entries, made.Artifacts, made.Blobs, made.Missing, made.Damaged})
}

// transcript writes a file to be read.
func (x *sessionExport) transcript(ctx context.Context, arg string, format transcript.Format) (err error) {
	_, s, err := x.view(ctx, arg)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	var made transcript.Summary
	var written countingWriter
	err = x.out.write(ctx, x.stdout, func(w io.Writer) (err error) {
		written.w = w
		if !x.redact {
			made, err = transcript.Write(ctx, &written, format, s, x.artifacts(s), transcript.Options{})
			return err
		}
		out, end, err := x.redacting(s, &written)
		if err != nil {
			return err
		}
		if made, err = transcript.Write(ctx, out, format, s, x.artifacts(s), transcript.Options{}); err != nil {
			return err
		}
		return end()
	})
	if err != nil {
		return err
	}
	if made.Missing > 0 {
		x.remark("%s could not be put back: agentrun sessions show says which", count(int64(made.Missing), "image or long string", "images or long strings"))
	}
	if made.Cut > 0 {
		limit := int64(transcript.DefaultMaxArtifact)
		if format == transcript.Markdown {
			limit = transcript.DefaultMaxOutput
		}
		x.remark("%s above %s, and not whole in it; agentrun export -o FILE.agentrun has everything",
			count(int64(made.Cut), "output or artifact is", "outputs or artifacts are"), outputsink.FormatBytes(limit))
	}
	if x.out.name == "-" {
		return nil // what was asked for is the output
	}
	return x.report(exportReport{File: x.out.name, Bytes: written.n, Entries: made.Entries, Artifacts: made.Artifacts, Blobs: made.Images})
}

// countingWriter counts what is written.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// exportReport is what export --json prints.
type exportReport struct {
	File      string           `json:"file"`
	Bytes     int64            `json:"bytes"`
	Entries   int              `json:"entries"`
	Artifacts int              `json:"artifacts"`
	Blobs     int              `json:"blobs"` // of a transcript, the images in it
	Missing   []bundle.Missing `json:"missing,omitempty"`
	Damaged   []bundle.Damaged `json:"damaged,omitempty"`
}

// report says what was written.
func (x *sessionExport) report(r exportReport) error {
	if x.json && r.File != "-" {
		return printJSON(x.stdout, r)
	}
	x.remark("%s: %s: %s, %s, %s", oneLine(r.File), outputsink.FormatBytes(r.Bytes), count(int64(r.Entries), "entry", "entries"),
		count(int64(r.Artifacts), "artifact", "artifacts"), count(int64(r.Blobs), "blob", "blobs"))
	return nil
}
