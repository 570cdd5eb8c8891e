package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/supervisor"
	"github.com/agentrun/agentrun/tool/read"
	"github.com/agentrun/agentrun/tool/shell"
)

func TestMain(m *testing.M) {
	shell.Main()
	read.Main()
	testscript.Main(m, map[string]func(){"agentrun": main})
}

// raced are the scripts in which goroutines of one process meet most. Under the race
// detector only they run a program that has it: with it a program takes a quarter of a
// second to start, and all scripts together start more than a thousand. With -short the
// others are left out.
var raced = []string{"ends", "exec", "follow", "jobs", "kernel", "live", "search", "shell"}

// plainProgram builds the program without the race detector, and returns its directory.
func plainProgram(t *testing.T) string {
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	return dir
}

func TestScript(t *testing.T) {
	p := scripts(t)
	p.Dir = "testdata/script"
	if underRace && testing.Short() {
		p.Dir = ""
		for _, name := range raced {
			p.Files = append(p.Files, filepath.Join("testdata/script", name+".txtar"))
		}
	}
	testscript.Run(t, p)
}

// scripts says how scripts are run; which ones is left open.
func scripts(t *testing.T) testscript.Params {
	plain := ""
	if underRace {
		plain = plainProgram(t)
	}
	return testscript.Params{
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Defer(func() {
				homes, _ := filepath.Glob(filepath.Join(env.WorkDir, "*", "agentrun"))
				for _, home := range homes {
					if _, err := supervisor.StopAll(context.Background(), home); err != nil {
						t.Error(err)
					}
				}
			})
			if plain != "" && !slices.Contains(raced, strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")) {
				env.Setenv("PATH", plain+string(os.PathListSeparator)+env.Getenv("PATH"))
			}
			env.Setenv("HOME", filepath.Join(env.WorkDir, "user"))
			env.Setenv("XDG_DATA_HOME", filepath.Join(env.WorkDir, "data"))
			env.Setenv("TZ", "UTC")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else the race detector makes each process sleep for a second
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "user-namespaces": // of which a test can be the root
				return exec.Command("unshare", "--user", "--map-root-user", "--mount", "true").Run() == nil, nil
			case "root":
				return os.Getuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status":  status,
			"json":    jsonValue,
			"members": jsonMembers,
			"match":   match,
			"setenv":  setenv,
			"planted": planted,
		},
	}
}

// status N COMMAND ARG... runs a command that has to exit with status N.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		if got = exit.ExitCode(); got < 0 {
			ts.Fatalf("%v", err)
		}
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// json FILE PATH VALUE compares the JSON at a gjson path, ..N.x for line N of
// several objects. What is not there is "absent".
func jsonValue(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json FILE PATH VALUE")
	}
	r := gjson.Get(ts.ReadFile(args[0]), args[1])
	got := "absent"
	switch {
	case r.Type == gjson.String:
		got = r.Str
	case r.Exists():
		got = r.Raw
	}
	if (got == args[2]) == neg {
		ts.Fatalf("%s is %s", args[1], got)
	}
}

// members FILE PATH NAMES compares the names of the members of an object, in
// order. The path "." is the first object of the file.
func jsonMembers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: members FILE PATH NAME,NAME...")
	}
	var first json.RawMessage
	ts.Check(json.NewDecoder(strings.NewReader(ts.ReadFile(args[0]))).Decode(&first))
	object := gjson.ParseBytes(first)
	if args[1] != "." {
		object = object.Get(args[1])
	}
	var names []string
	object.ForEach(func(key, _ gjson.Result) bool {
		names = append(names, key.Str)
		return true
	})
	if got := strings.Join(names, ","); got != args[2] {
		ts.Fatalf("members are %s", got)
	}
}

// match FILE TEXT looks for a plain text, with a number for how often it is there.
func match(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: match FILE TIMES TEXT")
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	if got := strings.Count(ts.ReadFile(args[0]), args[2]); got != want {
		ts.Fatalf("%q is there %d times, want %d", args[2], got, want)
	}
}

// setenv NAME FILE [PATH] sets a variable to the text of a file, without its last
// newline, or to the JSON at a path of it.
func setenv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: setenv NAME FILE [PATH]")
	}
	value := strings.TrimSuffix(ts.ReadFile(args[1]), "\n")
	if len(args) == 3 {
		value = gjson.Get(value, args[2]).String()
	}
	if value == "" {
		ts.Fatalf("nothing to set %s to", args[0])
	}
	ts.Setenv(args[0], value)
}

func TestFlagOfOneNameMeansTheSameInEveryCommand(t *testing.T) {
	kinds := map[string]string{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			switch cmd.Name() + " " + f.Name {
			case "edit new", "doctor sandbox", "export redact":
				return // what a person would say; commandFirst asks the command
			}
			if kind, known := kinds[f.Name]; known && kind != f.Value.Type() {
				t.Errorf("--%s of %s is a %s, elsewhere a %s", f.Name, cmd.CommandPath(), f.Value.Type(), kind)
			}
			kinds[f.Name] = f.Value.Type()
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRootCommand(&environment{}))
	if len(kinds) < 10 {
		t.Errorf("only %d flags were found", len(kinds))
	}
}

func TestWordsComeBeforeFlags(t *testing.T) {
	root := newRootCommand(&environment{})
	for _, tt := range []struct{ name, args, want string }{
		{"flags behind the command stay", "exec --live -- true", "exec --live -- true"},
		{"a switch before the command", "--live exec -- true", "exec --live -- true"},
		{"a value before the command", "--timeout 3s exec -- true", "exec --timeout 3s -- true"},
		{"a value with an equals sign", "--timeout=3s exec -- true", "exec --timeout=3s -- true"},
		{"a value that looks like a flag", "--env --live=1 bash x", "bash x --env --live=1"},
		{"what is behind -- belongs to the command", "exec -- --live --timeout", "exec -- --live --timeout"},
		{"a flag between two words", "sessions --all list", "sessions list --all"},
		{"a value that is missing", "read x --offset", "read x --offset"},
		{"an unknown flag takes no value", "--what read x", "read x --what"},
		{"a flag of one letter with its value", "export x -o file y", "export x y -o file"},
		{"a dash is a word", "read - --json", "read - --json"},
		{"--new is a text for edit", "edit f --old a --new b --json", "edit f --old a --new b --json"},
		{"and a switch for others", "--new exec --live -- true", "exec --new --live -- true"},
		{"also behind the command", "bash --new x", "bash x --new"},
		{"completion is left alone", "__complete --session x exec", "__complete --session x exec"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := commandFirst(root, strings.Fields(tt.args))
			if want := strings.Fields(tt.want); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

func TestHelpOfEveryCommandHasLinesOf80Columns(t *testing.T) {
	seen := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		seen++
		for _, line := range strings.Split(cmd.Long+"\n"+usageText(cmd), "\n") {
			if n := len([]rune(line)); n > helpColumns {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if value, _ := pflag.UnquoteUsage(f); value != strings.ToUpper(value) {
				t.Errorf("%s --%s: the value is called %s", cmd.CommandPath(), f.Name, value)
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRootCommand(&environment{}))
	if seen < 15 {
		t.Errorf("only %d commands were found", seen)
	}
}

func TestHelpFitsAScreen(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(rootHelp, "\n"), "\n")
	if len(lines) > 24 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestACommandIsMadeAloneWhereItComesFirst(t *testing.T) {
	names := map[string]bool{}
	for _, v := range verbs {
		names[v.name] = true
		for _, before := range [][]string{nil, {"--json", "--home", "x"}, {"--home=x", "--session", "exec"}} {
			args := append(before[:len(before):len(before)], v.name, "--help")
			only := newRootCommand(&environment{args: args}).Commands()
			if v.all && len(only) != len(verbs) {
				t.Errorf("%q: %d of %d commands", args, len(only), len(verbs))
			}
			if !v.all && (len(only) != 1 || only[0].Name() != v.name) {
				t.Errorf("%q: one of %d commands, the first called %s", args, len(only), only[0].Name())
			}
		}
	}
	for _, args := range [][]string{nil, {"--home"}, {"--home", "exec"}, {"--nosuch", "exec"}, {"-h", "exec"}, {"--", "exec"}, {"help", "exec"}, {"__complete", "exec", ""}, {"nosuch"}} {
		for _, cmd := range newRootCommand(&environment{args: args}).Commands() {
			if !names[cmd.Name()] && cmd.Name() != "help" {
				t.Errorf("%q: a command %s is no verb", args, cmd.Name())
			}
			delete(names, cmd.Name())
		}
		if len(names) > 0 {
			t.Errorf("%q: without %v", args, names)
		}
		for _, v := range verbs {
			names[v.name] = true
		}
	}
}
