package session_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentrun/agentrun/session"
)

// foreignRewrite does what oh-my-pi does: it writes the file as it remembers it
// to a sibling and renames that over it.
func foreignRewrite(path, content string) error {
	temp := path + ".foreign"
	if err := os.WriteFile(temp, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

func TestReadersWritersRenamesAndForeignRewritesAtOnce(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush, Report: func(e session.Event) {
		if e.Kind == session.EventLost {
			t.Errorf("event: %s", e)
		}
	}})
	s := newSession(t, m)
	first := appendOK(t, s, user("first"))
	other := reopen(t, m, s.Path())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()

	var mu sync.Mutex
	acked := map[string]bool{first: true}
	var writers, readers sync.WaitGroup
	progress := make(chan struct{})
	for w := range 4 {
		x := s
		if w%2 == 1 {
			x = other
		}
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				var id string
				var err error
				switch {
				case i%20 == 7 && w < 2:
					err = x.Rename(context.Background(), fmt.Sprint("title ", w, i), session.TitleUser)
				case i%5 == 3:
					id, err = x.AppendUnder(context.Background(), first, user("branch"))
				default:
					id, err = x.Append(context.Background(), user(fmt.Sprint(w, i)))
				}
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
				if id != "" {
					mu.Lock()
					acked[id] = true
					mu.Unlock()
					select {
					case progress <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	writers.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			content, err := os.ReadFile(s.Path())
			if err != nil {
				t.Error(err)
				return
			}
			whole := string(content[:strings.LastIndexByte(string(content), '\n')+1])
			if i%2 == 0 {
				err = foreignRewrite(s.Path(), whole+foreignMsg(fmt.Sprint("foreign", i), first, "x"))
			} else {
				// An append without a lock, and at times without a newline.
				var f *os.File
				if f, err = os.OpenFile(s.Path(), os.O_APPEND|os.O_WRONLY, 0); err == nil {
					_, err = io.WriteString(f, strings.TrimSuffix(foreignMsg(fmt.Sprint("foreign", i), first, "x"), "\n")+strings.Repeat("\n", i%4/2))
					f.Close()
				}
			}
			if err != nil {
				t.Error(err)
			}
			for range 4 { // let ours write in between
				select {
				case <-progress:
				case <-ctx.Done():
				}
			}
		}
	})
	seen := map[string]bool{}
	readers.Go(func() {
		for e, err := range other.Watch(ctx, "") {
			if err != nil {
				t.Errorf("watch: %v", err)
				return
			}
			if seen[e.ID()] {
				t.Errorf("watch: %s twice", e.ID())
				return
			}
			seen[e.ID()] = true
		}
	})
	for _, x := range []*session.Session{s, other} {
		readers.Go(func() {
			for ctx.Err() == nil {
				if _, err := x.Context(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("context: %v", err)
					return
				}
				if _, err := x.Tree(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("tree: %v", err)
					return
				}
				if _, err := x.Title(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("title: %v", err)
					return
				}
				if _, err := x.MaxArtifactID(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("artifacts: %v", err)
					return
				}
				n := 0
				for _, err := range x.Entries(ctx) {
					if err != nil && ctx.Err() == nil {
						t.Errorf("entries: %v", err)
						return
					}
					n++
				}
				if n == 0 && ctx.Err() == nil {
					t.Error("no entries")
					return
				}
			}
		})
	}
	writers.Wait()
	readers.Wait()
	// Whoever wrote looks once more, so that the last rewrite is seen.
	for _, x := range []*session.Session{s, other} {
		if _, err := x.Append(context.Background(), user("last")); err != nil && !errors.Is(err, session.ErrClosed) {
			t.Fatal(err)
		}
	}
	fresh := reopen(t, m, s.Path())
	have := map[string]int{}
	for _, id := range ids(t, fresh) {
		have[id]++
	}
	for id := range acked {
		if have[id] != 1 {
			t.Errorf("entry %s is there %d times", id, have[id])
		}
	}
	d, err := fresh.Damage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range d {
		if x.Kind != session.KindJoined {
			t.Errorf("damage %+v", x)
		}
	}
	left, _ := filepath.Glob(filepath.Dir(s.Path()) + "/.tmp-*")
	t.Logf("%d acknowledged, %d in the file, %d watched, damage %d, left %v", len(acked), len(have), len(seen), len(d), left)
}

func TestAWatchGoesOnAcrossCompressionAndRewrites(t *testing.T) {
	t.Run("told by the kernel", func(t *testing.T) { watchAcrossRewrites(t, false) })
	t.Run("looking by itself", func(t *testing.T) { watchAcrossRewrites(t, true) })
}

func watchAcrossRewrites(t *testing.T, poll bool) {
	m := newManager(t, session.Options{Durability: session.Flush})
	if poll {
		m.Poll()
	}
	s := newSession(t, m)
	other := reopen(t, m, func() string { appendOK(t, s, user("0")); return s.Path() }())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n := 0
	watcher := reopen(t, m, s.Path())
	for _, err := range watcher.Watch(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
		switch n {
		case 1, 3, 5:
			if err := m.Compress(ctx, s.Path()); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(s.Path()); err == nil {
				t.Error("plain is still there")
			}
			appendOK(t, other, user("a"))
		case 2, 4:
			appendOK(t, s, user("b"))
		case 6:
			if err := foreignRewrite(s.Path(), string(must(os.ReadFile(s.Path())))+foreignMsg("f", "", "x")); err != nil {
				t.Fatal(err)
			}
		case 7:
			os.WriteFile(s.Path(), append(must(os.ReadFile(s.Path())), foreignMsg("g", "f", strings.Repeat("x", 100))...), 0o600)
		case 8:
			old := must(os.ReadFile(s.Path()))
			os.WriteFile(s.Path(), []byte(strings.SplitAfterN(string(old), "\n", 2)[0]+foreignMsg("h", "", "x")), 0o600)
		case 9:
			cancel()
		}
	}
	if n != 9 {
		t.Error(n)
	}
}
