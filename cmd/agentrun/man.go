package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newManCommand(*environment) *cobra.Command {
	return &cobra.Command{
		Use:         "man DIR",
		Short:       "Write the man pages into a directory",
		Example:     "  agentrun man ~/.local/share/man/man1",
		Args:        positional(1, 1, "the directory to write to"),
		Annotations: map[string]string{needsNoHome: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { // pages are for everybody to read
				return fmt.Errorf("making the directory of the man pages: %w", err)
			}
			return writeManPages(cmd.Root(), args[0])
		},
	}
}

// writeManPages writes a page for cmd and each command below it.
//
// cobra has a generator too. It goes through Markdown, and the packages that it
// needs for that compile their regular expressions when a program starts: 1 ms of
// every run of agentrun, which takes 7.
func writeManPages(cmd *cobra.Command, dir string) error {
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		if err := writeManPages(c, dir); err != nil {
			return err
		}
	}
	name := filepath.Join(dir, pageName(cmd)+".1")
	if err := os.WriteFile(name, []byte(manPage(cmd)), 0o644); err != nil { // for everybody to read
		return fmt.Errorf("writing a man page: %w", err)
	}
	return nil
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is the page of a command in the macros of man(7).
func manPage(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	section := func(name string) { fmt.Fprintf(&b, ".SH %s\n", name) }
	fmt.Fprintf(&b, ".TH %q 1 \"\" %q \"agentrun\"\n", strings.ToUpper(pageName(cmd)), "agentrun "+buildVersion().Version)
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(pageName(cmd)), roff(cmd.Short))
	section("SYNOPSIS")
	fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(cmd.UseLine()))
	section("DESCRIPTION")
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	writeText(&b, about)
	if cmd.HasAvailableSubCommands() {
		section("COMMANDS")
		writeCommands(&b, cmd)
	}
	if cmd.HasAvailableLocalFlags() {
		section("OPTIONS")
		writeFlags(&b, cmd.LocalFlags())
	}
	if cmd.HasAvailableInheritedFlags() && cmd.Annotations[needsNoHome] == "" {
		section("OPTIONS OF EVERY COMMAND")
		writeFlags(&b, cmd.InheritedFlags())
	}
	if !cmd.HasParent() {
		b.WriteString(rootSections)
	}
	if cmd.HasExample() {
		section("EXAMPLES")
		fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(cmd.Example))
	}
	writeSeeAlso(&b, cmd)
	return b.String()
}

// rootSections are those that the page of agentrun itself has for all commands.
const rootSections = `.SH EXIT STATUS
exec, bash and ssh exit with the status of the command, and with these:
.TP
124
The command was ended by \-\-timeout.
.TP
125
agentrun itself failed.
.TP
126
The command can not be executed.
.TP
127
There is no such command.
.TP
128+\fIn\fP
Signal \fIn\fP ended the command, or agentrun got it and ended the command.
.PP
Everything else exits with 0 for success, 2 for wrong usage and 1 for any other error.
.SH ENVIRONMENT
.TP
AGENTRUN_HOME
The directory where everything is kept, as \-\-home.
.TP
AGENTRUN_SESSION
The session, as \-\-session.
.TP
AGENTRUN_DURABILITY
sync or flush, as \-\-durability.
.TP
XDG_DATA_HOME
Where the home is, without AGENTRUN_HOME: in its directory agentrun.
.SH FILES
.TP
~/.local/share/agentrun
The home, when no variable names another. Below it:
.TP
sessions/\fIDIRECTORY\fP/\fITIME\fP_\fIID\fP.jsonl
The log of a session; .jsonl.zst when it was compressed.
.TP
sessions/\fIDIRECTORY\fP/\fITIME\fP_\fIID\fP/\fIN\fP.bash.log
The output artifact://\fIN\fP of that session.
.TP
blobs/
Images and long strings, named by their SHA\-256.
.TP
trash/
What sessions rm removed.
`

func writeCommands(b *strings.Builder, cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			fmt.Fprintf(b, ".TP\n\\fB%s\\fP\n%s\n", roff(strings.TrimPrefix(c.UseLine(), "agentrun ")), roff(c.Short))
		}
	}
}

// writeText writes paragraphs. What is indented or aligned stays as it is.
func writeText(b *strings.Builder, text string) {
	for _, paragraph := range strings.Split(text, "\n\n") {
		if strings.HasPrefix(paragraph, " ") {
			fmt.Fprintf(b, ".PP\n.nf\n%s\n.fi\n", roff(paragraph))
			continue
		}
		fmt.Fprintf(b, ".PP\n%s\n", roff(paragraph))
	}
}

func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fP", roff(name))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fP", roff(value))
		}
		fmt.Fprintf(b, "\n%s\n", roff(usage))
	})
}

func writeSeeAlso(b *strings.Builder, cmd *cobra.Command) {
	var pages []string
	if cmd.HasParent() {
		pages = append(pages, pageName(cmd.Parent()))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			pages = append(pages, pageName(c))
		}
	}
	if len(pages) == 0 {
		return
	}
	fmt.Fprint(b, ".SH SEE ALSO\n")
	for i, page := range pages {
		end := ","
		if i == len(pages)-1 {
			end = ""
		}
		fmt.Fprintf(b, ".BR %s (1)%s\n", roff(page), end)
	}
}

// roff keeps text from being read as requests: backslashes, hyphens that are to be
// copied, and dots and quotes at the beginning of a line.
func roff(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
