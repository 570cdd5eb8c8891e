package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// verbs are the commands, each with what makes it.
var verbs = [...]struct {
	name string
	make func(*environment) *cobra.Command
	all  bool // it looks at the others
}{
	{"exec", newExecCommand, false},
	{"bash", newBashCommand, false},
	{"python", newPythonCommand, false},
	{"ssh", newSSHCommand, false},
	{"read", newReadCommand, false},
	{"artifacts", newArtifactsCommand, false},
	{"sessions", newSessionsCommand, false},
	{"export", newExportCommand, false},
	{"import", newImportCommand, false},
	{"doctor", newDoctorCommand, false},
	{"version", newVersionCommand, false},
	{"man", newManCommand, true},
	{"completion", newCompletionCommand, true},
	{"jobs", newJobsCommand, false},
	{"supervise", newSuperviseCommand, false},
	{"follow", newFollowCommand, false},
	{"search", newSearchCommand, false},
	{"gc", newGCCommand, false},
	{"config", newConfigCommand, false},
	{"checkpoint", newCheckpointCommand, false},
	{"rewind", newRewindCommand, false},
	{"reveal", newRevealCommand, false},
	{"edit", newEditCommand, false},
	{"write", newWriteCommand, false},
	{"tools", newToolsCommand, false},
	{"models", newModelsCommand, false},
	{"call", newCallCommand, false},
	{"grep", newGrepCommand, false},
	{"find", newFindCommand, false},
	{"run", newRunCommand, false},
	{"resume", newResumeCommand, false},
	{"chat", newChatCommand, false},
	{"tasks", newTasksCommand, false},
	{"task", newTaskCommand, false},
	{"agents", newAgentsCommand, false},
	{"hooks", newHooksCommand, false},
	{"state", newStateCommand, false},
	{"blobs", newBlobsCommand, false},
	{"kv", newKVCommand, false},
}

// commands makes the command that the arguments name first: all of them with their flags would take longer than many a
// command does. It makes all where that is something else, help or a word that is to be completed.
func commands(root *cobra.Command, env *environment) []*cobra.Command {
	word := firstWord(root.PersistentFlags(), env.args)
	for _, v := range verbs {
		if v.name == word && !v.all {
			return []*cobra.Command{v.make(env)}
		}
	}
	all := make([]*cobra.Command, len(verbs))
	for i, v := range verbs {
		all[i] = v.make(env)
	}
	return all
}

// firstWord is the first argument behind flags that every command has; "" where there is another flag.
func firstWord(every *pflag.FlagSet, args []string) string {
	for len(args) > 0 {
		name, long := strings.CutPrefix(args[0], "--")
		if !long {
			return args[0]
		}
		name, _, given := strings.Cut(name, "=")
		f := every.Lookup(name)
		if f == nil {
			return ""
		}
		args = args[1:]
		if !given && f.NoOptDefVal == "" && len(args) > 0 {
			args = args[1:]
		}
	}
	return ""
}
