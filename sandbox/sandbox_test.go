package sandbox

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process sleeps for a second at its end
	Main()
	if len(os.Args) > 1 && os.Args[1] == "escape" {
		os.Exit(escape(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

// outcome is what came of a script in a box.
type outcome struct {
	output  string
	status  syscall.WaitStatus
	reached []Reached
}

// in runs a script in a box.
func in(t *testing.T, b *Box, dir, script string) outcome {
	t.Helper()
	return command(t, b, dir, "/bin/bash", "bash", "-c", script)
}

func command(t *testing.T, b *Box, dir, path string, argv ...string) outcome {
	t.Helper()
	l, err := b.Launch(Command{Path: path, Argv: argv, Dir: dir, Env: os.Environ(), Report: 3})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := &exec.Cmd{Path: l.Path, Args: l.Argv, Env: l.Env, Dir: dir, ExtraFiles: []*os.File{l.Report}, Stdout: &out, Stderr: &out, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	l.Attr.Apply(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		l.Abandon()
		t.Fatal(err)
	}
	err = l.Began(cmd.Process.Pid)
	_ = cmd.Wait()
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return outcome{strings.TrimSpace(out.String()), status, b.Settle(status)}
}

// box makes a box that is closed at the end, or skips.
func box(t *testing.T, p Policy) *Box {
	t.Helper()
	b, err := New(p)
	if errors.Is(err, ErrImpossible) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// ways are both ways to make namespaces.
func ways(t *testing.T, test func(t *testing.T)) {
	t.Run("namespaces", test)
	t.Run("bubblewrap", func(t *testing.T) {
		only = viaBubblewrap
		defer func() { only = viaNothing }()
		test(t)
	})
}

// place is a directory with a workspace, and something beside it that is not to be changed.
func place(t *testing.T) (outside, workspace string) {
	t.Helper()
	outside = t.TempDir()
	workspace = filepath.Join(outside, "workspace")
	if err := os.Mkdir(workspace, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "precious"), []byte("precious\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return outside, workspace
}

func TestAWorkspaceIsWrittenAndTemporaryFilesAreItsOwn(t *testing.T) {
	ways(t, func(t *testing.T) {
		_, workspace := place(t)
		b := box(t, Policy{Mode: Workspace, Roots: []string{workspace}})
		got := in(t, b, workspace, `set -e; echo in >file; mkdir d; mv file d/; ln d/file link; cat link; echo tmp >$TMPDIR/x; echo x >/var/tmp/y; echo >/dev/null; echo z >/dev/shm/z; cat /tmp/x; pwd`)
		if want := "in\ntmp\n" + workspace; got.output != want {
			t.Errorf("%q", got.output)
		}
		if data, err := os.ReadFile(filepath.Join(workspace, "d", "file")); err != nil || string(data) != "in\n" {
			t.Errorf("%q, %v", data, err)
		}
		for _, name := range []string{"/tmp/x", "/var/tmp/y", "/dev/shm/z"} {
			if _, err := os.Lstat(name); err == nil {
				t.Errorf("%s is there", name)
			}
		}
		tmp := b.tmp
		if again := in(t, b, workspace, "cat /tmp/x"); again.output != "tmp" {
			t.Errorf("the second command finds %q", again.output)
		}
		b.Close()
		if _, err := os.Lstat(tmp); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", tmp, err)
		}
	})
}

// TestAlsoForAnOrdinaryUser runs the tests of this package once more, as nobody.
func TestAlsoForAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is one")
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("/tmp", "agentrun-test")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "test")
	if err := errors.Join(os.WriteFile(binary, exe, 0o755), os.Mkdir(dir+"/tmp", 0o700), os.Chown(dir+"/tmp", nobody, nobody), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir+"/tmp", "HOME="+dir+"/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v", err)
	}
	t.Logf("%s", out)
}
