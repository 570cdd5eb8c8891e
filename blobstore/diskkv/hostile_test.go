package diskkv_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/diskkv"
	"github.com/agentrun/agentrun/internal/durable"
)

func TestWhatIsNoFileOfTheFormIsRefusedAndLeftAlone(t *testing.T) {
	ours := func(t *testing.T, path string) {
		t.Helper()
		s := open(t, path, diskkv.Options{})
		if _, err := s.PutBytes(t.Context(), inLog); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write := func(text string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	schema := func(statements ...string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			for _, text := range statements {
				if err := execute(t, path, text); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name, make := range map[string]func(t *testing.T, path string){
		"a directory": func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"a FIFO": func(t *testing.T, path string) {
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"a symbolic link": func(t *testing.T, path string) {
			target := filepath.Join(t.TempDir(), "target")
			ours(t, target)
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
		},
		"a symbolic link to nothing": func(t *testing.T, path string) {
			if err := os.Symlink("nothing", path); err != nil {
				t.Fatal(err)
			}
		},
		"a log that is a symbolic link": func(t *testing.T, path string) {
			ours(t, path)
			if err := os.Symlink("/dev/zero", path+"-wal"); err != nil {
				t.Fatal(err)
			}
		},
		"an index of the log that is a FIFO": func(t *testing.T, path string) {
			ours(t, path)
			if err := unix.Mkfifo(path+"-shm", 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"an empty file beside which there is a log": func(t *testing.T, path string) {
			write("")(t, path)
			write("something")(t, path+"-wal")
		},
		"text":              write(strings.Repeat("not a database\n", 100)),
		"a header alone":    write("SQLite format 3\x00"),
		"a broken database": write("SQLite format 3\x00" + strings.Repeat("\x00", 5000)),
		"no table":          schema("CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)"),
		"a view":            schema("CREATE TABLE t(key, value)", "CREATE VIEW cursorDiskKV AS SELECT key, value FROM t"),
		"a view in other case": schema(
			"CREATE TABLE t(key, value)", "CREATE VIEW CURSORDISKKV AS SELECT key, value FROM t"),
		"a trigger":           schema(foreignSchema, "CREATE TRIGGER x AFTER INSERT ON cursorDiskKV BEGIN DELETE FROM cursorDiskKV; END"),
		"a virtual table":     schema("CREATE VIRTUAL TABLE cursorDiskKV USING fts5(key, value)"),
		"a computed value":    schema("CREATE TABLE cursorDiskKV (key TEXT UNIQUE, value BLOB AS (zeroblob(1000000000)))"),
		"a stored expression": schema("CREATE TABLE cursorDiskKV (key TEXT AS (x) STORED UNIQUE, value BLOB, x)"),
		"other columns":       schema("CREATE TABLE cursorDiskKV (k TEXT UNIQUE, v BLOB)"),
		"a later version": func(t *testing.T, path string) {
			ours(t, path)
			schema("UPDATE cursorDiskKV SET value = '2' WHERE key = 'agentrun:format'")(t, path)
		},
		"the other mode": func(t *testing.T, path string) {
			s := open(t, path, diskkv.Options{Mode: blobstore.Opaque})
			if err := errors.Join(s.Set(t.Context(), refA, inLog), s.Close()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := temp(t)
			make(t, path)
			before := names(t, filepath.Dir(path))
			for _, readOnly := range []bool{false, true} {
				s, damage, err := diskkv.Open(t.Context(), path, diskkv.Options{ReadOnly: readOnly})
				if err == nil {
					t.Errorf("it was opened (%v)", s.Close())
				}
				var kind *durable.NotRegularError
				if !errors.Is(err, diskkv.ErrFormat) && !errors.Is(err, blobstore.ErrMode) && !errors.As(err, &kind) && !errors.Is(err, blobstore.ErrCorrupt) {
					t.Errorf("Open = %v", err)
				}
				if damage != nil {
					t.Errorf("it was moved aside: %v", damage)
				}
			}
			if after := names(t, filepath.Dir(path)); after != before {
				t.Errorf("there was %s; now there is %s", before, after)
			}
		})
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return strings.Join(list, " ")
}

func TestAFileThatCannotBeWrittenToIsRead(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	dir, err := os.MkdirTemp("/tmp", "diskkv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "state.vscdb")
	s := open(t, path, diskkv.Options{})
	if _, err := s.PutBytes(t.Context(), inLog); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"while its owner writes", "when it is closed"} {
		for name, mode := range map[string]fs.FileMode{"": 0o755, path: 0o644, path + "-wal": 0o644, path + "-shm": 0o644} {
			if name == "" {
				name = dir
			}
			if err := os.Chmod(name, mode); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), roleEnv+"=reader", fileEnv+"="+path)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Path = copyProgram(t, exe, dir)
		before := names(t, dir)
		out, err := cmd.Output() // of a program that counts what it covers, the rest says that nobody may have the counts
		if want := string(inLog) + "\ntrue true\n"; err != nil || string(out) != want {
			t.Errorf("%s: %v, %q; want %q", when, err, out, want)
		}
		if after := names(t, dir); after != before {
			t.Errorf("%s: there was %s; now there is %s", when, before, after)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// copyProgram makes this program one that anybody can run.
func copyProgram(t *testing.T, exe, dir string) string {
	t.Helper()
	data, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "program")
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestBlobsAboveTheLimitAreRefusedBeforeTheyAreLoaded(t *testing.T) {
	ctx, path := t.Context(), temp(t)
	const limit = 1000
	data := bytes.Repeat([]byte("x"), limit+1)
	ref := blobref.Of(data)
	s := open(t, path, diskkv.Options{MaxBytes: limit})
	_, putErr := s.PutBytes(ctx, data)
	_, _, streamErr := s.Put(ctx, bytes.NewReader(data))
	_, allErr := s.PutAll(ctx, [][]byte{data[:1], data})
	for name, err := range map[string]error{
		"Set": s.Set(ctx, ref, data), "PutBytes": putErr, "Put": streamErr, "PutAll": allErr,
		"SetAll":        s.SetAll(ctx, []diskkv.Blob{{Ref: ref, Data: data}}),
		"SetUnverified": s.SetUnverified(ctx, ref, data),
	} {
		if !errors.Is(err, blobstore.ErrTooLarge) {
			t.Errorf("%s = %v, want ErrTooLarge", name, err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was made: %v", err)
	}
	if got, err := s.PutBytes(ctx, data[:limit]); err != nil {
		t.Errorf("a blob of the limit: %v, %v", got, err)
	}
	whole := open(t, path, diskkv.Options{})
	if _, err := whole.PutBytes(ctx, data); err != nil {
		t.Fatal(err)
	}
	_, getErr := s.Get(ctx, ref)
	_, openErr := s.Open(ctx, ref)
	_, rangeErr := s.GetRange(ctx, ref, 0, 1)
	for name, err := range map[string]error{"Get": getErr, "Open": openErr, "GetRange": rangeErr} {
		if !errors.Is(err, blobstore.ErrTooLarge) {
			t.Errorf("%s = %v, want ErrTooLarge", name, err)
		}
	}
	// More than twice the limit is not even loaded to see whether it is text.
	huge := blobref.Of([]byte("huge"))
	if err := execute(t, path, "INSERT INTO cursorDiskKV VALUES(?, zeroblob(3000000))", "agentKv:blob:"+huge.Hex()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(ctx, huge); !errors.Is(err, blobstore.ErrTooLarge) {
		t.Errorf("Get = %d bytes, %v; want ErrTooLarge", len(got), err)
	}
	for _, bad := range []int64{-1, diskkv.MaxBytes + 1} {
		if s, _, err := diskkv.Open(ctx, path, diskkv.Options{MaxBytes: bad}); err == nil {
			t.Errorf("a limit of %d bytes was taken (%v)", bad, s.Close())
		}
	}
}

func TestAPathIsNoParameter(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a?mode=memory&_pragma=x#%2e;.vscdb")
	s := open(t, path, diskkv.Options{})
	ref, err := s.PutBytes(t.Context(), inLog)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := open(t, path, diskkv.Options{}).Get(t.Context(), ref); err != nil || !bytes.Equal(got, inLog) {
		t.Errorf("Get = %q, %v", got, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestAClosedStoreSaysSo(t *testing.T) {
	ctx := t.Context()
	s := open(t, temp(t), diskkv.Options{})
	ref, err := s.PutBytes(ctx, inLog)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	_, getErr := s.Get(ctx, ref)
	_, pointerErr := s.Checkpoint(ctx, "c")
	for name, err := range map[string]error{"Get": getErr, "Checkpoint": pointerErr, "Set": s.Set(ctx, ref, inLog), "Delete": s.Delete(ctx, ref), "Flush": s.Flush(ctx)} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s = %v, want fs.ErrClosed", name, err)
		}
	}
}
