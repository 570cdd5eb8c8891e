package artifacts

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/internal/lineindex"
)

func TestFinishedArtifactsWhoseFilesAreGoneAreLost(t *testing.T) {
	for _, count := range []int{4, packFrom + 4} { // with a pack, in a clone
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			root := t.TempDir()
			d := Open(filepath.Join(root, "a"), Options{})
			for i := range count {
				f, err := d.Create(t.Context(), "bash", Provenance{})
				if err != nil {
					t.Fatal(err)
				}
				var b lineindex.Builder
				_, _ = b.Write([]byte("text\n"))
				if _, err := f.Write([]byte("text\n")); err != nil {
					t.Fatal(err)
				}
				switch i {
				case 1:
					err = f.Discard()
				case 2:
					// It is still being written.
					defer f.Close()
				default:
					err = f.Finish(b.Index())
					f.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if lost, err := d.Lost(t.Context()); err != nil || len(lost) > 0 {
				t.Errorf("before: %v, %v", lost, err)
			}
			to := filepath.Join(root, "b")
			if _, err := Clone(t.Context(), d.Path(), to, CloneOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{d.Path(), to} {
				for _, name := range []string{"0.bash.log", "3.bash.log"} {
					if err := os.Remove(filepath.Join(dir, name)); err != nil {
						t.Fatal(err)
					}
				}
				d := Open(dir, Options{})
				if err := d.MarkMissing(t.Context(), 3, "left behind"); err != nil {
					t.Fatal(err)
				}
				lost, err := d.Lost(t.Context())
				if err != nil || len(lost) != 1 || lost[0].ID != 0 || lost[0].State != Missing {
					t.Errorf("%s: %+v, %v", dir, lost, err)
				}
			}
			done, err := Clone(t.Context(), to, filepath.Join(root, "c"), CloneOptions{})
			if err != nil || len(done.Failed) != 1 || done.Failed[0].ID != 0 {
				t.Errorf("%+v, %v", done, err)
			}
			for id, failed := range map[int64]int{0: 1, 4: 0} {
				only := &Selection{Numbers: map[int64]bool{id: true}, Used: -1}
				done, err := Clone(t.Context(), to, filepath.Join(root, fmt.Sprint("only", id)), CloneOptions{Only: only})
				if err != nil || len(done.Failed) != failed {
					t.Errorf("artifact %d alone: %+v, %v", id, done, err)
				}
			}
		})
	}
	if lost, err := Open(filepath.Join(t.TempDir(), "none"), Options{}).Lost(t.Context()); err != nil || lost != nil {
		t.Error(lost, err)
	}
}
