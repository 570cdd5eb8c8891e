package shell

import (
	"bytes"
	"testing"
	"time"

	"github.com/agentrun/agentrun/tool/bash"
)

func runWith(t *testing.T, s *Shell, script string, env ...string) string {
	t.Helper()
	var out bytes.Buffer
	if _, err := s.RunScript(t.Context(), &bash.Script{Text: script, Env: env, Stdout: &out, Stderr: &out, Timeout: 20 * time.Second}); err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out.String()
}

func TestVariablesOfOneScriptAreForThatAlone(t *testing.T) {
	const look = `echo "${K-none}"; env | grep ^K= || echo not exported`
	for _, path := range []string{"bash", "sh", "zsh"} {
		if _, err := bash.FindShell(path, "/"); err != nil {
			t.Logf("%s is not here: %v", path, err)
			continue
		}
		for _, c := range []struct{ name, before, script, want string }{
			{"one that was not there", ":", ":", "none\nnot exported\n"},
			{"one that was there", "K='a  \"b'", ":", "a  \"b\nnot exported\n"},
			{"one that was exported", "export K=old", ":", "old\nK=old\n"},
			{"one that the script changes", "export K=old", "K=other", "old\nK=old\n"},
			{"one that the script unsets", "export K=old", "unset K", "old\nK=old\n"},
			{"one of a script that fails", "K=old", "false", "old\nnot exported\n"},
			{"one of a script that exits", "K=old", "exit 3", "old\nnot exported\n"},
			{"one of a script in strict mode", "set -eu", "true", "none\nnot exported\n"},
		} {
			s := open(t, Options{Path: path})
			run(t, s, c.before)
			if got := runWith(t, s, `echo "$K"; env | grep ^K=; `+c.script, "K=it's\nnew"); got != "it's\nnew\nK=it's\n" {
				t.Errorf("%s, %s: the script has %q", path, c.name, got)
			}
			if got, _ := run(t, s, look); got != c.want {
				t.Errorf("%s, %s: the next script has %q, want %q", path, c.name, got, c.want)
			}
		}
	}
}

func TestAnArrayIsThereAgainBehindAScriptWithAVariableOfItsName(t *testing.T) {
	s := open(t, Options{})
	run(t, s, "K=(a 'b c')")
	if got := runWith(t, s, `echo "$K"`, "K=new"); got != "new\n" {
		t.Errorf("the script has %q", got)
	}
	if got, _ := run(t, s, `echo "${#K[@]}${K[1]}"`); got != "2b c\n" {
		t.Errorf("the next script has %q", got)
	}
}

func TestTheStatusOfAScriptWithVariablesIsItsOwn(t *testing.T) {
	s := open(t, Options{})
	for _, script := range []string{"(exit 7)", "exit 7"} {
		exit, err := s.RunScript(t.Context(), &bash.Script{Text: script, Env: []string{"K=v"}, Timeout: 20 * time.Second})
		if err != nil || exit.Code != 7 {
			t.Errorf("%s: %d, %v", script, exit.Code, err)
		}
	}
	if got, _ := run(t, s, "echo $?"); got != "0\n" && got != "7\n" {
		t.Errorf("the next script sees %q", got)
	}
}

func TestATrapOnEXITSeesTheVariablesOfItsScript(t *testing.T) {
	s := open(t, Options{})
	run(t, s, `K=old; trap 'echo "trap $K"' EXIT`)
	if got := runWith(t, s, "V=kept; exit 3", "K=new"); got != "trap new\n" {
		t.Errorf("the trap prints %q", got)
	}
	if got, _ := run(t, s, `echo "$K $V"; env | grep -c ^K=`); got != "old kept\n0\n" {
		t.Errorf("the next script has %q", got)
	}
	if got := runWith(t, s, `trap 'echo "other $N"' EXIT; exit 3`, "N=new"); got != "other new\n" {
		t.Errorf("the trap of the script prints %q", got)
	}
	if got, _ := run(t, s, `echo "${N-none}"; exit 0`); got != "none\nother \n" {
		t.Errorf("the next script has %q", got)
	}
}
