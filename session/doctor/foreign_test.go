package doctor_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/doctor"
)

func TestATranscriptOfAnotherProgramInTheHomeIsDiagnosedAndNeverChanged(t *testing.T) {
	whole := claude("a", "null", `"one"`) + "\n" + claude("bb", "a", `"two"`) + "\n"
	rollout := codexMeta + "\n" + codexCall + "\n" + codexDone + "\n"
	summary := `{"type":"summary","summary":"x","leafUuid":"a"}` + "\n"
	for _, tt := range []struct {
		name, content string
		kinds         int
	}{
		{"of Claude Code", whole, 0},
		{"of Claude Code, with a summary first", summary + whole, 0},
		{"of Claude Code, torn", whole + claude("ccc", "bb", `"three"`)[:70], 1},
		{"of Claude Code, with zeros first", "\x00\x00\x00\n" + whole, 1},
		{"of Codex", rollout, 0},
		{"of Codex, torn", rollout + codexCall[:50], 1},
	} {
		for _, name := range []string{"1b2c.jsonl", "2026-01-20T14-00-00-000Z_0199f15d-e000-7000-8000-000000000001.jsonl"} {
			t.Run(tt.name+" as "+name[:4], func(t *testing.T) {
				m := must(session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{}))
				path := filepath.Join(m.Home(), "sessions", "--srv--", name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				write(t, path, tt.content)
				found, sum := examine(t, m, doctor.Options{Repair: true})
				if len(found) != tt.kinds || sum.Logs != 1 || sum.Repaired != 0 {
					t.Errorf("%+v, %+v", found, sum)
				}
				for _, f := range found {
					if !f.Unmendable || !strings.Contains(f.What, "another program's and stays as it is") {
						t.Error(f)
					}
				}
				if _, err := m.Repair(t.Context(), path); !errors.Is(err, session.ErrForeign) {
					t.Error("Repair:", err)
				}
				if got := string(must(os.ReadFile(path))); got != tt.content {
					t.Errorf("it was changed: %.300q", got)
				}
			})
		}
	}
}

func TestALostHeaderAboveEntriesOfASessionIsMendedWhateverElseStandsThere(t *testing.T) {
	m := must(session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{}))
	path := filepath.Join(m.Home(), "sessions", "--srv--", "s.jsonl")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, path, `{"sessionId":"x"}`+"\n"+`{"type":"custom","id":"a","parentId":null,"timestamp":"2026-01-20T14:00:00.000Z","customType":"x"}`+"\n")
	if _, err := m.Repair(t.Context(), path); err != nil {
		t.Error(err)
	}
}
