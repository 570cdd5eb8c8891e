package bundle

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// files is a record of files at these paths.
func files(paths ...string) entry.Custom {
	type place struct {
		Path string `json:"path"`
	}
	type file struct {
		place
		Before *int `json:"before"`
		After  *int `json:"after"`
	}
	data := struct {
		Cause string  `json:"cause"`
		Dirs  []place `json:"dirs"`
		Files []file  `json:"files"`
	}{Cause: "checkpoint"}
	for _, p := range paths {
		data.Dirs = append(data.Dirs, place{filepath.Dir(p)})
		data.Files = append(data.Files, file{place: place{p}})
	}
	return entry.Custom{CustomType: entry.CustomTypeCheckpoint, Data: must(json.Marshal(data))}
}

// intact fails unless the doctor of logs finds nothing and every line has a checksum.
func intact(t *testing.T, m *session.Manager, path string) (text string) {
	t.Helper()
	s := must(m.View(t.Context(), path))
	defer s.Close()
	if damage := must(s.Tree(t.Context())).Damage(); len(damage) > 0 {
		t.Errorf("%s: %v", path, damage)
	}
	text = string(must(os.ReadFile(path)))
	for line := range strings.Lines(text) {
		if !strings.Contains(line, `,"crc":"`) {
			t.Errorf("no checksum: %.200s", line)
		}
	}
	return text
}

func TestAMapMovesSubagentsAndRecordsOfFilesToo(t *testing.T) {
	from, to := newManager(t), newManager(t)
	s := must(from.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	defer s.Close()
	many := make([]string, 900) // in a line of more than a megabyte
	for i := range many {
		many[i] = fmt.Sprintf("/home/ann/notes/%s/%d", strings.Repeat("n", 250)+"/"+strings.Repeat("m", 250)+"/"+strings.Repeat("o", 250), i)
	}
	for _, b := range []entry.Body{
		say("/home/ann/notes/a is what was said"), files("/home/ann/notes/a", "/home/annex/b", "/home/ann"), files(many...),
		entry.Custom{CustomType: "other", Data: json.RawMessage(`{"files":[{"path":"/home/ann/notes/agentrun.checkpoint"}]}`)},
	} {
		must(s.Append(t.Context(), b))
	}
	child := must(from.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	must(child.Append(t.Context(), files("/home/ann/notes/c")))
	must(0, child.Close())
	header, rest, _ := strings.Cut(string(must(os.ReadFile(child.Path()))), "\n")
	must(0, os.Remove(child.Path()))
	nested := filepath.Join(s.ArtifactsDir(), "0-Task.jsonl")
	write(t, nested, header+"\n"+rest)
	// Another program's, without checksums; its last line has no end.
	plain := filepath.Join(s.ArtifactsDir(), "0-Task", "1-Deep.jsonl")
	write(t, plain, `{"type":"session","version":3,"id":"deep","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/home/ann/work","parentSession":"/home/ann/x.jsonl","previousSessionFiles":["/home/ann/y.jsonl"],"kept":[1]}`+"\n"+
		`{"type":"custom","customType":"agentrun.checkpoint","data":{"files":[{"path":"/home/ann/notes/d","before":null,"after":null}]},"id":"1","parentId":null,"timestamp":"2026-11-20T20:17:08.977Z"}`)
	write(t, filepath.Join(s.ArtifactsDir(), "list.jsonl"), `{"path":"/home/ann"}`+"\n")

	file, _ := export(t, from, s, ExportOptions{})
	got := must(Import(t.Context(), to, file, ImportOptions{Map: []session.PathMap{
		{Old: "/home/ann", New: "/Users/bob"}, {Old: "/home/ann/notes", New: "/notes"}, {Old: child.CWD(), New: "/there"},
	}}))
	text := intact(t, to, got.Path)
	for _, want := range []string{
		"/home/ann/notes/a is what was said", `{"path":"/notes/a","before":null`, `{"path":"/home/annex/b","before"`, `"dirs":[{"path":"/notes"},`, `{"path":"/Users/bob","before"`,
		`/899","before"`, `{"path":"/home/ann/notes/agentrun.checkpoint"}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the log", want)
		}
	}
	if n := strings.Count(text, "/home/ann/notes"); n != 2 {
		t.Errorf("%d paths are those of the other machine", n)
	}
	dir := strings.TrimSuffix(got.Path, ".jsonl")
	if text := intact(t, to, filepath.Join(dir, "0-Task.jsonl")); !strings.Contains(text, `"cwd":"/there"`) || !strings.Contains(text, `{"path":"/notes/c"`) {
		t.Errorf("the subagent's log is %.600s", text)
	}
	want := `{"type":"session","version":3,"id":"deep","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/Users/bob/work","parentSession":"/Users/bob/x.jsonl","previousSessionFiles":["/Users/bob/y.jsonl"],"kept":[1]}` + "\n" +
		`{"type":"custom","customType":"agentrun.checkpoint","data":{"files":[{"path":"/notes/d","before":null,"after":null}]},"id":"1","parentId":null,"timestamp":"2026-11-20T20:17:08.977Z"}`
	if text := string(must(os.ReadFile(filepath.Join(dir, "0-Task", "1-Deep.jsonl")))); text != want {
		t.Errorf("the log of a subagent's subagent is %s", text)
	}
	if text := string(must(os.ReadFile(filepath.Join(dir, "list.jsonl")))); text != `{"path":"/home/ann"}`+"\n" {
		t.Errorf("what is no log became %s", text)
	}
}

func TestAMapThatOnlyRecordsOfFilesNeedIsTaken(t *testing.T) {
	from := newManager(t)
	s := must(from.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	defer s.Close()
	must(s.Append(t.Context(), files("/opt/data/a")))
	must(s.Append(t.Context(), show(big("image"))))
	file, _ := export(t, from, s, ExportOptions{})
	to := newManager(t)
	got := must(Import(t.Context(), to, file, ImportOptions{Map: []session.PathMap{{Old: "/opt/data", New: "/srv"}}}))
	if text := intact(t, to, got.Path); !strings.Contains(text, `{"path":"/srv/a"`) {
		t.Errorf("the log is %.600s", text)
	}
	_, err := Import(t.Context(), newManager(t), file, ImportOptions{Map: []session.PathMap{{Old: "/opt/other", New: "/srv"}}})
	if err == nil || !strings.Contains(err.Error(), "nothing of it lies in /opt/other") {
		t.Errorf("a map that fits nothing gives %v", err)
	}
	empty := newManager(t)
	_, _ = Import(t.Context(), empty, file, ImportOptions{Map: []session.PathMap{{Old: "/opt/other", New: "/srv"}}})
	if left := blobs(t, empty); len(left) > 0 {
		t.Errorf("it left %d blobs", len(left))
	}
	if list := must(empty.List(t.Context(), "")); len(list.Sessions)+len(list.Unreadable) > 0 {
		t.Errorf("it left %+v", list)
	}
}

func TestWhatIsDamagedStaysAsItIs(t *testing.T) {
	from, to := newManager(t), newManager(t)
	s := must(from.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	defer s.Close()
	must(s.Append(t.Context(), files("/opt/data/a")))
	log := string(must(os.ReadFile(s.Path())))
	bad := strings.Replace(log, "/opt/data/a", "/opt/data/b", 1)
	write(t, s.Path(), bad)
	write(t, filepath.Join(s.ArtifactsDir(), "0-Task.jsonl"), log)
	hurt := `{"type":"session","version":3,"id":"x","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/opt/data","crc":"00000000"}` + "\n"
	spaced := `{ "type": "session", "version": 3, "id": "y", "cwd": "/else" }` + "\n"
	write(t, filepath.Join(s.ArtifactsDir(), "1-Hurt.jsonl"), hurt)
	write(t, filepath.Join(s.ArtifactsDir(), "2-Spaced.jsonl"), spaced)
	view := must(from.View(t.Context(), s.Path()))
	defer view.Close()
	file, _ := export(t, from, view, ExportOptions{})
	got := must(Import(t.Context(), to, file, ImportOptions{Map: []session.PathMap{{Old: "/opt/data", New: "/srv"}}}))
	if text := string(must(os.ReadFile(got.Path))); text != bad {
		t.Errorf("the log is %s", text)
	}
	for name, want := range map[string]string{"1-Hurt.jsonl": hurt, "2-Spaced.jsonl": spaced} {
		if text := string(must(os.ReadFile(filepath.Join(strings.TrimSuffix(got.Path, ".jsonl"), name)))); text != want {
			t.Errorf("%s became %s", name, text)
		}
	}
	if text := intact(t, to, filepath.Join(strings.TrimSuffix(got.Path, ".jsonl"), "0-Task.jsonl")); !strings.Contains(text, `"/srv/a"`) {
		t.Errorf("the subagent's log is %s", text)
	}
}
