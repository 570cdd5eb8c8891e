package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/screen"
)

// chatting is a chat on a terminal, whose home has that script for a model.
func chatting(t *testing.T, script string, args ...string) (p *terminalProgram, dir string, env []string) {
	t.Helper()
	dir, env = agentHome(t, map[string]string{"main.go": "package main\n", "a.jsonl": script, ".agentrun/commands/greet.md": "Say hello to $ARGUMENTS."})
	env = append(env, "PAGER=cat", "WAYLAND_DISPLAY=", "DISPLAY=")
	return chatIn(t, dir, env, append([]string{"--sandbox", "off", "--model", "script:a.jsonl"}, args...)...), dir, env
}

func chatIn(t *testing.T, dir string, env []string, args ...string) *terminalProgram {
	t.Helper()
	p := startInTerminal(t, dir, env, append([]string{"chat"}, args...)...)
	p.show("enter sends")
	return p
}

// leave ends a chat and returns its status.
func (p *terminalProgram) leave(keys string) int {
	p.t.Helper()
	p.press(keys)
	<-p.done
	p.cmd.Wait()
	if sent := string(p.sent); !strings.Contains(sent, "\x1b[?1049l") || !strings.Contains(sent, "\x1b[?2004l") || !strings.HasSuffix(sent, "\n") {
		p.t.Errorf("the terminal is not given back: %q", sent[max(0, len(sent)-300):])
	}
	return p.cmd.ProcessState.ExitCode()
}

const greeting = `{"agent":"main","say":[{"text":["Hello \u001b[2J\u001b]0;evil\u0007there, ","漢字 👩‍👩‍👧.\nSecond line."]},{"call":"find","args":{"glob":"*.go"}},{"usage":{"input":900,"output":100}}]}
{"agent":"main","say":[{"text":"There is main.go."},{"usage":{"input":900,"output":100}}]}
`

func TestAChatShowsARun(t *testing.T) {
	p, _, _ := chatting(t, greeting)
	p.press("say \\\rhello\r")
	seen := p.show("There is main.go.", "enter sends")
	if !strings.HasPrefix(seen, "› say\n  hello\nHello there, 漢字 👩‍👩‍👧.\nSecond line.\n✓ find *.go  ") {
		t.Errorf("the screen is\n%s", seen)
	}
	p.resize(screen.Size{Rows: 12, Cols: 20})
	p.awaitShown("a narrow screen", func(s string) bool {
		for line := range strings.Lines(s) {
			if len([]rune(line)) > 21 {
				return false
			}
		}
		return strings.Contains(s, "There is main.go.\n") && strings.Contains(s, strings.Repeat("─", 20)+"\n›")
	})
	if status := p.leave("/quit\r"); status != 0 {
		t.Errorf("the status is %d", status)
	}
	if strings.Contains(string(p.sent), "evil") {
		t.Errorf("what the model said reached the terminal: %q", p.sent)
	}
	if !regexp.MustCompile(`agentrun: agentrun chat [0-9a-f-]{36} goes on with the session\r\n$`).Match(p.sent) {
		t.Errorf("at the end it says %q", p.sent[max(0, len(p.sent)-200):])
	}
}

func TestAChatGoesOnWithPromptsOfOthers(t *testing.T) {
	p, dir, env := chatting(t, greeting)
	p.press("one\r")
	p.show("There is main.go.", "enter sends")
	p.leave("/quit\r")
	home := filepath.Join(filepath.Dir(dir), "home")
	info, err := os.Stat(filepath.Join(home, "chat.history"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the history is %v: %v", info, err)
	}
	p = chatIn(t, dir, env)
	p.show("› one\nHello there", "✓ find *.go\n", "There is main.go.") // the conversation, and its model
	p.press("\x1b[A")
	p.show("─\n› one\n")
	p.press("\x1b[A\x1b[B")
	p.show("─\n›\n")
	p.leave("\x04")
}

func TestAPersonDecidesInAChat(t *testing.T) {
	p, _, _ := chatting(t, `{"agent":"main","say":[{"call":"bash","args":{"command":"echo one"}},{"call":"bash","args":{"command":"echo two \u001b]0;evil\u0007"}}]}
{"agent":"main","expect":{"results":[{"text":"one"},{"text":"was not called"}]},"say":[{"call":"bash","args":{"command":"echo three"}}]}
{"agent":"main","say":[{"call":"bash","args":{"command":"echo four"}}]}
{"agent":"main","expect":{"results":[{"text":"four"}]},"say":[{"text":"Done."}]}
`)
	p.press("go\r")
	p.show("main wants to call bash", "command: echo one", `ask by the rule "ask bash" of`, "permissions.json", "y: once")
	p.press("maybe\r")
	p.show("answer y, a or n", "─\n›\n")
	p.press("y\r")
	p.show("command: echo two", "✓ bash echo one")
	p.press("n\r")
	p.show("command: echo three", "✗ bash echo two")
	p.press("always\r")
	p.show("✓ bash echo three", "✓ bash echo four", "Done.")
	p.leave("/quit\r")
}

func TestEscCancelsARunThatCanBeResumed(t *testing.T) {
	p, dir, env := chatting(t, `{"agent":"main","say":[`+waitForFile+`]}
{"agent":"main","say":[{"text":"It went on."}]}
`)
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "home", "permissions.json"), []byte(`{"default":"allow"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.press("go\r")
	p.show("● main  bash until")
	p.press("\x1b")
	if seen := p.show("cancelled:", "/resume goes on", "enter sends"); strings.Contains(seen, "cancelling") {
		t.Errorf("the screen is\n%s", seen)
	}
	p.press("\x03")
	p.show("ctrl+c again quits")
	if status := p.leave("\x03"); status != 0 {
		t.Errorf("the status is %d", status)
	}
	goOn(t, dir)
	p = chatIn(t, dir, env)
	p.show("the last run of the session was cancelled: /resume goes on with it")
	p.press("/res\t\r")
	p.show("It went on.", "enter sends")
	p.leave("/quit\r")
}

func TestASignalEndsAChatWithItsStatus(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			p, dir, env := chatting(t, `{"agent":"main","say":[`+waitForFile+`]}
{"agent":"main","say":[{"text":"It went on."}]}
`)
			p.press("go\r")
			p.show("y: once")
			p.press("y\r")
			p.show("● main  bash until")
			if err := p.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if status := p.leave(""); status != 128+int(sig) {
				t.Errorf("the status is %d", status)
			}
			goOn(t, dir)
			p = chatIn(t, dir, env)
			p.show("the last run of the session was cancelled: /resume goes on with it")
			p.leave("/quit\r")
		})
	}
}

func TestWhatIsSaidMeanwhileReachesTheAgent(t *testing.T) {
	p, dir, _ := chatting(t, `{"agent":"main","say":[`+waitForFile+`]}
{"agent":"main","expect":{"contains":"and the tests"},"say":[{"text":"The tests too."}]}
`)
	p.press("go\r")
	p.show("y: once")
	p.press("y\r")
	p.show("● main  bash until")
	p.press("/tset\r")
	p.show("there is no command /tset", "─\n› /tset")
	p.press("\x15and the tests\r")
	p.show("it is told before its next step")
	goOn(t, dir)
	p.show("› and the tests\n", "The tests too.", "enter sends")
	p.leave("/quit\r")
}

func TestTheTreeAndTheArtifactsOfAChat(t *testing.T) {
	p, _, _ := chatting(t, `{"agent":"main","say":[{"text":"First answer."},{"call":"bash","args":{"command":"seq 30000"}}]}
{"agent":"main","say":[{"text":"Counted."}]}
{"agent":"main","say":[{"text":"Second answer."}]}
{"agent":"main","say":[{"text":"Third answer."}]}
`)
	p.press("one\r")
	p.show("y: once")
	p.press("y\r")
	p.show("Counted.", "enter sends")
	p.press("two\r")
	p.show("Second answer.", "enter sends")

	p.press("\x14")
	p.show("Entries of the session", "> * assistant: Second answer.", "  * user: one")
	p.press("\x1b[A\x1b[A")
	p.show("> * assistant: Counted.")
	p.press("\r")
	seen := p.show("the session goes on from there", "Counted.", "enter sends")
	if strings.Contains(seen, "Second answer.") {
		t.Errorf("the screen is\n%s", seen)
	}
	p.press("other\r")
	p.show("answer.\n", "› other", "enter sends")
	p.press("/tree\r")
	p.show("user: two", "user: other", "├─ ", "└─ ")
	p.press("\x1b")
	p.show("› other")

	p.press("/artifacts\r")
	p.show("> artifact://0  bash")
	p.press("\r") // cat shows it on the main screen, and the chat comes back
	p.awaitShown("the list again", func(s string) bool {
		return strings.Contains(string(p.sent), "\n29999\r\n30000") && strings.Contains(s, "> artifact://0")
	})
	p.press("q/quit")
	p.show("› /quit")
	p.leave("\r")
}

// A PNG of one pixel.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="

func TestThePathOfAPictureIsThePicture(t *testing.T) {
	p, dir, env := chatting(t, `{"agent":"main","say":[{"text":"I see it."}]}
`)
	data, err := base64.StdEncoding.DecodeString(pixel)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a picture.png"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	p.press("\x1b[200~" + filepath.Join(dir, `a\ picture.png`) + "\x1b[201~")
	p.show("[picture 1: a picture.png]")
	p.press("\x1b[200~text\x1b]0;evil\x07 of\ntwo lines, main.go\x1b[201~")
	p.show("› text of\n  two lines, main.go")
	p.press("\r")
	p.show("[a picture.png]", "I see it.", "enter sends")
	p.leave("/quit\r")
	if out := runAgentrun(t, dir, env, "sessions", "show", "--json"); !strings.Contains(out, `main.go","images":1,`) {
		t.Errorf("the session has no picture:\n%s", out)
	}
}

func TestSlashCommandsFromFilesInAChat(t *testing.T) {
	p, _, _ := chatting(t, `{"agent":"main","expect":{"contains":"Say hello to all."},"say":[{"text":"Hello all."}]}
`)
	p.press("/")
	p.show("/artifacts /greet /help /mode /quit /resume /sessions /tree")
	p.press("gr\tall\r")
	p.show("› /greet all", "Hello all.", "enter sends")
	p.press("/nothing\r")
	p.show("there is no command /nothing", "─\n› /nothing")
	p.leave("\x03\x03")
}

func TestAChatWithASessionFromTheList(t *testing.T) {
	p, dir, env := chatting(t, greeting)
	p.press("the first session\r")
	p.show("There is main.go.", "enter sends")
	p.leave("/quit\r")
	p = chatIn(t, dir, env, "--new", "--sandbox", "off", "--model", "script:a.jsonl")
	p.press("the second session\r")
	p.show("There is main.go.", "enter sends")
	p.leave("/quit\r")

	p = startInTerminal(t, dir, env, "chat", "--resume")
	p.show("> the second session", "the first session")
	p.press("\x1b[B")
	p.show("> the first session")
	p.press("\r")
	p.show("› the first session\nHello there", "enter sends")
	p.press("/sessions\r")
	p.show("> the second session")
	p.press("\x1b")
	p.show("› the first session\nHello there", "enter sends")
	p.press("/sessions\r")
	p.show("> the second session")
	p.press("\r")
	p.show("› the second session\nHello there", "enter sends")
	p.leave("/quit\r")
}

func TestAChatOnAScreenThatGrowsHasNoRests(t *testing.T) {
	p, _, _ := chatting(t, greeting)
	p.press("hello\r")
	p.show("There is main.go.", "enter sends")
	p.resize(screen.Size{Rows: 4, Cols: 12})
	p.awaitShown("a small screen", func(s string) bool { return strings.HasSuffix(strings.TrimRight(s, "\n"), "enter sends…") })
	p.resize(screen.Size{Rows: 30, Cols: 100})
	p.show("› hello\nHello there", strings.Repeat("─", 100))
	p.press("/tree\r")
	p.awaitShown("the tree alone", func(s string) bool {
		return strings.HasPrefix(s, "Entries of the session") && strings.Contains(s, "> * assistant: There is main.go.\n") &&
			!strings.Contains(s, "enter sends") && strings.Count(s, "─\n") == 1 && strings.Count(s, "\n›") == 1
	})
	p.press("\x1b")
	p.show("› hello\nHello there")
	p.leave("/quit\r")
}

func TestAChatNeedsATerminal(t *testing.T) {
	dir, env := agentHome(t, map[string]string{"a.jsonl": greeting})
	out, err := agentrunCommand(dir, env, "chat", "--model", "script:a.jsonl").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "chat needs a terminal: agentrun run works without one") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestAChatTellsItsCommandsItsModeAndWhatItSpent(t *testing.T) {
	p, _, _ := chatting(t, `{"agent":"main","say":[{"thinking":"Let me see."},{"text":"A **plan**."},{"usage":{"input":900,"output":100}}]}
`)
	p.press("/help\r")
	p.show("/artifacts", "/mode ", "/tree", "from files: /greet", "enter sends;")
	p.press("/mode plan\r")
	p.show("the mode is plan from the next prompt on")
	p.press("what next\r")
	p.show("Let me see.\nA ", "completed: 1 request, 1000 tokens")
	p.press("/mode\r")
	p.show("the mode is plan; /mode agent")
	p.press("/mode nothing\r")
	p.show(`"nothing" is no mode`)
	if status := p.leave("/quit\r"); status != 0 {
		t.Errorf("the status is %d", status)
	}
}
