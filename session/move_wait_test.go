package session_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

// slowMount is another file system whose copies wait until they may begin.
type slowMount struct {
	mounted
	begun, proceed chan struct{}
}

func (s slowMount) OpenFile(name string, flag int, perm os.FileMode) (durable.File, error) {
	if flag&os.O_CREATE != 0 && strings.HasSuffix(name, "0.bash.log") && strings.HasPrefix(name, s.dir+"/") {
		s.begun <- struct{}{}
		<-s.proceed
	}
	return s.mounted.OpenFile(name, flag, perm)
}

// Time passes in the bubble as soon as everybody waits, so minutes take no time.
func TestWhoMeetsALongMoveWaitsForItAndIsTold(t *testing.T) {
	dir := quickDir(t)
	home, oldCWD, newCWD := filepath.Join(dir, "home"), filepath.Join(dir, "old"), filepath.Join(dir, "new")
	if err := errors.Join(os.Mkdir(oldCWD, 0o700), os.Mkdir(newCWD, 0o700)); err != nil {
		t.Fatal(err)
	}
	good := must(session.OpenManager(home, session.Options{}))
	s := must(good.Create(t.Context(), oldCWD, session.CreateOptions{}))
	appendOK(t, s, user("before"))
	artifactOf(t, s, "kept\n")
	from := s.Path()
	other := must(good.Create(t.Context(), oldCWD, session.CreateOptions{}))
	appendOK(t, other, user("of another session"))
	to := placeOf(t, good, from, newCWD)
	for _, session := range []*session.Session{s, other} {
		if err := session.Close(); err != nil {
			t.Fatal(err)
		}
	}

	synctest.Test(t, func(t *testing.T) {
		fsys := slowMount{mounted{durable.OS, filepath.Dir(to)}, make(chan struct{}), make(chan struct{})}
		mover := must(session.OpenManager(home, session.Options{FS: fsys}))
		var mu sync.Mutex // guards told
		told := map[string]int{}
		open := func(name string) *session.Manager { // as another process would
			return must(session.OpenManager(home, session.Options{FS: fsys.mounted, Report: func(e session.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind != session.EventWaiting || !strings.Contains(e.String(), "is moving it to "+newCWD) {
					t.Errorf("%s is told %v", name, e)
				}
				told[name]++
			}}))
		}
		appender := must(open("appender").Open(t.Context(), from))
		runner := must(open("runner").Open(t.Context(), from))
		defer appender.Close()
		defer runner.Close()

		var work sync.WaitGroup
		work.Go(func() {
			if _, err := mover.Move(t.Context(), from, newCWD, session.MoveOptions{}); err != nil {
				t.Errorf("move: %v", err)
			}
		})
		<-fsys.begun

		// A reader does not wait, and neither does who works on another session.
		v := must(open("reader").View(t.Context(), from))
		if n := len(ids(t, v)); n != 1 {
			t.Errorf("a reader sees %d entries", n)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
		o := must(open("another").Open(t.Context(), other.Path()))
		appendOK(t, o, user("meanwhile"))
		if err := o.Close(); err != nil {
			t.Error(err)
		}
		// Who gives up is told what for.
		impatient, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		i, err := open("impatient").Open(impatient, from)
		if err == nil {
			_, err = i.Append(impatient, user("too late"))
			i.Close()
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who gave up: %v", err)
		}

		work.Go(func() {
			if _, err := appender.Append(t.Context(), user("during")); err != nil {
				t.Errorf("append: %v", err)
			}
		})
		work.Go(func() {
			d := artifacts.Open(runner.ArtifactsDir(), artifacts.Options{LoggedMax: runner.MaxArtifactID, Where: runner})
			f, err := d.Create(t.Context(), "bash", artifacts.Provenance{})
			if err == nil {
				_, err = f.Write([]byte("during\n"))
			}
			if err != nil {
				t.Errorf("artifact: %v", err)
				return
			}
			finishOK(t, f, "during\n")
			if f.ID() != 1 {
				t.Errorf("it has number %d", f.ID())
			}
		})
		work.Go(func() {
			s, err := open("opener").Open(t.Context(), from)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			appendOK(t, s, user("by who came later"))
			s.Close()
		})
		time.Sleep(10 * time.Minute)
		close(fsys.proceed)
		work.Wait()
		for _, name := range []string{"appender", "runner", "opener", "impatient"} {
			if told[name] < 3 {
				t.Errorf("%s was told %d times", name, told[name])
			}
		}
		if told["reader"]+told["another"] > 0 {
			t.Errorf("who had no need to wait did: %v", told)
		}
	})
	moved := reopen(t, good, from)
	if moved.Path() != to || len(ids(t, moved)) != 3 {
		t.Errorf("it is at %s with %d entries", moved.Path(), len(ids(t, moved)))
	}
	for id, want := range []string{"kept\n", "during\n"} {
		if got := artifactText(t, moved, int64(id)); got != want {
			t.Errorf("artifact %d holds %q, want %q", id, got, want)
		}
	}
	holdsNoMove(t, good, from)
}
