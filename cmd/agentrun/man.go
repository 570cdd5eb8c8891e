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
		Use:     "man DIR",
		Short:   "Write the man pages into a directory",
		Example: "  agentrun man ~/.local/share/man/man1",
		Args:    positional(1, 1, "the directory to write to"),
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
	if cmd.HasAvailableLocalFlags() {
		section("OPTIONS")
		writeFlags(&b, cmd.LocalFlags())
	}
	if cmd.HasAvailableInheritedFlags() {
		section("OPTIONS OF EVERY COMMAND")
		writeFlags(&b, cmd.InheritedFlags())
	}
	if cmd.HasExample() {
		section("EXAMPLES")
		fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(cmd.Example))
	}
	writeSeeAlso(&b, cmd)
	return b.String()
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
