package bash

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/sandbox"
)

// Exit codes that are not the command's own, as shells, env(1) and timeout(1) have them.
const (
	CodeTimeout       = 124 // the command was ended by its timeout
	CodeFailure       = 125 // agentrun itself failed: no process could be made
	CodeNotExecutable = 126 // the program was found but can not be executed
	CodeNotFound      = 127 // there is no such program
	codeSignal        = 128 // plus the number of the signal that ended the command
)

// Exit says how a command ended.
type Exit struct {
	// Code is the command's own exit code; 128+n when signal n ended it; CodeTimeout when it was ended by its
	// timeout, whatever it then said; CodeNotFound, CodeNotExecutable or CodeFailure when it never started.
	Code int

	// Signal is the name of the signal that ended the command ("SIGKILL"), else "". It is set beside CodeTimeout
	// too, and tells how much it took.
	Signal string

	TimedOut  bool // Timeout passed while the command ran
	Cancelled bool // the context was done, or Kill closed, while the command ran

	// Feedback: the command read the artifact that its own output went to, and was ended.
	Feedback bool

	// OutputLimit: the command wrote more than Options.MaxOutput, and was ended.
	OutputLimit bool
	most, wrote int64 // that limit, and what came; 0 where nobody knows

	// Limits are those of the sandbox that the command ran into; it may have gone on.
	Limits []sandbox.Reached

	// HeldOpen: the leader and its group had ended, and another process still held the output open and was not
	// waited for.
	HeldOpen bool

	// Leftover: processes of the group outlived the leader and were ended.
	Leftover bool

	// Start says why the command was not started (see CodeNotFound and its neighbours), else nil.
	Start error

	Began    time.Time     // when the command was started
	Duration time.Duration // from there to the end of the leader, by the monotonic clock

	// User and System are the processor time of the command and of the processes that it waited for.
	User, System time.Duration

	// PeakMemory is the most memory that one of these processes had resident, in bytes; 0 when that is not known. The system
	// tells it of processes that had more than this one, since it counts what a process had before execve(2). Of others, and
	// of what a [Runner] runs that goes on, it is what was seen at looks from time to time, the first one after 50 ms.
	PeakMemory int64

	// Fresh: what a [Runner] ran it in was made for it, and goes on.
	Fresh bool

	// Notes are sentences of a Runner about the shell, without a full stop.
	Notes []string
}

func (e Exit) notStarted(s *StartError) Exit {
	e.Start, e.Code = s, s.Code
	e.Duration = time.Since(e.Began)
	return e
}

// SetStatus fills in Code and Signal from how a process ended.
func (e *Exit) SetStatus(status syscall.WaitStatus) {
	code := status.ExitStatus()
	if status.Signaled() {
		code = codeSignal + int(status.Signal())
		e.Signal = signalName(status.Signal())
	}
	e.Code = e.code(code)
}

// used fills in what the process and those it waited for took. What it had before it was the command is floor, and what it
// was seen to have is seen.
func (e *Exit) used(state *os.ProcessState, floor, seen int64) {
	e.User, e.System, e.PeakMemory = state.UserTime(), state.SystemTime(), seen
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok && usage.Maxrss<<10 > floor { // getrusage(2): KiB
		e.PeakMemory = usage.Maxrss << 10
	}
}

// entering is more than a process has on its way into a sandbox.
const entering = 64 << 20

// limits are the names of those that the command ran into, with commas between them.
func (e *Exit) limits() string {
	names := sandbox.Names(e.Limits)
	switch {
	case !e.OutputLimit:
		return names
	case names == "":
		return LimitOutput
	}
	return LimitOutput + "," + names
}

func (e *Exit) code(own int) int {
	if e.TimedOut {
		return CodeTimeout
	}
	return own
}

// Remarks are sentences, each in brackets, for whoever reads the output and has to know more than its bytes.
func (e *Exit) Remarks(timeout time.Duration) []string {
	var r []string
	if e.Start != nil {
		r = append(r, fmt.Sprintf("[%v]", e.Start))
	}
	if e.TimedOut {
		r = append(r, fmt.Sprintf("[Command timed out after %s]", quantity.Time(timeout)))
	}
	if e.Cancelled {
		r = append(r, "[Command cancelled]")
	}
	if e.Feedback {
		r = append(r, "[Command stopped: it read its own output, the artifact, which grew by what it read; leave the directories of sessions out of what it reads]")
	}
	if e.OutputLimit {
		text := "Command stopped: it wrote more than its limit"
		if e.most > 0 {
			text += fmt.Sprintf(" of %s; %s came until it had ended", outputsink.FormatBytes(e.most), outputsink.FormatBytes(e.wrote))
		}
		r = append(r, "["+text+"]")
	}
	for _, reached := range e.Limits {
		r = append(r, "["+reached.Text+"]")
	}
	for _, note := range e.Notes {
		r = append(r, "["+note+"]")
	}
	switch {
	case e.TimedOut || e.Cancelled || e.Feedback || e.OutputLimit: // then nobody expects anything to run on
	case e.Leftover:
		r = append(r, "[Processes that the command left running were ended; setsid(1) starts one that stays]")
	case e.HeldOpen:
		r = append(r, "[Output ends here: the command has ended, but a process it left behind still holds its output open]")
	}
	return r
}

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(s)) // real-time signals have no name of their own
}
