package floors_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// module is the prefix of every package of the house.
const module = "github.com/agentrun/agentrun/"

// pkg is what go list tells of a package.
type pkg struct {
	ImportPath, Name, Dir              string
	Standard, DepOnly                  bool
	Module                             *struct{ Path string }
	Imports, Deps                      []string
	GoFiles, TestGoFiles, XTestGoFiles []string
}

// name is the path inside the module, or the whole path of a package from elsewhere.
func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, module) }

// ours reports whether p is a package of the house.
func (p pkg) ours() bool { return strings.HasPrefix(p.ImportPath, module) }

// code reports whether p has anything but tests.
func (p pkg) code() bool { return len(p.GoFiles) > 0 }

// house lists every package of the module and all that they depend on, tests aside.
var house = sync.OnceValues(func() (map[string]pkg, error) {
	root, err := run(".", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return nil, err
	}
	out, err := run(strings.TrimSpace(root), "list", "-deps",
		"-json=ImportPath,Name,Dir,Standard,DepOnly,Module,Imports,Deps,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	if err != nil {
		return nil, err
	}
	all := map[string]pkg{}
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[p.ImportPath] = p
	}
})

func run(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = errors.New("go " + strings.Join(args, " ") + ": " + string(exit.Stderr))
	}
	return string(out), err
}

// packages returns the house, or ends the test.
func packages(t *testing.T) map[string]pkg {
	t.Helper()
	all, err := house()
	if err != nil {
		t.Fatal(err)
	}
	if p := all[module+"session"]; !p.ours() || !filepath.IsAbs(p.Dir) {
		t.Fatalf("go list did not find session: %+v", p)
	}
	return all
}
