package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandFirst puts the words of a command line before its flags, up to "--". A
// flag may so stand anywhere: cobra looks for the name of the command before it
// knows the command's flags, and takes the word behind a flag that it does not know
// for the flag's value.
func commandFirst(root *cobra.Command, args []string) []string {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return args // what is completed depends on the order
	}
	values, switches := valueFlags(root)
	var words, flags []string
	takes := func(flag string) bool {
		if !values[flag] || !switches[flag] {
			return values[flag]
		}
		// The command decides, if it is known by now; before it stand flags of all commands.
		if cmd, _, err := root.Find(words); err == nil && len(words) > 0 {
			f := cmd.Flags().Lookup(strings.TrimPrefix(flag, "--"))
			return f != nil && f.NoOptDefVal == ""
		}
		return false
	}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return append(append(words, flags...), args[i:]...)
		case len(arg) < 2 || arg[0] != '-':
			words = append(words, arg)
			continue
		}
		flags = append(flags, arg)
		if takes(arg) && i+1 < len(args) {
			i++
			flags = append(flags, args[i])
		}
	}
	return append(words, flags...)
}

// valueFlags are the flags of all commands that are followed by a value, and those that
// are not, with their dashes. One name means the same in each command, but for --new of
// edit, which is its text, and for --sandbox of doctor and --redact of export, which are switches.
func valueFlags(root *cobra.Command) (values, switches map[string]bool) {
	values, switches = map[string]bool{}, map[string]bool{}
	collect := func(f *pflag.Flag) {
		in := values
		if f.NoOptDefVal != "" {
			in = switches
		}
		in["--"+f.Name] = true
		if f.Shorthand != "" {
			in["-"+f.Shorthand] = true
		}
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(collect)
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root)
	return values, switches
}
