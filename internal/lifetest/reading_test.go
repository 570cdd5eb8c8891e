package lifetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/follow"
	"github.com/agentrun/agentrun/session"
)

// reading is somebody who reads a session again and again while others work on it,
// and somebody who follows it.
type reading struct {
	s      *scene
	away   bool // it may be gone
	stop   context.CancelFunc
	all    sync.WaitGroup
	rounds int

	mu       sync.Mutex // guards followed
	followed []string
	came     chan struct{} // has room for one: something was followed
}

func startReading(s *scene, away bool) *reading {
	ctx, stop := context.WithCancel(s.t.Context())
	r := &reading{s: s, away: away, stop: stop, came: make(chan struct{}, 1)}
	open := func() *session.Manager {
		m, err := session.OpenManager(s.home, session.Options{})
		s.check(err)
		return m
	}
	reader := open()
	if r.tolerable(r.once(ctx, reader)) != nil {
		s.t.Fatal("it cannot be read before anything is done to it")
	}
	r.all.Go(func() {
		for ctx.Err() == nil {
			if err := r.tolerable(r.once(ctx, reader)); err != nil && ctx.Err() == nil {
				s.t.Errorf("somebody who reads meanwhile: %v", err)
				return
			}
			r.rounds++
		}
	})
	followed, err := open().View(s.t.Context(), s.before.Path)
	if err != nil {
		s.check(r.tolerable(err))
		return r
	}
	r.all.Go(func() {
		defer followed.Close()
		for e, err := range follow.Session(ctx, followed, follow.Options{Artifacts: true}) {
			if err != nil {
				if r.tolerable(err) != nil && ctx.Err() == nil {
					s.t.Errorf("somebody who follows: %v", err)
				}
				return
			}
			if e.Chunk != nil {
				continue
			}
			r.mu.Lock()
			r.followed = append(r.followed, e.Entry.ID())
			r.mu.Unlock()
			select {
			case r.came <- struct{}{}:
			default:
			}
		}
	})
	return r
}

// tolerable is an error unless it only says that the session is not there now.
func (r *reading) tolerable(err error) error {
	if r.away && (errors.Is(err, session.ErrNotFound) || errors.Is(err, session.ErrGone) || errors.Is(err, fs.ErrNotExist)) {
		return nil
	}
	return err
}

// once reads everything of the session in every way.
func (r *reading) once(ctx context.Context, m *session.Manager) error {
	l, err := m.List(ctx, "")
	if err != nil || len(l.Unreadable) > 0 {
		return fmt.Errorf("listing: %+v: %w", l, err)
	}
	info, err := m.Find(ctx, r.s.before.ID)
	if err != nil {
		return fmt.Errorf("finding: %w", err)
	}
	for _, path := range []string{info.Path, r.s.before.Path} {
		if err := r.read(ctx, m, path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func (r *reading) read(ctx context.Context, m *session.Manager, path string) error {
	s, err := m.View(ctx, path)
	if err != nil {
		return err
	}
	defer s.Close()
	c, missing, err := s.ContextWith(ctx, session.ContextOptions{Restore: true})
	if err != nil {
		return fmt.Errorf("context: %w", err)
	}
	if len(missing) > 0 || len(c.Messages) == 0 {
		return fmt.Errorf("a context of %d messages, missing %v", len(c.Messages), missing)
	}
	tree, err := s.Tree(ctx)
	if err != nil {
		return fmt.Errorf("tree: %w", err)
	}
	n := 0
	for e, err := range s.Entries(ctx) {
		if err != nil {
			return fmt.Errorf("entries: %w", err)
		}
		if n < len(r.s.before.Entries) && e.ID() != r.s.before.Entries[n].ID {
			return fmt.Errorf("entry %d is %s, and was %s", n, e.ID(), r.s.before.Entries[n].ID)
		}
		n++
	}
	if n < len(r.s.before.Entries) || tree.Len() < len(r.s.before.Entries) {
		return fmt.Errorf("it has %d entries, the tree %d, and there were %d", n, tree.Len(), len(r.s.before.Entries))
	}
	return r.readArtifact(ctx, s)
}

func (r *reading) readArtifact(ctx context.Context, s *session.Session) error {
	a, err := artifacts.Open(s.ArtifactsDir(), artifacts.Options{Where: s}).Open(ctx, 0)
	if err != nil {
		return fmt.Errorf("artifact 0: %w", err)
	}
	defer a.Close()
	size, err := a.Size()
	if err != nil {
		return fmt.Errorf("artifact 0: %w", err)
	}
	b := make([]byte, size)
	if n, err := a.ReadAt(b, 0); int64(n) != size {
		return fmt.Errorf("artifact 0: %w", err)
	}
	if sum(b) != r.s.before.Artifacts[0].Sum {
		return errors.New("artifact 0 holds something else")
	}
	return nil
}

// end has the reading end once all entries of the session have been followed.
func (r *reading) end(after *state) {
	r.s.t.Helper()
	defer r.all.Wait()
	defer r.stop()
	if after == nil || after.Trashed || r.away {
		return
	}
	want := ids(after.Entries)
	late := time.After(20 * time.Second)
	for {
		r.mu.Lock()
		got := slices.Clone(r.followed)
		r.mu.Unlock()
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-r.came:
		case <-late:
			r.s.t.Errorf("somebody who follows was told of\n%v\nand there is\n%v", got, want)
			return
		}
	}
}
