package session_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// moverEnv makes the test binary a process that moves a session back and forth until
// it is killed: "<home> <path> <dir> <dir>...".
const moverEnv = "AGENTRUN_TEST_MOVER"

func init() {
	if job := os.Getenv(moverEnv); job != "" {
		if err := moveForEver(strings.Fields(job)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func moveForEver(job []string) error {
	m, err := session.OpenManager(job[0], session.Options{})
	if err != nil {
		return err
	}
	path, dirs := job[1], job[2:]
	for i := 0; ; i++ {
		moved, err := m.Move(context.Background(), path, dirs[i%len(dirs)], session.MoveOptions{})
		if err != nil && !errors.Is(err, session.ErrLocked) {
			return err
		}
		if err == nil {
			path = moved.Path
		}
		fmt.Println("moved")
	}
}

func TestNothingIsLostWhileASessionIsMoved(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const appenders, each, moves = 4, 40, 15
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	appendOK(t, s, user("first"))
	start := s.Path()
	dirs := []string{t.TempDir(), t.TempDir(), s.CWD()}
	open := func() *session.Session { // as another process would
		other := must(session.OpenManager(m.Home(), session.Options{Durability: session.Flush}))
		return reopen(t, other, start)
	}
	var (
		mu    sync.Mutex // guards acked and kept
		acked = map[string]bool{}
		kept  = map[int64]string{}
		work  sync.WaitGroup
		watch sync.WaitGroup
		seen  []string
	)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all := make(chan struct{})
	for i := range appenders {
		s := open()
		work.Go(func() {
			d := artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID, Where: s})
			for n := range each {
				id, err := s.Append(ctx, user(fmt.Sprint(i, " says ", n)))
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				mu.Lock()
				acked[id] = true
				mu.Unlock()
				if n%8 != 0 {
					continue
				}
				text := fmt.Sprintf("output %d of %d\n", n, i)
				f, err := d.Create(ctx, "bash", artifacts.Provenance{})
				if err == nil {
					_, err = f.Write([]byte(text))
				}
				if err != nil {
					t.Errorf("artifact: %v", err)
					return
				}
				finishOK(t, f, text)
				mu.Lock()
				if have, twice := kept[f.ID()]; twice {
					t.Errorf("number %d was given for %q and %q", f.ID(), have, text)
				}
				kept[f.ID()] = text
				mu.Unlock()
			}
		})
	}
	follower := open()
	watch.Go(func() {
		for e, err := range follower.Watch(ctx, "") {
			if err != nil {
				t.Errorf("watch: %v", err)
				return
			}
			seen = append(seen, e.ID())
			if len(seen) == 1+appenders*each {
				close(all)
				return
			}
		}
	})
	watch.Go(func() {
		lister := must(session.OpenManager(m.Home(), session.Options{}))
		for ctx.Err() == nil {
			l, err := lister.List(ctx, "")
			if err == nil && len(l.Sessions) != 1 {
				t.Errorf("a listing has %d sessions: %+v", len(l.Sessions), l)
				return
			}
			if info, err := lister.Find(ctx, follower.ID()); err != nil && ctx.Err() == nil {
				t.Errorf("find: %v %v", info, err)
				return
			}
		}
	})
	for i := range 2 { // two who move it at once
		work.Go(func() {
			mover := must(session.OpenManager(m.Home(), session.Options{Durability: session.Flush}))
			for n := range moves {
				_, err := mover.Move(ctx, start, dirs[(n+i)%len(dirs)], session.MoveOptions{})
				if err != nil && !errors.Is(err, session.ErrLocked) {
					t.Errorf("move: %v", err)
				}
			}
		})
	}
	work.Wait()
	if !t.Failed() {
		<-all
	}
	cancel()
	watch.Wait()
	got := ids(t, s)
	if want := 1 + appenders*each; len(got) != want || len(acked) != want-1 {
		t.Errorf("%d entries and %d acknowledged, want %d", len(got), len(acked), want)
	}
	if !slices.Equal(seen, got) {
		t.Errorf("the watch saw %d entries, the log has %d, or in another order", len(seen), len(got))
	}
	for id := range acked {
		if !slices.Contains(got, id) {
			t.Errorf("acknowledged entry %s is missing", id)
		}
	}
	for id, text := range kept {
		if have := artifactText(t, s, id); have != text {
			t.Errorf("artifact %d holds %q, want %q", id, have, text)
		}
	}
	noDamage(t, s)
	for _, dir := range dirs {
		if place := placeOf(t, m, start, dir); place != s.Path() {
			holdsNoMove(t, m, place)
		}
	}
}

func TestKill9OfAMoveLeavesOneWholeSession(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("first"))
	id := artifactOf(t, s, "kept\n")
	dirs := []string{t.TempDir(), t.TempDir(), s.CWD()}
	places := map[string]bool{}
	for _, dir := range dirs {
		places[placeOf(t, m, s.Path(), dir)] = true
	}
	n := 1
	for round := range rounds(t) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), moverEnv+"="+strings.Join(append([]string{m.Home(), s.Path()}, dirs...), " "))
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out := must(cmd.StdoutPipe())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Within some move: the pipe is read at other speeds than it is written.
		lines := bufio.NewScanner(out)
		for range 1 + rand.IntN(4) {
			lines.Scan()
		}
		for spin := rand.IntN(1 << 20); spin > 0; spin-- {
		}
		cmd.Process.Kill()
		cmd.Wait()
		if stderr.Len() > 0 {
			t.Fatalf("mover: %s", stderr.String())
		}
		ageTemporaries(t, m.Home())
		again := must(session.OpenManager(m.Home(), session.Options{Report: func(e session.Event) { t.Errorf("round %d: %v", round, e) }}))
		l := must(again.List(t.Context(), ""))
		if len(l.Sessions) != 1 || len(l.Unreadable) > 0 {
			t.Fatalf("round %d: %+v", round, l)
		}
		appendOK(t, s, entry.Body(user(fmt.Sprint("round ", round))))
		n++
		o := must(again.Open(t.Context(), l.Sessions[0].Path))
		if got := ids(t, o); len(got) != n {
			t.Fatalf("round %d: %d entries, want %d", round, len(got), n)
		}
		if got := artifactText(t, o, id); got != "kept\n" {
			t.Fatalf("round %d: the artifact holds %q", round, got)
		}
		for place := range places {
			if place != o.Path() {
				holdsNoMove(t, again, place)
			}
		}
		if o.Path() != placeOf(t, m, o.Path(), o.CWD()) {
			t.Errorf("round %d: it is at %s, of %s", round, o.Path(), o.CWD())
		}
		o.Close()
		if t.Failed() {
			t.FailNow()
		}
	}
}

// pausing calls between once, after the first rename to a name with that in it.
type pausing struct {
	durable.FS
	part    string
	between func()
	once    sync.Once
}

func (p *pausing) RenameNoReplace(from, to string) error {
	err := p.FS.RenameNoReplace(from, to)
	if err == nil && strings.Contains(to, p.part) {
		p.once.Do(p.between)
	}
	return err
}

// TestASessionIsFoundWhileItIsAtNeitherPlace opens one by its old path in the moment in
// which the old log is withdrawn and the copy not yet in place.
func TestASessionIsFoundWhileItIsAtNeitherPlace(t *testing.T) {
	m := newManager(t, session.Options{})
	path := ours(t, m)
	if err := m.Compress(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	type opened struct {
		id  string
		err error
	}
	found := make(chan opened, 1)
	var early *opened
	fsys := &pausing{FS: durable.OS, part: ".tmp-moved-"}
	fsys.between = func() {
		go func() {
			s, err := m.View(context.WithoutCancel(t.Context()), path)
			o := opened{err: err}
			if err == nil {
				o.id = s.ID()
				s.Close()
			}
			found <- o
		}()
		select {
		case o := <-found: // who gives up does so at once
			early = &o
		case <-time.After(200 * time.Millisecond): // who waits waits for us
		}
	}
	mover := must(session.OpenManager(m.Home(), session.Options{FS: fsys}))
	moved := must(mover.Move(t.Context(), path, t.TempDir(), session.MoveOptions{}))
	if early != nil {
		t.Fatalf("it was not waited for: %+v", *early)
	}
	if o := <-found; o.err != nil || o.id != moved.ID {
		t.Fatalf("opened %+v, want %s", o, moved.ID)
	}
}
