package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
)

func TestWhoHasARemovedSessionOpenGoesOnInTheTrashAndBack(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	appendOK(t, s, user("before"))
	start := s.Path()
	other := reopen(t, must(session.OpenManager(m.Home(), session.Options{})), start)
	d := artifacts.Open(other.ArtifactsDir(), artifacts.Options{LoggedMax: other.MaxArtifactID, Where: other})
	open := must(d.Create(t.Context(), "bash", artifacts.Provenance{})) // a run in flight writes to it
	if _, err := open.Write([]byte("begun, ")); err != nil {
		t.Fatal(err)
	}
	gone := must(m.Trash(t.Context(), start))
	appendOK(t, other, user("in the trash"))
	if !strings.HasPrefix(other.Path(), gone.Dir) {
		t.Errorf("it goes on at %s, the trash is %s", other.Path(), gone.Dir)
	}
	if _, err := open.Write([]byte("ended\n")); err != nil {
		t.Fatal(err)
	}
	finishOK(t, open, "begun, ended\n")
	late := artifactOf(t, other, "later\n")
	if _, err := os.Stat(strings.TrimSuffix(start, ".jsonl")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something of it is where it was: %v", err)
	}
	if reg := must(m.Registry()); len(reg) != 0 {
		t.Errorf("the trash is in the registry: %+v", reg)
	}
	if path := must(m.RestoreTrashed(t.Context(), gone)); path != start {
		t.Fatalf("it is back at %s", path)
	}
	appendOK(t, other, user("after"))
	if other.Path() != start {
		t.Errorf("it goes on at %s", other.Path())
	}
	back := reopen(t, m, start)
	if n := len(ids(t, back)); n != 3 {
		t.Errorf("%d entries, want 3", n)
	}
	for id, text := range map[int64]string{open.ID(): "begun, ended\n", late: "later\n"} {
		if have := artifactText(t, back, id); have != text {
			t.Errorf("artifact %d holds %q, want %q", id, have, text)
		}
	}
	noDamage(t, back)
}

func TestNothingIsLostWhileASessionIsRemovedAndRestored(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const appenders, each, removals = 4, 40, 15
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	appendOK(t, s, user("first"))
	start := s.Path()
	var (
		mu    sync.Mutex // guards acked and kept
		acked = map[string]bool{}
		kept  = map[int64]string{}
		work  sync.WaitGroup
	)
	for i := range appenders {
		own := reopen(t, must(session.OpenManager(m.Home(), session.Options{Durability: session.Flush})), start)
		work.Go(func() {
			d := artifacts.Open(own.ArtifactsDir(), artifacts.Options{LoggedMax: own.MaxArtifactID, Where: own})
			for n := range each {
				id, err := own.Append(context.Background(), user(fmt.Sprint(i, " says ", n)))
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
				f, err := d.Create(context.Background(), "bash", artifacts.Provenance{})
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
	remover := must(session.OpenManager(m.Home(), session.Options{Durability: session.Flush}))
	for range removals {
		gone, err := remover.Trash(t.Context(), start)
		if err == nil {
			_, err = remover.RestoreTrashed(t.Context(), gone)
		}
		if err != nil {
			t.Fatalf("%v", err)
		}
	}
	work.Wait()
	back := reopen(t, m, start)
	got := ids(t, back)
	if want := 1 + appenders*each; len(got) != want || len(acked) != want-1 {
		t.Errorf("%d entries and %d acknowledged, want %d", len(got), len(acked), want)
	}
	for id := range acked {
		if !slices.Contains(got, id) {
			t.Errorf("acknowledged entry %s is missing", id)
		}
	}
	for id, text := range kept {
		if have := artifactText(t, back, id); have != text {
			t.Errorf("artifact %d holds %q, want %q", id, have, text)
		}
	}
	noDamage(t, back)
}
