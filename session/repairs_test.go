package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// brokenLog needs repairs of several kinds, so that all of it is written again but its
// first entry. brokenWants is what is said in its context then.
var brokenLog = strings.Join([]string{
	foreignHeader, logLine("a", "", asks("hi")), logLine("b", "a", says("yes", "x", "y")), logLine("c", "b", answers("y", "out")),
	logLine("d", "c", asks("well?")), logLine("e", "lost", says("a part")), logLine("f", "e", answers("z", "nothing")),
	logLine("g", "f", `label "targetId":"e","label":"here"`), logLine("h", "g", says("done")),
}, "")

var brokenWants = []string{"hi", "yes -> x -> y", "y: out", "x: interrupted", "well?", "a part", "done"}

// repairedOrNot fails unless the context is that of the log before its repairs or after them,
// and unless a session that is resumed, and repaired now, says what it should.
func repairedOrNot(t *testing.T, m *session.Manager, path string, before []string, later ...string) (repaired bool) {
	t.Helper()
	s := must(m.Open(t.Context(), path))
	defer s.Close()
	want := slices.Concat(brokenWants, later)
	now := must(s.Context(t.Context()))
	got := said(t, now)
	if repaired = slices.Equal(got, want) && len(now.Repairs) == 0; !repaired && !slices.Equal(got, slices.Concat(before, later)) {
		t.Fatalf("the context is neither the old one nor the new one: %q", got)
	}
	r := must(s.Resume(t.Context(), session.ResumeOptions{}))
	if d := cmp.Diff(want, said(t, r.Context)); d != "" {
		t.Fatalf("resumed (-want +got):\n%s", d)
	}
	accepted(t, r.Context)
	must(s.WriteRepairs(t.Context(), session.ResumeOptions{}))
	r = must(s.Resume(t.Context(), session.ResumeOptions{}))
	if d := cmp.Diff(want, said(t, r.Context)); d != "" || len(r.Repairs) > 0 {
		t.Fatalf("after another attempt: repairs %v (-want +got):\n%s", r.Repairs, d)
	}
	if d := cmp.Diff(want, said(t, must(s.Context(t.Context())))); d != "" {
		t.Fatalf("context after another attempt (-want +got):\n%s", d)
	}
	return repaired
}

// contextBefore is what is said in the context of a log without repairs.
func contextBefore(t *testing.T, m *session.Manager, path string) []string {
	t.Helper()
	s := must(m.View(t.Context(), path))
	defer s.Close()
	return said(t, must(s.Context(t.Context())))
}

func TestRepairsThatWereCutShortAreLeftOut(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	path := writeLog(t, m, "s.jsonl", brokenLog)
	before := contextBefore(t, m, path)
	s := reopen(t, m, path)
	must(s.WriteRepairs(t.Context(), session.ResumeOptions{}))
	s.Close()
	all := must(os.ReadFile(path))
	ends := []int{len(brokenLog)}
	for i := len(brokenLog); i < len(all); i++ {
		if all[i] == '\n' {
			ends = append(ends, i/2+ends[len(ends)-1]/2, i, i+1) // in the middle of a line, before its end, behind it
		}
	}
	for _, end := range ends {
		for _, later := range [][]string{nil, {"and on"}, {"and on", "and further"}} {
			if err := os.WriteFile(path, all[:end], 0o600); err != nil {
				t.Fatal(err)
			}
			if len(later) > 0 {
				s := must(m.Open(t.Context(), path))
				for _, text := range later {
					clock++
					appendOK(t, s, entry.UserMessage{Content: entry.PlainText(text), Timestamp: int64(clock)})
				}
				s.Close()
			}
			repaired := repairedOrNot(t, m, path, before, later...)
			if whole := end >= len(all)-1; repaired != whole {
				t.Errorf("%d of %d bytes: repaired is %t", end, len(all), repaired)
			}
		}
	}
	if len(ends) < 15 {
		t.Fatalf("only %d ends", len(ends))
	}
}

func TestEveryFaultLeavesTheOldContextOrTheRepairedOne(t *testing.T) {
	faults := map[string]func(*faultfs.FS, int){
		"EIO":       func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"disk full": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	}
	for name, set := range faults {
		for _, cold := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/compressed %t", name, cold), func(t *testing.T) {
				t.Parallel()
				for n := 0; ; n++ {
					home := filepath.Join(t.TempDir(), "home")
					good := must(session.OpenManager(home, session.Options{Durability: session.Flush}))
					path := writeLog(t, good, "s.jsonl", brokenLog)
					before := contextBefore(t, good, path)
					if cold {
						if err := good.Compress(t.Context(), path); err != nil {
							t.Fatal(err)
						}
					}
					fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
					set(fsys, n)
					bad := must(session.OpenManager(home, session.Options{FS: fsys}))
					s, err := bad.Open(t.Context(), path)
					if err == nil {
						_, err = s.WriteRepairs(t.Context(), session.ResumeOptions{})
						s.Close()
					}
					if !fsys.Fired() && err != nil {
						t.Fatalf("no fault, and %v", err)
					}
					if repaired := repairedOrNot(t, good, path, before); err == nil && !repaired {
						t.Fatalf("operation %d: the repairs were acknowledged and are not there", n)
					}
					if !fsys.Fired() {
						t.Logf("%d operations", n)
						return
					}
				}
			})
		}
	}
}

func TestRepairsAreWorkedOutAnewWhenOthersAppend(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	path := writeLog(t, m, "s.jsonl", brokenLog)
	var wg sync.WaitGroup
	stop, begun := make(chan struct{}), make(chan struct{})
	appended := 0
	wg.Go(func() {
		s := must(m.Open(t.Context(), path))
		defer s.Close()
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := s.Append(t.Context(), entry.Custom{CustomType: "busy"}); err != nil {
					t.Error(err)
					return
				}
				if appended++; appended == 1 {
					close(begun)
				}
			}
		}
	})
	<-begun
	s := reopen(t, m, path)
	must(s.WriteRepairs(t.Context(), session.ResumeOptions{}))
	close(stop)
	wg.Wait()
	if !repairedOrNot(t, m, path, nil) {
		t.Error("not repaired")
	}
	if got := strings.Count(string(must(os.ReadFile(path))), `"busy"`); got < appended {
		t.Errorf("%d entries of the other writer, want %d", got, appended)
	}
}

func TestRepairsWaitForTheLoopThatDrivesTheSession(t *testing.T) {
	m := newManager(t, session.Options{})
	path := writeLog(t, m, "s.jsonl", brokenLog)
	lease, err := reopen(t, m, path).Drive()
	if err != nil {
		t.Fatal(err)
	}
	s := reopen(t, m, path)
	if _, err := s.WriteRepairs(t.Context(), session.ResumeOptions{}); !errors.Is(err, session.ErrLocked) {
		t.Fatalf("error %v", err)
	}
	if got := must(os.ReadFile(path)); string(got) != brokenLog {
		t.Fatal("the log was changed")
	}
	lease.Close()
	must(s.WriteRepairs(t.Context(), session.ResumeOptions{}))
	if labels := must(s.Labels(t.Context())); len(labels) != 2 {
		t.Errorf("labels %v, want that of the old entry and of the new one", labels)
	}
}

func TestRepairsOfOldVersions(t *testing.T) {
	v1 := strings.Join([]string{
		`{"type":"session","id":"s1","timestamp":"2025-11-20T23:33:50.805Z","cwd":"/p"}`,
		`{"type":"message","timestamp":"2025-11-20T23:33:51.000Z",` + asks("hi") + `}`,
		`{"type":"message","timestamp":"2025-11-20T23:33:52.000Z",` + says("yes", "x") + `}`,
		`{"type":"message","timestamp":"2025-11-20T23:33:53.000Z",` + asks("well?") + `}`,
	}, "\n") + "\n"
	v2 := strings.Replace(foreignHeader, `"version":3`, `"version":2`, 1) +
		logLine("a", "", asks("hi")) + logLine("b", "a", says("yes", "x")) + logLine("c", "b", asks("well?"))
	want := []string{"hi", "yes -> x", "x: interrupted", "well?"}
	for name, content := range map[string]string{"1": v1, "2": v2} {
		t.Run("version "+name, func(t *testing.T) {
			m := newManager(t, session.Options{})
			path := writeLog(t, m, "s.jsonl", content)
			s := reopen(t, m, path)
			r := must(s.Resume(t.Context(), session.ResumeOptions{}))
			if d := cmp.Diff(want, said(t, r.Context)); d != "" || len(r.Repairs) != 1 {
				t.Fatalf("repairs %v (-want +got):\n%s", r.Repairs, d)
			}
			if got := must(os.ReadFile(path)); string(got) != content {
				t.Fatal("the log was changed")
			}
			must(s.WriteRepairs(t.Context(), session.ResumeOptions{}))
			s.Close()
			s = reopen(t, m, path)
			r = must(s.Resume(t.Context(), session.ResumeOptions{}))
			if d := cmp.Diff(want, said(t, r.Context)); d != "" || len(r.Repairs) != 0 {
				t.Fatalf("repairs %v (-want +got):\n%s", r.Repairs, d)
			}
			noDamage(t, s)
		})
	}
}

// resumerEnv makes the test binary a process that repairs a session: "<home> <path>".
const resumerEnv = "AGENTRUN_TEST_RESUMER"

func resumeOnce(job string) error {
	home, path, _ := strings.Cut(job, " ")
	m, err := session.OpenManager(home, session.Options{Durability: session.Flush})
	if err != nil {
		return err
	}
	s, err := m.Open(context.Background(), path)
	if err != nil {
		return err
	}
	fmt.Println("begin")
	_, err = s.WriteRepairs(context.Background(), session.ResumeOptions{})
	return err
}

func TestKill9OfRepairsLeavesTheOldContextOrTheNewOne(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	// Large enough for a write that takes a while.
	parts := []string{foreignHeader, logLine("a", "", asks("hi")), logLine("b", "a", says("yes", "x"))}
	want := []string{"hi", "yes -> x", "x: interrupted"}
	parent := "b"
	for i := range 100 {
		text := fmt.Sprint("and ", i, strings.Repeat(" on", 14_000))
		id := fmt.Sprint("m", i)
		parts = append(parts, logLine(id, parent, asks(text)))
		want = append(want, text)
		parent = id
	}
	log := []byte(strings.Join(parts, ""))
	path := writeLog(t, m, "s.jsonl")
	whole, torn := 0, 0
	for i := range rounds(t) {
		if err := os.WriteFile(path, log, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), resumerEnv+"="+m.Home()+" "+path)
		out := must(cmd.StdoutPipe())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
		// The moment is that at which the file has grown that much.
		for grown := int64(len(log)) * int64(i%10) / 10; ; {
			info := must(os.Stat(path))
			if info.Size() > int64(len(log))+grown || cmd.Process.Signal(unix.Signal(0)) != nil || info.Size() > int64(len(log)) && grown == 0 {
				break
			}
			if exited(cmd.Process.Pid) {
				break
			}
		}
		cmd.Process.Kill()
		cmd.Wait()

		data := must(os.ReadFile(path))
		if !bytes.HasPrefix(data, log) {
			t.Fatal("what was in the log was changed")
		}
		s := must(m.Open(t.Context(), path))
		if d := cmp.Diff(want, said(t, must(s.Context(t.Context())))); d != "" {
			t.Fatalf("%d bytes of repairs: context (-want +got):\n%s", len(data)-len(log), d)
		}
		r := must(s.Resume(t.Context(), session.ResumeOptions{}))
		if d := cmp.Diff(want, said(t, r.Context)); d != "" {
			t.Fatalf("resumed (-want +got):\n%s", d)
		}
		if len(r.Repairs) == 0 {
			whole++
		} else if len(data) > len(log) {
			torn++
		}
		s.Close()
	}
	t.Logf("%d rounds: %d repaired, %d cut short", rounds(t), whole, torn)
}

// exited reports whether a child is over and only waits to be waited for.
func exited(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return strings.HasPrefix(rest, "Z")
}
