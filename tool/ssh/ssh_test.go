package ssh_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentrun/agentrun/internal/sshtest"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/ssh"
)

// box is a host to run scripts on.
type box struct {
	*sshtest.Server
	client *ssh.Client
	dir    string // of the sockets
}

func newBox(t *testing.T, options ...string) *box {
	t.Helper()
	s := sshtest.Start(t, options...)
	dir, err := os.MkdirTemp("/tmp", "agentrun-ssh-test")
	if err != nil {
		t.Fatal(err)
	}
	b := &box{Server: s, dir: dir}
	t.Cleanup(func() { b.hangUp(t); os.RemoveAll(dir) })
	if b.client, err = ssh.New(ssh.Options{Config: s.Config, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	return b
}

// hangUp ends the connections that are shared.
func (b *box) hangUp(t *testing.T) {
	names, _ := filepath.Glob(filepath.Join(b.dir, "*"))
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil && info.Mode()&os.ModeSocket != 0 {
			_ = exec.Command("ssh", "-F", "/dev/null", "-o", "ControlPath="+name, "-O", "exit", "box").Run()
		}
	}
}

func host(t *testing.T, s string) ssh.Host {
	t.Helper()
	h, err := ssh.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// run runs a script on the box with what else o says.
func (b *box) run(t *testing.T, ctx context.Context, script string, o bash.Options) bash.Result {
	t.Helper()
	o.Script, o.Host = script, "box"
	if o.Shell == nil {
		o.Shell = b.client.On(host(t, "box"), "")
	}
	res, err := bash.Run(ctx, o)
	if err != nil {
		t.Fatalf("running %q: %v (output %q)", script, err, res.Output)
	}
	return res
}

// alive counts the processes whose arguments have a word of the test.
func alive(t *testing.T, word string) int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range names {
		if line, err := os.ReadFile(name); err == nil && bytes.Contains(line, []byte(word)) && !bytes.Contains(line, []byte("ssh_config")) {
			n++
		}
	}
	return n
}

// vanish waits until nobody has the word.
func vanish(t *testing.T, word string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); alive(t, word) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			out, _ := exec.Command("ps", "-eo", "pid,ppid,sid,stat,args").Output()
			t.Fatalf("%d processes are left:\n%s", alive(t, word), out)
		}
	}
}

// appear waits until so many have it.
func appear(t *testing.T, word string, n int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); alive(t, word) < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d processes with %s, want %d", alive(t, word), word, n)
		}
	}
}

func TestAScriptRunsOnTheHostAsItWouldHere(t *testing.T) {
	b := newBox(t)
	where := t.TempDir()
	for _, tt := range []struct {
		name, script, want string
		code               int
	}{
		{"what it prints comes in the order of writing", "for i in 1 2 3; do echo out$i; echo err$i >&2; done", "out1\nerr1\nout2\nerr2\nout3\nerr3\n", 0},
		{"its status is its own", "exit 7", "", 7},
		{"a status of 255 is not the client's", "exit 255", "", 255},
		{"a signal is 128 more", "kill -9 $$", "", 137},
		{"its standard input is empty", "cat; read x; echo $?", "1\n", 0},
		{"it may hold quotes, backslashes and letters of all kinds", `printf '%s\n' 'it'"'"'s' "a\\b" '\0101' 'Ёж' "$(printf '\201\202')"`, "it's\na\\b\n\\0101\nЁж\n\xef\xbf\xbd\xef\xbf\xbd\n", 0},
		{"its last line needs no end", "echo a; echo b\\", "a\nb\\\n", 0},
		{"a mistake in it is told with its line", "echo a\n\nif", "", 2},
		{"bash runs it", "a=(1 2); echo ${a[1]}", "2\n", 0},
		{"a command that reads its input does not eat the script", "cat\necho still\ncat >/dev/null\necho here", "still\nhere\n", 0},
		{"variables with which programs ask nobody are set", "echo $PAGER $GIT_TERMINAL_PROMPT", "cat 0\n", 0},
		{"nothing of the environment here gets there", "env | grep -c -e do-not-send -e SSH_AUTH_SOCK -e DISPLAY", "0\n", 1},
		{"what tells its end is not to be seen", "ls /proc/self/fd | wc -l; declare -p | grep -v -e BASH_EXECUTION_STRING -e ' _=' | grep -c -e __agentrun", "4\n0\n", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := b.run(t, t.Context(), tt.script, bash.Options{})
			if tt.code != 2 && res.Summary.View != tt.want || res.Code != tt.code || res.Start != nil {
				t.Errorf("status %d, output %q (%v); want %d, %q", res.Code, res.Output, res.Start, tt.code, tt.want)
			}
			if tt.code == 2 && !strings.Contains(res.Output, "line 4") {
				t.Errorf("output %q", res.Output)
			}
		})
	}
	if n := b.Logins(); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
	res := b.run(t, t.Context(), `pwd; echo "$A"`, bash.Options{Shell: b.client.On(host(t, "box"), where), Env: []string{"A=it's\n$HOME"}})
	if want := where + "\nit's\n$HOME\n"; res.Output != want {
		t.Errorf("%q, want %q", res.Output, want)
	}
}

func TestTheStreamsMayBeApart(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	res := b.run(t, t.Context(), "echo out; echo err >&2; exit 3", bash.Options{Separate: true})
	if res.Code != 3 || res.Streams.Stdout.View != "out\n" || res.Streams.Stderr.View != "err\n" {
		t.Errorf("status %d, %q and %q", res.Code, res.Streams.Stdout.View, res.Streams.Stderr.View)
	}
}

func TestADirectoryThatIsNotThereIsSaidSo(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	res := b.run(t, t.Context(), "echo ran", bash.Options{Shell: b.client.On(host(t, "box"), "/not/there")})
	if res.Code != bash.CodeFailure || !errors.Is(res.Start, ssh.ErrDirectory) || strings.Contains(res.Summary.View, "ran") {
		t.Errorf("status %d, %v, %q", res.Code, res.Start, res.Output)
	}
}

func TestScriptsAtOnceShareOneConnection(t *testing.T) {
	b := newBox(t)
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			if res := b.run(t, t.Context(), fmt.Sprintf("sleep 0.5; echo %d", i), bash.Options{}); res.Output != strconv.Itoa(i)+"\n" {
				t.Errorf("%d: %q", i, res.Output)
			}
		})
	}
	all.Wait()
	if n := b.Logins(); n != 1 {
		t.Errorf("%d connections, want one:\n%s", n, b.Log())
	}
}

func TestMoreThanAConnectionTakesHaveTheirOwn(t *testing.T) {
	t.Parallel()
	b := newBox(t, "MaxSessions 2")
	var all sync.WaitGroup
	for i := range 5 {
		all.Go(func() {
			if res := b.run(t, t.Context(), fmt.Sprintf("sleep 1; echo %d", i), bash.Options{}); res.Output != strconv.Itoa(i)+"\n" {
				t.Errorf("%d: %q, %v", i, res.Output, res.Start)
			}
		})
	}
	all.Wait()
	if n := b.Logins(); n < 2 || n > 4 {
		t.Errorf("%d connections", n)
	}
}

func TestAllOfALargeOutputComes(t *testing.T) {
	if testing.Short() {
		t.Skip("100 MB of output")
	}
	t.Parallel()
	b := newBox(t)
	const size = 100 << 20
	res := b.run(t, t.Context(), fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; exit 4", size), bash.Options{})
	if res.Code != 4 || res.Summary.TotalBytes != size {
		t.Errorf("status %d, %d bytes, want %d", res.Code, res.Summary.TotalBytes, size)
	}
}

func TestALargeScriptRuns(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	script := "x='" + strings.Repeat("a\\\n", 100_000) + "'\necho ${#x}"
	if res := b.run(t, t.Context(), script, bash.Options{}); res.Output != "300000\n" {
		t.Errorf("%q", res.Output)
	}
}

// tree starts processes that are hard to find: in another session, without a parent, without the variable.
const tree = `sleep %[1]s.1 &
setsid sleep %[1]s.2 &
(setsid sh -c 'sleep %[1]s.3 & sleep %[1]s.4 & wait' &) 
env -i sleep %[1]s.5 &
echo started; trap '' INT; sleep %[1]s.6; sleep %[1]s.7`

// word returns a number of seconds that no other test uses.
func word() string { return strconv.Itoa(10_000_000 + int(time.Now().UnixNano()%80_000_000)) }

func TestATimeoutEndsTheTreeOnTheHost(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	w := word()
	res := b.run(t, t.Context(), fmt.Sprintf(tree, w), bash.Options{Timeout: 3 * time.Second})
	if res.Code != bash.CodeTimeout || !res.TimedOut || res.Summary.View != "started\n" || len(res.Notes) > 0 {
		t.Errorf("status %d, %q", res.Code, res.Output)
	}
	if n := alive(t, w); n != 0 {
		t.Errorf("%d processes are left behind the result", n)
	}
}

func TestAScriptThatListensIsAskedFirst(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	w := word()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { appear(t, "sleep\x00"+w, 1); cancel() }()
	res := b.run(t, ctx, "trap 'echo asked; exit 9' INT; sleep "+w, bash.Options{})
	if !res.Cancelled || res.Code != 9 || res.Summary.View != "asked\n" || len(res.Notes) > 0 {
		t.Errorf("status %d, %q", res.Code, res.Output)
	}
	vanish(t, w)
}

func TestKillEndsTheTreeAtOnce(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	w := word()
	kill := make(chan struct{})
	go func() { appear(t, w, 5); close(kill) }()
	res := b.run(t, t.Context(), "trap '' INT TERM\n"+fmt.Sprintf(tree, w), bash.Options{Kill: kill})
	if !res.Cancelled || len(res.Notes) > 0 {
		t.Errorf("status %d, %q", res.Code, res.Output)
	}
	if n := alive(t, w); n != 0 {
		t.Errorf("%d processes are left behind the result", n)
	}
}

func TestALimitOfOutputEndsTheTree(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	w := word()
	res := b.run(t, t.Context(), "sleep "+w+" & yes", bash.Options{MaxOutput: 1 << 20})
	if !res.OutputLimit || res.Summary.TotalBytes < 1<<20 || len(res.Notes) > 0 {
		t.Errorf("status %d, %d bytes, %q", res.Code, res.Summary.TotalBytes, res.Notes)
	}
	if n := alive(t, w); n != 0 {
		t.Errorf("%d processes are left behind the result", n)
	}
}

func TestWhatIsLeftInTheBackgroundEndsWithTheScriptAndWhatHasASessionStays(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	w, stays := word(), word()
	res := b.run(t, t.Context(), "sleep "+w+" & setsid sleep "+stays+" & sleep 0.2; echo $!", bash.Options{})
	if !res.Leftover || !res.HeldOpen {
		t.Errorf("leftover %v, held open %v: %q", res.Leftover, res.HeldOpen, res.Output)
	}
	vanish(t, w)
	if n := alive(t, stays); n != 1 {
		t.Errorf("%d processes with a session of their own", n)
	}
	if err := exec.Command("kill", strings.TrimSpace(res.Summary.View)).Run(); err != nil {
		t.Error(err)
	}
	vanish(t, stays)
}

func TestALostConnectionIsToldAndTheScriptEnds(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	w := word()
	go func() { appear(t, w, 6); b.Cut() }()
	res := b.run(t, t.Context(), fmt.Sprintf(tree, w), bash.Options{})
	if res.Code != bash.CodeFailure || len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "was lost") || !strings.HasPrefix(res.Output, "started\n[") {
		t.Errorf("status %d, notes %q, output %q, %v", res.Code, res.Notes, res.Output, res.Start)
	}
	vanish(t, w)
	if res := b.run(t, t.Context(), "echo again", bash.Options{}); res.Output != "again\n" || b.Logins() != 2 {
		t.Errorf("the next script: %q, %d connections", res.Output, b.Logins())
	}
}

func TestADeadNetworkIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	more, err := os.OpenFile(b.Config, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(more, "\tServerAliveInterval 1\n\tServerAliveCountMax 2")
	more.Close()
	w := word()
	go func() { appear(t, "sleep\x00"+w, 1); b.Pause(true) }()
	res := b.run(t, t.Context(), "echo before; sleep "+w, bash.Options{})
	if res.Code != bash.CodeFailure || len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "was lost") || !strings.HasPrefix(res.Output, "before\n[") {
		t.Errorf("status %d, %q", res.Code, res.Output)
	}
	b.Pause(false)
	vanish(t, w)
}

func TestATimeoutOverADeadNetworkIsOneAndSaysWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	w := word()
	go func() { appear(t, "sleep\x00"+w, 1); b.Pause(true) }()
	res := b.run(t, t.Context(), "sleep "+w, bash.Options{Timeout: 2 * time.Second})
	if res.Code != bash.CodeTimeout || len(res.Notes) != 1 {
		t.Errorf("status %d, %q", res.Code, res.Output)
	}
	b.Pause(false)
	vanish(t, w)
}

func TestAHostThatMayNotBeReachedIsSaidSo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		spoil func(b *box)
		kind  error
		words []string
	}{
		{"its key is not known", func(b *box) { b.Forget() }, ssh.ErrUnknownHost, []string{"not a known host", "by hand with: ssh -F ", " box"}},
		{"its key has changed", func(b *box) { b.Rekey() }, ssh.ErrHostKeyChanged, []string{"another key", "ssh-keygen -f", "-R"}},
		{"it refuses the key of the user", func(b *box) { b.Refuse() }, ssh.ErrLogin, []string{"refuses the login", "publickey"}},
		{"it is down", func(b *box) { b.Stop() }, ssh.ErrUnreachable, []string{"Connection refused"}},
		{"it has no such name", func(b *box) {
			os.WriteFile(b.Config, []byte("Host box\n\tHostName nowhere.invalid\n"), 0o600)
		}, ssh.ErrUnreachable, []string{"nowhere.invalid"}},
		{"the configuration is wrong", func(b *box) { os.WriteFile(b.Config, []byte("Nonsense yes\n"), 0o600) }, ssh.ErrUnreachable, []string{"Bad configuration option"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBox(t)
			tt.spoil(b)
			res := b.run(t, t.Context(), "echo ran", bash.Options{})
			if res.Code != bash.CodeFailure || !errors.Is(res.Start, tt.kind) {
				t.Fatalf("status %d, %v", res.Code, res.Start)
			}
			for _, w := range tt.words {
				if !strings.Contains(res.Start.Error(), w) {
					t.Errorf("%q says nothing of %q", res.Start, w)
				}
			}
			t.Log(res.Start)
		})
	}
}

func TestALoginThatRunsNothingIsSaidSo(t *testing.T) {
	t.Parallel()
	b := newBox(t, "ForceCommand echo This account is not available; exit 1")
	res := b.run(t, t.Context(), "echo ran", bash.Options{})
	if res.Code != bash.CodeFailure || !errors.Is(res.Start, ssh.ErrNoShell) || !strings.HasPrefix(res.Summary.View, "This account is not available\n") {
		t.Errorf("status %d, %v, %q", res.Code, res.Start, res.Output)
	}
}

func TestATimeoutWhileConnectingIsOne(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Stop()
	os.WriteFile(b.Config, []byte("Host box\n\tProxyCommand sleep 300\n"), 0o600)
	res := b.run(t, t.Context(), "echo ran", bash.Options{Timeout: 300 * time.Millisecond})
	if res.Code != bash.CodeTimeout || !res.TimedOut || len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "not started") {
		t.Errorf("status %d, %q", res.Code, res.Output)
	}
}

func TestAStaleSocketIsPassedOver(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.run(t, t.Context(), "true", bash.Options{})
	out, err := exec.Command("pgrep", "-f", "ControlPath="+b.dir).Output()
	if err != nil {
		t.Fatalf("finding the shared connection: %v", err)
	}
	if err := exec.Command("kill", "-9", strings.TrimSpace(string(out))).Run(); err != nil {
		t.Fatal(err)
	}
	if res := b.run(t, t.Context(), "echo again", bash.Options{}); res.Output != "again\n" {
		t.Errorf("%q, %v", res.Output, res.Start)
	}
}

func TestNothingOfAKilledProgramStaysOnTheHost(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	w := word()
	self := exec.Command(os.Args[0], "-test.run", "TestHelperThatIsKilled")
	self.Env = append(os.Environ(), "AGENTRUN_TEST_RUN="+w, "AGENTRUN_TEST_CONFIG="+b.Config, "AGENTRUN_TEST_DIR="+b.dir)
	if err := self.Start(); err != nil {
		t.Fatal(err)
	}
	appear(t, w, 6)
	_ = self.Process.Kill()
	_ = self.Wait()
	vanish(t, w)
}

func TestHelperThatIsKilled(t *testing.T) {
	w := os.Getenv("AGENTRUN_TEST_RUN")
	if w == "" {
		t.Skip("a part of the test of a killed program")
	}
	c, err := ssh.New(ssh.Options{Config: os.Getenv("AGENTRUN_TEST_CONFIG"), Dir: os.Getenv("AGENTRUN_TEST_DIR")})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = bash.Run(t.Context(), bash.Options{Script: fmt.Sprintf(tree, w), Shell: c.On(host(t, "box"), "")})
}
