package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// venv makes a virtual environment.
func venv(t *testing.T, dir string) string {
	t.Helper()
	if out, err := exec.Command("python3", "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Skipf("no virtual environment can be made here: %v: %s", err, out)
	}
	return dir
}

func TestTheVirtualEnvironmentOfTheDirectoryIsFound(t *testing.T) {
	base := t.TempDir()
	one := venv(t, filepath.Join(base, ".venv"))
	other := filepath.Join(base, "other", "venv")
	if err := os.MkdirAll(filepath.Dir(other), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(other, os.DirFS(one)); err != nil {
		t.Skip("no copy of a virtual environment:", err)
	}
	for _, c := range []struct {
		name, path, dir, env, want string
	}{
		{"that of the working directory", "", base, "", one},
		{"before the one that is active", "", base, "VIRTUAL_ENV=" + other, one},
		{"one called venv", "", filepath.Dir(other), "", other},
		{"the one that is active", "", "/", "VIRTUAL_ENV=" + one, one},
		{"one that is named", filepath.Join(one, "bin", "python"), "/", "", one},
		{"none", "", "/", "VIRTUAL_ENV=/nothing", ""},
	} {
		environ := append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "VIRTUAL_ENV=") }), c.env)
		in, err := find(c.path, c.dir, environ)
		if err != nil || in.venv != c.want {
			t.Errorf("%s: %+v, %v", c.name, in, err)
		}
	}
	k := kernel(t, Options{Dir: base})
	got := cell(t, k, "import sys, os, shutil; sys.prefix, os.environ['VIRTUAL_ENV'], os.path.dirname(shutil.which('python')), sys.prefix != sys.base_prefix")
	if want := "('" + one + "', '" + one + "', '" + one + "/bin', True)"; got.result() != want && got.out != strings.ReplaceAll(want, ", ", ",\n ")+"\n" {
		t.Errorf("%s, not %s", got.result(), want)
	}
}

func TestAnInterpreterBehindAScriptIsRememberedOnce(t *testing.T) {
	real := ""
	{
		k := kernel(t, Options{})
		real = strings.Trim(cell(t, k, "import sys; sys.executable").result(), "'")
	}
	dir := t.TempDir()
	script, count := filepath.Join(dir, "python3"), filepath.Join(dir, "count")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho x >>"+count+"\nexec "+real+" \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		k := kernel(t, Options{Path: script, Dir: dir})
		if got := cell(t, k, "1"); got.result() != "1" {
			t.Errorf("%+v", got)
		}
	}
	if b, err := os.ReadFile(count); string(b) != "x\n" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestFilesOfTheDirectoryAreNotTheKernels(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"json", "traceback", "signal", "asyncio", "threading", "token", "re", "pprint", "linecache"} {
		if err := os.WriteFile(filepath.Join(dir, name+".py"), []byte("raise RuntimeError('not yours')\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "mine.py"), []byte("x = 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := kernel(t, Options{Dir: dir})
	for code, want := range map[string]string{"import mine; mine.x": "7", "async def f(): return 1\nawait f()": "1"} {
		if got := cell(t, k, code); got.result() != want {
			t.Errorf("%s: %+v", code, got)
		}
	}
}
