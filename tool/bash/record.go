package bash

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/agentrun/agentrun/session/entry"
)

// Custom entry types of the log.
const (
	// StartType is the custom entry that a run begins with.
	StartType = "agentrun.run.start"
	// LeafType is the custom entry that puts the leaf back where it was, after the end of a run went to a branch that
	// had been left. Programs take the last entry of the file for the leaf, and so follow it.
	LeafType = entry.CustomTypeLeaf
)

// Log is what recording a run needs of a session. *session.Session is one.
type Log interface {
	// Append appends under the leaf, as it is at that moment, and returns the new entry's id.
	Append(ctx context.Context, b entry.Body) (id string, err error)
	// AppendBeside appends under parent when the leaf is parent or descends from it: then under the leaf. Otherwise b
	// goes under parent itself, and back under the old leaf behind it. Nobody else appends in between.
	AppendBeside(ctx context.Context, parent string, b, back entry.Body) (id string, err error)
}

// Start is the data of the entry that a run begins with. It is written before there is a process, so it names the
// process that ran the command, not the command's own.
type Start struct {
	Run      string    `json:"run"`            // UUIDv7
	Command  string    `json:"command"`        // a script, or the arguments quoted for a shell
	Argv     []string  `json:"argv,omitempty"` // the arguments as they are, when no shell was involved
	Cwd      string    `json:"cwd"`
	Artifact *int64    `json:"artifact"`           // null: a number is taken when there is output to keep
	Began    time.Time `json:"startTime"`          // by the wall clock, to the millisecond
	Sandbox  string    `json:"sandbox,omitempty"`  // what it may do, in words; "" is everything
	Job      bool      `json:"job,omitempty"`      // it goes on by itself, and its artifact is its output from the first byte
	Aside    bool      `json:"aside,omitempty"`    // models are not shown what it prints
	Language string    `json:"language,omitempty"` // of Command, where that is not a shell's: "python"
	// Terminal is the size of the terminal that the command has at its start; null is none.
	Terminal *TerminalSize `json:"terminal,omitempty"`
	// Moved: somebody waited for it until now, and from here on it is a job. Such an entry follows that of the run's
	// start, or stands alone where the start is not recorded (Options.Unrecorded).
	Moved   bool   `json:"moved,omitempty"`
	Session string `json:"session,omitempty"` // of a job: the id of the one that it belongs to, which a fork is not
	Shell   string `json:"shell,omitempty"`   // the name of the shell, or of the kernel of a Language, that ran it and goes on
	Remote  string `json:"remote,omitempty"`  // the host that a script of ssh ran on; Cwd is then that of agentrun
	Owner
}

// LimitOutput is what Finish.Limits calls Options.MaxOutput, which ended the run.
const LimitOutput = "output"

// Finish is the details member of the message that a run ends with.
type Finish struct {
	Run        string          `json:"run"`
	Artifact   *FinishArtifact `json:"artifact"` // null when the message holds everything
	Signal     *string         `json:"signal"`   // null when no signal ended it
	TimedOut   bool            `json:"timedOut"`
	DurationMS int64           `json:"durationMs"`
	TotalBytes int64           `json:"totalBytes"`
	TotalLines int64           `json:"totalLines"`
	// Limits are those that it ran into, of the sandbox and LimitOutput: "memory,processes".
	Limits string `json:"limits,omitempty"`
	// Delivered: a run that was to be a job ended before, so that who waited for it has its result.
	Delivered bool `json:"delivered,omitempty"`
	// Interrupted is set when the end was recorded by somebody else, later (EndInterrupted): "killed" with the process that
	// ran it, or "lost" with the machine.
	Interrupted string `json:"interrupted,omitempty"`
}

// FinishArtifact describes the artifact of a run as it was when the run ended.
type FinishArtifact struct {
	ID     int64  `json:"id"`
	Bytes  int64  `json:"bytes"`
	Lines  int64  `json:"lines"`
	CRC32C string `json:"crc32c"`          // eight hexadecimal digits, of the file
	State  string `json:"state,omitempty"` // when it is not complete: why it ends where it ends
}

// Language is what scripts are written in that a [Runner] runs, where that is not a shell's.
type Language struct {
	// Name is the language's, in names of artifacts (0.python.log) and in Start: lower-case letters.
	Name string
	// Message makes the message that a run ends with of the one that a shell's would end with, and of its details.
	Message func(m entry.BashExecutionMessage, f Finish) (entry.Body, error)
}

// ending makes the message that a run ends with.
type ending func(f Finish) (entry.Body, error)

func (l *Language) ending(m entry.BashExecutionMessage) ending {
	if l != nil {
		return func(f Finish) (entry.Body, error) { return l.Message(m, f) }
	}
	return func(f Finish) (_ entry.Body, err error) {
		m.Details, err = json.Marshal(f)
		return m, err
	}
}

// begin records that a run starts.
func begin(ctx context.Context, log Log, s Start) (id string, err error) {
	data, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("recording the start of a run: %w", err)
	}
	if id, err = log.Append(ctx, entry.Custom{CustomType: StartType, Data: data}); err != nil {
		return "", fmt.Errorf("recording the start of a run: %w", err)
	}
	return id, nil
}

// EndInterrupted records the end of a run whose process is gone and will record none: began is the id of the entry that it
// began with, output what is to be said of it, how is Finish.Interrupted. Nobody may do so twice; who can not be sure holds a lock.
func EndInterrupted(ctx context.Context, log Log, s Start, began, output, how string) (id string, err error) {
	m := entry.BashExecutionMessage{Command: s.Command, Output: output, Cancelled: true, Timestamp: time.Now().UnixMilli(), ExcludeFromContext: s.Aside}
	return end(ctx, log, began, (*Language)(nil).ending(m), Finish{Run: s.Run, Interrupted: how})
}

// end records how the run that began with entry start ended. It ignores the end of ctx: what ran is in the log,
// above all when it was cancelled. An empty start is one that could not be written yet.
func end(ctx context.Context, log Log, start string, message ending, f Finish) (id string, err error) {
	ctx = context.WithoutCancel(ctx)
	m, err := message(f)
	if err != nil {
		return "", fmt.Errorf("recording the end of a run: %w", err)
	}
	if start == "" { // it waits to be written, and nothing can be put beside it
		return log.Append(ctx, m)
	}
	back, err := json.Marshal(struct {
		Reason string `json:"reason"`
		Run    string `json:"run"`
	}{"run ended on a branch that was left", f.Run})
	if err != nil {
		return "", fmt.Errorf("recording the end of a run: %w", err)
	}
	if id, err = log.AppendBeside(ctx, start, m, entry.Custom{CustomType: LeafType, Data: back}); err != nil {
		return "", fmt.Errorf("recording the end of a run: %w", err)
	}
	return id, nil
}
