package durable_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// childEnv tells this test binary to be a process that works on a lock:
// the word is what it does, the first argument the lock file.
const childEnv = "DURABLE_TEST_CHILD"

func TestMain(m *testing.M) {
	switch what := os.Getenv(childEnv); what {
	case "":
		os.Exit(m.Run())
	case "hold":
		holdLock(os.Args[1])
	case "count":
		if err := countUnder(os.Args[1], countRounds); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		panic("unknown child " + what)
	}
}

func child(t *testing.T, what, lock string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, lock)
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.Stderr = os.Stderr
	return cmd
}

// openMask makes files and directories with the permissions that are asked for,
// so that a test does not see those of the user's umask.
func openMask(t *testing.T) {
	old := unix.Umask(0)
	t.Cleanup(func() { unix.Umask(old) })
}

func put(t testing.TB, name, content string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func get(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// names lists a directory, which is the way to see what was left in it.
func names(t testing.TB, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range list {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func perm(t testing.TB, name string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// irregular are things under the name of a file that are none. Each makes one
// at name; target is where a planted link leads.
var irregular = []struct {
	kind string
	make func(name, target string) error
}{
	{"a directory", func(name, _ string) error { return os.Mkdir(name, 0o700) }},
	{"a symbolic link", func(name, target string) error { return os.Symlink(target, name) }},
	{"a FIFO", func(name, _ string) error { return unix.Mkfifo(name, 0o600) }},
	{"a socket", func(name, _ string) error { return unix.Mknod(name, unix.S_IFSOCK|0o600, 0) }},
}

// plant makes the irregular thing i in a new directory, next to a file that a
// planted link leads to.
func plant(t *testing.T, i int) (name, target string) {
	t.Helper()
	dir := t.TempDir()
	name, target = filepath.Join(dir, "planted"), put(t, filepath.Join(dir, "target"), "precious")
	if err := irregular[i].make(name, target); err != nil {
		t.Fatal(err)
	}
	return name, target
}
