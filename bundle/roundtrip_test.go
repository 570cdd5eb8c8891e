package bundle

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
)

// carried is what of an artifact directory goes along.
func carried(files map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range files {
		if artifacts.Carried(name) && !strings.HasSuffix(name, ".index") {
			out[name] = text
		}
	}
	return out
}

func TestASessionComesOutAsItWentIn(t *testing.T) {
	from, to := newManager(t), newManager(t)
	s := rich(t, from)
	file, sum := export(t, from, s, ExportOptions{})
	if sum.Entries != len(entries(t, from, s.Path())) || sum.Artifacts != 2 || sum.Blobs != 3 || len(sum.Missing) > 0 {
		t.Errorf("%+v", sum)
	}
	again, _ := export(t, from, s, ExportOptions{})
	if !bytes.Equal(must(readAll(file)), must(readAll(again))) {
		t.Error("the same session gave two bundles")
	}
	got, err := Import(t.Context(), to, file, ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != s.ID() || got.CWD != s.CWD() || got.Entries != sum.Entries {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(entries(t, from, s.Path()), entries(t, to, got.Path)); diff != "" {
		t.Error(diff)
	}
	if !bytes.Equal(must(os.ReadFile(s.Path())), must(os.ReadFile(got.Path))) {
		t.Error("the log is not the same to the byte")
	}
	dir := strings.TrimSuffix(got.Path, ".jsonl")
	if diff := cmp.Diff(carried(tree(t, s.ArtifactsDir())), tree(t, dir)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(blobs(t, from), blobs(t, to)); diff != "" {
		t.Error("blobs differ")
	}
	if string(must(os.ReadFile(got.Path+".damaged"))) != "damaged bytes\n" {
		t.Error("the damaged bytes did not come along")
	}

	// Numbers and ids go on where they were, and all of it can be read.
	back := must(to.Open(t.Context(), got.Path))
	defer back.Close()
	must(back.Append(t.Context(), say("and on")))
	d := artifacts.Open(dir, artifacts.Options{LoggedMax: back.MaxArtifactID})
	f := must(d.Create(t.Context(), "bash", artifacts.Provenance{}))
	defer f.Close()
	if f.ID() != 41 {
		t.Errorf("the next artifact is %d, want 41, behind the one that is missing", f.ID())
	}
	next := must(d.Reserve(t.Context(), artifacts.AgentID{}, "Explore", artifacts.Provenance{}))
	if next.String() != "1-Explore" {
		t.Errorf("the next agent is %s", next)
	}
	for _, info := range must(d.List(t.Context()))[:2] {
		if info.State != artifacts.Complete && info.State != artifacts.Interrupted {
			t.Errorf("artifact %d is %s: %s", info.ID, info.State, info.Note)
		}
	}
}

// blobs are the blobs of a home.
func blobs(t *testing.T, m *session.Manager) map[string]string {
	all := tree(t, filepath.Join(m.Home(), "blobs"))
	maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasPrefix(name, ".") })
	return all
}

func readAll(r *bytes.Reader) ([]byte, error) {
	data := make([]byte, r.Size())
	_, err := r.ReadAt(data, 0)
	return data, err
}

func TestNothingIsLeftBesideAnImport(t *testing.T) {
	from, to := newManager(t), newManager(t)
	file, _ := export(t, from, rich(t, from), ExportOptions{})
	must(Import(t.Context(), to, file, ImportOptions{}))
	for name := range tree(t, to.Home()) {
		if strings.Contains(name, ".tmp-") || strings.Contains(name, ".leases/") {
			t.Errorf("%s is left", name)
		}
	}
}

func TestSessionsOfAllKindsTravel(t *testing.T) {
	const header = `{"type":"session","version":3,"id":"s1","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/p/x"}`
	const slot = `{"type":"title","v":1,"title":"in the slot","updatedAt":"2026-11-20T20:17:07.977Z","pad":""}`
	padded := strings.Replace(slot, `"pad":""`, `"pad":"`+strings.Repeat(" ", 255-len(slot))+`"`, 1)
	const one = `{"type":"message","id":"a","parentId":null,"timestamp":"2026-11-20T20:17:08.000Z","message":{"role":"user","content":"one","timestamp":1}}`
	const two = `{"type":"message","id":"b","parentId":"a","timestamp":"2026-11-20T20:17:09.000Z","message":{"role":"user","content":"two","timestamp":1}}`
	for _, tt := range []struct {
		name, log, title string
		entries          int
		missing          string // part of what is said to be missing
		cold             bool
	}{
		{name: "a log of another program", log: header + "\n" + one + "\n" + two + "\n", entries: 2},
		{name: "a log whose last line has no newline", log: header + "\n" + one + "\n" + two, entries: 2},
		{name: "a log whose last line is torn", log: header + "\n" + one + "\n" + two[:60], entries: 1, missing: "last 60 bytes are no whole line"},
		{name: "a log with damage", log: header + "\n" + one + "\ngarbage\n" + two + "\n\x00\x00\n", entries: 2},
		{name: "a log with a title slot", log: padded + "\n" + header + "\n" + one + "\n", entries: 1, title: "in the slot"},
		{name: "a log of version 1", log: `{"type":"session","id":"s1","timestamp":"2025-11-20T23:33:50.805Z","cwd":"/p/x","provider":"x"}` + "\n" +
			`{"type":"message","timestamp":"2025-11-20T23:33:51.000Z","message":{"role":"user","content":"one"}}` + "\n", entries: 1},
		{name: "a log of a newer version", log: strings.Replace(header, `"version":3`, `"version":9`, 1) + "\n" + one + "\n", entries: 1},
		{name: "a header and nothing else", log: header + "\n", entries: 0},
		{name: "an id that cannot name a file", log: strings.Replace(header, `"s1"`, `"../../s1"`, 1) + "\n" + one + "\n", entries: 1},
		{name: "a compressed log", log: header + "\n" + one + "\n" + two + "\n", entries: 2, cold: true},
	} {
		for _, mapped := range []bool{false, true} {
			name := tt.name
			if mapped {
				name += ", with another directory"
			}
			t.Run(name, func(t *testing.T) {
				from, to := newManager(t), newManager(t)
				path := filepath.Join(from.Home(), "sessions", "--p-x--", "2026-11-20T20-17-07-977Z_s1.jsonl")
				write(t, path, tt.log)
				if tt.cold {
					must(0, from.Compress(t.Context(), path))
				}
				s := must(from.View(t.Context(), path))
				defer s.Close()
				file, sum := export(t, from, s, ExportOptions{})
				if sum.Entries != tt.entries {
					t.Errorf("%d entries, want %d", sum.Entries, tt.entries)
				}
				if (tt.missing != "") != (len(sum.Missing) == 1) || tt.missing != "" && !strings.Contains(sum.Missing[0].Reason, tt.missing) {
					t.Errorf("missing: %v", sum.Missing)
				}
				o, cwd := ImportOptions{}, "/p/x"
				if mapped {
					o.Map, cwd = []session.PathMap{{Old: "/p", New: "/q/r"}}, "/q/r/x"
				}
				got, err := Import(t.Context(), to, file, o)
				if err != nil {
					t.Fatal(err)
				}
				list := must(to.List(t.Context(), cwd))
				if len(list.Sessions) != 1 || len(list.Unreadable) > 0 || list.Sessions[0].CWD != cwd || list.Sessions[0].Path != got.Path {
					t.Fatalf("%+v", list)
				}
				back := must(to.Open(t.Context(), got.Path))
				defer back.Close()
				if tt.title != "" && must(back.Title(t.Context())) != tt.title {
					t.Errorf("the title is %q", must(back.Title(t.Context())))
				}
				a, b := entries(t, from, path), entries(t, to, got.Path)
				if len(a) != len(b) || tt.name != "a log of version 1" && !cmp.Equal(a, b) { // whose entries have no ids
					t.Error(cmp.Diff(a, b))
				}
			})
		}
	}
}

func TestEveryRecordedSessionTravels(t *testing.T) {
	root := os.Getenv("AGENTRUN_TEST_DATA")
	for dir := must(os.Getwd()); root == "" && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "shared", "data")); err == nil {
			root = filepath.Join(dir, "shared", "data")
		}
	}
	files, _ := filepath.Glob(filepath.Join(root, "pi-sessions", "*.jsonl"))
	more, _ := filepath.Glob(filepath.Join(root, "pi-sessions", "*", "*.jsonl"))
	if files = append(files, more...); root == "" || len(files) == 0 {
		t.Skip("no recorded sessions: set AGENTRUN_TEST_DATA")
	}
	travelled := 0
	for _, path := range files {
		from, to := newManager(t), newManager(t)
		s, err := from.View(t.Context(), path)
		if err != nil {
			t.Logf("%s does not open: %v", filepath.Base(path), err)
			continue
		}
		file, sum := export(t, from, s, ExportOptions{})
		got, err := Import(t.Context(), to, file, ImportOptions{})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		back := must(to.View(t.Context(), got.Path))
		if n := must(back.Tree(t.Context())).Len(); n != sum.Entries || s.ID() != back.ID() || s.CWD() != back.CWD() {
			t.Errorf("%s: %d entries of %d, session %s", path, n, sum.Entries, back.ID())
		}
		raw := must(os.ReadFile(path))
		if whole := must(session.WholeLines(bytes.NewReader(raw), int64(len(raw)))); !bytes.Equal(raw[:whole], must(os.ReadFile(got.Path))) {
			t.Errorf("%s is not the same to the byte", path)
		}
		s.Close()
		back.Close()
		travelled++
	}
	if travelled < 3 {
		t.Errorf("only %d of %d recorded sessions travelled", travelled, len(files))
	}
}

func TestAnIdThatIsTakenGetsANewOne(t *testing.T) {
	from, to := newManager(t), newManager(t)
	s := rich(t, from)
	file, _ := export(t, from, s, ExportOptions{})
	first := must(Import(t.Context(), to, file, ImportOptions{}))
	second := must(Import(t.Context(), to, file, ImportOptions{Map: []session.PathMap{{Old: s.CWD(), New: "/elsewhere"}}}))
	if second.ID == first.ID || second.Was != first.ID || second.CWD != "/elsewhere" {
		t.Fatalf("%+v and %+v", first, second)
	}
	back := must(to.View(t.Context(), second.Path))
	defer back.Close()
	if back.ID() != second.ID || back.Parent() != first.ID {
		t.Errorf("it is %s, its parent %s", back.ID(), back.Parent())
	}
	if diff := cmp.Diff(entries(t, to, first.Path), entries(t, to, second.Path)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(tree(t, strings.TrimSuffix(first.Path, ".jsonl")), tree(t, strings.TrimSuffix(second.Path, ".jsonl"))); diff != "" {
		t.Error(diff)
	}
}

func TestImportsAtOnceGetAnIdEach(t *testing.T) {
	from, to := newManager(t), newManager(t)
	file, _ := export(t, from, rich(t, from), ExportOptions{})
	data := must(readAll(file))
	ids := make(chan string, 4)
	for range cap(ids) {
		go func() {
			got, err := Import(t.Context(), must(session.OpenManager(to.Home(), session.Options{Durability: session.Flush})), bytes.NewReader(data), ImportOptions{})
			if err != nil {
				t.Error(err)
			}
			ids <- got.ID
		}()
	}
	seen := map[string]bool{}
	for range cap(ids) {
		seen[<-ids] = true
	}
	if list := must(to.List(t.Context(), "")); len(seen) != cap(ids) || len(list.Sessions) != cap(ids) {
		t.Errorf("%d ids, %d sessions", len(seen), len(list.Sessions))
	}
}

func TestPathsAreMappedByTheLongestThatFits(t *testing.T) {
	from := newManager(t)
	path := filepath.Join(from.Home(), "sessions", "-x", "s.jsonl")
	write(t, path, `{"type":"session","version":3,"id":"s1","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/home/ann/work","additionalDirectories":["/home/ann","/home/annex","/data"],"parentSession":"/home/ann/old.jsonl","previousSessionFiles":["/home/ann/work/a.jsonl"],"kept":[1]}`+"\n")
	s := must(from.View(t.Context(), path))
	defer s.Close()
	file, _ := export(t, from, s, ExportOptions{})
	to := newManager(t)
	got, err := Import(t.Context(), to, file, ImportOptions{Map: []session.PathMap{{Old: "/home/ann/", New: "/Users/bob"}, {Old: "/home/ann/work", New: "/w"}}})
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(must(os.ReadFile(got.Path))), "\n")
	want := `{"type":"session","version":3,"id":"s1","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/w","additionalDirectories":["/Users/bob","/home/annex","/data"],"parentSession":"/Users/bob/old.jsonl","previousSessionFiles":["/w/a.jsonl"],"kept":[1],"pad":`
	if !strings.HasPrefix(line, want) {
		t.Errorf("the header is %s", line)
	}
}

func TestWhatDoesNotComeAlongIsSaid(t *testing.T) {
	m := newManager(t)
	s := rich(t, m)
	must(0, os.Symlink("/etc/passwd", filepath.Join(s.ArtifactsDir(), "7.bash.log")))
	must(0, os.Symlink("/etc", filepath.Join(s.ArtifactsDir(), "etc")))
	write(t, filepath.Join(s.ArtifactsDir(), "a\nb.txt"), "x")
	blobs := must(os.ReadDir(filepath.Join(m.Home(), "blobs")))
	gone := 0
	for _, b := range blobs {
		if b.Type().IsRegular() && gone == 0 {
			must(0, os.Remove(filepath.Join(m.Home(), "blobs", b.Name())))
			gone++
		}
	}
	file, sum := export(t, m, s, ExportOptions{})
	var said []string
	for _, x := range sum.Missing {
		said = append(said, x.String())
	}
	all := strings.Join(said, "|")
	for _, want := range []string{"artifacts/7.bash.log: it is no regular file", "artifacts/etc: it is no regular file", "a\nb.txt: its name holds control characters", "blob:sha256:", ": the blob is not there"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not said: %s", want, all)
		}
	}
	if sum.Blobs != 2 || sum.Artifacts != 2 {
		t.Errorf("%+v", sum)
	}
	got := must(Import(t.Context(), newManager(t), file, ImportOptions{}))
	if len(got.Missing) != len(sum.Missing) {
		t.Errorf("the import says %v", got.Missing)
	}
}

func TestAnArtifactThatIsStillWrittenArrivesAsWhatItWas(t *testing.T) {
	from, to := newManager(t), newManager(t)
	s := must(from.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	defer s.Close()
	must(s.Append(t.Context(), say("x")))
	f := must(artifacts.Open(s.ArtifactsDir(), artifacts.Options{}).Create(t.Context(), "bash", artifacts.Provenance{Run: "r"}))
	defer f.Close()
	must(f.Write([]byte("one\ntwo\n")))
	file, _ := export(t, from, s, ExportOptions{})
	got := must(Import(t.Context(), to, file, ImportOptions{}))
	list := must(artifacts.Open(strings.TrimSuffix(got.Path, ".jsonl"), artifacts.Options{}).List(t.Context()))
	if len(list) != 1 || list[0].State != artifacts.Partial || list[0].Bytes != 8 || list[0].Run != "r" {
		t.Errorf("%+v", list)
	}
}

func TestExportTakesAConsistentStateOfASessionThatGrows(t *testing.T) {
	from := newManager(t)
	s := must(from.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	defer s.Close()
	must(s.Append(t.Context(), say("first")))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := s.Append(t.Context(), show(big("image"))); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	for range 10 {
		reader := must(from.View(t.Context(), s.Path()))
		file, sum := export(t, from, reader, ExportOptions{})
		reader.Close()
		to := newManager(t)
		got := must(Import(t.Context(), to, file, ImportOptions{}))
		back := must(to.View(t.Context(), got.Path))
		if n := must(back.Tree(t.Context())); n.Len() != sum.Entries || len(n.Damage()) > 0 || len(sum.Missing) > 0 {
			t.Errorf("%d entries of %d, damage %v, missing %v", n.Len(), sum.Entries, n.Damage(), sum.Missing)
		}
		back.Close()
	}
	close(stop)
	<-done
}
