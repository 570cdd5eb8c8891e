package artifacts

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

func agentID(t testing.TB, s string) AgentID {
	t.Helper()
	id, err := ParseAgentID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func readAgent(t testing.TB, d *Dir, ref string) error {
	t.Helper()
	_, err := outputOf(t, d, ref)
	return err
}

// outputOf reads the output that ref names.
func outputOf(t testing.TB, d *Dir, ref string) (string, error) {
	t.Helper()
	id, version, err := ParseAgentRef(ref)
	if err != nil {
		return "", err
	}
	r, _, err := d.OpenAgent(t.Context(), id, version)
	if err != nil {
		return "", err
	}
	defer r.Close()
	size, err := r.Size()
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.NewSectionReader(r, 0, size))
	return string(text), err
}

func TestAnAgentsOutputIsWrittenOnceAndRevivalsAreVersions(t *testing.T) {
	d, path := tempDir(t)
	parent, err := d.Reserve(t.Context(), AgentID{}, "Parent", Provenance{Run: "r"})
	if err != nil || parent.String() != "0-Parent" {
		t.Fatalf("%s, %v", parent, err)
	}
	child, err := d.Reserve(t.Context(), parent, "Child", Provenance{})
	if err != nil || child.String() != "0-Parent.1-Child" || child.Parent() != parent {
		t.Fatalf("%s, %v", child, err)
	}
	err = readAgent(t, d, "0-Parent")
	if err == nil || err.Error() != "Not found: 0-Parent (its id is reserved and it has handed back nothing yet)\nAvailable: none" {
		t.Errorf("before it wrote: %v", err)
	}
	for i, text := range []string{"first", "second", "third"} {
		a, err := d.WriteAgent(t.Context(), parent, Output{Text: []byte(text), JSON: []byte(`{"n":` + string(rune('1'+i)) + `}`)})
		if err != nil || a.Version != i+1 || a.URL() != "agent://0-Parent" {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	for _, name := range []string{"0-Parent.md", "0-Parent.json", "0-Parent.v2.md", "0-Parent.v3.json"} {
		if _, err := os.Lstat(filepath.Join(path, name)); err != nil {
			t.Error(err)
		}
	}
	for _, d := range []*Dir{d, Open(path, Options{})} {
		for ref, want := range map[string]string{"0-Parent": "third", "0-Parent.v1": "first", "0-Parent.v2": "second", "0-Parent.v3": "third"} {
			if got, err := outputOf(t, d, ref); got != want || err != nil {
				t.Errorf("%s: %q, %v", ref, got, err)
			}
		}
		if data, source, err := d.AgentJSON(t.Context(), parent, 2); string(data) != `{"n":2}` || source != "0-Parent.v2.json" || err != nil {
			t.Errorf("%s from %s, %v", data, source, err)
		}
		if err := readAgent(t, d, "0-Parent.v4"); err == nil || err.Error() != "Not found: 0-Parent.v4\nAvailable: 0-Parent.v1, 0-Parent.v2, 0-Parent.v3" {
			t.Errorf("a version that is not there: %v", err)
		}
	}
	if err := os.Remove(filepath.Join(path, "0-Parent.v2.md")); err != nil {
		t.Fatal(err)
	}
	if a, err := d.WriteAgent(t.Context(), parent, Output{Text: []byte("x")}); err != nil || a.Version != 4 {
		t.Errorf("after a version was removed: %+v, %v", a, err)
	}
	if _, err := d.WriteAgent(t.Context(), child, Output{Text: []byte("x"), JSON: []byte("{")}); err == nil {
		t.Error("a structured part that is no JSON was taken")
	}
}

func TestIndexesContinueOverEveryFileOfAnAgent(t *testing.T) {
	for name, want := range map[string]string{
		"0-A.md": "1-N", "4-A.json": "5-N", "6-A.jsonl": "7-N", "0-A.9-B.md": "10-N", ".agent-3-A.json": "4-N",
		"Anna.md": "0-N", "2-A.v7.md": "3-N", "11.bash.log": "0-N", "5-Dir/5-Dir.8-X.md": "9-N", "7.patch": "0-N",
	} {
		d, path := tempDir(t)
		put(t, filepath.Join(path, name), "x")
		if id, err := d.Reserve(t.Context(), AgentID{}, "N", Provenance{}); err != nil || id.String() != want {
			t.Errorf("after %s: %s, %v; want %s", name, id, err, want)
		}
	}
}

func TestReservationsAreNeverShared(t *testing.T) {
	_, path := tempDir(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[AgentID]bool{}
	for range 6 {
		d := Open(path, Options{})
		wg.Go(func() {
			for range 8 {
				id, err := d.Reserve(t.Context(), AgentID{}, "same", Provenance{})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[id] {
					t.Errorf("%s was given twice", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestABatchOfReservationsGoesOnWhereItWasCutOff(t *testing.T) {
	parent := agentID(t, "0-Up")
	all := func(d *Dir, run string, names ...string) string {
		t.Helper()
		ids, err := d.ReserveAll(t.Context(), parent, names, Provenance{Run: run})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(ids)
	}
	d, path := tempDir(t)
	if _, err := d.Reserve(t.Context(), AgentID{}, "Up", Provenance{Run: "r"}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, run, names, want string }{
		{"one of three was reserved", "r", "A", "[0-Up.1-A]"},
		{"the batch goes on with it", "r", "A B C", "[0-Up.1-A 0-Up.2-B 0-Up.3-C]"},
		{"and again", "r", "A B C", "[0-Up.1-A 0-Up.2-B 0-Up.3-C]"},
		{"another run has ids of its own", "other", "A", "[0-Up.4-A]"},
		{"another name has an id of its own", "r", "X", "[0-Up.5-X]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := all(d, tt.run, strings.Fields(tt.names)...); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	t.Run("what was written under is used", func(t *testing.T) {
		put(t, filepath.Join(path, "0-Up.1-A.jsonl"), "")
		if got, want := all(d, "r", "B"), "[0-Up.2-B]"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, want := all(d, "r", "A"), "[0-Up.6-A]"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	for _, names := range [][]string{{"A", "../B"}, {"v2"}} {
		if _, err := d.ReserveAll(t.Context(), parent, names, Provenance{Run: "r"}); err == nil {
			t.Errorf("%v were reserved", names)
		}
	}
	if _, err := d.ReserveAll(t.Context(), parent, []string{"A"}, Provenance{}); err == nil {
		t.Error("a batch of no run was reserved")
	}
}

func TestABatchOfReservationsThatIsKilledLeavesNoGap(t *testing.T) {
	fired := 0
	for n := 0; ; n++ {
		_, path := tempDir(t)
		fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
		fsys.CrashAt(n)
		if _, err := Open(path, Options{FS: fsys}).ReserveAll(t.Context(), AgentID{}, []string{"A", "B"}, Provenance{Run: "r"}); !fsys.Fired() {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		fired++
		ids, err := Open(path, Options{}).ReserveAll(t.Context(), AgentID{}, []string{"A", "B"}, Provenance{Run: "r"})
		if got, want := fmt.Sprint(ids), "[0-A 1-B]"; err != nil || got != want {
			t.Errorf("killed at operation %d: then there are %s, %v, want %s", n, got, err, want)
		}
	}
	if fired < 5 {
		t.Errorf("only %d operations were cut off", fired)
	}
}

func TestAgentsOfOhMyPiAreFound(t *testing.T) {
	d, path := tempDir(t)
	for name, text := range map[string]string{
		"Anna.md": "anna", "Anna-2.md": "anna 2", "Anna/Anna.Bob.md": "bob", "Anna/Anna.Bob/Anna.Bob.Cy.md": "cy",
		"Anna/Other.md": "not Anna's", "Dora.jsonl": "", "__advisor.md": "no agent", "Anna.patch": "",
	} {
		put(t, filepath.Join(path, name), text)
	}
	for ref, want := range map[string]string{"Anna": "anna", "Anna-2": "anna 2", "Anna.Bob": "bob", "Anna.Bob.Cy": "cy", "Anna.Bob.v1": "bob"} {
		if got, err := outputOf(t, d, ref); got != want || err != nil {
			t.Errorf("%s: %q, %v", ref, got, err)
		}
	}
	for ref, want := range map[string]string{
		"Dora":     "Not found: Dora (it has a session of its own and has handed back nothing yet)\nAvailable: Anna, Anna-2, Anna.Bob, Anna.Bob.Cy",
		"anna":     "Not found: anna\nAvailable: Anna, Anna-2, Anna.Bob, Anna.Bob.Cy",
		"Other":    "Not found: Other\n",
		"Anna.Cy":  "Not found: Anna.Cy\n",
		"Anna.v01": "no such version",
	} {
		if err := readAgent(t, d, ref); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", ref, err, want)
		}
	}
	a, err := d.WriteAgent(t.Context(), agentID(t, "Anna.Bob"), Output{Text: []byte("bob again")})
	if err != nil || a.Version != 2 {
		t.Fatalf("%+v, %v", a, err)
	}
	for ref, want := range map[string]string{"Anna.Bob": "bob again", "Anna.Bob.v1": "bob"} {
		if got, err := outputOf(t, d, ref); got != want || err != nil {
			t.Errorf("revived %s: %q, %v", ref, got, err)
		}
	}
}

func TestNamesThatAreNone(t *testing.T) {
	d, path := tempDir(t)
	for _, name := range []string{"", "v1", "v007", "a.b", "a/b", "..", "-a", "_a", "a b", "ä", "a\x00", strings.Repeat("a", 200)} {
		if id, err := d.Reserve(t.Context(), AgentID{}, name, Provenance{}); err == nil {
			t.Errorf("%q became %s", name, id)
		}
	}
	if entries, err := os.ReadDir(path); err == nil {
		for _, e := range entries {
			if e.Name() != indexDir {
				t.Errorf("left %s", e.Name())
			}
		}
	}
	if err := readAgent(t, d, "x"); !errors.Is(err, ErrNoDirectory) && !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := d.WriteAgent(t.Context(), AgentID{}, Output{}); err == nil {
		t.Error("an output without an id was kept")
	}
}
