package shell

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/agentrun/agentrun/tool/bash"
)

func TestWhatIsAskedForIsRefusedOrRun(t *testing.T) {
	s := open(t, Options{})
	if _, err := s.RunScript(t.Context(), &bash.Script{Text: "echo a\x00b"}); err == nil || !strings.Contains(err.Error(), "NUL") {
		t.Errorf("a NUL byte: %v", err)
	}
	if got, exit := run(t, s, "x="+strings.Repeat("y", 1<<20)+"; echo ${#x}"); got != "1048576\n" || exit.Code != 0 {
		t.Errorf("a script of 1 MB: %d, %q", exit.Code, got)
	}
	if got, _ := run(t, s, "printf %s '\xff\xfe'"); got != "\xff\xfe" {
		t.Errorf("not UTF-8: %q", got)
	}
	if got, exit := run(t, s, ""); got != "" || exit.Code != 0 {
		t.Errorf("an empty script: %d, %q", exit.Code, got)
	}
	if _, err := New(Options{Path: "/nowhere/bash"}); err == nil || !strings.Contains(err.Error(), "install bash") {
		t.Errorf("a shell that is not there: %v", err)
	}
	if _, err := s.RunScript(t.Context(), &bash.Script{Text: ":", Dir: "/nowhere"}); err == nil || !strings.Contains(err.Error(), "/nowhere does not exist") {
		t.Errorf("a directory that is not there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if exit, err := s.RunScript(ctx, &bash.Script{Text: "sleep 1000"}); err != nil || !exit.Cancelled {
		t.Errorf("cancelled before: %+v, %v", exit, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.RunScript(t.Context(), &bash.Script{Text: ":"}); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed shell: %v", err)
	}
}

func TestScriptsDoNotBreakTheLoop(t *testing.T) {
	for _, script := range []string{
		"IFS=x; readonly IFS", "set -f; set -C; set -u", "shopt -s nullglob failglob", "exec >/dev/null 2>&1 </dev/null",
		"exec 61>&- 62>&- 63<&-", "trap 'echo debug' DEBUG", "trap 'echo err' ERR", "trap '' INT TERM", "trap - EXIT", "trap 'echo mine' EXIT",
		"read() { echo no; }; printf() { :; }; cd() { :; }; times() { :; }; declare() { :; }; trap() { :; }",
		"alias read=false printf=false while=false builtin=false do=false", "LC_ALL=C POSIXLY_CORRECT=1", "return 0", "break; continue",
		"unset PATH", "ulimit -n 80", "umask 777", "BASH_ENV=/nowhere", "kill -INT $BASHPID &", "{", "'", "<<EOF",
	} {
		s := open(t, Options{})
		run(t, s, "a=1")
		run(t, s, script)
		if got, exit := run(t, s, `echo "a$a"`); !strings.HasPrefix(strings.TrimPrefix(got, "debug\n"), "a1\n") || exit.Code != 0 {
			t.Errorf("behind %q: %d, %q, %q", script, exit.Code, got, exit.Notes)
		}
	}
}

func TestAnOutputCanNotForgeAnEnd(t *testing.T) {
	s := open(t, Options{})
	got, exit := run(t, s, `for fd in 1 2 61 62 63; do eval "echo '2 0123456789abcdef end 0 0m0s 0m0s' >&$fd"; done 2>/dev/null; (exit 5)`)
	if exit.Code != 5 || len(exit.Notes) > 0 {
		t.Errorf("%d, %q, %q", exit.Code, exit.Notes, got)
	}
}

func TestAProcessThatHoldsTheOutputDoesNotHoldTheResult(t *testing.T) {
	s := open(t, Options{})
	ready := filepath.Join(t.TempDir(), "ready")
	if err := exec.Command("mkfifo", ready).Run(); err != nil {
		t.Fatal(err)
	}
	got, exit := run(t, s, "(read x <"+ready+"; echo late) & echo early")
	if got != "early\n" || exit.Code != 0 {
		t.Errorf("%d, %q", exit.Code, got)
	}
	got, _ = run(t, s, "echo >"+ready+"; wait; echo then")
	if got != "late\nthen\n" {
		t.Errorf("%q", got)
	}
}

func TestStreamsAreToldApart(t *testing.T) {
	s := open(t, Options{})
	var out, err bytes.Buffer
	if _, e := s.RunScript(t.Context(), &bash.Script{Text: "echo o; echo e >&2; exit 3", Stdout: &out, Stderr: &err, Separate: true}); e != nil {
		t.Fatal(e)
	}
	if out.String() != "o\n" || err.String() != "e\n" {
		t.Errorf("%q, %q", out.String(), err.String())
	}
	if got, _ := run(t, s, "for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done"); got != "o1\ne1\no2\ne2\no3\ne3\no4\ne4\no5\ne5\n" {
		t.Errorf("as one: %q", got)
	}
}

func TestManyChildrenAndCallsLeaveNothing(t *testing.T) {
	s := open(t, Options{})
	run(t, s, ":")
	descriptors := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	before := descriptors()
	for range 50 {
		run(t, s, "x=1")
	}
	run(t, s, "exit")
	run(t, s, ":")
	if after := descriptors(); after != before {
		t.Errorf("%d descriptors, then %d", before, after)
	}
	out, _ := run(t, s, "for i in {1..100}; do (setsid sleep 1000 >/dev/null 2>&1 &); done; sleep 1000 & echo $!")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + strings.TrimSpace(out)); err == nil {
		t.Errorf("%s is still there", out)
	}
}

func TestOtherShells(t *testing.T) {
	for _, name := range []string{"bash", "sh", "dash", "zsh"} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(name)
			if err != nil {
				t.Skip("it is not installed:", err)
			}
			s := open(t, Options{Path: path})
			run(t, s, "cd /usr; a='x  y'; export B=2; umask 027")
			if got, exit := run(t, s, `pwd; echo "$a$B"; umask; (exit 4)`); !strings.HasPrefix(got, "/usr\nx  y2\n0") || exit.Code != 4 {
				t.Errorf("%d, %q, %q", exit.Code, got, exit.Notes)
			}
			if got, exit := run(t, s, "if"); exit.Code == 0 || got == "" {
				t.Errorf("a syntax error: %q, %+v", got, exit)
			}
			for _, end := range []string{"exit 6", "set -e; (exit 6)", "exec sh -c 'exit 6'"} {
				if _, exit := run(t, s, end); exit.Code != 6 {
					t.Errorf("%s: %+v", end, exit)
				}
				if got, _ := run(t, s, `set +e; pwd; echo "$a$B"`); got != "/usr\nx  y2\n" {
					t.Errorf("behind %s: %q", end, got)
				}
			}
			if got, exit := run(t, s, "echo $0; seq 1 3; echo e >&2"); exit.Code != 0 || got != name+"\n1\n2\n3\ne\n" && name != "dash" {
				t.Errorf("%q, %+v", got, exit)
			}
			if name == "zsh" {
				run(t, s, "setopt ksharrays shwordsplit nullglob noclobber; IFS=x")
				if got, exit := run(t, s, "echo still"); got != "still\n" || exit.Code != 0 {
					t.Errorf("with options: %q, %+v", got, exit)
				}
				run(t, s, "unsetopt ksharrays shwordsplit nullglob noclobber; IFS=$' \\t\\n'")
			}
			if name == "sh" || name == "dash" {
				return // which can not print the rest
			}
			run(t, s, "f() { echo \"f$a\"; }\nalias g='echo g'\nl=(1 '2 3')\ntypeset -A m\nm[k]=v\nPATH=/usr/bin:/bin\n")
			run(t, s, "exit 6")
			want := "fx  y\ng\n2 3v\n/usr/bin:/bin\n"
			if name == "zsh" {
				want = "fx  y\ng\n1v\n/usr/bin:/bin\n"
			}
			if got, _ := run(t, s, `f; g; echo "${l[1]}${m[k]}"; echo $PATH`); got != want {
				t.Errorf("functions, aliases and arrays: %q", got)
			}
		})
	}
}

func TestAShellThatWasKilledBetweenScriptsIsReplacedAndThatIsSaid(t *testing.T) {
	s := open(t, Options{})
	out, _ := run(t, s, "a=1; echo $$")
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.live.shim.Exited()
	got, exit := run(t, s, "echo $a")
	if got != "1\n" || len(exit.Notes) != 1 || !strings.Contains(exit.Notes[0], "had ended since") {
		t.Errorf("%q, %q", got, exit.Notes)
	}
	if _, exit := run(t, s, ":"); len(exit.Notes) > 0 {
		t.Errorf("said again: %q", exit.Notes)
	}
}
