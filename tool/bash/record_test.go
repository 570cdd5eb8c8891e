package bash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os/exec"
	"testing"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/session/entry"
)

// line is an entry of memoryLog.
type line struct {
	id, parent string
	body       entry.Body
}

// memoryLog is a session in memory: the last entry is the leaf.
type memoryLog struct {
	lines []line
	fail  error // of the next append
}

func (l *memoryLog) leaf() string {
	if len(l.lines) == 0 {
		return ""
	}
	return l.lines[len(l.lines)-1].id
}

func (l *memoryLog) under(parent string, b entry.Body) string {
	id := fmt.Sprintf("e%d", len(l.lines))
	l.lines = append(l.lines, line{id, parent, b})
	return id
}

func (l *memoryLog) parent(id string) string {
	for _, e := range l.lines {
		if e.id == id {
			return e.parent
		}
	}
	return ""
}

func (l *memoryLog) Append(_ context.Context, b entry.Body) (string, error) {
	if err := l.fail; err != nil {
		l.fail = nil
		return "", err
	}
	return l.under(l.leaf(), b), nil
}

func (l *memoryLog) AppendBeside(ctx context.Context, near string, b, back entry.Body) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	for id := l.leaf(); id != ""; id = l.parent(id) {
		if id == near {
			return l.Append(ctx, b)
		}
	}
	old := l.leaf()
	id := l.under(near, b)
	l.under(old, back)
	return id, nil
}

// entries gives the log as a reader of its file would see it.
func (l *memoryLog) entries(t *testing.T) iter.Seq2[entry.Entry, error] {
	t.Helper()
	return func(yield func(entry.Entry, error) bool) {
		for _, e := range l.lines {
			fields, err := entry.AppendFields(nil, e.body)
			if err != nil {
				t.Fatal(err)
			}
			raw := fmt.Sprintf(`{"type":%q,"id":%q,"parentId":%q,"timestamp":"2026-01-02T03:04:05.678Z"%s}`,
				e.body.EntryType(), e.id, e.parent, fields)
			if !yield(entry.New([]byte(raw), entry.Envelope{Type: e.body.EntryType(), ID: e.id, Parent: e.parent, HasParent: true}), nil) {
				return
			}
		}
	}
}

func note(text string) entry.Body {
	data, _ := json.Marshal(text)
	return entry.Custom{CustomType: "note", Data: data}
}

func TestTheEndGoesUnderTheLeafWhileThatIsOnTheRunsBranch(t *testing.T) {
	var l memoryLog
	start, err := begin(t.Context(), &l, Start{Run: "r"})
	if err != nil {
		t.Fatal(err)
	}
	other, _ := l.Append(t.Context(), note("meanwhile"))
	done, err := end(t.Context(), &l, start, bashEnding(entry.BashExecutionMessage{}), Finish{Run: "r"})
	if err != nil {
		t.Fatal(err)
	}
	if got := l.parent(done); got != other || l.leaf() != done {
		t.Errorf("end under %s, leaf %s; want under %s, and the leaf", got, l.leaf(), other)
	}
}

func TestTheEndGoesUnderItsStartWhenTheLeafHasLeft(t *testing.T) {
	var l memoryLog
	root, _ := l.Append(t.Context(), note("root"))
	start, err := begin(t.Context(), &l, Start{Run: "r"})
	if err != nil {
		t.Fatal(err)
	}
	branch := l.under(root, note("another branch"))
	done, err := end(t.Context(), &l, start, bashEnding(entry.BashExecutionMessage{}), Finish{Run: "r"})
	if err != nil {
		t.Fatal(err)
	}
	if got := l.parent(done); got != start {
		t.Errorf("end under %s, want its start %s", got, start)
	}
	last := l.lines[len(l.lines)-1]
	if c, ok := last.body.(entry.Custom); !ok || c.CustomType != LeafType || last.parent != branch {
		t.Errorf("last entry %+v, want a %s under %s", last, LeafType, branch)
	}
}

func TestTheEndIsRecordedAlsoWhenTheRunWasCancelled(t *testing.T) {
	var l memoryLog
	ctx, cancel := context.WithCancel(t.Context())
	start, err := begin(ctx, &l, Start{Run: "r"})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := end(ctx, &l, start, bashEnding(entry.BashExecutionMessage{}), Finish{}); err != nil {
		t.Error(err)
	}
}

func TestTheRecordHasItsDocumentedMembers(t *testing.T) {
	var l memoryLog
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	start, err := begin(t.Context(), &l, Start{
		Run: "r", Command: "seq 1 2", Argv: []string{"seq", "1", "2"}, Cwd: "/tmp", Began: at,
		Owner: Owner{Host: "h", BootID: "b", PID: 1, PIDStart: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	sig, code := "SIGKILL", 137
	if _, err := end(t.Context(), &l, start, bashEnding(entry.BashExecutionMessage{Command: "seq 1 2", Output: "1\n", ExitCode: &code, Truncated: true, Timestamp: 5}), Finish{
		Run: "r", Signal: &sig, DurationMS: 3, TotalBytes: 4, TotalLines: 2,
		Artifact: &FinishArtifact{ID: 7, Bytes: 4, Lines: 2, CRC32C: "0000000a"},
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"type":"custom","id":"e0","parentId":"","timestamp":"2026-01-02T03:04:05.678Z","customType":"agentrun.run.start","data":{"run":"r","command":"seq 1 2","argv":["seq","1","2"],"cwd":"/tmp","artifact":null,"startTime":"2026-01-02T03:04:05.678Z","host":"h","bootId":"b","pid":1,"pidStart":2}}`,
		`{"type":"message","id":"e1","parentId":"e0","timestamp":"2026-01-02T03:04:05.678Z","message":{"role":"bashExecution","command":"seq 1 2","output":"1\n","exitCode":137,"cancelled":false,"truncated":true,"timestamp":5,"details":{"run":"r","artifact":{"id":7,"bytes":4,"lines":2,"crc32c":"0000000a"},"signal":"SIGKILL","timedOut":false,"durationMs":3,"totalBytes":4,"totalLines":2}}}`,
	}
	i := 0
	for e := range l.entries(t) {
		if string(e.Raw()) != want[i] {
			t.Errorf("entry %d:\n got %s\nwant %s", i, e.Raw(), want[i])
		}
		i++
	}
}

// finder knows the artifact of one run.
type finder struct {
	run  string
	info artifacts.Info
	err  error
}

func (f finder) ByRun(_ context.Context, run string) (artifacts.Info, bool, error) {
	return f.info, run == f.run && f.err == nil, f.err
}

func TestUnfinishedRunsAreTheOnesWithoutAnEnd(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	me := process.Self()
	gone, rebooted, reused, elsewhere := me, me, me, me
	gone.PID = dead.Process.Pid
	rebooted.BootID = "another boot"
	reused.PIDStart++
	elsewhere.Host = "another host"

	var l memoryLog
	for run, o := range map[string]Owner{"done": me} {
		id, err := begin(t.Context(), &l, Start{Run: run, Owner: o})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := end(t.Context(), &l, id, bashEnding(entry.BashExecutionMessage{}), Finish{Run: run}); err != nil {
			t.Fatal(err)
		}
	}
	want := []struct {
		run   string
		owner Owner
		life  Life
	}{
		{"mine", me, Alive}, {"gone", gone, Gone}, {"rebooted", rebooted, Gone}, {"reused", reused, Gone}, {"elsewhere", elsewhere, Unknown},
	}
	for _, w := range want {
		if _, err := begin(t.Context(), &l, Start{Run: w.run, Owner: w.owner, Command: "sleep 1"}); err != nil {
			t.Fatal(err)
		}
	}
	// What only looks like a start or an end.
	l.under(l.leaf(), entry.Custom{CustomType: "note", Data: json.RawMessage(`"agentrun.run.start"`)})
	l.under(l.leaf(), entry.Custom{CustomType: StartType, Data: json.RawMessage(`[]`)})
	l.under(l.leaf(), entry.BashExecutionMessage{Command: "by hand", Details: json.RawMessage(`{"run":7}`)})
	l.under(l.leaf(), entry.UserMessage{Content: entry.PlainText(`{"role":"bashExecution","details":{"run":"gone"}}`)})

	list, err := FindUnfinished(t.Context(), l.entries(t), finder{run: "gone", info: artifacts.Info{ID: 4, Bytes: 99}})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != len(want) {
		t.Fatalf("%d runs, want %d: %+v", len(list), len(want), list)
	}
	for i, w := range want {
		if list[i].Run != w.run || list[i].Life != w.life || list[i].Command != "sleep 1" {
			t.Errorf("run %d = %+v, want %s %v", i, list[i], w.run, w.life)
		}
		if got := list[i].Artifact != nil; got != (w.run == "gone") {
			t.Errorf("run %s: artifact %+v", w.run, list[i].Artifact)
		}
	}
	broken := errors.New("broken")
	if list, err := FindUnfinished(t.Context(), l.entries(t), finder{err: broken}); !errors.Is(err, broken) || len(list) != len(want) {
		t.Errorf("with a finder that fails: %d runs, %v; want all of them and its error", len(list), err)
	}
}

// bashEnding is the ending of a run in a shell's language.
func bashEnding(m entry.BashExecutionMessage) ending { return (*Language)(nil).ending(m) }
