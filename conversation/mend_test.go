package conversation_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
	"github.com/agentrun/agentrun/session"
)

// loseEach takes every blob of a state away but the state itself, one at a time.
func loseEach(t *testing.T, log []byte, each func(lost blobref.Ref, data []byte, s *conversation.State)) {
	t.Helper()
	store := memory.New(blobstore.Verified)
	p := project(t, store, log)
	var all []blobref.Ref
	for r, err := range conversation.Walk(t.Context(), store, p.Root, conversation.Limits{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	for i, r := range all[1:] {
		if len(all) > 200 && i > 20 && i%11 != 0 {
			continue // the root, the upper nodes and some of each kind
		}
		data, err := store.Get(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.Clone(data)
		if err := store.Delete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		each(r, data, load(t, store, p.Root))
		if err := store.Set(t.Context(), r, data); err != nil {
			t.Fatal(err)
		}
	}
}

// What is said twice, in the lines of the log and in the turns, is there without either.
func TestAnyBlobMayBeMissingAndEveryTurnIsInThePathOfTheSession(t *testing.T) {
	long := strings.Repeat("long ", 30_000) // a line of several chunks
	for name, log := range map[string][]byte{
		"short turns":             manyTurns(6),
		"a long line":             bytes.Replace(manyTurns(6), []byte("answer 3"), []byte(long+"answer 3"), 1),
		"no newline at the end":   bytes.TrimSuffix(manyTurns(6), []byte("\n")),
		"nodes below nodes":       manyTurns(70),
		"an older version":        bytes.Replace(manyTurns(6), []byte(`"version":3`), []byte(`"version":2`), 1),
		"a line that is no entry": bytes.Replace(manyTurns(6), []byte("\n{\"type\":\"message\",\"id\":\"u3\""), []byte("\nnonsense\n{\"type\":\"message\",\"id\":\"u3\""), 1),
	} {
		t.Run(name, func(t *testing.T) {
			turns := bytes.Count(log, []byte("question"))
			loseEach(t, log, func(lost blobref.Ref, data []byte, s *conversation.State) {
				m, err := session.OpenManager(t.TempDir(), session.Options{})
				if err != nil {
					t.Fatal(err)
				}
				got, err := conversation.Import(t.Context(), m, s, conversation.ImportOptions{})
				if err != nil {
					t.Fatalf("without %.40q: %v", data, err)
				}
				back, r := restore(t, s)
				switch {
				case len(r.Holes) == 0 && !bytes.Equal(back, log):
					t.Fatalf("without %.40q: another log, and no hole", data)
				case len(r.Holes) == 0:
					return // nothing of the log
				case r.Exact || r.Holes[0].ID != lost || !errors.Is(r.Holes[0], blobstore.ErrNotFound):
					t.Fatalf("without %.40q: %+v", data, r)
				}
				one, err := m.Open(t.Context(), got.Path)
				if err != nil {
					t.Fatal(err)
				}
				p, err := conversation.NewSessionProjector(m, one, memory.New(blobstore.Verified)).Project(t.Context())
				if err := errors.Join(err, one.Close()); err != nil {
					t.Fatal(err)
				}
				if p.Turns != turns {
					t.Errorf("without %.40q: %d turns in the path of %d; %d known, %d converted", data, p.Turns, turns, r.Known, r.Converted)
				}
				for i := range turns {
					for _, what := range []string{"question ", "answer "} {
						if text := what + string('0'+rune(i%10)); i < 10 && !bytes.Contains(back, []byte(text)) {
							t.Errorf("without %.40q: there is no %s", data, text)
						}
					}
				}
			})
		})
	}
}
