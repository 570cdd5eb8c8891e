package shell

import (
	"os/exec"
	"strings"
	"testing"
)

func shellsThere(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, name := range []string{"bash", "dash"} {
		if path, err := exec.LookPath(name); err == nil {
			all = append(all, path)
		}
	}
	return all
}

func TestWhatAnExitTrapPrintsIsShown(t *testing.T) {
	for _, path := range shellsThere(t) {
		for _, c := range []struct {
			name, script, want string
			code               int
			once               bool
		}{
			{"at the end of the only script", `trap "echo bye; echo late >&2" EXIT; echo hi`, "hi\nbye\nlate\n", 0, true},
			{"on exit of the only script", `trap "echo bye" EXIT; echo hi; exit 3`, "hi\nbye\n", 3, true},
			{"on set -e of the only script", `set -e; trap "echo bye" EXIT; echo hi; (exit 4); echo never`, "hi\nbye\n", 4, true},
			{"on exit", `trap 'echo bye $?' EXIT; exit 3`, "bye 3\n", 3, false},
			{"on exit out of a function", `f() { exit 3; }; trap 'echo bye $?' EXIT; f`, "bye 3\n", 3, false},
			{"on set -e", `trap 'echo bye $?' EXIT; set -e; (exit 4)`, "bye 4\n", 4, false},
			{"subshells are none", `trap 'echo bye' EXIT; (exit 3); echo $?; x=$(exit 4); echo $?; exit`, "3\n4\nbye\n", 0, false},
			{"a trap of a subshell", `(trap 'echo sub' EXIT; exit 3); echo $?`, "sub\n3\n", 0, false},
			{"exit in the trap", `trap 'echo bye; exit 6' EXIT; exit 3`, "bye\n", 6, false},
			{"once", `trap 'echo bye' EXIT; trap 'echo other' EXIT; exit 0`, "other\n", 0, false},
			{"not at the end of a script with more to come", `trap 'echo bye' EXIT`, "", 0, false},
		} {
			s := open(t, Options{Path: path, Once: c.once})
			if got, exit := run(t, s, c.script); got != c.want || exit.Code != c.code {
				t.Errorf("%s: %s: %d, %q, want %d, %q", path, c.name, exit.Code, got, c.code, c.want)
			}
		}
	}
}

func TestAnExitTrapDoesNotLoseTheState(t *testing.T) {
	all := shellsThere(t)
	if zsh, err := exec.LookPath("zsh"); err == nil {
		all = append(all, zsh)
	}
	for _, path := range all {
		s := open(t, Options{Path: path})
		run(t, s, `V=0; trap 'echo bye' EXIT; V=1`)
		for _, c := range []struct {
			name, script string
			code         int
		}{
			{"exit", "V=2; exit 3", 3},
			{"exit in the shell behind it", "V=3; exit 3", 3},
			{"exit in a list", "V=4; false || exit 5", 5},
			{"set -e", "V=5; set -e; (exit 4)", 4},
			{"the script that sets it", `trap 'echo bye' EXIT; V=6; exit 3`, 3},
			{"the script that sets it, and an error", `trap 'echo bye' EXIT; V=8; exec 2>/dev/null; set -u; echo "$nothing"`, 127},
			{"the script that sets it, and set -e", `trap 'echo bye' EXIT; V=7; set -e; false || true; (false) && true; (exit 6); echo never`, 6},
		} {
			if strings.Contains(c.name, ", and ") && strings.HasSuffix(path, "dash") || strings.Contains(c.name, "an error") && !strings.HasSuffix(path, "bash") {
				continue // of those that state is lost
			}
			got, exit := run(t, s, "set +e; set +u; "+c.script)
			if got != "bye\n" || exit.Code != c.code || len(exit.Notes) != 1 || !strings.Contains(exit.Notes[0], "in a new shell") {
				t.Errorf("%s: %s: %d, %q, %q", path, c.name, exit.Code, got, exit.Notes)
			}
			want := strings.TrimPrefix(strings.Fields(strings.ReplaceAll(c.script[strings.Index(c.script, "V=")+2:], ";", " "))[0], "V=")
			if got, _ := run(t, s, "set +e; echo $V"); got != want+"\n" {
				t.Errorf("%s: behind %s: %q, want %s", path, c.name, got, want)
			}
		}
		away := "trap - EXIT; exit 0"
		if strings.HasSuffix(path, "zsh") { // which tells of no trap at an exit
			away = "trap - EXIT"
		}
		if got, _ := run(t, s, away); got != "" {
			t.Errorf("%s: a trap that was taken away: %q", path, got)
		}
		if got, _ := run(t, s, "exit 0"); got != "" {
			t.Errorf("%s: a trap that was taken away before: %q", path, got)
		}
	}
}

func TestAnExitBehindATrapKeepsTheParametersOfTheShell(t *testing.T) {
	s := open(t, Options{})
	run(t, s, "set -- p q")
	run(t, s, "trap true EXIT; exit 3")
	if got, _ := run(t, s, `echo "$*"; declare -F exit`); got != "p q\n" {
		t.Errorf("%q", got)
	}
	run(t, s, "set -o posix; trap true EXIT")
	run(t, s, "a=1; exit 3")
	if got, exit := run(t, s, "echo $a$2"); got != "1q\n" || len(exit.Notes) > 0 {
		t.Errorf("%q, %q", got, exit.Notes)
	}
}

func TestAnExitTrapOfNothingLosesNoState(t *testing.T) {
	for _, text := range []string{"", " ", "# nothing", "cat <<E\nE", "exit"} {
		s := open(t, Options{})
		run(t, s, "trap '"+text+"' EXIT")
		if got, exit := run(t, s, "a=1; exit 3"); got != "" || exit.Code != 3 {
			t.Errorf("%q: %d, %q", text, exit.Code, got)
		}
		if got, _ := run(t, s, "echo $a"); got != "1\n" {
			t.Errorf("behind %q: %q", text, got)
		}
	}
}

func TestTracingShowsTheScriptAlone(t *testing.T) {
	for _, path := range shellsThere(t)[:1] { // of the others a trace shows what is around the script
		s := open(t, Options{Path: path})
		all := ""
		for _, script := range []string{"set -x; trap 'echo bye' EXIT", "echo a", "exit 3", "echo b"} {
			got, _ := run(t, s, script)
			all += got
		}
		if strings.Contains(all, "__agentrun") || !strings.Contains(all, "echo bye") {
			t.Errorf("%s: %s", path, all)
		}
	}
}

func TestACopyDoesNotRunTheExitTrapOfItsShell(t *testing.T) {
	for _, path := range shellsThere(t)[:1] {
		s := open(t, Options{Path: path})
		run(t, s, "trap 'echo bye' EXIT")
		own, err := s.Copy(true)
		if err != nil {
			t.Fatal(err)
		}
		if got, exit := run(t, own, "echo a; exit 3"); got != "a\n" || exit.Code != 3 {
			t.Errorf("%s: %d, %q", path, exit.Code, got)
		}
		own.Close()
	}
}

func TestAliasesOfShAreThereBehindAnExit(t *testing.T) {
	for _, path := range shellsThere(t) {
		if strings.HasSuffix(path, "bash") {
			continue
		}
		s := open(t, Options{Path: path})
		run(t, s, `alias one="echo 'it' is" gone=true; unalias gone; alias two='echo a
b'`)
		_, exit := run(t, s, "exit 3")
		if len(exit.Notes) != 1 || !strings.Contains(exit.Notes[0], "no functions") {
			t.Errorf("%s: told %q", path, exit.Notes)
		}
		if got, _ := run(t, s, "one so; alias gone 2>/dev/null || echo no"); got != "it is so\nno\n" {
			t.Errorf("%s: %q", path, got)
		}
	}
}

func TestATrapOfZshOnErrorsIsThatOfTheScript(t *testing.T) {
	path, err := exec.LookPath("zsh")
	if err != nil {
		t.Skip(err)
	}
	s := open(t, Options{Path: path})
	for _, c := range []struct{ script, want string }{
		{"trap 'echo bye' EXIT; false", ""},
		{"false; echo on", "on\n"},
		{"trap 'echo err' ZERR; false; echo on", "err\non\n"},
		{"false; echo on", "err\non\n"},
	} {
		got, _ := run(t, s, c.script)
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.script, got, c.want)
		}
	}
}
