package bash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// finished is the last bashExecution message of a log.
func finished(t *testing.T, l *memoryLog) (entry.BashExecutionMessage, Finish) {
	t.Helper()
	for i := len(l.lines) - 1; i >= 0; i-- {
		if m, ok := l.lines[i].body.(entry.BashExecutionMessage); ok {
			var f Finish
			if err := json.Unmarshal(m.Details, &f); err != nil {
				t.Fatal(err)
			}
			return m, f
		}
	}
	t.Fatal("no run has an end")
	return entry.BashExecutionMessage{}, Finish{}
}

func TestARunIsRecordedWithWhatItPrinted(t *testing.T) {
	var l memoryLog
	dir := artifacts.Open(filepath.Join(t.TempDir(), "artifacts"), artifacts.Options{})
	res, err := Run(t.Context(), Options{Argv: []string{"seq", "1", "300000"}, Log: &l, Artifacts: dir})
	if err != nil {
		t.Fatal(err)
	}
	const size = 1988895 // of seq 1 300000
	m, f := finished(t, &l)
	info, err := dir.Lookup(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if info.Bytes != size || info.State != artifacts.Complete || info.Run != res.Run || info.Lines != 300000 {
		t.Errorf("artifact = %+v", info)
	}
	want := Finish{
		Run: res.Run, DurationMS: res.Duration.Milliseconds(), TotalBytes: size, TotalLines: 300000,
		Artifact: &FinishArtifact{ID: 0, Bytes: size, Lines: 300000, CRC32C: fmt.Sprintf("%08x", info.CRC32C)},
	}
	if f.Artifact == nil || *f.Artifact != *want.Artifact {
		t.Errorf("artifact in the log = %+v, want %+v", f.Artifact, want.Artifact)
	}
	if f.Artifact, want.Artifact = nil, nil; f != want {
		t.Errorf("end = %+v, want %+v", f, want)
	}
	if m.Command != "seq 1 300000" || !m.Truncated || m.Cancelled || m.ExitCode == nil || *m.ExitCode != 0 || m.Output != res.Output {
		t.Errorf("message = %+v", m)
	}
	if !strings.HasPrefix(m.Output, "1\n2\n") || !strings.HasSuffix(m.Output, "artifact://0]") {
		t.Errorf("output %.20q ... %q", m.Output, m.Output[len(m.Output)-60:])
	}
	if len(l.lines) != 2 || l.lines[0].id != res.StartEntry || l.lines[1].id != res.EndEntry || l.lines[1].parent != res.StartEntry {
		t.Errorf("entries %+v, result %s, %s", l.lines, res.StartEntry, res.EndEntry)
	}
}

func TestAGigabyteWithoutANewlineIsKeptAndBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("a gigabyte is written: not with -short")
	}
	size := int64(1 << 30)
	if underRace {
		size = 32 << 20
	}
	dir := artifacts.Open(t.TempDir(), artifacts.Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	res, err := Run(t.Context(), Options{Script: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size), Artifacts: dir})
	runtime.ReadMemStats(&after)
	if err != nil || res.Code != 0 {
		t.Fatal(res.Exit, err)
	}
	if res.Summary.TotalBytes != size || res.Summary.TotalLines != 1 || len(res.Output) > outputsink.DefaultMaxBytes+500 {
		t.Errorf("%d bytes, %d lines, view of %d bytes", res.Summary.TotalBytes, res.Summary.TotalLines, len(res.Output))
	}
	if info, err := dir.Lookup(t.Context(), 0); err != nil || info.Bytes != size || info.State != artifacts.Complete {
		t.Errorf("artifact %+v, %v", info, err)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 8<<20 {
		t.Errorf("%d bytes were allocated on the way", allocated)
	}
}

func TestEveryEndIsAnOutcomeAndRecorded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tests := []struct {
		name      string
		ctx       context.Context
		o         Options
		code      int
		output    string
		signal    string
		timedOut  bool
		cancelled bool
	}{
		{"nothing printed", t.Context(), Options{Argv: []string{"true"}}, 0, "", "", false, false},
		{"a script", t.Context(), Options{Script: "echo $((1+1)); echo err >&2; exit 3"}, 3, "2\nerr\n", "", false, false},
		{"a shell that is sh when there is no bash", t.Context(), Options{Script: "echo $0", Env: []string{"PATH=" + onlySh(t)}}, 0, "sh\n", "", false, false},
		{"a script that begins with a dash", t.Context(), Options{Script: "-v 2>/dev/null || echo no"}, 0, "no\n", "", false, false},
		{"a script that begins with a plus, for sh", t.Context(), Options{Script: "+x 2>/dev/null || echo no", Env: []string{"PATH=" + onlySh(t)}}, 0, "no\n", "", false, false},
		{"no such program", t.Context(), Options{Argv: []string{"agentrun-no-such-command"}}, 127, "[agentrun-no-such-command: command not found]", "", false, false},
		{"killed", t.Context(), Options{Script: "printf x; kill -KILL $$"}, 137, "x", "SIGKILL", false, false},
		{"something left running", t.Context(), Options{Script: "sleep 1000 >/dev/null 2>&1 & echo started"}, 0, "started\n[Processes that the command left running were ended; setsid(1) starts one that stays]", "", false, false},
		{"timed out", t.Context(), Options{Script: "exec sleep 1000", Timeout: 50e6}, 124, "[Command timed out after 50ms]", "SIGINT", true, false},
		{"cancelled", ctx, Options{Script: "echo x; exec sleep 1000", Live: &cue{word: "x", then: cancel}}, 130, "x\n[Command cancelled]", "SIGINT", false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var l memoryLog
			tt.o.Log = &l
			res, err := Run(tt.ctx, tt.o)
			if err != nil {
				t.Fatal(err)
			}
			m, f := finished(t, &l)
			if m.Output != tt.output || *m.ExitCode != tt.code || m.Cancelled != tt.cancelled || f.TimedOut != tt.timedOut {
				t.Errorf("message %+v (code %d), details %+v", m, *m.ExitCode, f)
			}
			if got := f.Signal; (got == nil) != (tt.signal == "") || got != nil && *got != tt.signal {
				t.Errorf("signal %v, want %q", got, tt.signal)
			}
			if res.Output != m.Output || res.Code != *m.ExitCode || res.EndEntry == "" || f.Artifact != nil {
				t.Errorf("result %+v differs from what was recorded: %+v, %+v", res, m, f)
			}
		})
	}
}

// onlySh is a directory of programs where sh is the only shell.
func onlySh(t *testing.T) string {
	dir := t.TempDir()
	if err := os.Symlink("/bin/sh", filepath.Join(dir, "sh")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestARunThatCanNotBeRecordedIsNotStarted(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	for name, fail := range map[string]error{
		"refused": fs.ErrPermission,
		"pending": &session.PendingError{IDs: []string{"e0"}, Err: syscall.ENOSPC},
	} {
		t.Run(name, func(t *testing.T) {
			l := memoryLog{fail: fail}
			res, err := Run(t.Context(), Options{Argv: []string{"touch", marker}, Log: &l})
			if !errors.Is(err, fail) {
				t.Errorf("err = %v, want that of the log", err)
			}
			if _, err := os.Lstat(marker); err == nil {
				t.Error("the command ran")
			}
			if name == "refused" {
				if len(l.lines) != 0 || res.StartEntry != "" {
					t.Errorf("entries %+v", l.lines)
				}
				return
			}
			// The log keeps the start and will write it, so it must learn that nothing ran.
			if m, f := finished(t, &l); *m.ExitCode != CodeFailure || f.Run != res.Run || !strings.Contains(m.Output, "not started") {
				t.Errorf("end = %+v, %+v", m, f)
			}
		})
	}
	t.Run("cancelled before", func(t *testing.T) {
		var l memoryLog
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Run(ctx, Options{Argv: []string{"touch", marker}, Log: &l}); !errors.Is(err, context.Canceled) || len(l.lines) != 0 {
			t.Errorf("err = %v, entries %+v", err, l.lines)
		}
	})
	for name, o := range map[string]Options{
		"nothing to run":         {},
		"blanks to run":          {Script: " \n"},
		"two things to run":      {Argv: []string{"touch", marker}, Script: "true"},
		"a directory not there":  {Argv: []string{"touch", marker}, Dir: marker},
		"a nameless environment": {Argv: []string{"touch", marker}, Env: []string{"=x"}},
	} {
		t.Run(name, func(t *testing.T) {
			var l memoryLog
			o.Log = &l
			if _, err := Run(t.Context(), o); err == nil || len(l.lines) != 0 {
				t.Errorf("err = %v, entries %+v", err, l.lines)
			}
		})
	}
	if _, err := os.Lstat(marker); err == nil {
		t.Error("something ran")
	}
}

// brokenEnd is a log whose disk fails while the command runs.
type brokenEnd struct{ memoryLog }

func (*brokenEnd) AppendBeside(context.Context, string, entry.Body, entry.Body) (string, error) {
	return "", syscall.EIO
}

func TestOutputThatCanNotBeRecordedIsReturned(t *testing.T) {
	res, err := Run(t.Context(), Options{Script: "echo precious; exit 4", Log: &brokenEnd{}})
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("err = %v, want that of the log", err)
	}
	if res.Output != "precious\n" || res.Code != 4 || res.StartEntry == "" || res.EndEntry != "" {
		t.Errorf("result %+v", res)
	}
}

func TestAnArtifactThatCanNotBeMadeIsNoFailureOfTheCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in-the-way")
	write(t, file, "", 0o600)
	var l memoryLog
	res, err := Run(t.Context(), Options{Argv: []string{"seq", "1", "100000"}, Log: &l, Artifacts: artifacts.Open(file, artifacts.Options{})})
	if err != nil || res.Code != 0 {
		t.Fatalf("exit %+v, %v", res.Exit, err)
	}
	if res.Summary.ArtifactState.Kind != outputsink.ArtifactMissing || res.Summary.TotalLines != 100000 {
		t.Errorf("summary %+v", res.Summary.ArtifactState)
	}
	if m, f := finished(t, &l); !m.Truncated || f.Artifact != nil || !strings.Contains(m.Output, "could not be kept") {
		t.Errorf("end %+v, ...%q", f, m.Output[max(0, len(m.Output)-200):])
	}
}

func TestLiveGetsTheBytesAsTheyAre(t *testing.T) {
	const raw = "\x1b[31mred\x1b[0m\r\n\xff\x00"
	var live bytes.Buffer
	res, err := Run(t.Context(), Options{Argv: []string{"printf", `\033[31mred\033[0m\r\n\377\000`}, Live: &live})
	if err != nil || live.String() != raw {
		t.Errorf("live %q, want %q (%v)", &live, raw, err)
	}
	if strings.Contains(res.Output, "\x1b") {
		t.Errorf("view %q", res.Output)
	}
	res, err = Run(t.Context(), Options{Script: "seq 1 20000; exit 5", Live: &refuser{after: 100}})
	if err != nil || res.Code != 5 || res.Summary.TotalLines != 20000 || !errors.Is(res.LiveErr, syscall.ENOSPC) {
		t.Errorf("with a Live that fails: exit %+v, %d lines, %v, live %v", res.Exit, res.Summary.TotalLines, err, res.LiveErr)
	}
}

// home is a session of a home of its own, and the directory of its artifacts.
func home(t *testing.T) (*session.Session, *artifacts.Dir) {
	t.Helper()
	s, kept, err := newSession(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, kept
}

func TestRunsOfOneSessionAtOnceAllSucceed(t *testing.T) {
	s, dir := home(t)
	const runs = 8
	var all sync.WaitGroup
	results := make([]Result, runs)
	for i := range runs {
		all.Go(func() {
			var err error
			results[i], err = Run(t.Context(), Options{Script: fmt.Sprintf("seq %d 20000", i), Log: s, Artifacts: dir})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	seen := map[string]bool{}
	for i, r := range results {
		if r.Code != 0 || r.Summary.TotalLines != int64(20001-i) || r.Finish.Artifact == nil || seen[r.Summary.Artifact] {
			t.Errorf("run %d: %+v, artifact %q", i, r.Exit, r.Summary.Artifact)
		}
		seen[r.Summary.Artifact] = true
	}
	open, err := FindUnfinished(t.Context(), s.Entries(t.Context()), dir)
	if err != nil || len(open) != 0 {
		t.Errorf("unfinished: %+v, %v", open, err)
	}
	entries := 0
	for _, err := range s.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		entries++
	}
	if entries != 2*runs {
		t.Errorf("%d entries, want %d", entries, 2*runs)
	}
}

func TestTheEndOfARunStaysOnItsBranchOfASession(t *testing.T) {
	s, _ := home(t)
	root, err := s.Append(t.Context(), note("root"))
	if err != nil {
		t.Fatal(err)
	}
	var branch string
	live := &cue{word: "x", then: func() { // while the command runs, somebody goes back to the root
		if branch, err = s.AppendUnder(t.Context(), root, note("another branch")); err != nil {
			t.Error(err)
		}
	}}
	res, err := Run(t.Context(), Options{Argv: []string{"echo", "x"}, Log: s, Live: live})
	if err != nil {
		t.Fatal(err)
	}
	done, err := s.Entry(t.Context(), res.EndEntry)
	if err != nil || done.Parent() != res.StartEntry {
		t.Errorf("end under %q, want %q (%v)", done.Parent(), res.StartEntry, err)
	}
	leaf, err := s.Leaf(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last, err := s.Entry(t.Context(), leaf)
	if err != nil || last.Parent() != branch || !bytes.Contains(last.Raw(), []byte(LeafType)) {
		t.Errorf("leaf %s, want a %s under %s (%v)", last.Raw(), LeafType, branch, err)
	}
}

func TestAnArtifactThatWasRemovedMeanwhileIsNotNamed(t *testing.T) {
	s, kept, err := newSession(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	res, err := Run(t.Context(), Options{Script: "seq 1 50000; rm -r '" + s.ArtifactsDir() + "'; seq 1 50000", Log: s, Artifacts: kept})
	if err != nil || res.Code != 0 || res.Summary.TotalLines != 100_000 || strings.Contains(res.Output, "artifact://") || !strings.Contains(res.Output, "could not be kept") {
		t.Errorf("%v, %+v, and the notice %s", err, res.Exit, res.Summary.Notice)
	}
}

func TestARunWhoseProcessWasKilledFindsItsOutput(t *testing.T) {
	home := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=doomed", homeVariable+"="+home)
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child was not killed: %v: %s", err, out)
	}
	m, err := session.OpenManager(home, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	found, ok, err := m.Newest(t.Context(), home)
	if err != nil || !ok {
		t.Fatalf("no session: %v", err)
	}
	s, err := m.View(t.Context(), found.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	kept := artifacts.Open(s.ArtifactsDir(), artifacts.Options{})
	open, err := FindUnfinished(t.Context(), s.Entries(t.Context()), kept)
	if err != nil || len(open) != 1 {
		t.Fatalf("unfinished: %+v, %v, want one run", open, err)
	}
	u := open[0]
	if u.Life != Gone || u.PID != cmd.Process.Pid || u.Command != "seq 1 50000; kill -KILL $PPID" || u.Artifact == nil || u.Artifact.State != artifacts.Interrupted {
		t.Fatalf("run = %+v, artifact %+v", u, u.Artifact)
	}
	// The shell went on to kill when all but the last pipe and one read of it had gone to the sink.
	got, err := os.ReadFile(u.Artifact.Path)
	if err != nil || len(got) < 64<<10 || !strings.HasPrefix(string(got), "1\n2\n3\n") {
		t.Errorf("%d bytes in the artifact, %v", len(got), err)
	}
}

func TestTheToolAnswersAModel(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	tool := &Tool{Dir: dir, Artifacts: artifacts.Open(filepath.Join(dir, "artifacts"), artifacts.Options{})}
	if !json.Valid(tool.Schema()) {
		t.Error("the schema is no JSON")
	}
	tests := []struct {
		name, input, text string
		isError           bool
	}{
		{"output", `{"command":"echo hi"}`, "hi\n", false},
		{"none", `{"command":"true"}`, "(no output)", false},
		{"a code", `{"command":"echo hi; exit 3"}`, "hi\n[Command exited with code 3]", true},
		{"a relative directory", `{"command":"basename \"$PWD\"","cwd":"sub"}`, "sub\n", false},
		{"variables", `{"command":"echo $A-$B","env":{"B":"2","A":"1"}}`, "1-2\n", false},
		{"a timeout out of bounds", `{"command":"true","timeout":99999}`, "[Timeout clamped to 1h (requested 99999s; allowed range 1s to 1h)]", false},
		{"no command", `{}`, "", true},
		{"an unknown member", `{"command":"true","shell":"zsh"}`, "", true},
		{"two objects", `{"command":"true"}{}`, "", true},
		{"no JSON", `echo`, "", true},
		{"a directory that is not there", `{"command":"true","cwd":"absent"}`, "", true},
		{"a variable that is two", `{"command":"true","env":{"A=B":"1"}}`, "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, err := tool.Call(t.Context(), json.RawMessage(tt.input))
			if err != nil {
				t.Fatal(err)
			}
			if res.IsError != tt.isError || tt.text != "" && res.Text != tt.text || res.Text == "" {
				t.Errorf("%+v, want %q, error %v", res, tt.text, tt.isError)
			}
		})
	}
	res, err := tool.Call(t.Context(), json.RawMessage(`{"command":"seq 1 300000"}`))
	var d details
	if err != nil || res.Artifact != "artifact://0" || json.Unmarshal(res.Details, &d) != nil || d.TotalLines != 300000 || !d.Truncated {
		t.Errorf("long output: %q, %s, %v", res.Artifact, res.Details, err)
	}
}
