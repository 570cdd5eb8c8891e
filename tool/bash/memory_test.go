package bash

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/agentrun/agentrun/internal/process"
)

// TestPeakMemoryIsThatOfTheCommand: the system counts what a process had of this one's memory before it was the command.
func TestPeakMemoryIsThatOfTheCommand(t *testing.T) {
	own := process.PeakMemory(os.Getpid())
	short := Process{Argv: []string{"true"}}
	exit, err := short.Run(t.Context())
	if err != nil || exit.PeakMemory >= own/2 {
		t.Errorf("a short one: %d of %d bytes, %v", exit.PeakMemory, own, err)
	}
	large := Process{Argv: []string{"sh", "-c", "head -c 300000000 /dev/zero | tail -c 250000000 >/dev/null"}}
	if exit, err = large.Run(t.Context()); err != nil || exit.PeakMemory < 200e6 || exit.PeakMemory > 400e6 {
		t.Errorf("a large one: %d bytes, %v", exit.PeakMemory, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	small := Process{Argv: []string{"cat"}, Stdin: r, Stdout: io.Discard}
	timer := time.AfterFunc(100*time.Millisecond, func() { w.Close() }) // behind the first look
	defer timer.Stop()
	if exit, err = small.Run(t.Context()); err != nil || exit.PeakMemory >= own/2 {
		t.Errorf("a small one that takes its time: %d bytes, %v", exit.PeakMemory, err)
	}
}
