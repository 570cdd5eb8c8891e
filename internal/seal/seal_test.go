package seal_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/internal/seal"
)

func made(t *testing.T, home string) *seal.Key {
	t.Helper()
	k, err := seal.Make(nil, home)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestASealHoldsForItsSettingsAlone(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	k := made(t, home)
	const settings = `{"sandbox":"off"}`
	s := k.Seal("session", "run", []byte(settings))
	again, err := seal.Load(nil, home)
	if err != nil {
		t.Fatal(err)
	}
	flipped := "0" + s[1:]
	if flipped == s {
		flipped = "1" + s[1:]
	}
	for _, c := range []struct {
		name                         string
		key                          *seal.Key
		seal, session, run, settings string
		holds                        bool
	}{
		{"as it was made", k, s, "session", "run", settings, true},
		{"by the key that was read", again, s, "session", "run", settings, true},
		{"in capitals", k, strings.ToUpper(s), "session", "run", settings, true},
		{"of another session", k, s, "sessioN", "run", settings, false},
		{"of another run", k, s, "session", "ruN", settings, false},
		{"of other settings", k, s, "session", "run", settings + " ", false},
		{"parted otherwise", k, s, "sessionr", "un", settings, false},
		{"none", k, "", "session", "run", settings, false},
		{"cut", k, s[:62], "session", "run", settings, false},
		{"changed", k, flipped, "session", "run", settings, false},
		{"no hexadecimal", k, strings.Repeat("x", 64), "session", "run", settings, false},
		{"of another home", made(t, t.TempDir()), s, "session", "run", settings, false},
		{"without a key", nil, s, "session", "run", settings, false},
	} {
		if got := c.key.Holds(c.seal, c.session, c.run, []byte(c.settings)); got != c.holds {
			t.Errorf("%s: holds is %v", c.name, got)
		}
	}
}

func TestAKeyIsForItsOwnerAndNotPrinted(t *testing.T) {
	home := t.TempDir()
	k := made(t, home)
	path := filepath.Join(home, seal.Name)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != 32 {
		t.Fatal(info, err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, k); got != seal.Name {
			t.Errorf("%s prints %s", verb, got)
		}
	}
}

func TestWhatIsNoKeyIsRefused(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"short":  func(path string) error { return os.WriteFile(path, []byte("short"), 0o600) },
		"long":   func(path string) error { return os.WriteFile(path, make([]byte, 33), 0o600) },
		"empty":  func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a link": func(path string) error { return os.Symlink("/dev/zero", path) },
		"a pipe": func(path string) error { return unix.Mkfifo(path, 0o600) },
	} {
		home := t.TempDir()
		path := filepath.Join(home, seal.Name)
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		if k, err := seal.Make(nil, home); err == nil || k != nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, %v", name, k, err)
		}
	}
	if _, err := seal.Load(nil, t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestManyMakeOneKey(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	seals := make([]string, 16)
	var group sync.WaitGroup
	for i := range seals {
		group.Go(func() {
			if k, err := seal.Make(nil, home); err == nil {
				seals[i] = k.Seal("s", "r", nil)
			}
		})
	}
	group.Wait()
	for _, s := range seals {
		if s == "" || s != seals[0] {
			t.Fatal(seals)
		}
	}
}

func TestAKeyIsWholeOrNotThereWhateverFails(t *testing.T) {
	for name, arm := range map[string]func(f *faultfs.FS, n int){
		"an error":    func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"a full disk": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"a crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	} {
		for n := 0; ; n++ {
			home := filepath.Join(t.TempDir(), "home")
			f := faultfs.New(durable.OS)
			arm(f, n)
			k, err := seal.Make(f, home)
			if !f.Fired() {
				if err != nil || n < 3 { // the directory, the file, what is in it
					t.Fatal(n, err)
				}
				break
			}
			if (err == nil) != (k != nil) {
				t.Fatalf("%s at %d: %v, %v", name, n, k, err)
			}
			after, later := seal.Make(nil, home)
			if later != nil {
				t.Fatalf("%s at %d: then %v", name, n, later)
			}
			if err == nil && !after.Holds(k.Seal("s", "r", nil), "s", "r", nil) {
				t.Fatalf("%s at %d: the key that was made is lost", name, n)
			}
		}
	}
}
