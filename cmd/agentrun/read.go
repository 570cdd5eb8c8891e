package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/tool/read"
)

func newReadCommand(env *environment) *cobra.Command {
	var opt read.Options
	cmd := &cobra.Command{
		Use:   "read URL|FILE",
		Short: "Print a page of what was kept, or of a file",
		Long: `read prints a page, at most 3,000 lines and 50 KiB, and how to go on.

  artifact://N       output of a command; artifact://ID/N of session ID
  agent://ID         output of a subagent; agent://ID/key/0 a part, ?q= a query
  session://ID       what a session is; session://ID/ENTRY one entry of its log
  blob://sha256/HEX  a blob, also as blob:sha256:HEX
  job://N            what a job of the session is

Lines are selected at the end: :10 from line 10 on, :10-20, :10+5 five lines,
:-50 the last 50, :1-3,90-95. With :raw it is every byte as it is, also of
lines (:raw:10-20); the status is 1 when they are not the bytes that were kept.

Files, blobs and artifacts are shown by what they are: text in another encoding
as UTF-8; a directory or an archive (zip, tar, tar.gz, tar.zst, tar.bz2) as a
list, and a.zip:dir/x is what is in it (artifact://3:/dir/x in a URL), and
a.zip:b.tar:x what is in one in it; a notebook as its cells with their outputs;
a PDF as its text, :p7 and :p7-9 are pages of it; of pictures and other content,
what it is. With --json pictures are in images, as models are given them.

Any file can be read that you can read, also through links. When a model calls
the tool read (agentrun call), it is kept to the working directory and --root.`,
		Example: `  agentrun read artifact://0:150000-150002
  agentrun read build.log:-50
  agentrun read paper.pdf:p7-9
  agentrun read src.tar.gz:src/main.c:10-20
  agentrun read artifact://0:raw | sha256sum`,
		Args: positional(1, 1, "one URL or file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, f := range []*pflag.Flag{cmd.Flag("offset"), cmd.Flag("limit")} {
				if v := f.Value.String(); f.Changed && (v == "0" || v[0] == '-') {
					return usagef("--%s %s: lines are counted from 1; give a positive number", f.Name, v)
				}
			}
			if strings.HasPrefix(args[0], "job://") {
				return env.readJob(cmd.Context(), args[0])
			}
			out, err := env.cleanOutput(cmd.Context())
			if err != nil {
				return err
			}
			o := &lazyOpener{env: env}
			return out.close(errors.Join(env.read(cmd.Context(), o, args[0], opt), o.close()))
		},
	}
	env.addRedact(cmd.Flags())
	cmd.Flags().Int64Var(&opt.Offset, "offset", 0, "the first line to print is line `N`, from 1")
	cmd.Flags().Int64Var(&opt.Limit, "limit", 0, "print at most `N` lines")
	cmd.Flags().BoolVarP(&opt.Numbers, "numbers", "n", false, "put the number of each line in front of it, and a tab")
	return cmd
}

func (e *environment) read(ctx context.Context, o read.Opener, target string, opt read.Options) error {
	if !e.json && asksRaw(target) {
		_, err := read.Copy(ctx, e.stdout, o, target, opt)
		return err
	}
	opt.Seen = func(path string, size int64, crc uint32) { e.remember(ctx, path, size, crc) }
	page, err := read.Read(ctx, o, target, opt)
	if err != nil {
		return err
	}
	switch {
	case e.json:
		return printJSON(e.stdout, page)
	case e.quiet:
		_, err = io.WriteString(e.stdout, page.Text)
	case len(page.Notes) > 0:
		_, err = io.WriteString(e.stdout, page.String()+"\n")
	default:
		_, err = io.WriteString(e.stdout, page.Text)
	}
	if err != nil {
		return fmt.Errorf("printing %s: %w", target, err)
	}
	return nil
}

// asksRaw reports whether ":raw" is selected at the end of target. What is wrong
// with a selector is said by who reads.
func asksRaw(target string) bool {
	if internalurl.Is(target) {
		u, err := internalurl.Parse(target)
		return err == nil && u.Selector.Raw
	}
	if _, err := os.Lstat(target); err == nil {
		return false // a file that is called so
	}
	_, sel, err := internalurl.CutSelector(target)
	return err == nil && sel.Raw
}

// lazyOpener opens URLs. It opens the home when there is a URL to open, and the
// session at hand when the URL means that: files need neither.
type lazyOpener struct {
	env *environment
	at  *session.Session
}

func (o *lazyOpener) OpenURL(ctx context.Context, u internalurl.URL) (*internalurl.Resource, error) {
	m, err := o.env.manager()
	if err != nil {
		return nil, err
	}
	if u.Scheme != internalurl.Blob && (u.Session == "" || o.env.session != "") {
		info, err := o.env.find(ctx, m, "")
		switch {
		case errors.Is(err, errNoSession) && u.Scheme != internalurl.Session:
			return nil, fmt.Errorf("%w: %w", artifacts.ErrNoDirectory, err)
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", u, err)
		}
		if o.at, err = m.View(ctx, info.Path); err != nil {
			return nil, err
		}
	}
	r, err := routerOf(m, o.at).OpenURL(ctx, u)
	if errors.Is(err, artifacts.ErrNoDirectory) {
		id := u.Session
		if id == "" {
			id = o.at.ID()
		}
		err = fmt.Errorf("%w: session %s has kept no output yet; agentrun sessions list shows the others", err, id)
	}
	return r, err
}

func (o *lazyOpener) close() error {
	if o.at == nil {
		return nil
	}
	return o.at.Close()
}

// remember notes in the session at hand, if there is one, that a file was shown, so that an edit
// of a file that changes from now on is refused. A file is shown without a home too.
func (e *environment) remember(ctx context.Context, path string, size int64, crc uint32) {
	home, err := session.ResolveHome(e.home)
	if err != nil {
		return
	}
	if info, err := os.Stat(home); err != nil || !info.IsDir() {
		return
	}
	m, err := e.manager()
	if err != nil {
		return
	}
	info, err := e.find(ctx, m, "")
	if err != nil {
		return
	}
	if stem, ok := strings.CutSuffix(strings.TrimSuffix(info.Path, ".zst"), ".jsonl"); ok {
		seenIn(stem).NoteSum(path, size, crc)
	}
}
