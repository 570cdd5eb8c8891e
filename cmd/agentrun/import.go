package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/bundle"
	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/doctor"
)

// sessionImport is the command import.
type sessionImport struct {
	*environment
	maps           pathMaps
	passphraseFile string
	maxBytes       config.Size
}

func newImportCommand(env *environment) *cobra.Command {
	x := sessionImport{environment: env}
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Bring a session from a file of agentrun export into the home",
		Long: `import reads a file that agentrun export wrote, verifies all of it, and only
then brings the session into the home. What is damaged, incomplete, or not what
export writes is refused, and nothing was written.

The session keeps its id; when the home has a session of that id it gets a new
one, and the old one as its parent. --map says where its directories are here:
with --map /home/ann=/home/bob the session of /home/ann/work belongs to
/home/bob/work. It rewrites the working directory, directories besides it and
earlier places of the log, those of subagents too, and where checkpoints say
that files are; what was said and done in the session stays as it is.

With --json it prints an object: session, path.`,
		Example: `  agentrun import work.agentrun
  agentrun import work.agentrun --map /home/ann/work=$PWD
  agentrun import work.agentrun --passphrase-file ~/.secret`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("name the file to import, as in: agentrun import work.agentrun")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return x.interruptible(cmd.Context(), func(ctx context.Context) error { return x.run(ctx, args[0]) })
		},
	}
	f := cmd.Flags()
	f.Var(&x.maps, "map", "`OLD=NEW`: what lay in OLD lies in NEW here; may be given more than once")
	f.StringVar(&x.passphraseFile, "passphrase-file", "", "decrypt with the passphrase that is in `FILE`")
	f.Var(&x.maxBytes, "max-bytes", "refuse what unpacks to more than `SIZE` (default 16GB)")
	return cmd
}

func (x *sessionImport) run(ctx context.Context, name string) (err error) {
	if arg := x.session; arg != "" {
		return usagef("import makes a session of its own: leave --session out")
	}
	o := bundle.ImportOptions{Map: x.maps, MaxBytes: int64(x.maxBytes)}
	if x.passphraseFile != "" {
		if o.Passphrase, err = bundle.ReadPassphrase(x.passphraseFile); err != nil {
			return err
		}
	}
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("importing: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("importing %s: it is no regular file, and a bundle is read twice; write it to a file first", name)
	}
	m, err := x.manager()
	if err != nil {
		return err
	}
	p := x.progress("importing, MB")
	defer p.end()
	o.Progress = p.megabytes
	made, err := bundle.Import(ctx, m, f, o)
	if err != nil {
		x.guard.Recount() // what it had asked for is not there
		if format, serr := doctor.Sniff(ctx, name); serr == nil {
			return fmt.Errorf("importing %s: %s", name, noBundle(format, name))
		}
		return fmt.Errorf("importing %s: %w", name, err)
	}
	p.end()
	for _, m := range made.Missing {
		x.remark("was not in it: %s", oneLine(m.String()))
	}
	if made.ID != made.Was {
		x.remark("its id %.100s is taken here, or cannot name a file; it is %s now", oneLine(made.Was), made.ID)
	}
	if info, err := os.Stat(made.CWD); err != nil || !info.IsDir() {
		x.remark("its directory %s is not here; agentrun sessions move %s DIR says where it is", oneLine(made.CWD), made.ID)
	}
	if x.json {
		return printJSON(x.stdout, struct {
			Session string `json:"session"`
			Path    string `json:"path"`
		}{made.ID, made.Path})
	}
	_, err = fmt.Fprintln(x.stdout, made.ID)
	return err
}

// noBundle says what a log is that was given for a bundle.
func noBundle(format doctor.Format, name string) string {
	switch format {
	case doctor.FormatClaude:
		return "it is a Claude Code transcript; agentrun doctor " + name + " checks it, nothing else reads it"
	case doctor.FormatCodex:
		return "it is a Codex transcript; agentrun doctor " + name + " checks it, nothing else reads it"
	}
	return "it is the log of a session and no bundle; every verb takes it as it is: agentrun --session " + name
}

// pathMaps is the value of --map.
type pathMaps []session.PathMap

func (p *pathMaps) String() string { return "" }
func (p *pathMaps) Type() string   { return "OLD=NEW" }

func (p *pathMaps) Set(text string) error {
	old, to, ok := strings.Cut(text, "=")
	if !ok || old == "" || to == "" {
		return errors.New("give two paths, OLD=NEW")
	}
	if !filepath.IsAbs(old) {
		return fmt.Errorf("%s is no absolute path; it is where the directory was on the other machine", old)
	}
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	*p = append(*p, session.PathMap{Old: old, New: to})
	return nil
}
