package session_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/session"
)

// anyLine draws an entry of whatever kind, with a parent that may be anywhere or nowhere.
func anyLine(t *rapid.T, i int) string {
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	id := ids[i%len(ids)]
	if rapid.IntRange(0, 9).Draw(t, "unique") > 0 {
		id += fmt.Sprint(i)
	}
	parent := ""
	switch rapid.IntRange(0, 11).Draw(t, "parent") {
	case 0:
		parent = "nowhere"
	case 1:
		parent = rapid.SampledFrom(ids).Draw(t, "by name") + fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "of"))
	case 2:
		parent = rapid.SampledFrom(ids).Draw(t, "by name")
	case 3:
	default:
		parent = ids[(i+len(ids)-1)%len(ids)] + fmt.Sprint(i-1)
	}
	call := fmt.Sprint("x", rapid.IntRange(0, 2).Draw(t, "call"))
	text := fmt.Sprint("text ", i)
	switch rapid.IntRange(0, 13).Draw(t, "kind") {
	case 0, 1:
		return logLine(id, parent, says(text, call))
	case 2, 3, 4:
		return logLine(id, parent, answers(call, text))
	case 5:
		return logLine(id, parent, says(text, call, "y"))
	case 6:
		return logLine(id, parent, fails(call))
	case 7:
		return logLine(id, parent, says(""))
	case 8:
		return logLine(id, parent, fmt.Sprintf(`compaction "summary":"s%d","firstKeptEntryId":"%s%d","tokensBefore":1`, i, ids[max(0, i-2)%len(ids)], i-2))
	case 9:
		return logLine(id, parent, `model_change "model":"p/`+fmt.Sprint(i)+`"`)
	case 10:
		return logLine(id, parent, `label "targetId":"`+ids[0]+`0","label":"l"`)
	case 11:
		return logLine(id, parent, shows(missingBlob))
	case 12:
		return logLine(id, parent, `reset_boundary `)
	}
	return logLine(id, parent, asks(text))
}

// TestWhateverIsInALogItIsRepairedOnce draws logs that no program would write: there is
// always a context that providers accept, writing its repairs changes no line, and then
// there is nothing to repair.
func TestWhateverIsInALogItIsRepairedOnce(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	path := writeLog(t, m, "s.jsonl")
	rapid.Check(t, func(rt *rapid.T) {
		log := foreignHeader
		for i := range rapid.IntRange(1, 12).Draw(rt, "entries") {
			log += anyLine(rt, i)
		}
		for _, name := range must(filepath.Glob(strings.TrimSuffix(path, ".jsonl") + "*")) {
			if err := os.Remove(name); err != nil {
				rt.Fatal(err)
			}
		}
		if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
			rt.Fatal(err)
		}
		s, err := m.Open(t.Context(), path)
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Close()
		fail := func(format string, args ...any) {
			rt.Helper()
			rt.Fatalf("%s\n%s", fmt.Sprintf(format, args...), must(os.ReadFile(path)))
		}
		found, err := s.Resume(t.Context(), session.ResumeOptions{})
		if err != nil {
			fail("resume: %v", err)
		}
		accepted(t, found.Context)
		want := said(t, found.Context)
		written, err := s.WriteRepairs(t.Context(), session.ResumeOptions{})
		if err != nil {
			fail("writing repairs: %v", err)
		}
		if d := cmp.Diff(want, said(t, written.Context)); d != "" {
			fail("repairs %s; written (-want +got):\n%s", kinds(found.Repairs), d)
		}
		if !bytes.HasPrefix(must(os.ReadFile(path)), []byte(log)) {
			fail("a line was changed")
		}
		again, err := s.Resume(t.Context(), session.ResumeOptions{})
		if err != nil || len(again.Repairs) > 0 {
			fail("repairs %s; then %+v, %v", kinds(found.Repairs), again.Repairs, err)
		}
		before, after := found.Context.Settings, again.Context.Settings
		if !before.ExplicitModel {
			before.Models, after.Models = nil, nil // taken from answers, of which some may be left out
		}
		if d := cmp.Diff(before, after); d != "" {
			fail("settings (-want +got):\n%s", d)
		}
		if len(found.Repairs) > 0 {
			c, err := s.Context(t.Context())
			if err != nil || len(c.Repairs) > 0 {
				fail("context: %v, %v", c, err)
			}
			if d := cmp.Diff(want, said(t, c)); d != "" {
				fail("repairs %s; context (-want +got):\n%s", kinds(found.Repairs), d)
			}
		}
	})
}
