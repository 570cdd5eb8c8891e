package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/internal/lineindex"
)

// write makes a finished artifact of content.
func write(t testing.TB, d *Dir, tool, content string) *File {
	t.Helper()
	f, err := d.Create(t.Context(), tool, Provenance{Run: "run-" + tool})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, content); err != nil {
		t.Fatal(err)
	}
	if err := f.Finish(indexOf(t, content)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return f
}

func indexOf(t testing.TB, content string) lineindex.Index {
	t.Helper()
	ix, err := lineindex.Build(context.Background(), strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

func put(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func tempDir(t testing.TB) (*Dir, string) {
	path := filepath.Join(t.TempDir(), "2026-11-20T20-17-07-977Z_01a1fa9b")
	return Open(path, Options{}), path
}

func TestAFinishedArtifactIsFoundWithEverythingThatIsKnownOfIt(t *testing.T) {
	for _, sync := range []bool{false, true} {
		t.Run(fmt.Sprintf("sync %t", sync), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			d := Open(path, Options{Sync: sync})
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("Open made %s", path)
			}
			f := write(t, d, "my tool!", "one\ntwo\nthree")
			if f.URL() != "artifact://0" {
				t.Errorf("URL is %s", f.URL())
			}
			for name, d := range map[string]*Dir{"the same Dir": d, "another Dir": Open(path, Options{})} {
				info, err := d.Lookup(t.Context(), 0)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if info.Tool != "my_tool" || info.Path != filepath.Join(path, "0.my_tool.log") || info.Bytes != 13 ||
					info.Lines != 3 || !info.HasCRC || info.State != Complete || info.Note != "" || info.Run != "run-my tool!" {
					t.Errorf("%s: %+v", name, info)
				}
			}
			for name, perm := range map[string]os.FileMode{"": 0o700, "0.my_tool.log": 0o600, ".artifact-0.json": 0o600, ".index": 0o700, ".index/0.idx": 0o600, ".index/lock": 0o600} {
				st, err := os.Lstat(filepath.Join(path, name))
				if err != nil {
					t.Fatal(err)
				}
				if st.Mode().Perm() != perm {
					t.Errorf("%s has mode %o, want %o", name, st.Mode().Perm(), perm)
				}
			}
		})
	}
}

func TestNumbersContinueOverEverythingThatUsesOneUp(t *testing.T) {
	cases := []struct {
		name   string
		files  []string
		logged int64
		want   int64
	}{
		{"nothing there", nil, -1, 0},
		{"logs", []string{"0.bash.log", "3.read.log"}, -1, 4},
		{"a missing one", []string{"0.bash.log", "7.missing"}, -1, 8},
		{"a claim without data", []string{".artifact-4.json"}, -1, 5},
		{"the log knows more", []string{"0.bash.log"}, 9, 10},
		{"the log knows less", []string{"5.bash.log"}, 2, 6},
		{"a half written one of another program", []string{"6.bash.log.tmp-0b7e"}, -1, 7},
		{"leading zeros", []string{"008.bash.log"}, -1, 9},
		{"agents and patches use none", []string{"7.md", "9.patch", "12-Anna.md", "5.json"}, -1, 0},
		{"a number that fits nowhere", []string{"99999999999999999999.bash.log"}, -1, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			for _, name := range c.files {
				put(t, filepath.Join(path, name), "x")
			}
			d := Open(path, Options{LoggedMax: func(context.Context) (int64, error) { return c.logged, nil }})
			if f := write(t, d, "bash", "x\n"); f.ID() != c.want {
				t.Errorf("got %d, want %d", f.ID(), c.want)
			}
		})
	}
}

func TestANumberIsNotUsedAgainAfterItsFilesWereRemoved(t *testing.T) {
	d, path := tempDir(t)
	write(t, d, "bash", "a\n")
	write(t, d, "bash", "b\n")
	for _, name := range []string{"1.bash.log", ".artifact-1.json"} {
		if err := os.Remove(filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	if f := write(t, Open(path, Options{}), "bash", "c\n"); f.ID() != 2 {
		t.Errorf("got %d, want 2", f.ID())
	}
	f, err := d.Create(t.Context(), "bash", Provenance{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Discard(); err != nil {
		t.Fatal(err)
	}
	if f := write(t, d, "bash", "d\n"); f.ID() != 4 {
		t.Errorf("after a discard: got %d, want 4", f.ID())
	}
}

func TestConcurrentCreatorsNeverShareANumber(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	shared := Open(path, Options{})
	const workers, each = 8, 10
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[int64]bool{}
	for w := range workers {
		d := shared
		if w%2 == 1 {
			d = Open(path, Options{})
		}
		wg.Go(func() {
			for range each {
				f, err := d.Create(t.Context(), fmt.Sprintf("tool%d", w), Provenance{})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[f.ID()] {
					t.Errorf("number %d was given twice", f.ID())
				}
				seen[f.ID()] = true
				mu.Unlock()
				if err := f.Finish(lineindex.Index{}); err != nil {
					t.Error(err)
				}
				_ = f.Close()
			}
		})
	}
	wg.Wait()
	for id := range int64(workers * each) {
		if !seen[id] {
			t.Errorf("number %d was skipped", id)
		}
	}
}
