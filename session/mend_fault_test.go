package session_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
)

// wounded is a log with several kinds of damage.
func wounded() string {
	a, b, c := say("a", "null"), say("b", "a"), say("c", "b")
	return headerLine + a + "\n" + b[:70] + "\n" + c + "\nnonsense\n" +
		strings.TrimSuffix(say("d", "c"), "}") + `,"crc":"00000000"}` + "\n" + say("c", "d") + "\n" + say("e", "c") + "\n\x00\x00\x00"
}

func TestEveryFaultOfARepairLeavesTheOldLogOrTheNewOne(t *testing.T) {
	for name, set := range map[string]func(*faultfs.FS, int){
		"EIO":       func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"disk full": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	} {
		for _, cold := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", compressed: ", cold), func(t *testing.T) {
				t.Parallel()
				enumerated(t, t.Name())
				for n := 0; ; n++ {
					if !oneRepairFault(t, n, set, cold) {
						t.Logf("%d operations", n)
						return
					}
				}
			})
		}
	}
}

// oneRepairFault repairs with operation n failing, and reports whether there was one.
func oneRepairFault(t *testing.T, n int, set func(*faultfs.FS, int), cold bool) bool {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	good := must(session.OpenManager(home, session.Options{Durability: session.Flush}))
	old := wounded()
	path := sessionFile(t, good, old)
	if cold {
		if err := good.Compress(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		packed := must(os.ReadFile(path + ".zst"))
		if err := os.WriteFile(path+".zst", packed[:len(packed)-3], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := must(good.Check(t.Context(), path))
	fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
	set(fsys, n)
	_, err := must(session.OpenManager(home, session.Options{FS: fsys})).Repair(t.Context(), path)
	if !fsys.Fired() && err != nil {
		t.Fatalf("no fault, and %v", err)
	}
	after := must(good.Check(t.Context(), path))
	switch {
	case len(after.Damage) == 0:
		s := must(good.View(t.Context(), path))
		// Two entries are called c; the later one has an id of its own now.
		if got := ids(t, s); len(got) != 6 || got[0] != "a" || got[1] != "b" || got[2] != "c" || got[3] != "d" || got[5] != "e" {
			t.Fatalf("operation %d: entries %v", n, got)
		}
		s.Close()
		aside := string(must(os.ReadFile(path + ".damaged")))
		for _, bytes := range []string{say("b", "a")[:70] + "\n", "nonsense\n", `"crc":"00000000"}` + "\n", "\x00\x00\x00\n"} {
			if !strings.Contains(aside, bytes) {
				t.Fatalf("operation %d: %q is nowhere", n, bytes)
			}
		}
	case !slices.Equal(kindsOf(after), kindsOf(before)):
		t.Fatalf("operation %d: damage %v, before %v", n, kindsOf(after), kindsOf(before))
	case err == nil:
		t.Fatalf("operation %d: no error, and the damage is still there", n)
	}
	// Whatever was left, the next repair ends it.
	must(good.Repair(t.Context(), path))
	if c := must(good.Repair(t.Context(), path)); len(c.Damage) > 0 {
		t.Fatalf("operation %d: the next repair leaves %+v", n, c.Damage)
	}
	return fsys.Fired()
}

func TestAKilledRepairLeavesALogThatTheNextOneMends(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	m := newManager(t, session.Options{Durability: session.Flush})
	var content strings.Builder
	content.WriteString(headerLine)
	parent := "null"
	for i := range 2000 {
		id := fmt.Sprint("e", i)
		content.WriteString(say(id, parent) + "\n")
		if i%50 == 7 {
			content.WriteString("nonsense " + id + "\n")
		}
		parent = id
	}
	path := sessionFile(t, m, content.String())
	for range rounds(t) {
		if err := os.WriteFile(path, []byte(content.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Remove(path + ".damaged")
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), repairerEnv+"="+m.Home()+" "+path)
		out := must(cmd.StdoutPipe())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The child names each operation before it does it.
		after := r.IntN(14)
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == after {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
		c := must(m.Check(t.Context(), path))
		if c.Entries != 2000 || len(c.Damage) != 0 && len(c.Damage) != 40 {
			t.Fatalf("killed after %d operations: %d entries, %d stretches of damage", after, c.Entries, len(c.Damage))
		}
		must(m.Repair(t.Context(), path))
		if c := must(m.Check(t.Context(), path)); c.Entries != 2000 || len(c.Damage) != 0 {
			t.Fatalf("repaired again: %d entries, %d stretches of damage", c.Entries, len(c.Damage))
		}
		aside := must(os.ReadFile(path + ".damaged"))
		for i := 7; i < 2000; i += 50 {
			if !bytes.Contains(aside, fmt.Appendf(nil, "nonsense e%d\n", i)) {
				t.Fatalf("killed after %d operations: damaged bytes are gone", after)
			}
		}
	}
}

// repairerEnv makes the test binary a process that repairs: "<home> <path>".
const repairerEnv = "AGENTRUN_TEST_REPAIRER"

// told says each operation on the disk before it is done.
type told struct{ durable.FS }

func (t told) OpenFile(name string, flag int, perm os.FileMode) (durable.File, error) {
	if flag&os.O_CREATE != 0 {
		fmt.Println("create")
	}
	f, err := t.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return toldFile{f}, nil
}

func (t told) Rename(a, b string) error  { fmt.Println("rename"); return t.FS.Rename(a, b) }
func (t told) SyncDir(name string) error { fmt.Println("sync directory"); return t.FS.SyncDir(name) }

type toldFile struct{ durable.File }

func (t toldFile) Write(b []byte) (int, error) { fmt.Println("write"); return t.File.Write(b) }
func (t toldFile) Sync() error                 { fmt.Println("sync"); return t.File.Sync() }

func repairAndTell(job string) error {
	home, path, _ := strings.Cut(job, " ")
	m, err := session.OpenManager(home, session.Options{FS: told{durable.OS}})
	if err != nil {
		return err
	}
	_, err = m.Repair(context.Background(), path)
	return err
}

func TestRepairWhileOthersAppendLosesNothing(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	m := must(session.OpenManager(home, session.Options{Durability: session.Flush}))
	path := sessionFile(t, m, headerLine+say("a", "null")+"\n")
	const writers, each = 4, 60
	acknowledged := make([][]string, writers)
	var wg sync.WaitGroup
	done := make(chan struct{})
	for w := range writers {
		wg.Go(func() {
			// A manager each, as if they were processes.
			s := must(must(session.OpenManager(home, session.Options{Durability: session.Flush})).Open(context.Background(), path))
			defer s.Close()
			for i := range each {
				id, err := s.Append(context.Background(), user(fmt.Sprint(w, " ", i)))
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				acknowledged[w] = append(acknowledged[w], id)
			}
		})
	}
	var hurt sync.WaitGroup
	hurt.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			// Somebody without a lock writes nonsense, and it is taken out again.
			f := must(os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0))
			fmt.Fprintf(f, "nonsense %d\n", n)
			f.Close()
			if _, err := m.Repair(context.Background(), path); err != nil && !errors.Is(err, session.ErrGone) {
				t.Errorf("repair: %v", err)
				return
			}
		}
	})
	wg.Wait()
	close(done)
	hurt.Wait()
	must(m.Repair(t.Context(), path))
	s := reopen(t, m, path)
	noDamage(t, s)
	got := map[string]bool{}
	for _, id := range ids(t, s) {
		if got[id] {
			t.Errorf("id %s twice", id)
		}
		got[id] = true
	}
	for _, list := range acknowledged {
		for _, id := range list {
			if !got[id] {
				t.Errorf("acknowledged entry %s is missing", id)
			}
		}
	}
}
