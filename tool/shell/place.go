package shell

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/agentrun/agentrun/tool/bash"
)

// place checks where a script is to run. One that goes on in a directory that is gone begins where the shell began, and
// the note says so.
func (i *instance) place(c *bash.Script) (placed *bash.Script, note string, err error) {
	s := i.shell
	moved := s.moved
	s.moved = ""
	if c.Dir != "" {
		return c, "", bash.CheckDirectory(c.Dir)
	}
	at := i.directory()
	switch {
	case i.reload && s.exchange.box == nil: // it is about to go where the last state says
		if last := s.lastDirectory(); last != "" && bash.CheckDirectory(last) != nil {
			moved = last
		}
	case vanished(at):
		moved = strings.TrimSuffix(at, deleted)
	}
	if moved == "" {
		return c, "", nil
	}
	if err := bash.CheckDirectory(s.opts.Dir); err != nil {
		return c, "", err
	}
	there := *c
	there.Dir = s.opts.Dir
	return &there, fmt.Sprintf("The shell's directory %s is gone: this script began in %s", moved, there.Dir), nil
}

// directory is where the process is, as /proc has it; "" is not known.
func (i *instance) directory() string {
	at, err := os.Readlink("/proc/" + strconv.Itoa(i.shim.PID()) + "/cwd")
	if err != nil {
		return ""
	}
	return at
}

// strayedFrom is the directory want of the state that a process began with, where the process is in another one; else "".
func (i *instance) strayedFrom(want string) string {
	at := i.directory()
	if want == "" || at == "" || want == at {
		return ""
	}
	wanted, err := os.Stat(want) // a state has directories as the shell calls them, with links in their names
	if err != nil {
		return want
	}
	if is, err := os.Stat(at); err == nil && os.SameFile(wanted, is) {
		return ""
	}
	return want
}

// lastDirectory is the directory of the last state, "" when that tells none. A script could have written something else
// there: it is good for a note, and to look whether it is there.
func (s *Shell) lastDirectory() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.good < 0 {
		return ""
	}
	const longest = 4096 + len(atMark) + len("\n") // PATH_MAX
	f := s.states[s.good]
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	tail := make([]byte, min(info.Size(), int64(longest)))
	if n, err := f.ReadAt(tail, info.Size()-int64(len(tail))); err != nil && err != io.EOF || n < len(tail) {
		return ""
	}
	line := bytes.TrimSuffix(tail, []byte("\n"))
	dir, ok := strings.CutPrefix(string(line[bytes.LastIndexByte(line, '\n')+1:]), atMark)
	if !ok || !filepath.IsAbs(dir) {
		return ""
	}
	return dir
}

// deleted is what /proc puts behind the path of a directory that has none any more.
const deleted = " (deleted)"

func vanished(at string) bool {
	if !strings.HasSuffix(at, deleted) {
		return false
	}
	_, err := os.Stat(at) // a name may end like that
	return err != nil
}
