package session_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func TestOnlyWorkOnASessionMakesItTheNewest(t *testing.T) {
	slot := `{"type":"title","v":1,"title":"from omp","source":"user","updatedAt":"2026-11-20T20:17:07.977Z","pad":"` + strings.Repeat(" ", 100) + `"}` + "\n"
	for _, tt := range []struct {
		name   string
		before string // a first line of the old session
		cold   bool
		do     func(t *testing.T, s *session.Session, first string)
		worked bool
		moved  bool // the old session comes from another directory
	}{
		{name: "a title", do: func(t *testing.T, s *session.Session, _ string) {
			must(0, s.Rename(t.Context(), "other", session.TitleUser))
		}},
		{name: "a title that needs room", do: func(t *testing.T, s *session.Session, _ string) {
			must(0, s.Rename(t.Context(), strings.Repeat("other ", 300), session.TitleUser))
		}},
		{name: "a title in a slot", before: slot, do: func(t *testing.T, s *session.Session, _ string) {
			must(0, s.Rename(t.Context(), "other", session.TitleUser))
		}},
		{name: "a title of a compressed session", cold: true, do: func(t *testing.T, s *session.Session, _ string) {
			must(0, s.Rename(t.Context(), "other", session.TitleUser))
		}},
		{name: "a label", do: func(t *testing.T, s *session.Session, first string) {
			must(s.Label(t.Context(), first, "here"))
		}},
		{name: "a checkpoint", do: func(t *testing.T, s *session.Session, _ string) {
			must(s.Append(t.Context(), entry.Custom{CustomType: entry.CustomTypeCheckpoint, Data: []byte(`{}`)}))
		}},
		{name: "a move", moved: true, do: func(t *testing.T, s *session.Session, _ string) {}},
		{name: "a move of a compressed session", moved: true, cold: true, do: func(t *testing.T, s *session.Session, _ string) {}},
		{name: "a move of another program's log", moved: true, before: slot, do: func(t *testing.T, s *session.Session, _ string) {}},
		{name: "a message", worked: true, do: func(t *testing.T, s *session.Session, _ string) {
			must(s.Append(t.Context(), user("more")))
		}},
		{name: "a branch", worked: true, do: func(t *testing.T, s *session.Session, first string) {
			must(s.Branch(t.Context(), first, session.BranchOptions{}))
		}},
		{name: "a title and a message", worked: true, do: func(t *testing.T, s *session.Session, first string) {
			must(0, s.Rename(t.Context(), "other", session.TitleUser))
			must(s.Append(t.Context(), user("more")))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newManager(t, session.Options{Durability: session.Flush})
			cwd := t.TempDir()
			made := func(age time.Duration, cwd string) (path, first string) {
				s := must(m.Create(t.Context(), cwd, session.CreateOptions{Title: "one"}))
				first = appendOK(t, s, user("hi"))
				must(0, s.Close())
				if tt.before != "" {
					must(0, os.WriteFile(s.Path(), append([]byte(tt.before), must(os.ReadFile(s.Path()))...), 0o600))
				}
				at := time.Now().Add(-age)
				must(0, os.Chtimes(s.Path(), at, at))
				return s.Path(), first
			}
			from := cwd
			if tt.moved {
				from = t.TempDir()
			}
			old, first := made(2*time.Hour, from)
			newer, _ := made(time.Hour, cwd)
			if tt.cold {
				must(0, m.Compress(t.Context(), old))
			}
			if tt.moved {
				moved := must(m.Move(t.Context(), old, cwd, session.MoveOptions{}))
				old = strings.TrimSuffix(moved.Path, ".zst")
				// There and back again is another state of the same file.
				before := must(os.Stat(moved.Path)).ModTime()
				must(m.Move(t.Context(), old, from, session.MoveOptions{}))
				must(m.Move(t.Context(), old, cwd, session.MoveOptions{}))
				if now := must(os.Stat(moved.Path)).ModTime(); now.Equal(before) || now.Sub(before) > time.Second {
					t.Errorf("modified at %v, and before at %v", now, before)
				}
			}
			listed := must(m.List(t.Context(), cwd)) // which is remembered
			if len(listed.Sessions) != 2 || listed.Sessions[0].Path != newer {
				t.Fatalf("%+v", listed.Sessions)
			}
			s := must(m.Open(t.Context(), old))
			tt.do(t, s, first)
			must(0, s.Close())
			want := newer
			if tt.worked {
				want = old
			}
			if info, ok, err := m.Newest(t.Context(), cwd); err != nil || !ok || info.Path != want {
				t.Errorf("the newest is %s, want %s (%v)", info.Path, want, err)
			}
			for _, info := range must(m.List(t.Context(), cwd)).Sessions {
				if full := must(m.Open(t.Context(), info.Path)); strings.HasPrefix(must(full.Title(t.Context())), "other") != strings.HasPrefix(info.Title, "other") {
					t.Errorf("the list has the title %q of %s", info.Title, info.Path)
				}
			}
		})
	}
}
