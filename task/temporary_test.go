package task_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session"
)

// A process of its own makes a temporary home with a session, says where it is, and waits to be killed.
const temporaryIn = "AGENTRUN_TEST_TEMPORARY"

func waitInTemporary() int {
	h, err := session.OpenTemporary(os.Getenv(temporaryIn), session.Options{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(h.Home())
	select {}
}

func leftIn(place string, apply bool) int {
	n, _, err := session.RemoveTemporaries(place, apply)
	if err != nil {
		panic(err)
	}
	return n
}

func TestARunWithoutASessionHasATemporaryHome(t *testing.T) {
	place := filepath.Join(t.TempDir(), "temporary")
	h := must(session.OpenTemporary(place, session.Options{}))
	r := &tree{Manager: h.Manager, session: must(h.Create(t.Context(), t.TempDir(), session.CreateOptions{}))}
	r.model = must(script.New("t.jsonl", strings.NewReader(`{"agent":"main","say":[{"call":"task","args":{"tasks":[{"name":"A","task":"a"}]}}]}
{"agent":"main","say":[{"text":"Done."}]}
{"agent":"0-A","say":[{"text":"A is done."}]}`)))
	r.run(t)
	found, err := internalurl.ForSession(h.Manager, r.session, nil).Open(t.Context(), "agent://0-A")
	if err != nil {
		t.Fatal(err)
	}
	found.Close()
	if n := leftIn(place, true); n > 0 {
		t.Errorf("%d were removed while they are used", n)
	}
	if err := errors.Join(r.session.Close(), h.Close()); err != nil {
		t.Fatal(err)
	}
	if left := must(os.ReadDir(place)); len(left) > 0 {
		t.Errorf("there is left %v", left)
	}
}

func TestATemporaryHomeThatACrashLeftIsRemoved(t *testing.T) {
	place := filepath.Join(t.TempDir(), "temporary")
	child := exec.Command(must(os.Executable()))
	child.Env = append(os.Environ(), temporaryIn+"="+place)
	out := must(child.StdoutPipe())
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var home string
	if _, err := fmt.Fscanln(out, &home); err != nil {
		t.Fatal(err)
	}
	if n := leftIn(place, true); n > 0 {
		t.Errorf("%d were removed while they are used", n)
	}
	if err := child.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	if n := leftIn(place, false); n != 1 {
		t.Errorf("a look finds %d", n)
	}
	if n := leftIn(place, true); n != 1 {
		t.Errorf("removed are %d", n)
	}
	if _, err := os.Stat(home); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
