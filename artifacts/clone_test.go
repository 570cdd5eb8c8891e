package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
)

// reflinking is a file system whose files can share blocks. They do not here, which
// nobody can tell but by the space.
type reflinking struct{ durable.FS }

func (r reflinking) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	f, err := r.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return reflinkingFile{f}, nil
}

type reflinkingFile struct{ durable.File }

func (f reflinkingFile) CloneFrom(src durable.File) error {
	at, err := src.Identify()
	if err != nil {
		return err
	}
	return durable.Copy(f.File, src, 0, at.Size)
}

// linkless is a file system without hard links.
type linkless struct{ durable.FS }

func (linkless) Link(_, name string) error {
	return &fs.PathError{Op: "link", Path: name, Err: unix.EPERM}
}

func (linkless) LinkFile(_ durable.File, name string) error {
	return &fs.PathError{Op: "link", Path: name, Err: unix.EPERM}
}

// unclonable is one without reflinks, whatever the machine's can do.
type unclonable struct{ durable.FS }

func (u unclonable) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	f, err := u.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return unclonableFile{f}, nil
}

type unclonableFile struct{ durable.File }

func (unclonableFile) CloneFrom(durable.File) error { return errors.ErrUnsupported }

var linking durable.FS = unclonable{durable.OS}

// clone clones the directory of d beside it.
func clone(t testing.TB, d *Dir, fsys durable.FS) (*Dir, Cloned) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "fork")
	done, err := Clone(t.Context(), d.Path(), to, CloneOptions{FS: fsys})
	if err != nil {
		t.Fatal(err)
	}
	return Open(to, Options{}), done
}

func inode(t testing.TB, path string) uint64 {
	t.Helper()
	at, err := durable.OS.Identify(path)
	if err != nil {
		t.Fatal(err)
	}
	return at.Ino
}

func get(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// furnished is a directory with a bit of everything.
func furnished(t testing.TB) *Dir {
	t.Helper()
	d, path := tempDir(t)
	write(t, d, "bash", "zero\n")
	write(t, d, "bash", strings.Repeat("one\n", 10))
	gone := write(t, d, "bash", "two\n")
	if err := errors.Join(os.Remove(gone.Path()), os.Remove(d.join(sidecarName(2)))); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(path, "1.zsh.log"), "another of that number\n")
	for range 2 {
		if _, err := d.WriteAgent(t.Context(), agentID(t, "Anna"), Output{Text: []byte("text"), JSON: []byte(`{"a":1}`)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Reserve(t.Context(), AgentID{}, "Held", Provenance{Run: "r"}); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"Anna.jsonl":            `{"type":"session"}` + "\n" + `{"type":"message"}` + "\n",
		"Anna.lock":             "",
		"Anna.driver":           "{}",
		"Anna.index":            "{}",
		"Anna.jsonl.damaged":    "bytes\n",
		"Anna/Anna.Bob.md":      "Bob's",
		"Anna/Anna.Bob.jsonl":   `{"type":"session"}` + "\n",
		"Anna/7.bash.log":       "of a nested session\n",
		"local/notes.md":        "written by hand",
		"local/3.bash.log":      "not an artifact",
		"draft.txt":             "a draft",
		".draft-only-session":   "",
		"9.missing":             "it was too large\n",
		".tmp-x-1":              "temporary",
		"4.bash.log.tmp-abcdef": "temporary of another program",
	} {
		file := filepath.Join(path, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, file, content)
	}
	return d
}

func TestACloneHasEverythingThatMeansSomething(t *testing.T) {
	for _, c := range []struct {
		name string
		fsys durable.FS
		want Cloned
	}{
		{"by reflinks", reflinking{durable.OS}, Cloned{Reflinked: 4, Bytes: 215}},
		{"by hard links", linking, Cloned{Linked: 4, Bytes: 215, Shared: 115}},
		{"by copies", linkless{linking}, Cloned{Copied: 4, Bytes: 215}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := furnished(t)
			fork, done := clone(t, d, c.fsys)
			if c.want.Copied > 0 && done.Bytes > c.want.Bytes {
				done.Bytes = c.want.Bytes // what is said of artifacts is copied too, and names this process
			}
			if !reflect.DeepEqual(done, c.want) {
				t.Errorf("got %+v, want %+v", done, c.want)
			}
			for _, name := range []string{
				"0.bash.log", "1.bash.log", "1.zsh.log", ".artifact-0.json", ".artifact-1.json", "9.missing", ".index/next",
				"Anna.md", "Anna.json", "Anna.v2.md", "Anna.v2.json", "Anna.jsonl", "Anna.jsonl.damaged", ".agent-0-Held.json",
				"Anna/Anna.Bob.md", "Anna/Anna.Bob.jsonl", "Anna/7.bash.log", "local/notes.md", "local/3.bash.log", "draft.txt",
			} {
				if got, want := get(t, fork.join(name)), get(t, d.join(name)); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			for _, name := range []string{".index/lock", "Anna.lock", "Anna.driver", "Anna.index", ".draft-only-session", ".tmp-x-1", "4.bash.log.tmp-abcdef"} {
				if _, err := os.Lstat(fork.join(name)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s is there: %v", name, err)
				}
			}
			for id := range int64(2) {
				got, want := stateOf(t, fork, id), stateOf(t, d, id)
				got.Path, want.Path, got.ModTime = "", "", want.ModTime
				if got != want {
					t.Errorf("artifact %d is %+v, want %+v", id, got, want)
				}
			}
			if f := write(t, fork, "bash", "new"); f.ID() != 10 {
				t.Errorf("the next number of the fork is %d", f.ID())
			}
			if f := write(t, d, "bash", "other"); f.ID() != 10 {
				t.Errorf("the next number of the original is %d", f.ID())
			}
			if id, err := fork.Reserve(t.Context(), AgentID{}, "Next", Provenance{}); err != nil || id.String() != "1-Next" {
				t.Errorf("the next agent is %s, %v", id, err)
			}
		})
	}
}

func TestOnlyWhatIsNeverWrittenToAgainIsLinked(t *testing.T) {
	d := furnished(t)
	fork, _ := clone(t, d, linking)
	for name, shared := range map[string]bool{
		"0.bash.log": true, ".artifact-0.json": true, "Anna.md": true, ".agent-0-Held.json": true, "Anna/7.bash.log": true,
		"Anna.jsonl": false, "Anna/Anna.Bob.jsonl": false, "Anna.jsonl.damaged": false,
		"local/notes.md": false, "local/3.bash.log": false, "draft.txt": false,
	} {
		if got := inode(t, d.join(name)) == inode(t, fork.join(name)); got != shared {
			t.Errorf("%s is shared: %t", name, got)
		}
	}
	// Everything that either side does leaves the other as it was.
	before := map[string]string{}
	for _, name := range []string{"0.bash.log", ".artifact-0.json", "Anna.md", ".index/next", "Anna.jsonl", "local/notes.md"} {
		before[name] = get(t, d.join(name))
	}
	write(t, fork, "bash", "new")
	if _, err := fork.WriteAgent(t.Context(), agentID(t, "Anna"), Output{Text: []byte("third")}); err != nil {
		t.Fatal(err)
	}
	if _, err := fork.Reserve(t.Context(), AgentID{}, "Next", Provenance{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Anna.jsonl", "local/notes.md"} {
		f, err := os.OpenFile(fork.join(name), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("more"); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	for name, want := range before {
		if got := get(t, d.join(name)); got != want {
			t.Errorf("%s of the original is %q, was %q", name, got, want)
		}
	}
}

func TestAnArtifactThatIsBeingWrittenIsCopiedToItsPresentLength(t *testing.T) {
	for _, fsys := range map[string]durable.FS{"links": linking, "reflinks": reflinking{durable.OS}} {
		d, _ := tempDir(t)
		write(t, d, "bash", "done\n")
		f := create(t, d, "run", "first\n")
		foreign, err := os.Create(d.join("5.zsh.log"))
		if err != nil {
			t.Fatal(err)
		}
		defer foreign.Close()
		if _, err := foreign.WriteString("theirs\n"); err != nil {
			t.Fatal(err)
		}
		fork, done := clone(t, d, fsys)
		if len(done.Failed) > 0 || done.Linked+done.Reflinked+done.Copied != 3 || fsys == linking && done.Copied != 2 {
			t.Errorf("got %+v", done)
		}
		if _, err := io.WriteString(f, "second\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := foreign.WriteString("more\n"); err != nil {
			t.Fatal(err)
		}
		if err := f.Finish(indexOf(t, "first\nsecond\n")); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[int64]string{1: "first\n", 5: "theirs\n"} {
			info := stateOf(t, fork, id)
			if info.State != Partial || !strings.Contains(info.Note, fmt.Sprintf("it ends at byte %d because it was still being written", len(want))) {
				t.Errorf("artifact %d is %s: %s", id, info.State, info.Note)
			}
			if got := get(t, info.Path); got != want {
				t.Errorf("artifact %d holds %q", id, got)
			}
			if inode(t, info.Path) == inode(t, d.join(filepath.Base(info.Path))) {
				t.Errorf("artifact %d is shared with its writer", id)
			}
		}
		if info := stateOf(t, fork, 1); info.Run != "run" {
			t.Errorf("its run is %q", info.Run)
		}
		if info := stateOf(t, d, 1); info.State != Complete || info.Bytes != 13 {
			t.Errorf("the original is %+v", info)
		}
		if info := stateOf(t, fork, 0); info.State != Complete {
			t.Errorf("artifact 0 is %+v", info)
		}
	}
}

func TestWhatNobodyFinishedStaysUnfinished(t *testing.T) {
	d, _ := tempDir(t)
	f := create(t, d, "killed", "first\n")
	rewriteSidecar(t, d, 0, map[string]any{"pid": deadPID(t)})
	f.f.Close() // as the kernel does
	closed := create(t, d, "", "second\n")
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	fork, done := clone(t, d, linking)
	if done.Linked != 2 {
		t.Errorf("got %+v", done)
	}
	for id := range int64(2) {
		if info := stateOf(t, fork, id); info.State != Interrupted {
			t.Errorf("artifact %d is %s", id, info.State)
		}
	}
}

func TestWhatCannotComeAlongIsNamedAndItsNumberStaysUsed(t *testing.T) {
	d, path := tempDir(t)
	write(t, d, "bash", "zero\n")
	secret := filepath.Join(t.TempDir(), "secret")
	put(t, secret, "secret")
	for name, kind := range map[string]string{"3.bash.log": "link", "4.bash.log": "fifo", "Eve.md": "link", "Eve.jsonl": "fifo"} {
		make := func(name string) error { return os.Symlink(secret, name) }
		if kind == "fifo" {
			make = func(name string) error { return unix.Mkfifo(name, 0o600) }
		}
		err := make(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Dir(secret), filepath.Join(path, "Mallory")); err != nil {
		t.Fatal(err)
	}
	fork, done := clone(t, d, linking)
	var failed []string
	for _, f := range done.Failed {
		failed = append(failed, fmt.Sprint(f.ID, " ", f.Name))
	}
	slices.Sort(failed)
	if want := []string{"-1 Eve.jsonl", "-1 Eve.md", "-1 Mallory", "3 3.bash.log", "4 4.bash.log"}; !slices.Equal(failed, want) || done.Linked != 1 {
		t.Errorf("%d linked, failed %q, want %q", done.Linked, failed, want)
	}
	for id, kind := range map[int64]string{3: "a symbolic link", 4: "a FIFO"} {
		var notFound *NotFoundError
		if _, err := fork.Lookup(t.Context(), id); !errors.As(err, &notFound) || !strings.Contains(notFound.Reason, kind) {
			t.Errorf("artifact %d: %v", id, err)
		}
	}
	for _, name := range []string{"3.bash.log", "4.bash.log", "Eve.md", "Eve.jsonl", "Mallory"} {
		if _, err := os.Lstat(fork.join(name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there", name)
		}
	}
	if f := write(t, fork, "bash", "new"); f.ID() != 5 {
		t.Errorf("the next number is %d", f.ID())
	}
	// A fork of the fork still knows.
	again, _ := clone(t, fork, linking)
	if f := write(t, again, "bash", "new"); f.ID() != 6 {
		t.Errorf("the next number of the next is %d", f.ID())
	}
	if _, err := again.Lookup(t.Context(), 3); err == nil || !strings.Contains(err.Error(), "a symbolic link") {
		t.Errorf("artifact 3: %v", err)
	}
}

func TestALogOfANestedSessionEndsWithAWholeLine(t *testing.T) {
	const lines = `{"type":"session"}` + "\n" + `{"type":"message"}` + "\n"
	for name, c := range map[string]struct{ content, want string }{
		"whole lines":                      {lines, lines},
		"a line that is being written":     {lines + `{"type":"mess`, lines},
		"a last line without its newline":  {lines + `{"type":"last"}`, lines + `{"type":"last"}`},
		"a long line that is written":      {lines + `{"type":"` + strings.Repeat("x", 100_000), lines},
		"nothing":                          {"", ""},
		"something that is no log":         {"garbage", "garbage"},
		"an empty line at the end":         {lines + "\n", lines + "\n"},
		"a header that was cut":            {`{"type":"sess`, `{"type":"sess`},
		"a last line of nothing but zeros": {lines + "\x00\x00", lines},
	} {
		for _, fsys := range []durable.FS{linking, reflinking{durable.OS}} {
			t.Run(name, func(t *testing.T) {
				d, path := tempDir(t)
				write(t, d, "bash", "zero\n")
				put(t, filepath.Join(path, "Anna.jsonl"), c.content)
				fork, _ := clone(t, d, fsys)
				if got := get(t, fork.join("Anna.jsonl")); got != c.want {
					t.Errorf("got %.60q, want %.60q", got, c.want)
				}
			})
		}
	}
}

func TestACloneTakesNobodysPlace(t *testing.T) {
	d, _ := tempDir(t)
	write(t, d, "bash", "zero\n")
	to := filepath.Join(t.TempDir(), "there")
	put(t, filepath.Join(to, "precious"), "content")
	if _, err := Clone(t.Context(), d.Path(), to, CloneOptions{}); !errors.Is(err, errTaken) {
		t.Errorf("got %v", err)
	}
	if got := get(t, filepath.Join(to, "precious")); got != "content" {
		t.Errorf("it holds %q", got)
	}
	if _, err := Clone(t.Context(), filepath.Join(to, "precious"), filepath.Join(to, "new"), CloneOptions{}); err == nil {
		t.Error("a file was cloned as a directory")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(d.Path(), link); err != nil {
		t.Fatal(err)
	}
	if _, err := Clone(t.Context(), link, filepath.Join(to, "new"), CloneOptions{}); err == nil {
		t.Error("a symbolic link was followed")
	}
}

func TestACancelledCloneLeavesNothing(t *testing.T) {
	d := furnished(t)
	for n := 1; ; n++ {
		to := filepath.Join(t.TempDir(), "fork")
		ctx, cancel := context.WithCancel(t.Context())
		steps := 0
		_, err := Clone(ctx, d.Path(), to, CloneOptions{FS: linking, Progress: func(done, total int) {
			if steps++; steps == n {
				cancel()
			}
		}})
		cancel()
		if steps < n {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled after %d files: %v", n, err)
		}
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("cancelled after %d files: %v", n, err)
		}
	}
}

func TestAnIndexOfALargeArtifactComesAlong(t *testing.T) {
	content := strings.Repeat("a line of thirty-two characters\n", keptFrom/32)
	for name, fsys := range map[string]durable.FS{"links": linking, "reflinks": reflinking{durable.OS}, "copies": linkless{linking}} {
		t.Run(name, func(t *testing.T) {
			d, _ := tempDir(t)
			write(t, d, "bash", content)
			fork, _ := clone(t, d, fsys)
			at, err := durable.OS.Identify(fork.join("0.bash.log"))
			if err != nil {
				t.Fatal(err)
			}
			if ix, ok := fork.keptIndex(0, at); !ok || ix.Lines != keptFrom/32 {
				t.Errorf("the index is of %d lines, %t", ix.Lines, ok)
			}
		})
	}
}
