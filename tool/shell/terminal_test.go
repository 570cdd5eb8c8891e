package shell

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/tool/bash"
)

// runners are nobody, for a shell that is made for a script, and a shell that stays.
func runners(t *testing.T, do func(t *testing.T, r bash.Runner)) {
	t.Run("a new shell", func(t *testing.T) { do(t, nil) })
	t.Run("a shell that stays", func(t *testing.T) { do(t, open(t, Options{})) })
	for _, name := range []string{"dash", "zsh"} {
		if path, err := exec.LookPath(name); err == nil {
			t.Run("a "+name+" that stays", func(t *testing.T) { do(t, open(t, Options{Path: path})) })
		}
	}
}

// tap is told of output until it has seen a text.
type tap struct {
	seen bytes.Buffer
	want string
	hit  chan struct{}
	done bool
}

func expect(want string) *tap { return &tap{want: want, hit: make(chan struct{})} }

func (p *tap) Write(b []byte) (int, error) {
	p.seen.Write(b)
	if !p.done && strings.Contains(p.seen.String(), p.want) {
		p.done = true
		close(p.hit)
	}
	return len(b), nil
}

func TestAScriptHasATerminal(t *testing.T) {
	runners(t, func(t *testing.T, r bash.Runner) {
		for _, c := range []struct{ name, script, want string }{
			{"of its size", "stty size", "30 90\n"},
			{"on all three files", "test -t 0 && test -t 1 && test -t 2 && echo yes", "yes\n"},
			{"with a name", "tty | sed 's/[0-9]*$//'", "/dev/pts/\n"},
			{"that controls it", "(: </dev/tty) && echo yes", "yes\n"},
			{"of a kind", "echo $TERM", "xterm-256color\n"},
			{"and both streams in order", "echo 1; echo 2 >&2; echo 3", "1\n2\n3\n"},
			{"for progress bars", `for i in 1 2 3; do printf '\r%d/3 [%*s]' $i $i '' ; done; echo; echo done`, "3/3 [   ]\ndone\n"},
			{"with another screen", `echo before; printf '\033[?1049h\033[H\033[2Jall over'; printf '\033[?1049l'; echo after`, "before\nafter\n"},
			{"and long lines in one", "printf '%0200d\\n' 7", strings.Repeat("0", 199) + "7\n"},
			{"that is whole", "seq 1 500", numbers(500)},
		} {
			res, err := bash.Run(t.Context(), bash.Options{Script: c.script, Shell: r, Terminal: &bash.Terminal{Size: bash.TerminalSize{Rows: 30, Cols: 90}}, Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if res.Summary.Text != c.want || res.Code != 0 || len(res.Notes) > 0 {
				t.Errorf("%s: %q, code %d, %q", c.name, res.Output, res.Code, res.Notes)
			}
		}
	})
}

func numbers(n int) string {
	out, _ := exec.Command("seq", "1", "500").Output()
	return string(out)
}

func TestExitStatusesAtATerminal(t *testing.T) {
	runners(t, func(t *testing.T, r bash.Runner) {
		for script, want := range map[string]int{"true": 0, "false": 1, "exit 7": 7, "(exit 9)": 9, "kill -TERM $$": 143} {
			res, err := bash.Run(t.Context(), bash.Options{Script: script, Shell: r, Terminal: &bash.Terminal{}, Timeout: time.Minute})
			if err != nil || res.Code != want {
				t.Errorf("%s: code %d, %v, %q", script, res.Code, err, res.Output)
			}
		}
	})
}

func TestAQuestionIsAnswered(t *testing.T) {
	runners(t, func(t *testing.T, r bash.Runner) {
		term, seen := &bash.Terminal{}, expect("Password:")
		go func() {
			<-seen.hit
			_, _ = term.Write([]byte("s3cret\n"))
		}()
		res, err := bash.Run(t.Context(), bash.Options{
			Script: `stty -echo; printf 'Password: '; read -r p; stty echo; echo; echo "got ${#p}"`, Shell: r, Terminal: term, Live: seen, Timeout: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := "Password:\ngot 6\n"; res.Summary.Text != want {
			t.Errorf("%q", res.Output)
		}
	})
}

func TestPythonAsksAtATerminal(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	term := &bash.Terminal{}
	if _, err := term.Write([]byte("typed ahead\r")); err != nil {
		t.Fatal(err)
	}
	res, err := bash.Run(t.Context(), bash.Options{Argv: []string{"python3", "-c", "print('<' + input('? ') + '>')"}, Terminal: term, Timeout: time.Minute})
	if err != nil || !strings.Contains(res.Output, "? ") || !strings.HasSuffix(res.Summary.Text, "<typed ahead>\n") {
		t.Errorf("%q, %v", res.Output, err)
	}
}

func TestControlCharactersAreKeys(t *testing.T) {
	runners(t, func(t *testing.T, r bash.Runner) {
		term, seen := &bash.Terminal{}, expect("sleeping")
		go func() {
			<-seen.hit
			_, _ = term.Write([]byte{3})
		}()
		res, err := bash.Run(t.Context(), bash.Options{Script: `trap 'echo caught; exit 5' INT; echo sleeping; while :; do sleep 0.1; done`, Shell: r, Terminal: term, Live: seen, Timeout: time.Minute})
		if err != nil || res.TimedOut || res.Code != 5 || !strings.Contains(res.Output, "caught") {
			t.Errorf("%q, code %d, %v", res.Output, res.Code, err)
		}
	})
	runners(t, func(t *testing.T, r bash.Runner) {
		term := &bash.Terminal{}
		_, _ = term.Write([]byte("one\n\x04"))
		res, err := bash.Run(t.Context(), bash.Options{Script: "wc -l", Shell: r, Terminal: term, Timeout: time.Minute})
		if err != nil || !strings.HasSuffix(res.Summary.Text, "1\n") {
			t.Errorf("%q, %v", res.Output, err)
		}
	})
}

func TestWhoWaitsForAnAnswerIsEndedByItsTimeout(t *testing.T) {
	runners(t, func(t *testing.T, r bash.Runner) {
		res, err := bash.Run(t.Context(), bash.Options{Script: "printf 'Password: '; read x", Shell: r, Terminal: &bash.Terminal{}, Timeout: 300 * time.Millisecond})
		if err != nil || !res.TimedOut || !strings.HasPrefix(res.Output, "Password:") || !strings.Contains(res.Output, "[Command timed out after 300ms]") {
			t.Errorf("%q, code %d, %v", res.Output, res.Code, err)
		}
	})
}

func TestAScreenThatWasNotLeftIsShown(t *testing.T) {
	less, err := exec.LookPath("less")
	if err != nil {
		t.Skip("there is no less")
	}
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte(numbers(500)), 0o600); err != nil {
		t.Fatal(err)
	}
	res, err := bash.Run(t.Context(), bash.Options{
		Argv: []string{less, file}, Env: []string{"LESS="}, Terminal: &bash.Terminal{Size: bash.TerminalSize{Rows: 5, Cols: 40}}, Timeout: time.Second,
	})
	if err != nil || !strings.HasPrefix(res.Summary.Text, "1\n2\n3\n4\n") || strings.Contains(res.Summary.Text, "\n6\n") {
		t.Errorf("%q, %v", res.Output, err)
	}
}

func TestTheStateGoesThroughATerminal(t *testing.T) {
	for _, name := range []string{"bash", "zsh"} {
		if path, err := exec.LookPath(name); err == nil {
			t.Run(name, func(t *testing.T) { stateGoesThroughATerminal(t, path) })
		}
	}
}

func stateGoesThroughATerminal(t *testing.T, path string) {
	s := open(t, Options{Path: path})
	at := func(script string) string {
		t.Helper()
		var out bytes.Buffer
		exit, err := s.RunScript(t.Context(), &bash.Script{Text: script, Stdout: &out, Stderr: &out, Timeout: 20 * time.Second, Terminal: &bash.Terminal{}})
		if err != nil || len(exit.Notes) > 0 {
			t.Fatalf("%s: %v, %q", script, err, exit.Notes)
		}
		return strings.ReplaceAll(out.String(), "\r\n", "\n")
	}
	run(t, s, "cd /usr/bin; a=1; f() { echo f; }")
	if got := at("pwd; echo $a; f; a=2; cd /; export B=b; g() { echo g; }"); got != "/usr/bin\n1\nf\n" {
		t.Errorf("%q", got)
	}
	if got, exit := run(t, s, "pwd; echo $a; f; g; echo $B; echo $TERM; test -t 0 || test -t 1 || echo none"); got != "/\n2\nf\ng\nb\ndumb\nnone\n" || len(exit.Notes) > 0 {
		t.Errorf("%q, %q", got, exit.Notes)
	}
	run(t, s, "sleep 1000 & p=$!")
	at("a=3; unset B")
	want := "lives\n3 unset dumb\nnone\n"
	if strings.HasSuffix(path, "zsh") { // its state does not name what is not set
		want = "lives\n3 b dumb\nnone\n"
	}
	if got, _ := run(t, s, "kill -0 $p && echo lives; echo $a ${B-unset} $TERM; (: </dev/tty) 2>/dev/null || echo none"); got != want {
		t.Errorf("%q", got)
	}
	if got := at("exit 3"); got != "" {
		t.Errorf("%q", got)
	}
	if got, _ := run(t, s, "echo $a; kill $p"); got != "3\n" {
		t.Errorf("%q", got)
	}
}

func TestWhatIsLeftAtATerminalIsEnded(t *testing.T) {
	runners(t, func(t *testing.T, r bash.Runner) {
		began := time.Now()
		res, err := bash.Run(t.Context(), bash.Options{Script: "trap '' HUP; sleep 1000 & echo left", Shell: r, Terminal: &bash.Terminal{}, Timeout: time.Minute})
		if err != nil || !strings.HasPrefix(res.Output, "left") || res.TimedOut {
			t.Errorf("%q, %v after %v", res.Output, err, time.Since(began))
		}
	})
}

func TestTheArtifactOfATerminalHasEveryByte(t *testing.T) {
	dir := artifacts.Open(filepath.Join(t.TempDir(), "artifacts"), artifacts.Options{})
	res, err := bash.Run(t.Context(), bash.Options{Script: `printf 'a\rb\033[1mc\033[m\n'`, Terminal: &bash.Terminal{}, Artifacts: dir})
	if err != nil || res.Summary.Text != "bc\n" || res.Summary.Artifact == "" {
		t.Fatalf("%q, %v", res.Output, err)
	}
	r, err := dir.Open(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b := make([]byte, 100)
	n, _ := r.ReadAt(b, 0)
	if got := string(b[:n]); got != "a\rb\x1b[1mc\x1b[m\r\n" {
		t.Errorf("%q", got)
	}
	res, err = bash.Run(t.Context(), bash.Options{Script: "echo plain", Terminal: &bash.Terminal{}, Artifacts: dir})
	if err != nil || res.Output != "plain\n" || res.Summary.Artifact != "" {
		t.Errorf("%q, %q, %v", res.Output, res.Summary.Artifact, err)
	}
}

func TestATerminalIsResizedWhileTheCommandRuns(t *testing.T) {
	runners(t, func(t *testing.T, r bash.Runner) {
		term, seen := &bash.Terminal{}, expect("ready")
		go func() {
			<-seen.hit
			if err := term.Resize(bash.TerminalSize{Rows: 40, Cols: 132}); err != nil {
				t.Error(err)
			}
			_, _ = term.Write([]byte("\n"))
		}()
		res, err := bash.Run(t.Context(), bash.Options{Script: "stty -echo; echo ready; read x; stty size", Shell: r, Terminal: term, Live: seen, Timeout: time.Minute})
		if err != nil || res.Output != "ready\n40 132\n" {
			t.Errorf("%q, %v", res.Output, err)
		}
		if term.Resize(bash.TerminalSize{}) == nil {
			t.Error("a terminal that is gone is resized")
		}
		if _, err := term.Write([]byte("x")); err == nil {
			t.Error("a terminal that is gone is typed at")
		}
	})
}
