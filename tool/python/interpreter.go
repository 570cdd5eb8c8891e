package python

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/agentrun/agentrun/tool/bash"
)

// interpreter is a Python that was found.
type interpreter struct {
	path string // absolute
	venv string // the virtual environment that it is of; "" is none
	name string // resolved has what it turns out to be under it; "" is what it is
}

// resolved are interpreters behind scripts, such as those of pyenv, which take a third of a second each time: what they
// started when they were first run, by interpreter.name.
var resolved sync.Map

// find finds the interpreter for a directory.
func find(path, dir string, environ []string) (interpreter, error) {
	if path != "" {
		return look(path, dir, environ)
	}
	for _, venv := range []string{filepath.Join(dir, ".venv"), filepath.Join(dir, "venv"), variable(environ, "VIRTUAL_ENV")} {
		if venv == "" {
			continue
		}
		if python := filepath.Join(venv, "bin", "python"); isVenv(venv) && isFile(python) {
			return interpreter{path: python, venv: venv}, nil
		}
	}
	var first error
	for _, name := range []string{"python3", "python"} {
		in, err := look(name, dir, environ)
		if err == nil {
			return in, nil
		}
		if first == nil {
			first = err
		}
	}
	return interpreter{}, fmt.Errorf("%w, or install python3", first)
}

func isVenv(dir string) bool { return isFile(filepath.Join(dir, "pyvenv.cfg")) }

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// look finds an interpreter by its path or its name.
func look(name, dir string, environ []string) (interpreter, error) {
	path, err := bash.FindProgram(name, dir, environ)
	if err != nil {
		return interpreter{}, fmt.Errorf("finding Python: %w: name an interpreter that is there", err)
	}
	in := interpreter{path: path}
	if venv := filepath.Dir(filepath.Dir(path)); isVenv(venv) {
		in.venv = venv
		return in, nil
	}
	if !isScript(path) {
		return in, nil
	}
	in.name = strings.Join([]string{path, dir, variable(environ, "PYENV_VERSION")}, "\x00")
	if real, ok := resolved.Load(in.name); ok && isFile(real.(string)) {
		in.path = real.(string)
	}
	return in, nil
}

// isScript reports whether a program is one that another program interprets.
func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var b [2]byte
	_, err = io.ReadFull(f, b[:])
	return err == nil && bytes.Equal(b[:], []byte("#!"))
}

// environment is what a kernel sees beside what scripts see.
func (in *interpreter) environment(environ []string) []string {
	if variable(environ, "MPLBACKEND") == "" {
		environ = append(environ, "MPLBACKEND=agg") // there is no screen
	}
	if in.venv == "" {
		return environ
	}
	environ = slices.DeleteFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, "PYTHONHOME=") })
	return append(environ, "VIRTUAL_ENV="+in.venv, "PATH="+filepath.Join(in.venv, "bin")+string(filepath.ListSeparator)+variable(environ, "PATH"))
}

// variable is the value of key in environ, where the last one wins.
func variable(environ []string, key string) string {
	for _, kv := range slices.Backward(environ) {
		if k, v, _ := strings.Cut(kv, "="); k == key {
			return v
		}
	}
	return ""
}
