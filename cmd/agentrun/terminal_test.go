package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/agentrun/agentrun/internal/screen"
)

// emulated is what a person sees of a program, by an emulator of the terminal: all that was written to one of that size.
func (p *terminalProgram) emulated() string {
	s, err := screen.New(screen.Size{Rows: 24, Cols: 80}, func([]byte) {})
	if err != nil {
		p.t.Fatal(err)
	}
	from := 0
	for _, r := range p.resizes {
		s.Write(p.sent[from:r.at])
		s.Resize(r.size)
		from = r.at
	}
	s.Write(p.sent[from:])
	return s.Shown()
}

// show waits until a person sees something.
func (p *terminalProgram) show(texts ...string) string {
	p.t.Helper()
	seen := ""
	p.awaitShown(strings.Join(texts, " and "), func(s string) bool {
		whole := strings.ReplaceAll(s, "\n", "") // a long path is on two rows
		for _, text := range texts {
			if !strings.Contains(s, text) && !strings.Contains(whole, text) {
				return false
			}
		}
		seen = s
		return true
	})
	return seen
}

// resize makes the terminal another size.
func (p *terminalProgram) resize(size screen.Size) {
	p.t.Helper()
	p.mu.Lock()
	p.resizes = append(p.resizes, resize{len(p.sent), size})
	p.mu.Unlock()
	if err := pty.Setsize(p.tty, &pty.Winsize{Rows: uint16(size.Rows), Cols: uint16(size.Cols)}); err != nil {
		p.t.Fatal(err)
	}
}

// resize is another size of the terminal, from a byte on.
type resize struct {
	at   int
	size screen.Size
}

// agentHome is a project with files, and the environment to work in it: commands are asked about.
func agentHome(t *testing.T, files map[string]string) (dir string, env []string) {
	t.Helper()
	root := t.TempDir()
	dir = filepath.Join(root, "project")
	files = maps.Clone(files)
	files["../home/permissions.json"] = `{"rules":[{"action":"ask","tool":"bash"}]}`
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, append(os.Environ(), "HOME="+root, "AGENTRUN_HOME="+filepath.Join(root, "home"), "AGENTRUN_SESSION=", "TERM=xterm-256color",
		"NO_COLOR=", "LANG=C.UTF-8", "TZ=UTC", "GORACE=atexit_sleep_ms=0")
}

// A run waits here, while the test looks at the screen, until a file is there.
const waitForFile = `{"call":"bash","args":{"command":"until [ -e go-on ]; do sleep 0.02; done; echo went on"}}`

func goOn(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "go-on"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

const twoAtOnce = `{"agent":"main","say":[{"text":["I have \u001b[2J\u001b]0;evil\u0007it ","looked at: 漢字."]},{"call":"task","args":{"tasks":[{"name":"Wait","task":"Wait."},{"name":"Look","agent":"scout","task":"Look."}]}},{"usage":{"input":900,"output":100}}]}
{"agent":"main","say":[{"text":"Done."},{"usage":{"input":900,"output":100}}]}
{"agent":"0-Wait","say":[` + waitForFile + `,{"usage":{"input":100,"output":11}}]}
{"agent":"0-Wait","say":[{"text":"I waited."}]}
{"agent":"1-Look","say":[{"call":"find","args":{"glob":"*.go"}},{"usage":{"input":100,"output":22}}]}
{"agent":"1-Look","say":[{"text":"There is main.go."}]}
`

func TestARunAtATerminalShowsItsAgents(t *testing.T) {
	dir, env := agentHome(t, map[string]string{"main.go": "package main\n", "two.jsonl": twoAtOnce})
	p := startInTerminal(t, dir, env, "run", "--sandbox", "off", "--model", "script:two.jsonl", "go")
	p.show("May it? [y/N]", "until [ -e go-on ]")
	p.press("y\r")
	seen := p.show("✓ 1-Look  find *.go", "✓ 1-Look  scout  completed  122 tokens", "● 0-Wait  task  bash until", "● main  task Wait, Look  1,233 tokens")
	if !strings.HasPrefix(seen, "agentrun: started session ") || !strings.Contains(seen, "\nI have it looked at: 漢字.\n") {
		t.Errorf("the screen is\n%s", seen)
	}
	p.resize(screen.Size{Rows: 24, Cols: 20})
	p.awaitShown("rows that fit", func(s string) bool {
		return strings.Contains(s, "\n├─ ● 0-Wait  bas") && !strings.Contains(s, "until [ -e go-on ]; do  111 tokens")
	})
	goOn(t, dir)
	p.show("Done.")
	p.resize(screen.Size{Rows: 24, Cols: 80})
	<-p.done
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, p.sent)
	}
	if strings.Contains(string(p.sent), "evil") || strings.Contains(string(p.sent), "\x1b[2J") {
		t.Errorf("what the model said reached the terminal: %q", p.sent)
	}
}

func TestARunAtATerminalWithoutColours(t *testing.T) {
	dir, env := agentHome(t, map[string]string{"a.jsonl": `{"agent":"main","say":[{"text":"Hello."},{"call":"find","args":{"glob":"*"}}]}
{"agent":"main","say":[{"text":"Bye."}]}
`})
	p := startInTerminal(t, dir, append(env, "NO_COLOR=1"), "run", "--sandbox", "off", "--model", "script:a.jsonl", "go")
	<-p.done
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got := p.emulated(); !strings.HasPrefix(got, "agentrun: started session ") || !strings.Contains(got, "\nHello.\n✓ find *  ") || !strings.Contains(got, "\nBye.\nagentrun: completed: 2 requests") {
		t.Errorf("the screen is\n%s", got)
	}
	if strings.Contains(string(p.sent), "m✓") {
		t.Errorf("there are colours: %q", p.sent)
	}
}
