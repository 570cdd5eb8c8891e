package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

func check0(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open opens a workspace of a directory, with files by name.
func open(t *testing.T, o Options, files map[string]string) *Workspace {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	for name, content := range files {
		path := filepath.Join(o.Dir, name)
		check0(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check0(t, os.WriteFile(path, []byte(content), 0o644))
	}
	w, err := Open(o)
	check0(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

func to(content string) func(Old) ([]byte, error) {
	return func(Old) ([]byte, error) { return []byte(content), nil }
}

func read(t *testing.T, w *Workspace, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(w.Dir(), name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

func TestPathsThatLeadOutAreRefused(t *testing.T) {
	outside := t.TempDir()
	check0(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600))
	w := open(t, Options{}, map[string]string{"a": "a", "dir/b": "b"})
	for name, target := range map[string]string{"out": outside, "up": "..", "file": filepath.Join(outside, "secret"), "none": "nowhere", "circle": "circle", "in": "dir", "dir/abs": filepath.Join(w.Dir(), "a")} {
		check0(t, os.Symlink(target, filepath.Join(w.Dir(), name)))
	}
	for _, c := range []struct{ path, want string }{
		{"a", ""},
		{"./dir/../a", ""},
		{"in/b", ""},
		{"dir/abs", ""},
		{"new/dir/file", ""},
		{".", ""},
		{w.Dir() + "/a", ""},
		{"../x", "outside of the workspace"},
		{"/etc/passwd", "outside of the workspace"},
		{"out/secret", "outside of the workspace"},
		{"out/new", "outside of the workspace"},
		{"up/x", "outside of the workspace"},
		{"file", "outside of the workspace"},
		{w.Dir() + "x/a", "outside of the workspace"},
		{"none", "leads nowhere"},
		{"none/x", "leads nowhere"},
		{"circle", "circle: it leads through a symbolic link that leads back to itself"},
		{"circle/x", "leads back to itself"},
		{"a/b", "not a directory"},
		{"", "empty"},
		{"a\x00b", "zero byte"},
		{strings.Repeat("n", 256), "256 bytes"},
		{strings.Repeat("n/", 2100), "4200 bytes"},
	} {
		p, err := w.Resolve(c.path)
		switch {
		case err == nil && c.want != "":
			t.Errorf("%q leads to %s", c.path, p.Path)
		case c.want == "" && err != nil, c.want != "" && !strings.Contains(err.Error(), c.want):
			t.Errorf("%q: %v, want %q", c.path, err, c.want)
		}
		if err == nil {
			p.Close()
		}
	}
	var escape *EscapeError
	if _, err := w.Resolve("file"); !errors.As(err, &escape) || escape.Real != filepath.Join(outside, "secret") {
		t.Errorf("%v", err)
	}
}

func TestSeveralRootsAreAllIn(t *testing.T) {
	other := t.TempDir()
	dir := t.TempDir()
	w := open(t, Options{Dir: dir, Roots: []string{".", other}}, map[string]string{"a": "a"})
	for _, path := range []string{"a", filepath.Join(other, "b")} {
		_, err := w.Change(t.Context(), path, to("new"))
		check0(t, err)
	}
	if _, err := Open(Options{Dir: dir, Roots: []string{"nosuch"}}); err == nil {
		t.Error("a root that is not there was opened")
	}
}

// Somebody exchanges a directory for a link to the outside, over and over, while files
// in it are read and changed.
func TestALinkPutInTheWayLeadsNobodyOut(t *testing.T) {
	outside := t.TempDir()
	check0(t, os.WriteFile(filepath.Join(outside, "f"), []byte("outside"), 0o600))
	check0(t, os.WriteFile(filepath.Join(outside, "only-outside"), nil, 0o600))
	w := open(t, Options{}, map[string]string{"dir/f": "inside"})
	dir, link := filepath.Join(w.Dir(), "dir"), filepath.Join(w.Dir(), "link")
	check0(t, os.Symlink(outside, link))
	stop := make(chan struct{})
	var racing sync.WaitGroup
	racing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			// dir is a directory, then the link, and so on.
			if err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
		}
	})
	seen := map[string]int{}
	// Each gets through now and then, on a busy machine seldom.
	enough := func() bool { return seen["read"] > 0 && seen["changed"] > 0 && seen["listed"] > 0 }
	for i := 0; i < 120 || !enough() && i < 20_000; i++ {
		p, err := w.Resolve("dir/f")
		if err == nil {
			f, err := p.OpenFile()
			if err == nil {
				data, err := io.ReadAll(f)
				check0(t, err)
				check0(t, f.Close())
				if !strings.HasPrefix(string(data), "inside") {
					t.Errorf("read %q", data)
				}
				seen["read"]++
			}
			check0(t, p.Close())
		}
		if p, err := w.Resolve("dir"); err == nil {
			if d, err := p.OpenDir(); err == nil {
				names, err := d.Readdirnames(-1)
				check0(t, err)
				check0(t, d.Close())
				if slices.Contains(names, "only-outside") {
					t.Errorf("listed %v", names)
				}
				seen["listed"]++
			}
			check0(t, p.Close())
		}
		if _, err := w.Change(t.Context(), "dir/f", to(fmt.Sprint("inside ", i))); err == nil {
			seen["changed"]++
		}
	}
	close(stop)
	racing.Wait()
	entries, err := os.ReadDir(outside)
	check0(t, err)
	data, err := os.ReadFile(filepath.Join(outside, "f"))
	check0(t, err)
	if string(data) != "outside" || len(entries) != 2 {
		t.Errorf("outside: %q, %v", data, entries)
	}
	if !enough() {
		t.Errorf("nothing got through: %v", seen)
	}
}

func TestAChangeKeepsWhatTheFileHad(t *testing.T) {
	w := open(t, Options{Sync: true}, map[string]string{"a": "old"})
	name := filepath.Join(w.Dir(), "a")
	check0(t, os.Chmod(name, 0o751|fs.ModeSetgid))
	if os.Getuid() == 0 {
		check0(t, os.Chown(name, 12345, 23456))
		check0(t, os.Chmod(name, 0o751|fs.ModeSetgid))
	}
	check0(t, os.Symlink("a", filepath.Join(w.Dir(), "link")))
	done, err := w.Change(t.Context(), "link", func(old Old) ([]byte, error) {
		if !old.Exists || string(old.Data) != "old" || old.Path != name {
			t.Errorf("%+v", old)
		}
		return []byte("new"), nil
	})
	check0(t, err)
	if done.Made || done.Same || done.Path != name || read(t, w, "a") != "new" {
		t.Errorf("%+v", done)
	}
	info, err := os.Stat(name)
	check0(t, err)
	if info.Mode() != 0o751|fs.ModeSetgid {
		t.Errorf("mode %v", info.Mode())
	}
	var st unix.Stat_t
	check0(t, unix.Stat(name, &st))
	if os.Getuid() == 0 && (st.Uid != 12345 || st.Gid != 23456) {
		t.Errorf("it belongs to %d:%d", st.Uid, st.Gid)
	}
	if target, err := os.Readlink(filepath.Join(w.Dir(), "link")); err != nil || target != "a" {
		t.Errorf("the link is %q, %v", target, err)
	}
	if done, err := w.Change(t.Context(), "a", to("new")); err != nil || !done.Same {
		t.Errorf("%+v, %v", done, err)
	}
}

// A URL as a path would make directories that are called like its scheme.
func TestAURLIsNoFile(t *testing.T) {
	w := open(t, Options{}, nil)
	for _, path := range []string{"artifact://0", "session://a/b", "https://example.com/x"} {
		if _, err := w.Change(t.Context(), path, to("x")); err == nil || !strings.Contains(err.Error(), "is a URL") {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{"a:b", "dir/a://b", "./a://b", "://b"} {
		if _, err := w.Change(t.Context(), path, to("x")); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if entries, err := os.ReadDir(w.Dir()); err != nil || len(entries) != 4 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestANewFileHasTheModeOfTheUmask(t *testing.T) {
	w := open(t, Options{Sync: true}, nil)
	done, err := w.Change(t.Context(), "a/b/c", to("new"))
	check0(t, err)
	info, err := os.Stat(filepath.Join(w.Dir(), "a/b/c"))
	check0(t, err)
	if !done.Made || info.Mode().Perm() != 0o666&^umask() || read(t, w, "a/b/c") != "new" {
		t.Errorf("%+v, %v", done, info.Mode())
	}
}

func TestWhatCannotBeChangedIsRefusedAndStays(t *testing.T) {
	w := open(t, Options{}, map[string]string{"ro": "ro", "dir/x": "x", "linked": "linked"})
	check0(t, os.Chmod(filepath.Join(w.Dir(), "ro"), 0o444))
	check0(t, unix.Mkfifo(filepath.Join(w.Dir(), "fifo"), 0o600))
	check0(t, os.Truncate(filepath.Join(w.Dir(), "ro"), 2))
	big := filepath.Join(w.Dir(), "big")
	check0(t, os.WriteFile(big, nil, 0o600))
	check0(t, os.Truncate(big, MaxFile+1))
	failed := errors.New("told so")
	for _, c := range []struct {
		path string
		do   func(Old) ([]byte, error)
		want string
	}{
		{"ro", to("new"), "chmod u+w"},
		{"dir", to("new"), "it is a directory"},
		{".", to("new"), "it is a directory"},
		{"fifo", to("new"), "it is a FIFO"},
		{"big", to("new"), "too large"},
		{"dir/x", to(strings.Repeat("x", MaxFile+1)), "too large"},
		{"new/file", func(Old) ([]byte, error) { return nil, failed }, "told so"},
		{"dir/x/y", to("new"), "not a directory"},
	} {
		_, err := w.Change(t.Context(), c.path, c.do)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "/proc/") {
			t.Errorf("%s: %v, want %q", c.path, err, c.want)
		}
	}
	if _, err := os.Lstat(filepath.Join(w.Dir(), "new")); err == nil {
		t.Error("a directory was made for a change that was refused")
	}
	if got := read(t, w, "ro") + read(t, w, "dir/x"); got != "rox" {
		t.Errorf("%q", got)
	}
	noTemporaries(t, w.Dir())
	// A file under the name of the temporary that has other names is left alone.
	check0(t, os.Link(filepath.Join(w.Dir(), "linked"), filepath.Join(w.Dir(), ".tmp-agentrun-victim")))
	_, err := w.Change(t.Context(), "victim", to("new"))
	check0(t, err)
	if got := read(t, w, "linked"); got != "linked" {
		t.Errorf("%q", got)
	}
}

func noTemporaries(t *testing.T, dir string) {
	t.Helper()
	check0(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), ".tmp-") {
			t.Errorf("left behind: %s", path)
		}
		return err
	}))
}

func TestAFileThatChangedSinceItWasReadIsRefused(t *testing.T) {
	w := open(t, Options{Seen: NewSeen(filepath.Join(t.TempDir(), "seen"), nil)}, map[string]string{"a": "one"})
	name := filepath.Join(w.Dir(), "a")
	_, err := w.Change(t.Context(), "a", to("two")) // never seen: nothing to compare with
	check0(t, err)
	_, err = w.Change(t.Context(), "a", to("three")) // its own change is no surprise
	check0(t, err)
	check0(t, os.WriteFile(name, []byte("other"), 0o600))
	if _, err = w.Change(t.Context(), "a", to("four")); !errors.Is(err, ErrChanged) || read(t, w, "a") != "other" {
		t.Errorf("%v, %q", err, read(t, w, "a"))
	}
	w.Seen().Note(name, []byte("other"))
	_, err = w.Change(t.Context(), "a", to("four"))
	check0(t, err)
	check0(t, os.Remove(name))
	if _, err = w.Change(t.Context(), "a", to("five")); !errors.Is(err, ErrChanged) {
		t.Errorf("%v", err)
	}
	_, err = w.Change(t.Context(), "a", to("five")) // told once
	check0(t, err)
	// A record of something else is none.
	check0(t, os.WriteFile(w.Seen().name(name), []byte(`{"path":"/else","size":1}`), 0o600))
	_, err = w.Change(t.Context(), "a", to("six"))
	check0(t, err)
}

// recorder notes what it is told, and what the file held.
type recorder struct {
	told []string
	fail string
}

func (r *recorder) tell(what, path string) error {
	data, _ := os.ReadFile(path)
	r.told = append(r.told, what+" "+string(data))
	if r.fail == what {
		return errors.New("the log is full")
	}
	return nil
}

func (r *recorder) Before(_ context.Context, path string) error { return r.tell("before", path) }
func (r *recorder) After(_ context.Context, path string) error  { return r.tell("after", path) }

func TestAChangeIsRecordedBeforeAndBehind(t *testing.T) {
	r := &recorder{}
	w := open(t, Options{Recorder: r}, map[string]string{"a": "old"})
	_, err := w.Change(t.Context(), "a", to("new"))
	check0(t, err)
	if got := strings.Join(r.told, ", "); got != "before old, after new" {
		t.Error(got)
	}
	r.fail = "before"
	if _, err = w.Change(t.Context(), "a", to("newer")); err == nil || read(t, w, "a") != "new" {
		t.Errorf("%v, %q", err, read(t, w, "a"))
	}
	r.fail = "after"
	var record *RecordError
	done, err := w.Change(t.Context(), "a", to("newer"))
	if !errors.As(err, &record) || string(done.New) != "newer" || read(t, w, "a") != "newer" {
		t.Errorf("%+v, %v", done, err)
	}
}

func TestChangesOfOneFileComeOneAfterTheOther(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	const each, writers = 8, 6
	for range writers {
		w := open(t, Options{Dir: dir}, nil)
		all.Go(func() {
			for range each {
				_, err := w.Change(t.Context(), "count", func(old Old) ([]byte, error) { return append(old.Data[:len(old.Data):len(old.Data)], 'x'), nil })
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	w := open(t, Options{Dir: dir}, nil)
	if n := len(read(t, w, "count")); n != each*writers {
		t.Errorf("%d of %d changes are there", n, each*writers)
	}
	noTemporaries(t, dir)
}

func TestAFaultAnywhereLeavesTheOldFileOrTheNewOne(t *testing.T) {
	faults := map[string]func(f *faultfs.FS, n int){
		"an error":    func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"a full disk": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"a crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	}
	for fault, set := range faults {
		for _, path := range []string{"a", "new", "x/y/new"} {
			t.Run(fault+" "+path, func(t *testing.T) {
				for n := 0; ; n++ {
					dir := t.TempDir()
					fsys := faultfs.New(durable.OS)
					w := open(t, Options{Dir: dir, FS: fsys, Sync: true, Seen: NewSeen(filepath.Join(dir, ".seen"), fsys)}, map[string]string{"a": "old"})
					set(fsys, n)
					_, err := w.Change(t.Context(), path, to("new content"))
					old := map[string]string{"a": "old"}[path]
					got := read(t, w, path)
					if got != old && got != "new content" || err == nil && got != "new content" {
						t.Fatalf("fault at operation %d of %v: %q, %v", n, fsys.Ops(), got, err)
					}
					// What is left does not stand in the way of the next change.
					w2 := open(t, Options{Dir: dir}, nil)
					_, err = w2.Change(t.Context(), path, to("next"))
					check0(t, err)
					if got := read(t, w2, path); got != "next" {
						t.Fatalf("fault at operation %d of %v: then %q", n, fsys.Ops(), got)
					}
					if _, err := os.Lstat(filepath.Join(filepath.Dir(filepath.Join(dir, path)), tempName(filepath.Base(path)))); err == nil {
						t.Fatalf("fault at operation %d: the temporary is still there", n)
					}
					if !fsys.Fired() {
						if n < 5 {
							t.Errorf("only %d operations", n)
						}
						return
					}
				}
			})
		}
	}
}

func FuzzResolve(f *testing.F) {
	dir := f.TempDir()
	if err := os.Symlink("/", filepath.Join(dir, "root")); err != nil {
		f.Fatal(err)
	}
	w, err := Open(Options{Dir: dir})
	if err != nil {
		f.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"a", "../a", "root/etc", "/etc", "a/../../b", "./.", "root/../../x", "\x00", "~"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		p, err := w.Resolve(path)
		if err != nil {
			return
		}
		defer p.Close()
		if p.Path != real && !strings.HasPrefix(p.Path, real+"/") {
			t.Errorf("%q leads to %q", path, p.Path)
		}
	})
}

// keeper is a recorder that is given contents.
type keeper struct {
	recorder
	mu   sync.Mutex // guards kept
	kept map[string]bool
}

func (k *keeper) Keep(_ context.Context, content []byte) func() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept[string(content[:1])] = true
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.kept, string(content[:1]))
	}
}

func (k *keeper) Before(ctx context.Context, path string) error { return k.noted("before", path) }
func (k *keeper) After(ctx context.Context, path string) error  { return k.noted("after", path) }

func (k *keeper) noted(what, path string) error {
	data, _ := os.ReadFile(path)
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(data) > 0 && k.kept[string(data[:1])] {
		what += ", kept,"
	}
	k.told = append(k.told, what)
	if k.fail != "" && strings.HasPrefix(what, k.fail) {
		return errors.New("the log is full")
	}
	return nil
}

func TestALargeChangeIsKeptWhileItIsWritten(t *testing.T) {
	old, now := strings.Repeat("o", large), strings.Repeat("n", large)
	k := &keeper{kept: map[string]bool{}}
	w := open(t, Options{Recorder: k, Sync: true}, map[string]string{"a": old})
	for _, c := range []struct{ path, to, told string }{
		{"a", now, "before, kept, after, kept,"},
		{"made", now, "before after, kept,"},
		{"a", "small", "before, kept, after, kept,"},
		{"a", "tiny", "before after"},
	} {
		k.told = nil
		_, err := w.Change(t.Context(), c.path, to(c.to))
		check0(t, err)
		if got := strings.Join(k.told, " "); got != c.told || read(t, w, c.path) != c.to || len(k.kept) != 0 {
			t.Errorf("%s: %s, %d kept", c.path, got, len(k.kept))
		}
	}
	k.fail = "before"
	if _, err := w.Change(t.Context(), "made", to(old)); err == nil || read(t, w, "made") != now || len(k.kept) != 0 {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(w.Dir(), ".tmp-*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
