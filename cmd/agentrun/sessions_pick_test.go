package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"
)

// terminalProgram is agentrun in a terminal.
type terminalProgram struct {
	t    *testing.T
	cmd  *exec.Cmd
	tty  *os.File
	done chan struct{} // it wrote its last byte

	mu   sync.Mutex
	more *sync.Cond
	sent []byte
	over bool

	resizes []resize // in their order
}

// pickerHome is a home with sessions in two directories, and the environment to use
// it.
func pickerHome(t *testing.T) (dir string, env []string) {
	t.Helper()
	root := t.TempDir()
	dir = filepath.Join(root, "project")
	other := filepath.Join(root, "other")
	for _, d := range []string{dir, other} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	env = append(os.Environ(), "HOME="+root, "AGENTRUN_HOME="+filepath.Join(root, "home"), "AGENTRUN_SESSION=", "TERM=xterm-256color",
		"NO_COLOR=", "TZ=UTC", "GORACE=atexit_sleep_ms=0")
	for _, s := range []struct{ dir, title string }{
		{dir, "Repair the pump"}, {dir, "Paint the fence"}, {other, "長い題 elsewhere"},
	} {
		runAgentrun(t, s.dir, env, "exec", "--new", "--", "echo", "said in "+s.title)
		runAgentrun(t, s.dir, env, "sessions", "rename", s.title)
	}
	return dir, env
}

func agentrunCommand(dir string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command("agentrun", args...) // testscript puts it into the PATH
	cmd.Dir, cmd.Env = dir, env
	return cmd
}

func runAgentrun(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := agentrunCommand(dir, env, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("agentrun %v: %v\n%s", args, err, stderr.Bytes())
	}
	return string(out)
}

func startInTerminal(t *testing.T, dir string, env []string, args ...string) *terminalProgram {
	t.Helper()
	return inTerminal(t, agentrunCommand(dir, env, args...))
}

func startShellInTerminal(t *testing.T, dir string, env []string, script string) *terminalProgram {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.Env = dir, env
	return inTerminal(t, cmd)
}

func inTerminal(t *testing.T, cmd *exec.Cmd) *terminalProgram {
	t.Helper()
	p := &terminalProgram{t: t, cmd: cmd, done: make(chan struct{})}
	p.more = sync.NewCond(&p.mu)
	tty, err := pty.StartWithSize(p.cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	p.tty = tty
	go func() {
		defer close(p.done)
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf) // an error when the program has ended
			p.mu.Lock()
			p.sent = append(p.sent, buf[:n]...)
			p.over = err != nil
			p.more.Broadcast()
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		tty.Close()
		<-p.done
	})
	return p
}

// screen is what the program drew last: each time it draws everything.
func (p *terminalProgram) screen() string {
	_, screen := cutLast(string(p.sent), "\x1b[H")
	if whole, _, ok := strings.Cut(screen, "\x1b[J"); ok {
		return ansi.Strip(whole)
	}
	return ""
}

func cutLast(s, sep string) (before, after string) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i+len(sep):]
}

// await waits until the screen is as wanted.
func (p *terminalProgram) await(what string, wanted func(screen string) bool) {
	p.t.Helper()
	p.awaitOf(p.screen, what, wanted)
}

// awaitShown is await for a program that does not draw everything each time.
func (p *terminalProgram) awaitShown(what string, wanted func(screen string) bool) {
	p.t.Helper()
	p.awaitOf(p.emulated, what, wanted)
}

func (p *terminalProgram) awaitOf(screen func() string, what string, wanted func(screen string) bool) {
	p.t.Helper()
	late := time.AfterFunc(time.Minute, func() { p.cmd.Process.Kill() }) // else a test that fails would wait for ever
	defer late.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !wanted(screen()) {
		if p.over {
			p.t.Fatalf("the program ended before there was %s; it wrote %q, and the screen is\n%s", what, p.sent, screen())
		}
		p.more.Wait()
	}
}

func (p *terminalProgram) see(text string) {
	p.t.Helper()
	p.await(text, func(s string) bool { return strings.Contains(s, text) })
}

func (p *terminalProgram) seeNot(text string) {
	p.t.Helper()
	p.await("no "+text, func(s string) bool { return s != "" && !strings.Contains(s, text) })
}

func (p *terminalProgram) press(keys string) {
	p.t.Helper()
	if _, err := p.tty.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// end waits for the program and returns its status and what it wrote after the list.
func (p *terminalProgram) end() (status int, after string) {
	p.t.Helper()
	<-p.done
	err := p.cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	_, after = cutLast(string(p.sent), "\x1b[?1049l")
	for _, undone := range []string{"\x1b[?7h", "\x1b[?25h", "\x1b[?1049l"} {
		if !strings.Contains(string(p.sent), undone) {
			p.t.Errorf("the terminal is not given back: %q is missing", undone)
		}
	}
	return p.cmd.ProcessState.ExitCode(), after
}

func TestPickASession(t *testing.T) {
	dir, env := pickerHome(t)
	p := startInTerminal(t, dir, env, "sessions")
	p.see("> Paint the fence")
	p.see("Repair the pump")
	p.see("said in Paint the fence") // its preview
	p.press("/pump")
	p.see("> Repair the pump")
	p.seeNot("Paint the fence")
	p.press("\r")
	p.see("filter: pump")
	p.press("\r")
	status, after := p.end()
	if status != 0 || !strings.Contains(after, "Repair the pump") || !strings.Contains(after, "go on with agentrun exec --session") {
		t.Errorf("status %d, and it says %s", status, after)
	}
}

func TestPickerWidensResizesAndLeaves(t *testing.T) {
	dir, env := pickerHome(t)
	p := startInTerminal(t, dir, env, "sessions")
	p.see("1/2")
	p.press("a")
	p.see("1/3")
	p.see("長い題 elsewhere")
	if err := pty.Setsize(p.tty, &pty.Winsize{Rows: 10, Cols: 40}); err != nil {
		t.Fatal(err)
	}
	p.see("All sessions  1/3")
	p.press("q")
	if status, after := p.end(); status != 0 || after != "" {
		t.Errorf("status %d, and it says %q", status, after)
	}
}

func TestPickerChangesSessions(t *testing.T) {
	dir, env := pickerHome(t)
	p := startInTerminal(t, dir, env, "sessions")
	p.see("> Paint the fence")
	p.press("r")
	p.see("title: Paint the fence")
	p.press("\x15" + "Tear it down\r")
	p.see("> Tear it down")
	p.press("f")
	p.see("forked as")
	p.see("1/3")
	p.press("dx")
	p.see("not removed")
	p.press("d")
	p.see("to the trash? y/n")
	p.press("y")
	p.see("in the trash; agentrun sessions restore")
	p.see("/2")
	p.press("\x1b")
	if status, _ := p.end(); status != 0 {
		t.Errorf("status %d", status)
	}
	list := runAgentrun(t, dir, env, "sessions", "list")
	trash := runAgentrun(t, dir, env, "sessions", "list", "--trash")
	if strings.Count(list, "Tear it down") != 1 || strings.Count(trash, "Tear it down") != 1 || strings.Contains(list, "Paint the fence") {
		t.Errorf("afterwards there are\n%s\nand in the trash\n%s", list, trash)
	}
}

func TestPickerIsInterrupted(t *testing.T) {
	dir, env := pickerHome(t)
	for _, tt := range []struct {
		name string
		end  func(p *terminalProgram)
		want int
	}{
		{"by ctrl-c", func(p *terminalProgram) { p.press("\x03") }, 130},
		{"by SIGTERM", func(p *terminalProgram) { p.cmd.Process.Signal(syscall.SIGTERM) }, 143},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startInTerminal(t, dir, env, "sessions")
			p.see("Paint the fence")
			tt.end(p)
			if status, after := p.end(); status != tt.want || after != "" {
				t.Errorf("status %d, and it says %q", status, after)
			}
		})
	}
}

func TestSessionsIntoAPipeIsThePlainList(t *testing.T) {
	dir, env := pickerHome(t)
	plain := runAgentrun(t, dir, env, "sessions", "list")
	if got := runAgentrun(t, dir, env, "sessions"); got != plain {
		t.Errorf("%s\nand sessions list\n%s", got, plain)
	}
	for _, args := range [][]string{{"sessions", "--json"}, {"sessions", "--quiet"}, {"sessions", "list"}} {
		p := startInTerminal(t, dir, env, args...)
		<-p.done
		if bytes.Contains(p.sent, []byte("\x1b")) || !bytes.Contains(p.sent, []byte("Paint the fence")) {
			t.Errorf("%v at a terminal writes %q", args, p.sent)
		}
	}
}

func TestPickerCompressesExportsAndDraws(t *testing.T) {
	dir, env := pickerHome(t)
	p := startInTerminal(t, dir, env, "sessions")
	p.see("> Paint the fence")
	p.press("c")
	p.see("compressed: ")
	p.press("e")
	p.see("export to: ")
	p.press("\x1b")
	p.see("not exported")
	p.press("e\x15" + "fence.md\r")
	p.see("fence.md: ")
	p.press("e\x15" + "fence.md\r")
	p.see("is there already")
	p.press("?")
	p.see("draw the entries as a tree")
	p.press("x")
	p.see("> Paint the fence")
	p.press("t")
	status, after := p.end()
	if status != 0 || !strings.Contains(after, "bashExecution") || !strings.Contains(after, "<- leaf") {
		t.Errorf("status %d, and it says %s", status, after)
	}
	page, err := os.ReadFile(filepath.Join(dir, "fence.md"))
	if err != nil || !bytes.Contains(page, []byte("said in Paint the fence")) {
		t.Errorf("exported %q, %v", page, err)
	}
	cold, err := filepath.Glob(filepath.Join(dir, "..", "home", "sessions", "*", "*.jsonl.zst"))
	if err != nil || len(cold) != 1 {
		t.Errorf("compressed are %v, %v", cold, err)
	}
}

func TestPickerFiltersByTheTextWhereThereIsAnIndex(t *testing.T) {
	dir, env := pickerHome(t)
	runAgentrun(t, dir, env, "exec", "--", "echo", "quercus") // the newest: Paint the fence
	p := startInTerminal(t, dir, env, "sessions")
	p.see("1/2")
	p.press("/quercus")
	p.await("an empty list", func(s string) bool {
		return strings.Contains(s, "/quercus_") && strings.Contains(s, "no session has these words")
	})
	p.press("\x1b")
	p.see("1/2")
	p.press("q")
	p.end()
	runAgentrun(t, dir, env, "search", "quercus") // makes the index
	p = startInTerminal(t, dir, env, "sessions")
	p.see("1/2")
	p.press("/quercus")
	p.await("what was found", func(s string) bool {
		return strings.Contains(s, "/quercus_") && strings.Contains(s, "1/1") && strings.Contains(s, "> Paint the fence")
	})
	p.press("\r\r")
	if status, after := p.end(); status != 0 || !strings.Contains(after, "Paint the fence") {
		t.Errorf("status %d, and it says %s", status, after)
	}
}

func TestPickPrintsTheIDIntoAPipe(t *testing.T) {
	dir, env := pickerHome(t)
	p := startShellInTerminal(t, dir, env, `agentrun sessions show "$(agentrun sessions --pick)" --json > shown; echo status $?`)
	p.see("> Paint the fence")
	p.press("/pump\r\r")
	if _, after := p.end(); !strings.Contains(after, "status 0") {
		t.Fatalf("it says %q", after)
	}
	shown, err := os.ReadFile(filepath.Join(dir, "shown"))
	if err != nil || !bytes.Contains(shown, []byte(`"title":"Repair the pump"`)) {
		t.Errorf("shown is %s, %v", shown, err)
	}
	p = startShellInTerminal(t, dir, env, `id=$(agentrun sessions --pick); echo "status $? [$id]"`)
	p.see("> Paint the fence")
	p.press("q")
	if _, after := p.end(); !strings.Contains(after, "status 1 []") {
		t.Errorf("it says %q", after)
	}
	out, err := exec.Command("setsid", "--version").CombinedOutput()
	if err != nil {
		t.Skipf("setsid is not installed: %s", out)
	}
	cmd := exec.Command("setsid", "--wait", "agentrun", "sessions", "--pick")
	cmd.Dir, cmd.Env = dir, env
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("there is no terminal to pick a session at: agentrun sessions list needs none")) {
		t.Errorf("without a terminal it says %s, %v", out, err)
	}
}
