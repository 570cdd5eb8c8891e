package shell

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/tool/bash"
)

func TestMain(m *testing.M) {
	Main()
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process sleeps for a second at its end
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, o Options) *Shell {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func run(t testing.TB, s *Shell, script string) (string, bash.Exit) {
	t.Helper()
	var out bytes.Buffer
	exit, err := s.RunScript(t.Context(), &bash.Script{Text: script, Stdout: &out, Stderr: &out, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out.String(), exit
}

func TestWhatAScriptLeavesTheNextOneFinds(t *testing.T) {
	for _, c := range []struct {
		name, first, second, want string
	}{
		{"the working directory", "cd /usr/bin", "pwd", "/usr/bin\n"},
		{"a variable", "a='x  y'", `echo "$a"; env | grep ^a=`, "x  y\n"},
		{"an exported variable", "export A=1", "env | grep ^A=", "A=1\n"},
		{"an array", "declare -A m=([k]='v w')", `echo "${m[k]}"`, "v w\n"},
		{"a function", "f() { echo f $1; }", "f 1", "f 1\n"},
		{"an alias", "alias e='echo aliased'", "e", "aliased\n"},
		{"an option", "set -o pipefail; shopt -s nullglob", "false | true; echo $?; echo /nothing*", "1\n\n"},
		{"positional parameters", "set -- 'a b' c", `echo $#"$1"`, "2a b\n"},
		{"the umask", "umask 027", "umask", "0027\n"},
		// The signal must not come before the job is what it is to be.
		{"a job in the background", "sleep 100 & p=$!; until grep -q sleep /proc/$p/comm; do :; done", "kill $p; wait $p; echo $?", "143\n"},
		{"a variable that was unset", "unset HOME", "echo ${HOME-none}", "none\n"},
	} {
		s := open(t, Options{})
		run(t, s, c.first)
		if got, exit := run(t, s, c.second); got != c.want || len(exit.Notes) > 0 {
			t.Errorf("%s: %q, %v; want %q", c.name, got, exit.Notes, c.want)
		}
	}
}

func TestTheStateOutlivesTheShell(t *testing.T) {
	const first = "cd /usr; a='x  y'; export B=$'l\\n2'; f() { echo f; }; alias e='echo e'; shopt -s extglob nullglob; set -o pipefail; unset HOME; declare -A m=([k]=v); umask 027; set -- p q"
	const look = `pwd; echo "$a|$B|${m[k]}|$2|${HOME-none}"; f; e; shopt -q extglob && shopt -q nullglob && [[ -o pipefail ]] && echo options; umask; env | grep ^B=`
	const want = "/usr\nx  y|l\n2|v|q|none\nf\ne\noptions\n0027\nB=l\n"
	for _, c := range []struct {
		name, end string
		code      int
	}{
		{"exit", "exit 7", 7},
		{"exit out of a function", "g() { exit 8; }; g \"$@\"", 8},
		{"set -e", "set -e; false; echo never", 1},
		{"exec", "exec sh -c 'exit 9'", 9},
		{"a crash", "kill -SEGV $$", 139},
		{"SIGKILL", "kill -KILL $$", 137},
		{"set -u", "set -u; echo $nothing; echo never", 127}, // as bash -c has it
	} {
		s := open(t, Options{})
		run(t, s, first)
		out, exit := run(t, s, c.end)
		if exit.Code != c.code || len(exit.Notes) == 0 || strings.Contains(out, "never") {
			t.Errorf("%s: %d, %q, %q", c.name, exit.Code, exit.Notes, out)
		}
		if got, exit := run(t, s, "set +eu;"+look); got != want || exit.Code != 0 {
			t.Errorf("behind %s: %d, %q; want %q", c.name, exit.Code, got, want)
		}
	}
}

func TestADirectoryThatIsGoneIsTold(t *testing.T) {
	for _, kind := range []string{"bash", "sh", "zsh"} {
		if _, err := exec.LookPath(kind); err != nil {
			t.Logf("without %s, which is not installed", kind)
			continue
		}
		for _, c := range []struct{ name, before, after string }{
			{"it went while the shell lived", "", ""},
			{"the shell had ended", "exit 0", ""},
			{"the shell was killed", "kill -KILL $$", ""},
			{"its name needs quotes", "exit 0", "a  'b\\"},
		} {
			home := t.TempDir()
			away := home + "/away" + c.after
			s := open(t, Options{Path: kind, Dir: home})
			if err := os.Mkdir(away, 0o700); err != nil {
				t.Fatal(err)
			}
			run(t, s, "a=1; cd "+bash.Quote([]string{away}))
			if c.before != "" {
				run(t, s, c.before)
			}
			if err := os.Remove(away); err != nil {
				t.Fatal(err)
			}
			s.Directory() // asking where it is does not take the note away
			got, exit := run(t, s, `pwd; echo "$PWD $a"`)
			if want := home + "\n" + home + " 1\n"; got != want {
				t.Errorf("%s, %s: %q, want %q", kind, c.name, got, want)
			}
			if want := "The shell's directory " + away + " is gone: this script began in " + home; len(exit.Notes) != 1 || exit.Notes[0] != want {
				t.Errorf("%s, %s: %q, want %q", kind, c.name, exit.Notes, want)
			}
			if _, exit := run(t, s, "pwd"); len(exit.Notes) > 0 {
				t.Errorf("%s, %s: told once more: %q", kind, c.name, exit.Notes)
			}
		}
	}
}

func TestADirectoryBehindALinkIsThereAgain(t *testing.T) {
	home := t.TempDir()
	if err := os.Mkdir(home+"/real", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", home+"/link"); err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{Dir: home})
	run(t, s, "cd link; exit 0")
	if got, exit := run(t, s, "pwd"); got != home+"/link\n" || len(exit.Notes) > 0 {
		t.Errorf("%q, %q", got, exit.Notes)
	}
}

func TestASyntaxErrorEndsTheScriptAlone(t *testing.T) {
	s := open(t, Options{})
	run(t, s, "a=1")
	out, exit := run(t, s, "if ; then")
	if exit.Code != 2 || !strings.Contains(out, "syntax error") || len(exit.Notes) > 0 {
		t.Errorf("%d, %q, %q", exit.Code, out, exit.Notes)
	}
	if got, _ := run(t, s, "echo $a"); got != "1\n" {
		t.Errorf("%q", got)
	}
}

func TestExitStatusIsExact(t *testing.T) {
	s := open(t, Options{})
	for _, code := range []int{0, 1, 2, 3, 126, 127, 128, 130, 255} {
		if _, exit := run(t, s, "(exit "+strconv.Itoa(code)+")"); exit.Code != code || exit.Signal != "" {
			t.Errorf("%d: %+v", code, exit)
		}
	}
}

func TestAScriptMayBeginWithADash(t *testing.T) {
	for _, path := range []string{"bash", "zsh", "dash"} {
		if path, err := exec.LookPath(path); err == nil {
			s := open(t, Options{Path: path})
			if got, exit := run(t, s, "-x; echo $?"); !strings.HasSuffix(got, "not found: -x\n127\n") && !strings.HasSuffix(got, "-x: not found\n127\n") && !strings.HasSuffix(got, "-x: command not found\n127\n") || exit.Code != 0 {
				t.Errorf("%s: %q, %+v", path, got, exit)
			}
		}
	}
}

// The loop that runs the scripts is none of theirs.
func TestABreakInNoLoopEndsTheScriptAndSaysSo(t *testing.T) {
	for _, path := range []string{"bash", "zsh", "dash"} {
		path, err := exec.LookPath(path)
		if err != nil {
			continue
		}
		for _, script := range []string{"a=1; echo a; break; echo b", "a=1; echo a; continue; echo b", "a=1; echo a; break 2; echo b"} {
			s := open(t, Options{Path: path})
			both := strings.Contains(script, "break 2") // it ends the shell as well, and says so
			run(t, s, "p=$$")
			got, exit := run(t, s, script)
			if !strings.HasPrefix(got, "a\n") || !strings.Contains(got, "in no loop") || exit.Code != 1 || exit.TimedOut || len(exit.Notes) > 0 != both {
				t.Errorf("%s: %s: %q, %+v", path, script, got, exit)
			}
			want := "11\nsame\n"
			if both {
				want = "11\nanother\n"
			}
			if got, exit := run(t, s, "for i in 1 2; do echo $a$i; break; done; test $p = $$ && echo same || echo another"); got != want || exit.Code != 0 {
				t.Errorf("%s: after %s: %q, %+v", path, script, got, exit)
			}
		}
	}
}

func TestBashNamesTheLinesOfTheScript(t *testing.T) {
	s := open(t, Options{})
	if got, _ := run(t, s, "\n\nnosuchcommand"); !strings.Contains(got, "line 3: nosuchcommand") {
		t.Errorf("%q", got)
	}
}

func TestNothingOfTheLoopIsInherited(t *testing.T) {
	s := open(t, Options{})
	if got, _ := run(t, s, "ls /proc/self/fd | tr '\\n' ' '"); got != "0 1 2 3 " { // 3 is the directory
		t.Errorf("%q", got)
	}
	if got, _ := run(t, s, "cat; tty; echo x >/dev/tty"); !strings.Contains(got, "not a tty") || strings.Contains(got, "x\n") {
		t.Errorf("%q", got)
	}
}

func TestATimeoutEndsEverything(t *testing.T) {
	s := open(t, Options{})
	run(t, s, "a=1")
	var out bytes.Buffer
	exit, err := s.RunScript(t.Context(), &bash.Script{
		Text: "a=2; echo before; (setsid sh -c 'echo $$ >&2; exec sleep 1000' >/dev/null &) ; sleep 1000; echo never", Stdout: &out, Stderr: &out, Timeout: 300 * time.Millisecond,
	})
	if err != nil || !exit.TimedOut || exit.Code != bash.CodeTimeout || exit.Duration > 2*time.Second {
		t.Errorf("%+v, %v", exit, err)
	}
	lines := strings.Fields(out.String())
	if len(lines) != 2 || lines[0] != "before" {
		t.Fatalf("%q", out.String())
	}
	if _, err := os.Stat("/proc/" + lines[1]); err == nil {
		t.Errorf("process %s, which left the session, is still there", lines[1])
	}
	if got, _ := run(t, s, "echo $a"); got != "2\n" {
		t.Errorf("%q", got)
	}
}

func TestASecondScriptHasItsOwnShell(t *testing.T) {
	s := open(t, Options{})
	run(t, s, "a=1; mkfifo "+t.TempDir()+"/f")
	started := make(chan struct{})
	done := make(chan bash.Exit)
	go func() {
		w := &signalWriter{c: started}
		exit, _ := s.RunScript(t.Context(), &bash.Script{Text: "echo x; sleep 0.5; b=2", Stdout: w, Stderr: w})
		done <- exit
	}()
	<-started
	got, exit := run(t, s, "echo $a; a=3")
	if got != "1\n" || len(exit.Notes) != 1 || !strings.Contains(exit.Notes[0], "its own") {
		t.Errorf("%q, %q", got, exit.Notes)
	}
	if exit := <-done; len(exit.Notes) > 0 {
		t.Errorf("%q", exit.Notes)
	}
	if got, _ := run(t, s, "echo $a$b"); got != "12\n" {
		t.Errorf("%q", got)
	}
}

type signalWriter struct {
	c    chan struct{}
	done bool
}

func (w *signalWriter) Write(p []byte) (int, error) {
	if !w.done {
		w.done = true
		close(w.c)
	}
	return len(p), nil
}
