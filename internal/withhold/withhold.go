// Package withhold keeps variables that look like secrets from the commands that this program starts.
//
// Leaving them out of a command's environment is not enough: a command of the same user reads that of its parent in
// /proc. So [Main], before anything is started, executes this program anew without them. Their values go along in
// sealed memory (memfd_create(2)), which is read and closed before Main returns: neither the environment nor an argument
// nor an open file of this process has them from then on. Its memory has, until [Forget]; a command that may trace its
// parent (root, or with kernel.yama.ptrace_scope 0 the same user) can look there.
//
// [Name] says which names look so. A variable without a value is not withheld.
//
// The functions of this package may be called concurrently, except Main.
package withhold

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// fileEnv tells the program that was executed anew which of its files holds what was withheld.
const fileEnv = "AGENTRUN_WITHHELD"

// magic begins that file. Variables follow, each behind a NUL byte.
const magic = "agentrun withheld 1"

// maxBytes bounds the file: no environment is larger (a quarter of the stack, 6 MiB at most, see execve(2)).
const maxBytes = 8 << 20

// held are the withheld variables, KEY=VALUE each, in memory that Forget can wipe.
var held struct {
	sync.Mutex
	vars [][]byte
}

// Main takes what looks like a secret out of the environment of this process. Where there is something to take, the
// program is executed anew and Main returns there. It must be called before anything is started or opened. After an error
// the environment is as it was.
func Main() error {
	if mark, ok := os.LookupEnv(fileEnv); ok {
		_ = os.Unsetenv(fileEnv)
		if receive(mark) {
			return nil
		}
	}
	pass, withheld := Split(os.Environ())
	if len(withheld) == 0 {
		return nil
	}
	if err := again(pass, withheld); err != nil {
		return fmt.Errorf("withholding secrets from commands: executing agentrun without them: %w", err)
	}
	return nil
}

// again executes the program with pass as its environment. It returns only to say why it could not.
func again(pass, withheld []string) error {
	fd, err := memoryFile("withheld")
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "withheld")
	defer f.Close()
	var b bytes.Buffer
	b.WriteString(magic)
	for _, kv := range withheld {
		b.WriteByte(0)
		b.WriteString(kv)
	}
	if _, err := f.Write(b.Bytes()); err != nil {
		return err
	}
	if err := seal(fd); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, append(pass, fileEnv+"="+strconv.Itoa(fd)))
}

// receive reads what was handed over. It reports false, and leaves the file alone, where that is something else: anybody
// may set a variable.
func receive(mark string) bool {
	fd, err := strconv.Atoi(mark)
	if err != nil || fd < 3 {
		return false
	}
	if !sealed(fd) {
		return false
	}
	var info syscall.Stat_t
	if err := syscall.Fstat(fd, &info); err != nil || info.Size > maxBytes {
		return false
	}
	data := make([]byte, info.Size)
	n, err := syscall.Pread(fd, data, 0)
	vars, err2 := parse(data[:max(n, 0)])
	if errors.Join(err, err2) != nil {
		return false
	}
	syscall.Close(fd)
	held.Lock()
	defer held.Unlock()
	held.vars = vars
	return true
}

// parse reads a file of variables. They stay where they are.
func parse(data []byte) ([][]byte, error) {
	rest, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok {
		return nil, io.ErrUnexpectedEOF
	}
	var vars [][]byte
	for len(rest) > 0 {
		if rest[0] != 0 {
			return nil, io.ErrUnexpectedEOF
		}
		kv, next := rest[1:], []byte(nil)
		if i := bytes.IndexByte(kv, 0); i >= 0 {
			kv, next = kv[:i], kv[i:]
		}
		if bytes.IndexByte(kv, '=') < 1 {
			return nil, io.ErrUnexpectedEOF
		}
		vars, rest = append(vars, slices.Clone(kv)), next
	}
	clear(data)
	return vars, nil
}

// Lookup returns the value of a variable of the environment that this program was started with, withheld or not.
func Lookup(name string) (string, bool) {
	held.Lock()
	defer held.Unlock()
	for i := len(held.vars) - 1; i >= 0; i-- {
		if k, v, _ := bytes.Cut(held.vars[i], []byte("=")); string(k) == name {
			return string(v), true
		}
	}
	return os.LookupEnv(name)
}

// Names returns the names of what is withheld, sorted, each once.
func Names() []string {
	var names []string
	each(func(k, _ string) { names = append(names, k) })
	slices.Sort(names)
	return slices.Compact(names)
}

// Values returns what is withheld, for whoever has to know it when he sees it.
func Values() []string {
	var values []string
	each(func(_, v string) { values = append(values, v) })
	return values
}

// each calls f for every variable that is withheld, in this process or, without Main, by Environ.
func each(f func(name, value string)) {
	held.Lock()
	defer held.Unlock()
	for _, kv := range held.vars {
		k, v, _ := strings.Cut(string(kv), "=")
		f(k, v)
	}
	_, here := Split(os.Environ())
	for _, kv := range here {
		k, v, _ := strings.Cut(kv, "=")
		f(k, v)
	}
}

// Forget wipes the values. Lookup, Names and Values know nothing of them from then on.
func Forget() {
	held.Lock()
	defer held.Unlock()
	for _, kv := range held.vars {
		clear(kv)
	}
	held.vars = nil
}

// Environ is the environment of this process without what looks like a secret. In a program that calls Main that is
// os.Environ.
func Environ() []string {
	pass, _ := Split(os.Environ())
	return pass
}
