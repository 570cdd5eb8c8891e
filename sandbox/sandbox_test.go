package sandbox

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process sleeps for a second at its end
	Main()
	if len(os.Args) > 1 && os.Args[1] == "escape" {
		os.Exit(escape(os.Args[2:]))
	}
	if workspace := os.Getenv(ownerVariable); workspace != "" {
		os.Exit(owner(workspace))
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
	cmd.WaitDelay = time.Second // what is left behind may have the output open
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
	if testing.Short() {
		t.Skip("is all other tests once more; run without -short")
	}
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

func TestWhatIsNotPossibleIsRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		policy Policy
		want   string
	}{
		"a mode that is none":        {Policy{Mode: "strict"}, `there is no sandbox "strict": give off, read-only or workspace`},
		"a workspace without a root": {Policy{Mode: Workspace}, "the sandbox workspace has no directory"},
		"a root that is a file":      {Policy{Mode: Workspace, Roots: []string{file}}, "is not a directory"},
		"a root that is not there":   {Policy{Mode: Workspace, Roots: []string{dir + "/no"}}, "no such file"},
		"everything as a workspace":  {Policy{Mode: Workspace, Roots: []string{"/"}}, "the workspace can not be /"},
		"a limit below 0":            {Policy{Limits: Limits{Disk: -1}}, "below 0"},
	} {
		b, err := New(c.policy)
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	only = viaBubblewrap
	defer func() { only = viaNothing }()
	t.Setenv("PATH", dir)
	_, err := New(Policy{Mode: ReadOnly})
	if !errors.Is(err, ErrImpossible) || !strings.Contains(err.Error(), "bubblewrap: it is not installed") {
		t.Errorf("without means: %v", err)
	}
}

func TestACommandThatCanNotBeExecutedIsAnErrno(t *testing.T) {
	ways(t, func(t *testing.T) {
		b := box(t, Policy{Mode: ReadOnly})
		l, err := b.Launch(Command{Path: "/etc/passwd", Argv: []string{"x"}, Dir: "/", Report: 3})
		if err != nil {
			t.Fatal(err)
		}
		cmd := &exec.Cmd{Path: l.Path, Args: l.Argv, Dir: "/", ExtraFiles: []*os.File{l.Report}, SysProcAttr: &syscall.SysProcAttr{}}
		l.Attr.Apply(cmd.SysProcAttr)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := l.Began(cmd.Process.Pid); !errors.Is(err, syscall.EACCES) {
			t.Errorf("%v", err)
		}
		_ = cmd.Wait()
	})
}

func TestLimitsAreReadAndWritten(t *testing.T) {
	size := func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }
	var l Limits
	const text = "memory=1000,processes=100,cpu=1m,file=1048577,disk=2147483649"
	if err := ParseLimits(&l, text, size); err != nil || l.String() != text {
		t.Errorf("%q, %v", l, err)
	}
	if l := (Limits{Memory: 1 << 30, File: 1536 << 10, CPU: 90 * time.Minute}); l.String() != "memory=1GiB,cpu=1h30m,file=1536KiB" {
		t.Error(l)
	}
	for _, wrong := range []string{"", "memory", "memory=x", "cpu=1ms", "processes=0", "swap=1", "memory=1,,"} {
		if err := ParseLimits(&Limits{}, wrong, size); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
	if got := (Limits{Memory: 1}).Or(Limits{Memory: 2, Disk: 3}); got != (Limits{Memory: 1, Disk: 3}) {
		t.Errorf("%+v", got)
	}
}

func TestTheNetworkIsThereUnlessItIsOff(t *testing.T) {
	ways(t, func(t *testing.T) {
		links := func(p Policy) string { return in(t, box(t, p), "/", "cat /proc/net/dev").output }
		if got := links(Policy{Mode: ReadOnly, NetOff: true}); strings.Count(got, ":") != 1 {
			t.Errorf("off: %s", got)
		}
		mine, err := os.ReadFile("/proc/net/dev")
		if err != nil {
			t.Fatal(err)
		}
		if got := links(Policy{Mode: ReadOnly}); strings.Count(got, ":") != strings.Count(string(mine), ":") {
			t.Errorf("on: %s", got)
		}
		if _, err := New(Policy{NetOff: true}); os.Geteuid() == 0 {
			if !errors.Is(err, ErrImpossible) || !strings.Contains(err.Error(), "for root the network is off only in the sandbox") {
				t.Errorf("off for root who may write everything: %v", err)
			}
			return
		}
		if got := links(Policy{NetOff: true}); strings.Count(got, ":") != 1 {
			t.Errorf("off alone: %s", got)
		}
	})
}

func TestWhoIsInASandboxIsKnown(t *testing.T) {
	ways(t, func(t *testing.T) {
		if Confined(os.Getpid()) {
			t.Skip("this process can get no new privileges itself")
		}
		b := box(t, Policy{Mode: ReadOnly})
		if got := in(t, b, "/", "grep NoNewPrivs /proc/self/status"); !strings.HasSuffix(got.output, "\t1") {
			t.Errorf("%q", got.output)
		}
	})
}

func FuzzParseLimits(f *testing.F) {
	f.Add("memory=1,processes=2,cpu=3s,file=4,disk=5")
	f.Add("cpu=9223372036854775807ns,")
	size := func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }
	f.Fuzz(func(t *testing.T, text string) {
		var l, again Limits
		if ParseLimits(&l, text, size) != nil || l.Memory < 0 || l.File < 0 || l.Disk < 0 {
			return
		}
		if s := l.String(); s != "" && (ParseLimits(&again, s, size) != nil || again != l) {
			t.Errorf("%q is %+v, and %q is %+v", text, l, s, again)
		}
	})
}
