package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/bundle"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/doctor"
)

// Exit statuses of doctor. Others exit with 1 when they fail, and to doctor that is a
// finding; so its own failure is another one.
const (
	statusFindings   = 1
	statusUnmendable = 3
	statusUnexamined = 4
)

// doctorCommand is doctor with its flags.
type doctorCommand struct {
	*environment
	all            bool
	repair         bool
	from           []string
	passphraseFile string
	sandbox        bool
	secrets        bool
}

func newDoctorCommand(env *environment) *cobra.Command {
	d := doctorCommand{environment: env}
	cmd := &cobra.Command{
		Use:   "doctor [FILE]",
		Short: "Find damage in sessions, artifacts and blobs, and repair it",
		Long: `doctor reads the sessions of the working directory whole, with their artifacts
and the blobs they cite, and says what is wrong: where, since when where that is
known, what is lost and what is not, and what repair does. With --all it is
every session, artifact and blob of the home, and sessions that were opened
elsewhere; of every known home unless --home or AGENTRUN_HOME names one. Both
look at the checkpoints of the home (agentrun state checkpoints), too, and --all
reads all that they need; else that is only looked for. With FILE
it reads that log, also one of pi, oh-my-pi, Claude Code or Codex; the last two
are only read, never changed.

Nothing is changed without --repair. A repair writes a new file beside the log,
loads it to verify it, keeps the damaged bytes in <session>.damaged, and swaps
both in one step; a second run finds nothing. Close pi and oh-my-pi before: they
would go on writing to the old file.

With --json it is one object a line: kind, file, line, offset, bytes, what,
repaired.

The status is 0 when nothing was found, 1 for findings, also when --repair has
mended all of them (repaired says so, and the next run exits with 0), 3 for
findings that repair can't mend, 4 when doctor itself failed and did not look at
everything, and 2 for wrong usage.

With --sandbox doctor says instead what this machine can do for --sandbox, --net
and --limits of exec, bash and jobs start, by which means, and why not; with
--json as one object: uid, kernel, modes, limits and means (each a name, ok and
what), landlockAbi, cgroupVersion. The status is 1 where a mode or limit is not
possible.

With --secrets doctor says instead where secrets stand in logs and artifacts of
the same sessions and of their subagents, by about 280 rules, those of gitleaks
among them. It does not show them, and it is no proof that there are no others.
Files as checkpoints keep them are not looked at: they are never redacted, since
agentrun rewind gives them back to the byte.`,
		Example: `  agentrun doctor
  agentrun doctor --all --repair
  agentrun doctor --repair --from /mnt/backup/agentrun
  agentrun doctor ~/.claude/projects/-srv-app/1b2c.jsonl`,
		Args: positional(0, 1, "at most one file"),
		RunE: func(cmd *cobra.Command, args []string) error { return unexamined(d.run(cmd.Context(), only(args, 0))) },
	}
	cmd.Flags().BoolVar(&d.all, "all", false, "every session, artifact and blob; of all known homes unless one is named")
	cmd.Flags().BoolVar(&d.repair, "repair", false, "mend what can be mended")
	cmd.Flags().StringArrayVar(&d.from, "from", nil, "look for lost blobs and artifacts in `PLACE`: a home, a directory of blobs, or a bundle; may be repeated")
	cmd.Flags().BoolVar(&d.sandbox, "sandbox", false, "say what this machine can do for --sandbox, --net and --limits")
	cmd.Flags().BoolVar(&d.secrets, "secrets", false, "say where there are secrets in logs and artifacts")
	cmd.Flags().StringVar(&d.passphraseFile, "passphrase-file", "", "open encrypted bundles of --from with the passphrase that is in `FILE`")
	return cmd
}

// unexamined makes an error doctor's own failure, unless it is a status or a mistake of
// the user.
func unexamined(err error) error {
	var (
		usage   *usageError
		command *commandError
	)
	if err == nil || errors.As(err, &usage) || errors.As(err, &command) {
		return err
	}
	return &commandError{statusUnexamined, err}
}

func (c *doctorCommand) run(ctx context.Context, file string) (err error) {
	if c.sandbox {
		if c.all || c.repair || file != "" {
			return usagef("--sandbox looks at this machine, and at no session: give it alone")
		}
		return c.doctorSandbox()
	}
	if c.secrets && (c.repair || c.sandbox || len(c.from) > 0) {
		return usagef("--secrets changes nothing and looks for nothing else: give it with --all, --session or a FILE")
	}
	switch {
	case c.all && file != "":
		return usagef("--all and a FILE exclude each other: give one of them")
	case c.all && c.session != "":
		return usagef("--all and --session exclude each other: give one of them")
	}
	if file != "" && c.home == "" {
		c.home = homeOf(file)
	}
	m, err := c.manager()
	if err != nil {
		return err
	}
	if c.secrets {
		return c.doctorSecrets(ctx, m, file)
	}
	c.guard.Recount() // it may free space
	passphrase := ""
	if c.passphraseFile != "" {
		if len(c.from) == 0 {
			return usagef("--passphrase-file is for the bundles of --from: give one")
		}
		if passphrase, err = bundle.ReadPassphrase(c.passphraseFile); err != nil {
			return err
		}
	}
	var failed error
	progress := c.progress("reading")
	defer progress.end()
	report := doctor.Options{Repair: c.repair, From: c.from, Passphrase: passphrase, Progress: progress.bytes, Checkpoints: brokenCheckpoints(c.all), Report: func(f doctor.Finding) {
		progress.end()
		if failed == nil {
			failed = c.finding(f)
		}
	}}
	sum, err := c.examineIn(ctx, m, report, file)
	if err != nil {
		return err
	}
	homes, err := c.otherHomes(m)
	if err != nil {
		return err
	}
	for _, home := range homes {
		m, err := session.OpenManager(home, session.Options{
			Durability: c.durability.value, Homes: session.HomesFile(), Report: func(ev session.Event) { c.remark("%v", ev) },
		})
		if err != nil {
			return err
		}
		more, err := c.examineIn(ctx, m, report, file)
		if err != nil {
			return fmt.Errorf("examining the home %s: %w", home, err)
		}
		sum = sum.Plus(more)
	}
	if failed != nil {
		return failed
	}
	for _, path := range sum.Absent {
		c.remark("%s is not there and was not examined", path)
	}
	if !c.json && !c.quiet {
		if err := c.summary(sum); err != nil {
			return err
		}
	}
	switch {
	case sum.Unmendable > 0:
		return &commandError{status: statusUnmendable}
	case sum.Findings > 0:
		return &commandError{status: statusFindings}
	}
	return nil
}

// otherHomes are the homes that --all is about as well: all that are known, unless one
// was named.
func (c *doctorCommand) otherHomes(m *session.Manager) ([]string, error) {
	if !c.all || c.home != "" || os.Getenv(homeEnv) != "" {
		return nil, nil
	}
	there, absent, err := m.KnownHomes()
	if err != nil {
		return nil, err
	}
	c.absent(absent)
	return there[1:], nil // without this one
}

// examineIn examines what lies in one home.
func (c *doctorCommand) examineIn(ctx context.Context, m *session.Manager, o doctor.Options, file string) (sum doctor.Summary, err error) {
	d, err := doctor.New(ctx, m, o)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	err = c.examine(ctx, m, d, file)
	return d.Summary(), err
}

func (c *doctorCommand) examine(ctx context.Context, m *session.Manager, d *doctor.Doctor, file string) error {
	switch {
	case file != "":
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("examining %s: there is no such file", file)
		}
		return d.File(ctx, file)
	case c.all:
		return d.Home(ctx)
	case c.chosen("") != "":
		path, err := pathOf(ctx, m, c.chosen(""))
		if err != nil {
			return err
		}
		return d.Sessions(ctx, path)
	}
	cwd, err := workingDirectory()
	if err != nil {
		return err
	}
	return d.Directory(ctx, cwd)
}

// pathOf returns the log that arg names, also one that does not open.
func pathOf(ctx context.Context, m *session.Manager, arg string) (string, error) {
	info, err := m.Find(ctx, arg)
	var unreadable *session.Unreadable
	if errors.As(err, &unreadable) {
		return unreadable.Path, nil
	}
	return info.Path, err
}

// homeOf is the home that a log lies in, "" when it lies in none.
func homeOf(file string) string {
	path, err := filepath.Abs(file)
	if err != nil {
		return ""
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if base := filepath.Base(dir); base == "sessions" || base == "trash" {
			return filepath.Dir(dir)
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

func (c *doctorCommand) finding(f doctor.Finding) error {
	if c.json {
		return printJSON(c.stdout, f)
	}
	where := f.File
	if f.Line != nil {
		where += fmt.Sprintf(":%d", *f.Line)
	}
	state := ""
	switch {
	case f.Repaired:
		state = ", repaired"
	case f.Unmendable:
		state = ", can't be repaired"
	}
	extent := ""
	if f.Line != nil && f.Bytes != nil && *f.Bytes > 0 {
		extent = fmt.Sprintf(" (%s at offset %d)", count(*f.Bytes, "byte", "bytes"), *f.Offset)
	}
	_, err := fmt.Fprintf(c.stdout, "%s%s: %s%s\n  %s.\n\n", f.Kind, state, visible(where), extent, visible(f.What))
	return err
}

func (c *doctorCommand) summary(sum doctor.Summary) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s with %s, %s, %s, %s: ",
		count(int64(sum.Logs), "log", "logs"), count(int64(sum.Entries), "entry", "entries"),
		count(int64(sum.Artifacts), "artifact", "artifacts"), count(int64(sum.Blobs), "blob", "blobs"), outputsink.FormatBytes(sum.Bytes))
	switch {
	case sum.Findings == 0:
		b.WriteString("nothing found")
	default:
		b.WriteString(count(int64(sum.Findings), "finding", "findings"))
		if sum.Repaired > 0 {
			fmt.Fprintf(&b, ", %d repaired", sum.Repaired)
		}
		if sum.Unmendable > 0 {
			fmt.Fprintf(&b, ", %d can't be repaired", sum.Unmendable)
		} else if !c.repair {
			b.WriteString(", --repair mends them")
		}
	}
	b.WriteString("\n")
	if sum.Unsealed > 0 {
		fmt.Fprintf(&b, "%s without a checksum, by programs that write none: a changed byte there shows only where it breaks the JSON\n",
			count(int64(sum.Unsealed), "entry", "entries"))
	}
	if sum.Unsummed > 0 {
		fmt.Fprintf(&b, "%s without a checksum: nothing tells whether a byte there changed\n", count(int64(sum.Unsummed), "artifact", "artifacts"))
	}
	_, err := fmt.Fprint(c.stdout, b.String())
	return err
}
