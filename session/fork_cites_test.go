package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// message is an entry with a message of that JSON.
func message(text string) entry.Body { return entry.MessageBody{Message: json.RawMessage(text)} }

// runArtifact is an artifact that a run wrote.
func runArtifact(t testing.TB, s *session.Session, run, text string) int64 {
	t.Helper()
	d := artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID, Where: s})
	f := must(d.Create(t.Context(), "bash", artifacts.Provenance{Run: run}))
	must(f.Write([]byte(text)))
	finishOK(t, f, text)
	return f.ID()
}

func TestAForkOfAPathHasNothingThatOnlyOthersCite(t *testing.T) {
	if testing.Short() {
		t.Skip("reads megabytes; run without -short")
	}
	for _, n := range []int{0, 200} { // provenance in files, and in a pack
		t.Run(fmt.Sprintf("%d more artifacts", n), func(t *testing.T) {
			m := newManager(t, session.Options{Durability: session.Flush})
			s := newSession(t, m)
			ended := runArtifact(t, s, "r0", "ended\n")
			named := runArtifact(t, s, "r1", "named\n")
			began := runArtifact(t, s, "r2", "began\n")
			long := runArtifact(t, s, "r3", "long\n")
			byAgent := runArtifact(t, s, "r4", "by an agent\n")
			for i := range n {
				runArtifact(t, s, fmt.Sprint("x", i), "SECRET\n")
			}
			secret := runArtifact(t, s, "r5", "SECRET\n")
			d := artifacts.Open(s.ArtifactsDir(), artifacts.Options{})
			for name, text := range map[string]string{
				"Anna.md": "Anna", "Anna.Bob.md": "Bob", "Anna.jsonl": fmt.Sprintf("{\"type\":\"session\"}\n{\"x\":\"artifact://%d\"}\n", byAgent),
				"Anna/0.bash.log": "Anna's", "Eve.md": "SECRET", "Eve.jsonl": "SECRET", "Eve/0.bash.log": "SECRET",
				"Carl.md": "Carl", "draft.txt": "SECRET", fmt.Sprint(secret+1) + ".missing": "SECRET",
			} {
				file := filepath.Join(d.Path(), name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			appendOK(t, s, message(fmt.Sprintf(`{"role":"bashExecution","command":"x","details":{"run":"r0","artifact":{"id":%d}}}`, ended)))
			appendOK(t, s, user(fmt.Sprintf("see artifact://%d:1-3, and agent://Anna.", named)))
			appendOK(t, s, entry.Custom{CustomType: "agentrun.run.start", Data: json.RawMessage(`{"run":"r2"}`)})
			appendOK(t, s, message(`{"role":"toolResult","toolCallId":"c","content":[],"details":{"results":[{"id":"Carl"}]}}`))
			at := appendOK(t, s, user(strings.Repeat("long ", 200_000)+fmt.Sprintf("artifact://%d", long)))
			appendOK(t, s, message(fmt.Sprintf(`{"role":"bashExecution","command":"cat SECRET","details":{"run":"r5","artifact":{"id":%d}}}`, secret)))
			appendOK(t, s, user("agent://Eve"))
			if n > 0 { // so that there is a pack
				forkOf(t, m, s.Path(), session.ForkOptions{})
			}

			fork, forked := forkOf(t, m, s.Path(), session.ForkOptions{At: at, PathOnly: true})
			if len(forked.Artifacts.Failed) > 0 {
				t.Errorf("failed: %v", forked.Artifacts.Failed)
			}
			for id, want := range map[int64]string{ended: "ended\n", named: "named\n", began: "began\n", long: "long\n", byAgent: "by an agent\n"} {
				if got := artifactText(t, fork, id); got != want {
					t.Errorf("artifact %d holds %q", id, got)
				}
				info := must(artifacts.Open(fork.ArtifactsDir(), artifacts.Options{}).Lookup(t.Context(), id))
				if info.Run != fmt.Sprint("r", id) || info.CRC32C == 0 {
					t.Errorf("artifact %d is %+v", id, info)
				}
			}
			for _, name := range []string{"Anna.md", "Anna.Bob.md", "Anna.jsonl", "Anna/0.bash.log", "Carl.md"} {
				if _, err := os.Stat(filepath.Join(fork.ArtifactsDir(), name)); err != nil {
					t.Error(err)
				}
			}
			err := filepath.WalkDir(fork.ArtifactsDir(), func(path string, e os.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				if text := body(t, path); strings.Contains(text, "SECRET") || strings.Contains(text, `"r5"`) || strings.Contains(text, `"x0"`) {
					t.Errorf("%s has it: %q", path, text)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if _, err := artifacts.Open(fork.ArtifactsDir(), artifacts.Options{}).Lookup(t.Context(), secret); !errors.Is(err, artifacts.ErrNotFound) {
				t.Errorf("artifact %d: %v", secret, err)
			}
			if id := artifactOf(t, fork, "its own\n"); id != secret+2 {
				t.Errorf("the next number is %d, and %d was the last", id, secret+1)
			}
		})
	}
}
