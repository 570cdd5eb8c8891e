package follow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/follow"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func TestMain(m *testing.M) {
	if home := os.Getenv(followersHome); home != "" {
		os.Exit(followers(home))
	}
	goleak.VerifyTestMain(m)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func user(text string) entry.Body {
	return entry.MessageBody{Message: must(json.Marshal(map[string]any{"role": "user", "content": text, "timestamp": 1}))}
}

func open(t testing.TB, o session.Options) (*session.Manager, *session.Session) {
	t.Helper()
	o.Durability = session.Flush
	m := must(session.OpenManager(filepath.Join(t.TempDir(), "home"), o))
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	t.Cleanup(func() { s.Close() })
	must(s.Append(t.Context(), user("first")))
	return m, s
}

// artifact is one that grows.
type artifact struct {
	t  *testing.T
	f  *artifacts.File
	ix lineindex.Builder
}

func create(t *testing.T, s *session.Session) *artifact {
	d := artifacts.Open(s.ArtifactsDir(), artifacts.Options{})
	return &artifact{t: t, f: must(d.Create(t.Context(), "bash", artifacts.Provenance{}))}
}

func (a *artifact) write(text string) {
	must(a.f.Write([]byte(text)))
	_, _ = a.ix.Write([]byte(text))
}

func (a *artifact) finish() {
	if err := errors.Join(a.f.Finish(a.ix.Index()), a.f.Close()); err != nil {
		a.t.Fatal(err)
	}
}

func TestEntriesAndOutputComeInTheirOrder(t *testing.T) {
	for _, poll := range []bool{false, true} {
		t.Run(map[bool]string{false: "told by the kernel", true: "looking by itself"}[poll], func(t *testing.T) {
			m, s := open(t, session.Options{})
			old := create(t, s)
			old.write("before")
			done := create(t, s)
			done.write("over")
			done.finish()
			var later *artifact
			var got []string
			output := map[int64]string{}
			view := must(m.View(t.Context(), s.Path()))
			defer view.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for ev, err := range follow.Session(ctx, view, follow.Options{Artifacts: true, Poll: poll}) {
				if err != nil {
					t.Fatal(err)
				}
				if c := ev.Chunk; c != nil {
					if have := int64(len(output[c.ID])); c.Offset != have && !(c.ID == 0 && c.Offset == have+int64(len("before"))) {
						t.Fatalf("offset %d of %s behind %d bytes", c.Offset, c.URL(), have)
					}
					output[c.ID] += string(c.Data)
					if output[0] == " and after" && later == nil {
						later = create(t, s)
						later.write(strings.Repeat("x", 100_000))
						later.write("end")
						old.finish()
						later.finish()
						must(s.Append(t.Context(), user("the end of a run")))
					}
					continue
				}
				got = append(got, entry.Text(must(ev.Entry.Message())))
				switch len(got) {
				case 1:
					old.write(" and after")
				case 2:
					if want := strings.Repeat("x", 100_000) + "end"; output[2] != want {
						t.Errorf("artifact 2 has %d bytes of %d when its run ends", len(output[2]), len(want))
					}
					cancel()
				}
			}
			if output[1] != "" || fmt.Sprint(got) != "[first the end of a run]" {
				t.Errorf("entries %q, artifact 1 %q", got, output[1])
			}
		})
	}
}

func TestEntriesComeWhole(t *testing.T) {
	m, s := open(t, session.Options{})
	long := strings.Repeat("long ", 120_000)
	must(s.Append(t.Context(), user(long)))
	view := must(m.View(t.Context(), s.Path()))
	defer view.Close()
	for ev, err := range follow.Session(t.Context(), view, follow.Options{Since: must(s.Leaf(t.Context()))[:0]}) {
		if err != nil {
			t.Fatal(err)
		}
		if text := entry.Text(must(ev.Entry.Message())); text == long {
			break
		} else if text != "first" {
			t.Fatalf("an entry of %d bytes", len(text))
		}
	}
}

func TestASessionThatIsRemovedEndsIt(t *testing.T) {
	m, s := open(t, session.Options{})
	view := must(m.View(t.Context(), s.Path()))
	defer view.Close()
	var last error
	for _, err := range follow.Session(t.Context(), view, follow.Options{Artifacts: true}) {
		if last = err; err == nil {
			must(m.Trash(t.Context(), s.Path()))
		}
	}
	if !errors.Is(last, session.ErrGone) {
		t.Errorf("it ended with %v", last)
	}
}

func TestAnEntryThatIsNotThereIsSaid(t *testing.T) {
	m, s := open(t, session.Options{})
	view := must(m.View(t.Context(), s.Path()))
	defer view.Close()
	for _, err := range follow.Session(t.Context(), view, follow.Options{Since: "nobody"}) {
		if !errors.Is(err, session.ErrNoEntry) {
			t.Errorf("got %v", err)
		}
	}
}
