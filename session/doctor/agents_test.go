package doctor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session/doctor"
	"github.com/agentrun/agentrun/session/entry"
)

// tells is an entry in which a tool, or the program, says text.
func tells(message string, text string) entry.Body {
	return entry.MessageBody{Message: json.RawMessage(fmt.Sprintf(message, text))}
}

const (
	byTask    = `{"role":"toolResult","toolCallId":"c","toolName":"task","content":[{"type":"text","text":%q}],"timestamp":1}`
	byProgram = `{"role":"custom","customType":"async-result","content":%q,"display":true,"timestamp":1}`
	bySomeone = `{"role":"user","content":%q,"timestamp":1}`
	byRead    = `{"role":"toolResult","toolCallId":"c","toolName":"read","content":[{"type":"text","text":"x"}],"details":{"meta":{"source":{"type":"internal","value":%q}}},"isError":false,"timestamp":1}`
	byFailure = `{"role":"toolResult","toolCallId":"c","toolName":"read","content":[{"type":"text","text":"x"}],"details":{"meta":{"source":{"type":"internal","value":%q}}},"isError":true,"timestamp":1}`
	byCat     = `{"role":"toolResult","toolCallId":"c","toolName":"bash","content":[{"type":"text","text":%q}],"timestamp":1}`
)

func TestAnOutputThatIsCitedAndNotThereIsFound(t *testing.T) {
	for _, tt := range []struct {
		name, message, text string
		want                []string
	}{
		{"as a preview of it says", byTask, `<preview full-output="agent://Anna">first</preview>`, []string{"Anna"}},
		{"as a summary says", byTask, "Output: agent://0-Anna.1-Bob\nResult preview:", []string{"0-Anna.1-Bob"}},
		{"of several", byProgram, `<preview full-output="agent://Anna">x</preview><preview full-output="agent://Bob.v2">y</preview>`, []string{"Anna", "Bob.v2"}},
		{"that was read", byRead, "agent://Anna", []string{"Anna"}},
		{"that could not be read even then", byFailure, "agent://Anna", nil},
		{"that a person writes about", bySomeone, `"agent://Anna"`, nil},
		{"in a file that a tool shows", byCat, `open("agent://Anna")`, nil},
		{"in words of an agent", byTask, "it asks for agent://Anna, which", nil},
		{"of another session", byTask, `full-output="agent://0198f2d3/Anna"`, nil},
		{"without an id", byTask, `full-output="agent://" or "agent://<id>"`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHome(t)
			s := must(h.m.Open(t.Context(), h.log))
			must(s.Append(t.Context(), tells(tt.message, tt.text)))
			must(s.Append(t.Context(), user("go on")))
			s.Close()
			found, sum := examine(t, h.m, doctor.Options{})
			var got []string
			for _, f := range found {
				_, rest, _ := strings.Cut(f.What, "the output of agent ")
				name, _, _ := strings.Cut(rest, " ")
				got = append(got, name)
				if f.Kind != doctor.KindAgentMissing || !f.Unmendable || f.File != h.log || f.Line == nil || *f.Line != 6 {
					t.Errorf("found %+v", f)
				}
			}
			if !slices.Equal(got, tt.want) || sum.Unmendable != len(tt.want) {
				t.Fatalf("found %+v", found)
			}
			for _, name := range tt.want {
				write(t, filepath.Join(h.dir, name+".md"), "what it said\n")
			}
			if found, _ := examine(t, h.m, doctor.Options{}); len(found) > 0 {
				t.Errorf("with its file: %+v", found)
			}
		})
	}
}

func TestAnOutputComesBackFromAnotherHome(t *testing.T) {
	h := newHome(t)
	s := must(h.m.Open(t.Context(), h.log))
	must(s.Append(t.Context(), tells(byTask, `full-output="agent://Anna"`)))
	s.Close()
	output := filepath.Join(h.dir, "Anna.md")
	write(t, output, "what it said\n")
	backup := filepath.Join(t.TempDir(), "backup")
	if err := errors.Join(os.CopyFS(backup, os.DirFS(h.m.Home())), os.Remove(output)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(backup, "Anna.md"), "of another session\n")
	if found, _ := examine(t, h.m, doctor.Options{From: []string{backup}}); len(found) != 1 || found[0].Unmendable || !strings.Contains(found[0].What, backup) {
		t.Fatalf("found %+v", found)
	}
	if found, _ := examine(t, h.m, doctor.Options{Repair: true, From: []string{backup}}); len(found) != 1 || !found[0].Repaired {
		t.Fatalf("repair found %+v", found)
	}
	if text := string(must(os.ReadFile(output))); text != "what it said\n" {
		t.Errorf("it says %q", text)
	}
	if found, _ := examine(t, h.m, doctor.Options{}); len(found) > 0 {
		t.Errorf("a second run finds %+v", found)
	}
}

func TestASubagentsOwnArtifactIsNotTakenForTheOneOfItsSession(t *testing.T) {
	h := newHome(t)
	s := must(h.m.Open(t.Context(), h.nested))
	own := &home{m: h.m, dir: s.ArtifactsDir()}
	own.run(t, s, "of the subagent, under the same number\n")
	s.Close()
	if found, _ := examine(t, h.m, doctor.Options{}); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
}
