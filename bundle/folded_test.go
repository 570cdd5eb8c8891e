package bundle

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
)

// repeats makes the log at path one that is folded when it is compressed, and
// compresses it.
func repeats(t testing.TB, m *session.Manager, path string, seed uint64) (text string) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	words := func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			fmt.Fprintf(&b, "%x ", r.Uint64())
		}
		return b.String()
	}
	plain := must(os.ReadFile(path))
	history := words(200_000)
	for i := range 8 {
		plain = fmt.Appendf(plain, `{"type":"custom","customType":"x","id":"e%d","parentId":null,"timestamp":"2026-11-20T20:17:08.000Z","data":[%s,%s]}`+"\n",
			i, must(json.Marshal(words(60_000))), must(json.Marshal(history)))
	}
	write(t, path, string(plain))
	if err := m.Compress(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	return string(plain)
}

func readLog(t testing.TB, m *session.Manager, path string) string {
	t.Helper()
	l := must(m.OpenLog(path))
	defer l.Close()
	return string(must(io.ReadAll(io.NewSectionReader(l, 0, l.Size()))))
}

func TestFoldedSessionsTravel(t *testing.T) {
	m := newManager(t)
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	must(s.Append(t.Context(), say("hello")))
	path, nested := s.Path(), filepath.Join(s.ArtifactsDir(), "0-Task.jsonl")
	must(0, s.Close())
	child := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	must(child.Append(t.Context(), say("a subagent")))
	must(0, child.Close())
	write(t, nested, string(must(os.ReadFile(child.Path()))))
	must(0, os.Remove(child.Path()))
	want, wantNested := repeats(t, m, path, 1), repeats(t, m, nested, 2)
	if len(must(filepath.Glob(filepath.Join(m.Home(), "kept-blobs", "[0-9a-f]*")))) < 2 {
		t.Fatal("nothing was folded")
	}

	s = must(m.View(t.Context(), path))
	defer s.Close()
	file, sum := export(t, m, s, ExportOptions{})
	if len(sum.Missing) > 0 {
		t.Errorf("missing: %v", sum.Missing)
	}
	to := newManager(t)
	got := must(Import(t.Context(), to, file, ImportOptions{}))
	if text := readLog(t, to, got.Path); strings.TrimSpace(text) != strings.TrimSpace(want) {
		t.Errorf("%d bytes of %d came over", len(text), len(want))
	}
	if text := readLog(t, to, filepath.Join(strings.TrimSuffix(got.Path, ".jsonl"), "0-Task.jsonl")); text != wantNested {
		t.Errorf("%d bytes of %d of the nested session came over", len(text), len(wantNested))
	}
}

func TestAMapMovesCompressedLogsOfSubagentsToo(t *testing.T) {
	m := newManager(t)
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	defer s.Close()
	must(s.Append(t.Context(), say("hello")))
	head := `{"type":"session","version":3,"id":"child","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/home/ann","parentSession":"/home/ann/x.jsonl"}` + "\n" +
		`{"type":"custom","customType":"agentrun.checkpoint","id":"c1","parentId":null,"timestamp":"2026-11-20T20:17:08.000Z","data":{"files":[{"path":"/home/ann/a/b"}]}}` + "\n"
	nested := filepath.Join(s.ArtifactsDir(), "0-Task.jsonl")
	write(t, nested, head)
	folded := repeats(t, m, nested, 3)
	flat := filepath.Join(s.ArtifactsDir(), "0-Task", "1-Deep.jsonl")
	write(t, flat, head)
	must(0, m.Compress(t.Context(), flat))
	other := filepath.Join(s.ArtifactsDir(), "2-Other.jsonl")
	write(t, other, strings.ReplaceAll(head, "/home/ann", "/opt"))
	must(0, m.Compress(t.Context(), other))
	bad := filepath.Join(s.ArtifactsDir(), "3-Bad.jsonl.zst")
	write(t, bad, "\x28\xb5\x2f\xfdno frame")
	stays := map[string]string{}
	for _, path := range []string{other + ".zst", bad} {
		stays[filepath.Base(path)] = string(must(os.ReadFile(path)))
	}

	file, _ := export(t, m, s, ExportOptions{})
	to := newManager(t)
	got := must(Import(t.Context(), to, file, ImportOptions{Map: []session.PathMap{{Old: "/home/ann", New: "/Users/bob/here"}}}))
	dir := strings.TrimSuffix(got.Path, ".jsonl")
	moved := func(text string) string { return strings.ReplaceAll(text, "/home/ann", "/Users/bob/here") }
	if text := readLog(t, to, filepath.Join(dir, "0-Task.jsonl")); text != moved(folded) {
		t.Errorf("the folded log has %d bytes, want %d: %.500s", len(text), len(moved(folded)), text)
	}
	if text := readLog(t, to, filepath.Join(dir, "0-Task", "1-Deep.jsonl")); text != moved(head) {
		t.Errorf("the compressed log is %s", text)
	}
	for name, want := range stays {
		if text := string(must(os.ReadFile(filepath.Join(dir, name)))); text != want {
			t.Errorf("%s changed", name)
		}
	}
	for name := range tree(t, to.Home()) {
		if strings.Contains(name, ".tmp-") || strings.Contains(name, "mapped") || strings.Contains(name, "tabled") {
			t.Errorf("%s was left", name)
		}
	}
}
