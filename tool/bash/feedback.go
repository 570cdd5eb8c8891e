package bash

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A command that reads the artifact which its output goes to (cat *, tail -f, grep -r
// over the directories of sessions) feeds itself, and fills the disk. It is found by
// who of its process group has that file open: twice, with growth in between, so that a
// single pass over a file that grows for other reasons is let go on.
const (
	// feedbackEvery is how often it is looked, while the artifact grows. A look asks
	// for the group of every process, and costs next to nothing beside the growth.
	feedbackEvery = 200 * time.Millisecond
	// feedbackGrowth is how much the artifact has to grow for another look, in bytes.
	feedbackGrowth = 64 << 10
	// feedbackPatience takes the place of the patience with a command that is asked to
	// end: what it writes meanwhile is what it has read.
	feedbackPatience = 200 * time.Millisecond
)

// feedback looks whether a command reads what it writes.
type feedback struct {
	found   chan struct{} // closed when it does
	started chan int      // the process group of the command, once
	stop    chan struct{}
	running sync.WaitGroup
}

func newFeedback() *feedback {
	return &feedback{found: make(chan struct{}), started: make(chan int, 1), stop: make(chan struct{})}
}

// watch begins to look at the artifact at path, which follows it when it is moved.
func (f *feedback) watch(path func() string) {
	select {
	case <-f.stop:
		return // the command has ended: this is the last of its output
	default:
	}
	own, err := os.Stat(path())
	if err != nil {
		return // it is looked at to help; who writes it will hear what is wrong
	}
	f.running.Go(func() {
		select {
		case group := <-f.started:
			f.look(group, own, path)
		case <-f.stop:
		}
	})
}

func (f *feedback) look(group int, own os.FileInfo, path func() string) {
	tick := time.NewTicker(feedbackEvery)
	defer tick.Stop()
	size, seen := own.Size(), false
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		now, err := os.Stat(path())
		if err != nil || now.Size()-size < feedbackGrowth {
			continue
		}
		size = now.Size()
		reads := readsFile(group, own)
		if reads && seen {
			close(f.found)
			return
		}
		seen = reads
	}
}

// end waits for what was begun.
func (f *feedback) end() {
	close(f.stop)
	f.running.Wait()
}

// readsFile reports whether a process of the group has read from the file.
func readsFile(group int, file os.FileInfo) bool {
	dir, err := os.Open("/proc")
	if err != nil {
		return false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return false
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if g, err := syscall.Getpgid(pid); err == nil && g == group && hasRead("/proc/"+name, file) {
			return true
		}
	}
	return false
}

// hasRead reports whether a process has the file open for reading and has read of it.
func hasRead(proc string, file os.FileInfo) bool {
	fds, err := os.ReadDir(proc + "/fd")
	if err != nil {
		return false // it has ended, or became somebody else
	}
	for _, fd := range fds {
		open, err := os.Stat(proc + "/fd/" + fd.Name())
		if err != nil || !os.SameFile(open, file) {
			continue
		}
		if info, err := os.ReadFile(proc + "/fdinfo/" + fd.Name()); err == nil && readsOn(string(info)) {
			return true
		}
	}
	return false
}

// readsOn reads what /proc/<pid>/fdinfo/<fd> of proc(5) says of an open file: where
// reading goes on, and, in octal, how it was opened.
func readsOn(info string) bool {
	pos, readable := int64(0), false
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); name {
		case "pos":
			pos, _ = strconv.ParseInt(value, 10, 64)
		case "flags":
			flags, err := strconv.ParseInt(value, 8, 64)
			readable = err == nil && flags&syscall.O_ACCMODE != syscall.O_WRONLY
		}
	}
	return readable && pos > 0
}
