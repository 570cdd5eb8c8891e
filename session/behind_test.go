package session_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func TestBehindIsWhatAContextLacks(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	say := func(on *session.Session, text string) entry.Entry {
		t.Helper()
		return must(on.Entry(t.Context(), must(on.Append(t.Context(), user(text)))))
	}
	first := say(s, "first")
	other := must(m.Open(t.Context(), s.Path()))
	defer other.Close()

	t.Run("nothing is behind the leaf", func(t *testing.T) {
		if got, on, err := s.Behind(t.Context(), first); err != nil || !on || len(got) != 0 {
			t.Errorf("got %v, %v, %v", got, on, err)
		}
	})
	var want []string
	for i := range 5 {
		on := s
		if i%2 == 1 {
			on = other // another process's entries are on the way too
		}
		want = append(want, say(on, fmt.Sprint(i)).ID())
	}
	ids := func(entries []entry.Entry) (ids []string) {
		for _, e := range entries {
			ids = append(ids, e.ID())
		}
		return ids
	}
	t.Run("all that was appended is behind, in its order", func(t *testing.T) {
		got, on, err := s.Behind(t.Context(), first)
		if err != nil || !on || !slices.Equal(ids(got), want) {
			t.Errorf("got %v, %v, %v, want %v", ids(got), on, err, want)
		}
	})
	t.Run("a leaf on another branch is not behind", func(t *testing.T) {
		last := must(s.Entry(t.Context(), want[4]))
		must(s.Branch(t.Context(), want[1], session.BranchOptions{}))
		if got, on, err := s.Behind(t.Context(), last); err != nil || on || got != nil {
			t.Errorf("got %v, %v, %v", ids(got), on, err)
		}
		got, on, err := s.Behind(t.Context(), first)
		if err != nil || !on || len(got) != 3 || !slices.Equal(ids(got)[:2], want[:2]) {
			t.Errorf("got %v, %v, %v, want %v and the branch", ids(got), on, err, want[:2])
		}
	})
	t.Run("a file that another program wrote anew is read from its beginning", func(t *testing.T) {
		last := must(s.Entry(t.Context(), want[1]))
		data := must(os.ReadFile(s.Path()))
		data = bytes.Replace(data, []byte(`"type":"session"`), []byte(`"type":"session","room":"`+strings.Repeat("r", 5000)+`"`), 1)
		temp := s.Path() + ".temp"
		must(0, os.WriteFile(temp, data, 0o600))
		must(0, os.Rename(temp, s.Path()))
		got, on, err := s.Behind(t.Context(), last)
		if err != nil || !on || len(got) != 1 {
			t.Errorf("got %v, %v, %v, want the branch", ids(got), on, err)
		}
	})
}

func TestBackwardIsTheFileFromItsEnd(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	for range s.Backward(t.Context()) {
		t.Fatal("a session without a file yields an entry")
	}
	var want []string
	for i := range 20 {
		want = append(want, must(s.Append(t.Context(), user(fmt.Sprint(i)))))
	}
	var got []string
	for e, err := range s.Backward(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.ID()); len(got) == 15 {
			break
		}
	}
	slices.Reverse(got)
	if !slices.Equal(got, want[5:]) {
		t.Errorf("got %v, want %v", got, want[5:])
	}
}
