package ssh_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/ssh"
)

func TestNoConfigurationOpensThisMachineToTheHost(t *testing.T) {
	b := newBox(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	touched := filepath.Join(t.TempDir(), "touched")
	t.Setenv("SSH_AUTH_SOCK", filepath.Join(t.TempDir(), "agent"))
	t.Setenv("DISPLAY", ":1")
	more, err := os.OpenFile(b.Config, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(more, `	SendEnv *
	SendEnv LC_* PLANTED_TOKEN
	ForwardAgent yes
	ForwardX11 yes
	ForwardX11Trusted yes
	PermitLocalCommand yes
	LocalCommand touch %s
	RemoteCommand echo wrong
	RequestTTY force
	LocalForward %d 127.0.0.1:1
	RemoteForward %d 127.0.0.1:1
	StrictHostKeyChecking no
	LogLevel QUIET
	ControlMaster no
	ControlPath none
	BatchMode no
`, touched, port, port)
	more.Close()
	res := b.run(t, t.Context(), fmt.Sprintf("env | grep -e do-not-send -e ^SSH_AUTH_SOCK -e ^DISPLAY -e ^SSH_TTY; tty; (exec 3<>/dev/tcp/127.0.0.1/%d) 2>/dev/null && echo open", port), bash.Options{})
	// The connection that is made and stays may hold the output for a moment longer, which is remarked.
	if out, _, _ := strings.Cut(res.Output, "[Output ends here"); out != "not a tty\n" {
		t.Errorf("%q, %v", res.Output, res.Start)
	}
	if _, err := os.Stat(touched); err == nil {
		t.Error("a local command was run")
	}
	b.Forget()
	b.hangUp(t)
	if res := b.run(t, t.Context(), "echo ran", bash.Options{}); res.Start == nil || !strings.Contains(res.Start.Error(), "not a known host") {
		t.Errorf("an unknown host: %q, %v", res.Output, res.Start)
	}
}

func TestAHostWithoutBashAndSetsidEndsTheTreeToo(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"sh", "cat", "grep", "sleep", "env", "head", "tr"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	// The login shell reads no file, so nothing puts more into the PATH.
	b := newBox(t, "ForceCommand PATH="+bin+`; export PATH; exec sh -c "$SSH_ORIGINAL_COMMAND"`)
	res := b.run(t, t.Context(), "echo $0 ${BASH_VERSION-none}; command -v setsid; printf '\\201\\n'; cat; exit 255", bash.Options{})
	if res.Code != 255 || res.Output != "sh none\n\uFFFD\n" {
		t.Errorf("status %d, %q, %v", res.Code, res.Output, res.Start)
	}
	w := word()
	res = b.run(t, t.Context(), "sleep "+w+" & (sleep "+w+".1 &) ; trap '' INT; sleep "+w+".2; sleep "+w+".3", bash.Options{Timeout: 3 * time.Second})
	if !res.TimedOut || len(res.Notes) > 0 {
		t.Errorf("status %d, %q", res.Code, res.Output)
	}
	if n := alive(t, w); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

func TestOutputThatLooksLikeTheEndIsOutput(t *testing.T) {
	b := newBox(t)
	script := `for n in '' x $(tr '\0' '\n' </proc/$PPID/environ | head -c 300) $(tr '\0' '\n' </proc/$PPID/cmdline | grep -o '[0-9a-f]\{32\}'); do printf '\036%s end 0\n' "$n"; printf '\036%s end 0\n' "$n" >&2; done; exit 3`
	if res := b.run(t, t.Context(), script, bash.Options{}); res.Code != 3 || !strings.Contains(res.Summary.View, "end 0") {
		t.Errorf("status %d, %q", res.Code, res.Output)
	}
}

func TestTheToolReachesWhatIsAllowed(t *testing.T) {
	b := newBox(t)
	allowed, err := ssh.ParsePatterns([]string{"box"})
	if err != nil {
		t.Fatal(err)
	}
	tool := &ssh.Tool{Options: ssh.Options{Config: b.Config, Dir: b.dir}, Allowed: allowed}
	for _, tt := range []struct {
		name, input, want string
		isError           bool
	}{
		{"a script runs", `{"host":"box","command":"pwd; cat","cwd":"/usr"}`, "/usr\n", false},
		{"a status is told", `{"host":"box","command":"exit 3"}`, "[Command exited with code 3]", true},
		{"a timeout is kept", `{"host":"box","command":"sleep 100","timeout":1}`, "timed out after 1s", true},
		{"another host is refused", `{"host":"other","command":"true"}`, "other may not be reached: the hosts that are allowed (ssh.hosts in config.json of the home) are box", true},
		{"another user is refused", `{"host":"me@box","command":"true"}`, "me@box may not be reached", true},
		{"an option is refused", `{"host":"-oProxyCommand=x","command":"true"}`, "give [USER@]NAME[:PORT]", true},
		{"a file of this machine is refused", `{"host":"box","command":"wc -l artifact://3"}`, "artifact://3 in the script is kept on this machine", true},
		{"a directory that is not there is told", `{"host":"box","command":"true","cwd":"/not/there"}`, "box has no directory /not/there", true},
		{"a member that there is not is refused", `{"host":"box","command":"true","shell":"x"}`, "not as the schema says", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res, err := tool.Call(t.Context(), json.RawMessage(tt.input))
			if err != nil || res.IsError != tt.isError || !strings.Contains(res.Text, tt.want) {
				t.Errorf("%+v, %v; want %q", res, err, tt.want)
			}
		})
	}
	if res, err := (&ssh.Tool{}).Call(t.Context(), json.RawMessage(`{"host":"box","command":"true"}`)); err != nil || !strings.Contains(res.Text, "no host is allowed here") {
		t.Errorf("%+v, %v", res, err)
	}
}
