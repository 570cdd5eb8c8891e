package artifacts

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/outputsink"
)

var _ outputsink.File = (*File)(nil)

func create(t testing.TB, d *Dir, run, content string) *File {
	t.Helper()
	f, err := d.Create(t.Context(), "bash", Provenance{Run: run})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, content); err != nil {
		t.Fatal(err)
	}
	return f
}

func stateOf(t testing.TB, d *Dir, id int64) Info {
	t.Helper()
	info, err := d.Lookup(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// rewriteSidecar changes members of a sidecar as another process would have
// written them.
func rewriteSidecar(t testing.TB, d *Dir, id int64, members map[string]any) {
	t.Helper()
	path := d.join(sidecarName(id))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for k, v := range members {
		all[k] = v
	}
	if data, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	put(t, path, string(data))
}

// deadPID is the pid of a process that has ended.
func deadPID(t testing.TB) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestStateTellsWhatAnArtifactHolds(t *testing.T) {
	cases := []struct {
		name string
		make func(t *testing.T, d *Dir)
		want State
		note string
	}{
		{"finished", func(t *testing.T, d *Dir) { write(t, d, "bash", "abc\n") }, Complete, ""},
		{"being written by this process", func(t *testing.T, d *Dir) {
			f := create(t, d, "", "abc\n")
			t.Cleanup(func() { f.Close() })
		}, Writing, "written by process"},
		{"closed without being finished", func(t *testing.T, d *Dir) {
			if err := create(t, d, "", "abc\n").Close(); err != nil {
				t.Fatal(err)
			}
		}, Interrupted, "stopped before the end"},
		{"its writer died", func(t *testing.T, d *Dir) {
			create(t, d, "", "abc\n").f.Close()
			rewriteSidecar(t, d, 0, map[string]any{"pid": deadPID(t)})
		}, Interrupted, "ended without finishing"},
		{"its writer's pid is another process now", func(t *testing.T, d *Dir) {
			create(t, d, "", "abc\n").f.Close()
			rewriteSidecar(t, d, 0, map[string]any{"pidStart": 1})
		}, Interrupted, "ended without finishing"},
		{"written before a reboot", func(t *testing.T, d *Dir) {
			create(t, d, "", "abc\n").f.Close()
			rewriteSidecar(t, d, 0, map[string]any{"bootId": "another"})
		}, Interrupted, "ended without finishing"},
		{"written on another host", func(t *testing.T, d *Dir) {
			create(t, d, "", "abc\n").f.Close()
			rewriteSidecar(t, d, 0, map[string]any{"host": "elsewhere", "pid": 1})
		}, Writing, "process 1 on elsewhere"},
		{"shorter than it was", func(t *testing.T, d *Dir) {
			if err := os.Truncate(write(t, d, "bash", "abc\n").Path(), 2); err != nil {
				t.Fatal(err)
			}
		}, Changed, "had 4 bytes when it was finished and has 2 now"},
		{"cut and finished after a failed write", func(t *testing.T, d *Dir) {
			ffs := faultfs.New(durable.OS)
			f, err := Open(d.Path(), Options{FS: ffs}).Create(t.Context(), "bash", Provenance{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write([]byte("abc\n")); err != nil {
				t.Fatal(err)
			}
			ffs.FailAt(0, unix.ENOSPC)
			if _, err := f.Write([]byte("more")); !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
			if err := errors.Join(f.Truncate(4), f.Finish(indexOf(t, "abc\n")), f.Close()); err != nil {
				t.Fatal(err)
			}
		}, Partial, "it ends at byte 4 because of"},
		{"kept within a limit", func(t *testing.T, d *Dir) {
			f := create(t, d, "", "abcdef\n")
			_, err := f.WriteAt([]byte("..."), 0)
			if err := errors.Join(err, f.Finish(indexOf(t, "...def\n")), f.Close()); err != nil {
				t.Fatal(err)
			}
		}, Capped, "beginning and the end"},
		{"of another program", func(t *testing.T, d *Dir) { put(t, d.join("0.zsh.log"), "x") }, Complete, ""},
		{"with provenance of oh-my-pi", func(t *testing.T, d *Dir) {
			put(t, d.join("0.bash.log"), "x")
			put(t, d.join(".artifact-0.json"), `{"version":1,"producerSessionId":"s"}`)
		}, Complete, ""},
		{"with damaged provenance", func(t *testing.T, d *Dir) {
			write(t, d, "bash", "x")
			put(t, d.join(".artifact-0.json"), "")
		}, Interrupted, "cannot be read"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d, _ := tempDir(t)
			c.make(t, d)
			if info := stateOf(t, d, 0); info.State != c.want || !strings.Contains(info.Note, c.note) || c.note == "" && info.Note != "" {
				t.Errorf("%s (%s), want %s (%s)", info.State, info.Note, c.want, c.note)
			}
		})
	}
}

func TestAFileWithoutOutputLeavesNothingButAUsedNumber(t *testing.T) {
	d, path := tempDir(t)
	f, err := d.Create(t.Context(), "bash", Provenance{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(path)
	if err != nil || len(entries) != 1 || entries[0].Name() != indexDir {
		t.Errorf("left %v, %v", entries, err)
	}
	if f := write(t, d, "bash", "x"); f.ID() != 1 {
		t.Errorf("the next number is %d", f.ID())
	}
}

func TestARunFindsItsArtifact(t *testing.T) {
	d, path := tempDir(t)
	if _, found, err := d.ByRun(t.Context(), "r1"); found || err != nil {
		t.Errorf("before anything was written: %t, %v", found, err)
	}
	for _, run := range []string{"r0", "r1", "r2"} {
		if err := create(t, d, run, run).Close(); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(path, "9.bash.log"), "foreign")
	info, found, err := Open(path, Options{}).ByRun(t.Context(), "r1")
	if err != nil || !found || info.ID != 1 || info.State != Interrupted || info.Bytes != 2 {
		t.Errorf("%+v, %t, %v", info, found, err)
	}
	for _, run := range []string{"", "r9"} {
		if _, found, err := d.ByRun(t.Context(), run); found || err != nil {
			t.Errorf("run %q: %t, %v", run, found, err)
		}
	}
}

func TestListHasEverythingThatWasKeptAndWhatIsMissing(t *testing.T) {
	d, path := tempDir(t)
	if infos, err := d.List(t.Context()); len(infos) != 0 || err != nil {
		t.Errorf("before anything was written: %v, %v", infos, err)
	}
	if _, err := d.Lookup(t.Context(), 0); !errors.Is(err, ErrNoDirectory) || err.Error() != "No artifacts directory found" {
		t.Errorf("lookup before anything was written: %v", err)
	}
	write(t, d, "bash", "a\nb")
	write(t, d, "read", "c\n")
	if err := d.MarkMissing(t.Context(), 4, "the old machine\nis gone"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"10.zsh.log", "7.md", "8.bash.log.tmp-1", "9.patch", "6.missing", "02.bash.log"} {
		put(t, filepath.Join(path, name), "")
	}
	infos, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	type short struct {
		id    int64
		tool  string
		state State
		lines int64
	}
	want := []short{{0, "bash", Complete, 2}, {1, "read", Complete, 1}, {4, "", Missing, -1}, {6, "", Missing, -1}, {10, "zsh", Complete, -1}}
	if len(infos) != len(want) {
		t.Fatalf("%+v", infos)
	}
	for i, info := range infos {
		if got := (short{info.ID, info.Tool, info.State, info.Lines}); got != want[i] {
			t.Errorf("%d: %+v, want %+v", i, got, want[i])
		}
	}
	for id, want := range map[int64]string{
		4:  "Artifact 4 not found (the old machine is gone). Available: 0, 1, 10",
		6:  "Artifact 6 not found (it did not come along when the session was copied). Available: 0, 1, 10",
		7:  "Artifact 7 not found. Available: 0, 1, 10",
		99: "Artifact 99 not found. Available: 0, 1, 10",
	} {
		if _, err := d.Lookup(t.Context(), id); err == nil || err.Error() != want || !errors.Is(err, ErrNotFound) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestOfTwoFilesOfOneNumberAlwaysTheSameIsServed(t *testing.T) {
	d, path := tempDir(t)
	write(t, d, "zsh", "ours")
	for _, name := range []string{"0.bash.log", "3.zsh.log", "3.bash.log"} {
		put(t, filepath.Join(path, name), "theirs")
	}
	for id, want := range map[int64]string{0: "zsh", 3: "bash"} {
		for _, d := range []*Dir{d, Open(path, Options{})} {
			if info := stateOf(t, d, id); info.Tool != want {
				t.Errorf("artifact %d is that of %s, want %s", id, info.Tool, want)
			}
		}
	}
}
