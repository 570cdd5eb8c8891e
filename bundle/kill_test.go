package bundle

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
)

// importerEnv makes the test binary a process that imports, and says each step:
// "<home> <bundle>".
const importerEnv = "AGENTRUN_TEST_IMPORTER"

func importOnce(job string) error {
	home, name, _ := strings.Cut(job, " ")
	m, err := session.OpenManager(home, session.Options{})
	if err != nil {
		return err
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	// In small steps, so that there are moments to be killed at.
	r := &slow{bytes.NewReader(data)}
	got, err := Import(context.Background(), m, r, ImportOptions{Progress: func(done, _ int64) { fmt.Println("step", done) }})
	fmt.Println("done", got.ID)
	return err
}

// slow reads a little at a time.
type slow struct{ *bytes.Reader }

func (s *slow) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(len(p), 200)]) }

// rounds is how often an import is killed: AGENTRUN_TEST_ROUNDS, else few enough for
// everyday runs.
func rounds(t *testing.T) int {
	if n := os.Getenv("AGENTRUN_TEST_ROUNDS"); n != "" {
		return must(strconv.Atoi(n))
	}
	if testing.Short() {
		return 5
	}
	return 25
}

func TestKill9OfAnImportLeavesTheSessionWholeOrNotAtAll(t *testing.T) {
	from := newManager(t)
	s := small(t, from)
	r, sum := export(t, from, s, ExportOptions{})
	name := filepath.Join(t.TempDir(), "b.agentrun")
	write(t, name, string(must(readAll(r))))
	want, files := entries(t, from, s.Path()), tree(t, s.ArtifactsDir())
	steps := int(2*sum.Bytes/200) + 3
	home := filepath.Join(t.TempDir(), "home")
	killed, whole := 0, 0
	for range rounds(t) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), importerEnv+"="+home+" "+name)
		out := must(cmd.StdoutPipe())
		must(0, cmd.Start())
		// Mostly in the second half, where it writes.
		after := steps/2 + rand.IntN(steps/2+2)
		done := false
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == after {
				cmd.Process.Kill()
			}
			done = done || strings.HasPrefix(lines.Text(), "done "+s.ID())
		}
		if cmd.Wait() != nil {
			killed++
		}
		m := must(session.OpenManager(home, session.Options{Durability: session.Flush}))
		there := checkHome(t, "killed", m, want, files)
		if done && !there {
			t.Fatal("it was acknowledged and is not there")
		}
		if there {
			whole++
			home = filepath.Join(t.TempDir(), "home")
		}
	}
	m := must(session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{}))
	must(Import(t.Context(), m, r, ImportOptions{}))
	t.Logf("%d imports killed, %d were whole", killed, whole)
}
