package follow_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/follow"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// What happens to a session between two entries; who follows it gets each entry once.
func TestEachEntryComesOnceAndInOrderWhateverHappensToTheSession(t *testing.T) {
	for _, poll := range []bool{false, true} {
		t.Run(map[bool]string{false: "told by the kernel", true: "looking by itself"}[poll], func(t *testing.T) {
			m, s := open(t, session.Options{})
			other := must(session.OpenManager(m.Home(), session.Options{})) // another process
			path := func() string { return must(other.Find(t.Context(), s.ID())).Path }
			rewrite := func(change func(log string) string) {
				t.Helper()
				must(0, os.WriteFile(path(), []byte(change(string(must(os.ReadFile(path()))))), 0o600))
			}
			steps := []struct {
				name string
				do   func()
			}{
				{"nothing", func() {}},
				{"compressed", func() { must(0, other.Compress(t.Context(), path())) }},
				{"appended to, and so plain again", func() {}},
				{"moved", func() { must(other.Move(t.Context(), path(), t.TempDir(), session.MoveOptions{})) }},
				{"moved on", func() { must(other.Move(t.Context(), path(), t.TempDir(), session.MoveOptions{})) }},
				{"replaced by a file of the same content", func() {
					temp := path() + ".tmp"
					must(0, os.WriteFile(temp, must(os.ReadFile(path())), 0o600))
					must(0, os.Rename(temp, path()))
				}},
				{"cut off in the middle of its last line, and written again", func() {
					log := string(must(os.ReadFile(path())))
					must(0, os.Truncate(path(), int64(len(log)-20)))
					rewrite(func(string) string { return log })
				}},
				{"compressed and moved", func() {
					must(0, other.Compress(t.Context(), path()))
					must(other.Move(t.Context(), path(), t.TempDir(), session.MoveOptions{}))
				}},
				{"a line of its header longer", func() { must(0, s.Rename(t.Context(), strings.Repeat("long ", 20), session.TitleUser)) }},
			}
			var got, want []string
			view := must(m.View(t.Context(), s.Path()))
			defer view.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			next := 0
			for ev, err := range follow.Session(ctx, view, follow.Options{Poll: poll}) {
				if err != nil {
					t.Fatalf("behind %s: %v", steps[max(0, next-1)].name, err)
				}
				message, err := ev.Entry.Message()
				if err != nil {
					continue // an entry about the session itself, such as its title
				}
				got = append(got, entry.Text(message))
				if next == len(steps) {
					cancel()
					continue
				}
				steps[next].do()
				text := fmt.Sprint(next, ": ", steps[next].name)
				want = append(want, text)
				must(s.Append(t.Context(), user(text)))
				next++
			}
			if !slices.Equal(got, append([]string{"first"}, want...)) {
				t.Errorf("got %q\nwant %q", got, want)
			}
		})
	}
}
