package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

// number waits until a script has written a number to a file.
func (g *stage) number(name string) int {
	g.t.Helper()
	for {
		b, _ := os.ReadFile(filepath.Join(g.dir, name))
		if n, err := strconv.Atoi(strings.TrimSuffix(string(b), "\n")); err == nil && strings.HasSuffix(string(b), "\n") {
			return n
		}
		if g.t.Context().Err() != nil {
			g.t.Fatal(name, " is not written")
		}
	}
}

// gone waits until a process has ended.
func (g *stage) gone(pid int) {
	g.t.Helper()
	for {
		if s, err := process.ReadStat(pid); err != nil || s.Dead() {
			return
		}
		if g.t.Context().Err() != nil {
			g.t.Fatalf("process %d lives", pid)
		}
	}
}

func (g *stage) find(n int64) Job {
	g.t.Helper()
	s := g.open()
	j, err := Find(s.ID(), s.Entries(g.t.Context()), n)
	if err != nil {
		g.t.Fatal(err)
	}
	return j
}

// below is the shim above a process.
func shimOf(t *testing.T, pid int) int {
	t.Helper()
	s, err := process.ReadStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	return s.Parent
}

func TestAJobWhoseProcessesAreKilledIsKilled(t *testing.T) {
	for what, victim := range map[string]func(t *testing.T, pid int) int{
		"its shell":                 func(_ *testing.T, pid int) int { return pid },
		"the process that owns it":  shimOf,
		"the supervisor":            func(t *testing.T, pid int) int { return shimOf(t, shimOf(t, pid)) },
		"the supervisor, by SIGSEV": func(t *testing.T, pid int) int { return -shimOf(t, shimOf(t, pid)) },
	} {
		t.Run(what, func(t *testing.T) {
			g := newStage(t)
			id, err := g.Start(t.Context(), Command{Script: "(setsid sh -c 'echo $$ >stray; exec sleep 1000' &); echo $$ >shell; while :; do read x <go; done", Dir: g.dir})
			if err != nil {
				t.Fatal(err)
			}
			stray, shell := g.number("stray"), g.number("shell")
			signal := syscall.SIGKILL
			pid := victim(t, shell)
			if pid < 0 {
				pid, signal = -pid, syscall.SIGSEGV
			}
			if err := syscall.Kill(pid, signal); err != nil {
				t.Fatal(err)
			}
			g.gone(pid)
			g.gone(shell)
			g.gone(stray)
			if err := g.Wait(t.Context(), id); err != nil {
				t.Errorf("waiting: %v", err)
			}
			if j := g.find(id); j.State != Killed {
				t.Errorf("%+v", j)
			}
		})
	}
}

func TestWhatIsStoppedDoesNotHoldUpAnEnd(t *testing.T) {
	g := newStage(t)
	// The command itself, its shell, and the process that owns both.
	for what, script := range map[string]string{
		"the command": "sh -c 'echo $$ >pid; kill -STOP $$'", "the shell": "echo $$ >pid; kill -STOP $$", "the owner": "echo $$ >pid; kill -STOP $PPID; read x <go",
	} {
		_ = os.Remove(filepath.Join(g.dir, "pid"))
		id, err := g.Start(t.Context(), Command{Script: script, Dir: g.dir})
		if err != nil {
			t.Fatal(err)
		}
		pid := g.number("pid")
		if err := g.Kill(t.Context(), id, true); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		g.gone(pid)
		if j := g.find(id); j.State != Killed {
			t.Errorf("%s: %+v", what, j)
		}
	}
}

// stopped says whether all threads of a process are: they stop one after another.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		if s, err := process.ReadStat(id); err == nil && s.State != 'T' {
			return false
		}
	}
	return true
}

func TestASupervisorThatIsStoppedIsTold(t *testing.T) {
	g := newStage(t)
	id, err := g.Start(t.Context(), Command{Script: "echo $$ >pid; read x <go; exit 3", Dir: g.dir})
	if err != nil {
		t.Fatal(err)
	}
	pid := shimOf(t, shimOf(t, g.number("pid")))
	greeted, err := g.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer func(d time.Duration) { startWait = d }(startWait)
	startWait = 200 * time.Millisecond
	_ = greeted.stopped.end()
	greeted.watch()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for !stopped(t, pid) {
		time.Sleep(time.Millisecond)
	}
	if _, err = g.ask(t.Context(), greeted, request{Op: "wait", Job: id}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("has been stopped for 200ms: kill -CONT %d", pid)) {
		t.Errorf("a client that was greeted before: %v", err)
	}
	err = g.Kill(t.Context(), id, false)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("kill -CONT %d", pid)) {
		t.Errorf("%v", err)
	}
	if j := g.find(id); j.State != Running {
		t.Errorf("%+v", j)
	}
	startWait = time.Minute
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(g.dir, "go"), []byte("x\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if j := g.find(id); j.State != Exited || *j.ExitCode != 3 {
		t.Errorf("%+v", j)
	}
}

func TestOutputToAClientThatIsGoneEndsTheScriptAndNotTheShell(t *testing.T) {
	g := newStage(t)
	got, err := g.connectOrStart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	script := request{Version: version, Op: "run", Shell: "a", Script: "x=kept; echo $BASHPID >pid; yes", Cwd: exact(g.dir), Environ: os.Environ()}
	if err := got.sendJSON(frameRequest, script); err != nil {
		t.Fatal(err)
	}
	pid := g.number("pid")
	got.Close()
	g.gone(pid)
	var out bytes.Buffer
	var exit bash.Exit
	for ending := true; ending; { // the shell is taken until the script's end is noted
		out.Reset()
		exit, err = (&Shell{Client: g.Client, Name: "a"}).RunScript(t.Context(), &bash.Script{Text: "echo $x", Stdout: &out})
		ending = strings.Contains(strings.Join(exit.Notes, ""), "Another script was running") && t.Context().Err() == nil
	}
	if err != nil || exit.Code != 0 || out.String() != "kept\n" {
		t.Errorf("%q, %+v, %v", out.String(), exit, err)
	}
}

func TestClientsThatComeAtOnceHaveOneSupervisor(t *testing.T) {
	g := newStage(t)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			if _, err := g.Start(context.Background(), Command{Script: "echo $$ >>pids; exec sleep 1000", Dir: g.dir}); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	owners := map[int]bool{}
	s := g.open()
	jobs, err := Jobs(s.ID(), s.Entries(t.Context()))
	if err != nil || len(jobs) != 8 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	for _, j := range jobs {
		owners[j.start.PID] = true
	}
	if len(owners) != 1 {
		t.Errorf("%d supervisors", len(owners))
	}
	if ended, err := g.Stop(t.Context()); err != nil || ended.Jobs != 8 {
		t.Errorf("%+v, %v", ended, err)
	}
}

func TestAJobGoesOnWhenItsArtifactsAreRemoved(t *testing.T) {
	g := newStage(t)
	id, err := g.Start(t.Context(), Command{Script: "echo $$ >pid; echo before; read x <go; seq 1 100000; exit 3", Dir: g.dir})
	if err != nil {
		t.Fatal(err)
	}
	g.number("pid")
	if err := os.RemoveAll(g.open().ArtifactsDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(g.dir, "go"), []byte("x\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	j := g.find(id)
	if j.State != Exited || *j.ExitCode != 3 {
		t.Errorf("%+v", j)
	}
	e, err := g.open().Entry(t.Context(), j.ending)
	if err != nil {
		t.Fatal(err)
	}
	if raw := string(e.Raw()); !strings.Contains(raw, "100000") || !strings.Contains(raw, "artifact") || strings.Contains(raw, `"state":"complete"`) {
		t.Errorf("%s", raw)
	}
}

// record puts the start of a job into a session, as somebody else wrote it.
func record(t *testing.T, s *session.Session, change func(*bash.Start)) {
	t.Helper()
	n := int64(0)
	start := bash.Start{
		Run: uuid.NewString(), Command: "make", Cwd: "/", Artifact: &n, Began: time.Now(), Job: true, Moved: true, Session: s.ID(), Owner: process.Self(),
	}
	change(&start)
	data, err := json.Marshal(start)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), entry.Custom{CustomType: bash.StartType, Data: data}); err != nil {
		t.Fatal(err)
	}
}

func TestAJobOfAnotherBootIsLostAndStaysSo(t *testing.T) {
	g := newStage(t)
	s := g.open()
	record(t, s, func(b *bash.Start) { b.BootID = "of another start" })
	for range 2 {
		if j := g.find(0); j.State != Lost || j.Ended != nil || j.ExitCode != nil {
			t.Errorf("%+v", j)
		}
		d := g.take(s)
		if len(d) > 0 && (d[0].Job.State != Lost || !strings.Contains(d[0].Output, "ended when the machine did")) {
			t.Errorf("%+v", d)
		}
	}
	if n := g.inContext(s, "ended when the machine did"); n != 1 {
		t.Errorf("a model is shown it %d times", n)
	}
}

func TestAJobOfAnotherHostIsLeftAlone(t *testing.T) {
	g := newStage(t)
	s := g.open()
	record(t, s, func(b *bash.Start) { b.Host = "elsewhere" })
	if d := g.take(s); len(d) > 0 {
		t.Errorf("taken: %+v", d)
	}
}

// TestAClockThatJumpsChangesNoState: who lives is told by boots and ticks since then, never by the time of day.
func TestAClockThatJumpsChangesNoState(t *testing.T) {
	for what, began := range map[string]time.Time{"forward": time.Now().AddDate(50, 0, 0), "back": time.Unix(0, 0)} {
		g := newStage(t)
		s := g.open()
		record(t, s, func(b *bash.Start) { b.Began = began })
		if j := g.find(0); j.State != Running {
			t.Errorf("%s: %+v", what, j)
		}
		if d := g.take(s); len(d) > 0 {
			t.Errorf("%s: taken %+v", what, d)
		}
	}
}

func TestTheToolMovesWhatItRuns(t *testing.T) {
	g := newStage(t)
	tool := &bash.Tool{Dir: g.dir, Background: &Background{Client: g.Client}}
	res, err := tool.Call(t.Context(), json.RawMessage(`{"command":"echo before; read x <go; echo after $x","background_after":2}`))
	if err != nil || res.IsError || !strings.HasPrefix(res.Text, "before\n[It goes on in the background as job://0;") || res.Artifact != "artifact://0" {
		t.Fatalf("%+v, %v", res, err)
	}
	n := int64(0)
	g.release(&bash.Moved{Start: bash.Start{Artifact: &n}})
	if d := g.take(g.open()); len(d) != 1 || d[0].Output != "before\nafter x\n" {
		t.Errorf("%+v", d)
	}
	for _, bad := range []string{`{"command":"true","background_after":-1}`, `{"command":"true","background_after":1e9}`, `{"command":"a\u0000b","background_after":1}`} {
		if res, err := tool.Call(t.Context(), json.RawMessage(bad)); err != nil || !res.IsError {
			t.Errorf("%s: %+v, %v", bad, res, err)
		}
	}
	if res, err := (&bash.Tool{}).Call(t.Context(), json.RawMessage(`{"command":"true","background_after":1}`)); err != nil || !res.IsError || !strings.Contains(res.Text, "leave background_after out") {
		t.Errorf("%+v, %v", res, err)
	}
}
