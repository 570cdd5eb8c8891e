package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

// stage is a session with a supervisor, and a script that goes on until it is let go.
type stage struct {
	*Client
	t       *testing.T
	manager *session.Manager
	path    string
	dir     string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	c, _ := newClient(t)
	m, err := session.OpenManager(c.Home, session.Options{Durability: session.Flush})
	if err != nil {
		t.Fatal(err)
	}
	info, err := m.Find(t.Context(), c.Session)
	if err != nil {
		t.Fatal(err)
	}
	g := &stage{Client: c, t: t, manager: m, path: info.Path, dir: t.TempDir()}
	if err := syscall.Mkfifo(filepath.Join(g.dir, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

// moved runs a script that prints, becomes a job and waits to be let go.
func (g *stage) moved(f Foreground) *bash.Moved {
	g.t.Helper()
	begun := make(chan struct{})
	once := sync.OnceFunc(func() { close(begun) })
	f.Dir, f.Move, f.Live = g.dir, begun, writer(func(b []byte) { once() })
	f.Script = "echo before; read x <go; echo after $x; exit 7"
	_, m, err := g.Run(g.t.Context(), f)
	if err != nil || m == nil {
		g.t.Fatalf("moved: %v, %v", m, err)
	}
	return m
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// release lets the script go on, and waits for its end.
func (g *stage) release(m *bash.Moved) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, "go"), []byte("x\n"), 0); err != nil {
		g.t.Fatal(err)
	}
	if err := g.Wait(g.t.Context(), *m.Artifact); err != nil {
		g.t.Fatal(err)
	}
}

func (g *stage) open() *session.Session {
	g.t.Helper()
	s, err := g.manager.Open(g.t.Context(), g.path)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { s.Close() })
	return s
}

func (g *stage) take(s *session.Session) []Delivery {
	g.t.Helper()
	d, err := Take(g.t.Context(), s)
	if err != nil {
		g.t.Fatal(err)
	}
	return d
}

// inContext counts how often a model is shown a text.
func (g *stage) inContext(s *session.Session, text string) int {
	g.t.Helper()
	c, err := s.Context(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	n := 0
	for _, m := range c.Messages {
		n += strings.Count(string(m.Entry().Raw()), text)
	}
	return n
}

func TestAScriptThatEndsInTimeIsAnswered(t *testing.T) {
	g := newStage(t)
	res, m, err := g.Run(t.Context(), Foreground{Command: Command{Script: "echo out; echo err >&2; exit 3", Dir: "/"}, Separate: true})
	if err != nil || m != nil || res.Code != 3 || res.Streams == nil || res.Streams.Stderr.Text != "err\n" || res.Summary.Artifact != "" || res.EndEntry == "" {
		t.Errorf("%+v, %v, %v", res, m, err)
	}
	res, _, err = g.Run(t.Context(), Foreground{Command: Command{Script: "echo out", Dir: "/"}, Unrecorded: true})
	if err != nil || res.Code != 0 || res.EndEntry != "" {
		t.Errorf("unrecorded: %+v, %v", res, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	res, _, err = g.Run(ctx, Foreground{Command: Command{Script: "echo out; exec sleep 1000", Dir: "/"}, Live: writer(func([]byte) { cancel() })})
	if err != nil || !res.Cancelled || !strings.HasPrefix(res.Output, "out\n") {
		t.Errorf("cancelled: %+v, %v", res, err)
	}
	if list := g.take(g.open()); len(list) > 0 {
		t.Errorf("to be taken: %+v", list)
	}
	if jobs, err := Jobs(g.Session, g.open().Entries(t.Context())); err != nil || len(jobs) > 0 {
		t.Errorf("jobs: %+v, %v", jobs, err)
	}
}

func TestAMovedScriptIsDeliveredOnce(t *testing.T) {
	for _, unrecorded := range []bool{false, true} {
		t.Run(fmt.Sprintf("unrecorded %v", unrecorded), func(t *testing.T) {
			g := newStage(t)
			s := g.open()
			m := g.moved(Foreground{Unrecorded: unrecorded})
			if m.Summary.View != "before\n" || m.Summary.Artifact != "artifact://0" {
				t.Errorf("%+v", m.Summary)
			}
			if d := g.take(s); len(d) > 0 {
				t.Errorf("taken while it runs: %+v", d)
			}
			if j, err := Find(s.ID(), s.Entries(t.Context()), 0); err != nil || j.State != Running {
				t.Errorf("%+v, %v", j, err)
			}
			if err := g.Send(t.Context(), 0, "x", false); err == nil || !strings.Contains(err.Error(), "reads nothing") {
				t.Errorf("sending: %v", err)
			}
			g.release(m)
			d := g.take(s)
			if len(d) != 1 || d[0].Job.State != Exited || *d[0].Job.ExitCode != 7 || d[0].Output != "before\nafter x\n" || d[0].Job.URL != "job://0" {
				t.Fatalf("%+v", d)
			}
			if again := g.take(s); len(again) > 0 {
				t.Errorf("twice: %+v", again)
			}
			if n := g.inContext(s, "after x"); n != 1 {
				t.Errorf("a model is shown it %d times", n)
			}
		})
	}
}

func TestTheResultComesToTheSessionWhateverBecameOfItMeanwhile(t *testing.T) {
	g := newStage(t)
	first := g.open()
	m := g.moved(Foreground{})
	forked, err := g.manager.Fork(t.Context(), g.path, session.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	to, err := g.manager.Move(t.Context(), g.path, t.TempDir(), session.MoveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g.path = to.Path
	s := g.open() // resumed by somebody else
	if _, err := s.Append(t.Context(), entry.UserText("meanwhile")); err != nil {
		t.Fatal(err)
	}
	g.release(m)
	fork, err := g.manager.Open(t.Context(), forked.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer fork.Close()
	if d := g.take(fork); len(d) > 0 {
		t.Errorf("the fork gets %+v", d)
	}
	if jobs, err := Jobs(fork.ID(), fork.Entries(t.Context())); err != nil || len(jobs) > 0 {
		t.Errorf("the fork has %+v, %v", jobs, err)
	}
	if _, err := Find(fork.ID(), fork.Entries(t.Context()), 0); err == nil || !strings.Contains(err.Error(), "is one of session "+g.Session) {
		t.Errorf("the fork: %v", err)
	}
	if d := g.take(s); len(d) != 1 || d[0].Output != "before\nafter x\n" {
		t.Errorf("%+v", d)
	}
	if n := g.inContext(s, "after x"); n != 1 {
		t.Errorf("a model is shown it %d times", n)
	}
}

func TestTheResultIsToldOnABranchThatDoesNotHaveIt(t *testing.T) {
	g := newStage(t)
	s := g.open()
	at, err := s.Leaf(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := g.moved(Foreground{})
	if _, err := s.Branch(t.Context(), at, session.BranchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), entry.UserText("another way")); err != nil {
		t.Fatal(err)
	}
	g.release(m)
	if n := g.inContext(s, "after x"); n != 0 {
		t.Fatalf("a model is shown it %d times before", n)
	}
	if d := g.take(s); len(d) != 1 {
		t.Errorf("%+v", d)
	}
	if n := g.inContext(s, "after x"); n != 1 {
		t.Errorf("a model is shown it %d times", n)
	}
	if d := g.take(s); len(d) > 0 {
		t.Errorf("twice: %+v", d)
	}
}

func TestOfDriversThatRaceOneGetsTheResult(t *testing.T) {
	g := newStage(t)
	g.release(g.moved(Foreground{}))
	var mu sync.Mutex
	var got []Delivery
	var drivers sync.WaitGroup
	for range 4 {
		s := g.open()
		drivers.Go(func() {
			d, err := Take(context.Background(), s)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, d...)
		})
	}
	drivers.Wait()
	if len(got) != 1 {
		t.Errorf("%d results: %+v", len(got), got)
	}
}

// TestADriverThatIsKilledLosesNoResult kills drivers at any moment of taking: then one of them gets it, or the session has it.
func TestADriverThatIsKilledLosesNoResult(t *testing.T) {
	g := newStage(t)
	g.release(g.moved(Foreground{}))
	taken := 0
	for range 5 {
		cmd := exec.Command("/proc/self/exe", g.Home, g.path)
		cmd.Args[0] = "taker"
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 16)
		n, _ := out.Read(b)
		taken += strings.Count(string(b[:n]), "1")
		if err := cmd.Wait(); err == nil {
			t.Error("a driver was not killed")
		}
	}
	if taken > 1 {
		t.Errorf("it was taken %d times", taken)
	}
	s := g.open()
	left := len(g.take(s))
	if n := g.inContext(s, "after x"); n != 1 || taken+left > 1 {
		t.Errorf("a model is shown it %d times; drivers took %d, %d was left", n, taken, left)
	}
}

// taker takes, says how many, and dies.
func taker(home, path string) {
	m, err := session.OpenManager(home, session.Options{Durability: session.Flush})
	if err != nil {
		return
	}
	s, err := m.Open(context.Background(), path)
	if err != nil {
		return
	}
	d, err := Take(context.Background(), s)
	if err == nil {
		fmt.Println(len(d))
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func TestAJobThatDiedWithItsSupervisorIsDeliveredOnce(t *testing.T) {
	g := newStage(t)
	m := g.moved(Foreground{})
	if err := syscall.Kill(m.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s := g.open()
	for m.Owner.Life() != 0 { // it is reaped by a goroutine of the client
		if t.Context().Err() != nil {
			t.Fatal(errors.New("the supervisor does not die"))
		}
	}
	d := g.take(s)
	if len(d) != 1 || d[0].Job.State != Killed || d[0].Job.ExitCode != nil || !strings.Contains(d[0].Output, "artifact://0") {
		t.Fatalf("%+v", d)
	}
	if again := g.take(s); len(again) > 0 {
		t.Errorf("twice: %+v", again)
	}
	if j, err := Find(s.ID(), s.Entries(t.Context()), 0); err != nil || j.State != Killed || j.Ended != nil {
		t.Errorf("%+v, %v", j, err)
	}
	if n := g.inContext(s, "ended when agentrun's supervisor did"); n != 1 {
		t.Errorf("a model is shown it %d times", n)
	}
}

func TestAClientThatGoesTakesItsScriptAlong(t *testing.T) {
	g := newStage(t)
	got, err := g.connectOrStart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := got.sendJSON(frameRequest, request{Version: version, Op: "foreground", Script: "echo $$ >pid; exec sleep 1000", Dir: exact(g.dir), Cwd: exact(g.dir), Environ: os.Environ()}); err != nil {
		t.Fatal(err)
	}
	var pid int
	for pid == 0 {
		b, _ := os.ReadFile(filepath.Join(g.dir, "pid"))
		if strings.HasSuffix(string(b), "\n") {
			_, _ = fmt.Sscan(string(b), &pid)
		}
	}
	got.Close()
	for syscall.Kill(pid, 0) == nil {
		if t.Context().Err() != nil {
			t.Fatal("it goes on")
		}
	}
}

func TestJobsThatMoveAreLimited(t *testing.T) {
	g := newStage(t)
	for range MaxJobs {
		if _, err := g.Start(t.Context(), Command{Script: "exec sleep 1000", Dir: "/"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.Start(t.Context(), Command{Script: "true", Dir: "/"}); err == nil || !strings.Contains(err.Error(), "as many as it may have") {
		t.Errorf("one more: %v", err)
	}
	refused := ""
	now := make(chan struct{})
	close(now)
	res, m, err := g.Run(t.Context(), Foreground{
		Command: Command{Script: "read x <go; exit 5", Dir: g.dir}, Move: now,
		Refused: func(err error) {
			refused = err.Error()
			_ = os.WriteFile(filepath.Join(g.dir, "go"), []byte("x\n"), 0)
		},
	})
	if err != nil || m != nil || res.Code != 5 || !strings.Contains(refused, "as many as it may have") {
		t.Errorf("%+v, %v, %v, %q", res, m, err, refused)
	}
}

func TestAResultComesOverAsItIs(t *testing.T) {
	signal := "SIGTERM"
	artifact := &bash.FinishArtifact{ID: 0, Bytes: 1 << 40, CRC32C: "0"}
	want := bash.Result{
		Exit:   bash.Exit{Code: 143, Signal: signal, TimedOut: true, Began: time.Unix(7, 0).UTC(), User: 1, PeakMemory: 2, Notes: []string{"a"}},
		Output: "o\n", Run: "r", StartEntry: "s", EndEntry: "e",
		Summary: outputsink.Summary{
			View: "v", TotalBytes: 3, Ranges: []outputsink.LineRange{{First: 1, Last: 2}}, Artifact: "artifact://0",
			ArtifactState: outputsink.ArtifactState{Kind: outputsink.ArtifactCut, Head: 4, Reason: "why"},
		},
		Finish:  bash.Finish{Run: "r", Signal: &signal, Artifact: artifact},
		Streams: &bash.Separated{Stdout: outputsink.Summary{Text: "x"}, Pieces: []bash.Piece{{Stream: "stdout", At: 5, Text: "x"}}},
	}
	b, err := json.Marshal(resultFrame{sentResult: sendable(&want)})
	if err != nil {
		t.Fatal(err)
	}
	var got resultFrame
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.received(), cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Error(diff)
	}
}
