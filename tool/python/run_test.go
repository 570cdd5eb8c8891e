package python

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

// bench is a session with what cells need.
type bench struct {
	*session.Session
	kept     *artifacts.Dir
	services *Services
}

func newBench(t *testing.T) *bench {
	t.Helper()
	home := t.TempDir()
	m, err := session.OpenManager(home, session.Options{Durability: session.Flush})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Create(t.Context(), home, session.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	kept := artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID, Where: s})
	return &bench{s, kept, &Services{Router: internalurl.ForSession(m, s, nil), Artifacts: kept, Bash: bash.Options{Log: s, Artifacts: kept}}}
}

func (b *bench) run(t *testing.T, k Runner, code string, change ...func(*RunOptions)) Result {
	t.Helper()
	o := RunOptions{Options: bash.Options{Script: code, Log: b, Artifacts: b.kept}, Kernel: k, Host: b.services.Host, Blobs: b}
	for _, f := range change {
		f(&o)
	}
	res, err := Run(context.Background(), o)
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return res
}

// last is the end of the last run.
func (b *bench) last(t *testing.T) (entry.PythonExecutionMessage, finish) {
	t.Helper()
	var last entry.Message
	for e, err := range b.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if m, err := e.Message(); err == nil && m.MessageRole() == entry.RolePythonExecution {
			last = m
		}
	}
	m, ok := last.(entry.PythonExecutionMessage)
	if !ok {
		t.Fatalf("%+v", last)
	}
	var f finish
	if err := json.Unmarshal(m.Details, &f); err != nil {
		t.Fatal(err)
	}
	return m, f
}

func TestARunIsInTheLogWithItsEnd(t *testing.T) {
	b, k := newBench(t), kernel(t, Options{})
	for _, c := range []struct {
		code, output, result string
		exit                 int
	}{
		{"1+1", "2\n", "2", 0},
		{"print('a'); 1/0", "a\nTraceback", "", 1},
		{"input()", "Traceback", "", 1},
		{"import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "[The kernel was killed by SIGKILL", "", 137},
		{"3", "3\n[This cell ran in a new kernel", "3", 0},
	} {
		res := b.run(t, k, c.code)
		m, f := b.last(t)
		if m.Code != c.code || !strings.HasPrefix(m.Output, c.output) || *m.ExitCode != c.exit || f.Run != res.Run || f.Artifact != nil ||
			(f.Result != nil) != (c.result != "") || f.Result != nil && *f.Result != c.result || (f.Lost != nil) != (c.exit == 137) {
			t.Errorf("%s: %+v %+v", c.code, m, f)
		}
		if text := entry.Text(m); !strings.HasPrefix(text, "Ran Python:\n```python\n"+c.code+"\n```\nOutput:\n```\n"+c.output) {
			t.Errorf("%s: a model is told %q", c.code, text)
		}
	}
	if open, err := bash.FindUnfinished(t.Context(), b.Entries(t.Context()), b.kept); err != nil || len(open) > 0 {
		t.Errorf("%+v, %v", open, err)
	}
}

func TestWhatDoesNotFitIsAnArtifactOfTheRun(t *testing.T) {
	b, k := newBench(t), kernel(t, Options{})
	res := b.run(t, k, "for i in range(100000): print(i)")
	m, f := b.last(t)
	if f.Artifact == nil || f.Artifact.Lines != 100000 || !m.Truncated || len(m.Output) > 60000 {
		t.Fatalf("%+v", f)
	}
	info, ok, err := b.kept.ByRun(t.Context(), res.Run)
	if err != nil || !ok || info.Tool != "python" || info.State != artifacts.Complete {
		t.Errorf("%+v, %v, %v", info, ok, err)
	}
}

func TestMuchOutputIsBoundedAndKeptWhole(t *testing.T) {
	size := 1 << 30
	if testing.Short() {
		size = 32 << 20
	}
	b, k := newBench(t), kernel(t, Options{})
	code := "import sys\nb = 'x' * 1023 + '\\n'\nfor _ in range(" + itoa(size/(64<<10)) + "): sys.stdout.write(b * 64)\nprint('end')"
	res := b.run(t, k, code)
	if want := int64(size) + 4; res.Code != 0 || res.Summary.TotalBytes != want || len(res.Output) > 60000 || !strings.Contains(res.Output, "\nend\n") {
		t.Errorf("%d bytes of %d, %d are shown: %+v", res.Summary.TotalBytes, want, len(res.Output), res.Exit)
	}
	if info, ok, err := b.kept.ByRun(t.Context(), res.Run); err != nil || !ok || info.Bytes != int64(size)+4 {
		t.Errorf("%+v, %v", info, err)
	}
	// More than is allowed ends the cell, and not the kernel.
	b.run(t, k, "a = 1")
	res = b.run(t, k, "while True: print('y' * 1000)", func(o *RunOptions) { o.MaxOutput = 1 << 20 })
	if !res.OutputLimit || res.Lost != nil || !strings.Contains(res.Output, "it wrote more than its limit") {
		t.Errorf("%+v", res.Exit)
	}
	if res := b.run(t, k, "a"); *res.Outcome.Result != "1" {
		t.Errorf("%+v", res)
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

const shows = `import base64
class P:
    def __init__(self, n=0): self.n = n
    def _repr_png_(self): return base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==") + bytes(self.n)
`

func TestImagesGoToBlobsAndIntoTheLog(t *testing.T) {
	b, k := newBench(t), kernel(t, Options{})
	res := b.run(t, k, shows+"display(P(), P(5000)); display('<b>x</b>', mime='text/html')")
	m, f := b.last(t)
	if len(res.Images) != 2 || len(m.Images) != 2 || len(f.Displays) != 3 || f.Displays[2].MIMEType != "text/html" || f.Displays[1].Blob != res.Images[1] {
		t.Fatalf("%q, %d, %+v", res.Images, len(m.Images), f)
	}
	for i, ref := range append(res.Images, f.Displays[2].Blob) {
		page, err := b.services.Host("")(t.Context(), "read", []byte(`{"url": "`+ref+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		c := page.(content)
		if got := string(c.Base64); i < 2 && got != string(res.Displays[i].Data) || i == 2 && *c.Text != "<b>x</b>" {
			t.Errorf("%s: %+v", ref, c)
		}
	}
}

func TestCodeAsksItsOwner(t *testing.T) {
	b, k := newBench(t), kernel(t, Options{})
	file := filepath.Join(t.TempDir(), "latin")
	if err := os.WriteFile(file, []byte("\xff\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	res := b.run(t, k, `
u = agentrun.artifact("what it is/../x", "one\ntwo\n")
v = agentrun.artifact("bytes", bytes(range(256)) * 1000)
print(u, agentrun.read(u), agentrun.read(u + ":2"), end="")
print(agentrun.read(v) == bytes(range(256)) * 1000, agentrun.read("`+file+`"))
r = agentrun.bash("echo out; echo err >&2; echo $X; exit 3", env={"X": "x"})
print(repr(r.output), r.exit_code, r.timed_out, r.artifact, r)
print(agentrun.bash("sleep 1000", timeout=0.2).timed_out)
r = agentrun.bash("seq 100000")
print(len(agentrun.read(r.artifact).splitlines()))
import os; os.chdir("/usr"); print(agentrun.bash("pwd"))
import threading
t = [threading.Thread(target=lambda i=i: print(agentrun.read(u + ":1"), end="")) for i in range(8)]
for x in t: x.start()
for x in t: x.join()
for f in (lambda: agentrun.read("artifact://99"), lambda: agentrun.read("/nothing"), lambda: agentrun.task("x"), lambda: agentrun.bash(""), lambda: agentrun.bash("x", timeout=-1)):
    try: print(f())
    except agentrun.Error as e: print("Error:", e)
`)
	want := "artifact://0 one\ntwo\n two\nTrue b'\\xff\\x00'\n'out\\nerr\\nx\\n' 3 False None out\nerr\nx\n\nTrue\n100000\n/usr\n\n" + strings.Repeat("one\ntwo\n", 8)
	head, tail, ok := strings.Cut(res.Output, "Error: ")
	if !ok || head != want || strings.Count(tail, "Error: ") != 4 || !strings.Contains(tail, "agentrun.task: no agents are at work here") || strings.Contains(tail, "Traceback") {
		t.Errorf("%s", res.Output)
	}
	if info, err := b.kept.Lookup(t.Context(), 0); err != nil || info.Run != res.Run {
		t.Errorf("%+v, %v", info, err)
	}
	if res := b.run(t, k, "def late():\n  try: agentrun.read(u)\n  except agentrun.Error as e: return str(e)\nlate()"); !strings.Contains(res.Output, "one") && res.Code != 0 {
		t.Errorf("%s", res.Output)
	}
}

func TestACellThatIsInterruptedWhileItAsksGoesOn(t *testing.T) {
	b, k := newBench(t), kernel(t, Options{})
	b.run(t, k, "u = agentrun.artifact('a', 'x')")
	res := b.run(t, k, "agentrun.bash('sleep 1000', timeout=0)", func(o *RunOptions) { o.Timeout = 300 * time.Millisecond })
	if !res.TimedOut || res.Lost != nil {
		t.Errorf("%+v", res)
	}
	if res := b.run(t, k, "agentrun.read(u)"); *res.Outcome.Result != "'x'" {
		t.Errorf("%+v", res)
	}
}

func TestTaskCallsTheHandlerThatIsSet(t *testing.T) {
	b, k := newBench(t), kernel(t, Options{})
	b.services.Task = func(_ context.Context, args json.RawMessage) (any, error) {
		return map[string]json.RawMessage{"given": args}, nil
	}
	res := b.run(t, k, "agentrun.task('look', agent='a')")
	if *res.Outcome.Result != "{'given': {'args': ['look'], 'kwargs': {'agent': 'a'}}}" {
		t.Errorf("%s", *res.Outcome.Result)
	}
}

func TestAKernelThatCanNotBeStartedIsRecorded(t *testing.T) {
	b := newBench(t)
	k, err := New(Options{Path: "/nothing"})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	res := b.run(t, k, "1")
	if m, _ := b.last(t); res.Code != 127 || *m.ExitCode != 127 || !strings.Contains(m.Output, "name an interpreter that is there") {
		t.Errorf("%+v %+v", res.Exit, m)
	}
}

func TestTheStreamsAreToldApart(t *testing.T) {
	b, k := newBench(t), kernel(t, Options{})
	res := b.run(t, k, "import sys, os; print('a'); print('b', file=sys.stderr); _ = os.system('echo c; echo d >&2')", func(o *RunOptions) { o.Separate = true })
	if res.Streams.Stdout.Text != "a\nc\n" || res.Streams.Stderr.Text != "b\nd\n" {
		t.Errorf("%+v", res.Streams)
	}
}

func TestMalformedInputOfTheToolIsRefused(t *testing.T) {
	tool := &Tool{Dir: "/"}
	for _, in := range []string{``, `{`, `[]`, `1`, `null `, `{"code": 1}`, `{"code": "1", "more": 2}`, `{"code": "1"} {}`, `{"code": "1", "timeout": "x"}`, "{\"code\": \"\xff\""} {
		res, err := tool.Call(context.Background(), []byte(in))
		if err != nil || !res.IsError || !strings.HasPrefix(res.Text, "[") {
			t.Errorf("%q: %+v, %v", in, res, err)
		}
	}
}

func TestAToolCallShowsWhatWasShown(t *testing.T) {
	k := kernel(t, Options{})
	tool := &Tool{Dir: "/", Kernel: k}
	code, _ := json.Marshal(shows + "P()")
	res, err := tool.Call(context.Background(), []byte(`{"code": `+string(code)+`}`))
	if err != nil || res.IsError || len(res.Images) != 1 || res.Text != "[image 1: image/png, 1 x 1 pixels]\n" {
		t.Errorf("%+v, %v", res, err)
	}
	res, err = tool.Call(context.Background(), []byte(`{"code": "pass", "timeout": 99999}`))
	if err != nil || res.IsError || !strings.Contains(res.Text, "Timeout clamped to 1h") {
		t.Errorf("%+v, %v", res, err)
	}
}

func FuzzReadFrame(f *testing.F) {
	k := key{1, 2, 3}
	f.Add(append(append([]byte{0, 0, 0, 2}, k[:]...), "{}"...))
	f.Add([]byte("print"))
	f.Add(append([]byte{255, 255, 255, 255}, k[:]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bytes.NewReader(b), k)
		if err == nil && (len(b) < 20+len(got) || key(b[4:20]) != k || !bytes.Equal(b[20:20+len(got)], got)) {
			t.Errorf("%q is %q", b, got)
		}
	})
}

func TestWhatIsKeptForCodeIsRedacted(t *testing.T) {
	b, k := newBench(t), kernel(t, Options{})
	token := "what-nobody-may-see-7Qx"
	r := redact.New(redact.Options{Values: []string{token}})
	b.services.Bash.Redact = r
	res := b.run(t, k, "u = agentrun.artifact('x', 'it is "+token+" so'); print(agentrun.read(u)); print(agentrun.bash('echo "+token+"'))", func(o *RunOptions) { o.Redact = r })
	if strings.Contains(res.Output, token) || strings.Count(res.Output, "[redacted:") != 2 {
		t.Errorf("%s", res.Output)
	}
}
