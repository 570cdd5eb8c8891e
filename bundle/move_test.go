package bundle

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

// interrupted does something before its nth read of a directory or opening of a file.
type interrupted struct {
	durable.FS
	n  *int
	do func()
}

func (i interrupted) step() {
	if *i.n--; *i.n == -1 {
		i.do()
	}
}

func (i interrupted) ReadDir(name string) ([]fs.DirEntry, error) {
	i.step()
	return i.FS.ReadDir(name)
}

func (i interrupted) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	i.step()
	return i.FS.OpenFile(name, flag, perm)
}

func TestAnExportHasEverythingOfASessionThatIsMovedAtAnyMoment(t *testing.T) {
	for name, away := range map[string]func(m *session.Manager, path, cwd string) error{
		"to another directory": func(m *session.Manager, path, cwd string) error {
			_, err := m.Move(t.Context(), path, cwd, session.MoveOptions{})
			return err
		},
		"to the trash": func(m *session.Manager, path, _ string) error {
			_, err := m.Trash(t.Context(), path)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, files := Summary{}, 0
			for at := 0; ; at++ {
				m := newManager(t)
				s := rich(t, m)
				other := must(session.OpenManager(m.Home(), session.Options{Durability: session.Flush}))
				moves, n := 0, at
				fsys := interrupted{durable.OS, &n, func() {
					moves++
					if err := away(other, s.Path(), t.TempDir()); err != nil {
						t.Errorf("step %d: %v", at, err)
					}
				}}
				if at == 0 {
					var b *bytes.Reader // nobody interrupts it
					b, want = export(t, m, s, ExportOptions{})
					there := newManager(t)
					made := must(Import(t.Context(), there, b, ImportOptions{}))
					files = len(tree(t, filepath.Dir(made.Path)))
				}
				b, sum := export(t, m, s, ExportOptions{FS: fsys})
				if sum.Artifacts != want.Artifacts || sum.Blobs != want.Blobs || len(sum.Missing) != len(want.Missing) || len(sum.Damaged) > 0 {
					t.Fatalf("step %d: %+v, want %+v", at, sum, want)
				}
				there := newManager(t)
				made := must(Import(t.Context(), there, b, ImportOptions{}))
				before, after := tree(t, s.ArtifactsDir()), tree(t, must(there.View(t.Context(), made.Path)).ArtifactsDir())
				for file, data := range after {
					if before[file] != data {
						t.Errorf("step %d: %s holds %.40q, want %.40q", at, file, data, before[file])
					}
				}
				if n := len(tree(t, filepath.Dir(made.Path))); n != files {
					t.Errorf("step %d: it has %d files, want %d", at, n, files)
				}
				damaged, err := os.ReadFile(made.Path + ".damaged")
				if err != nil || !bytes.Equal(damaged, []byte("damaged bytes\n")) {
					t.Errorf("step %d: the damaged bytes are %q, %v", at, damaged, err)
				}
				if t.Failed() {
					return
				}
				if moves == 0 {
					t.Logf("%d steps", at)
					return
				}
			}
		})
	}
}
