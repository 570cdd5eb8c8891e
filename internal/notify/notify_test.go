package notify_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/internal/notify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// told checks whether the kernel tells. A user has few instances of inotify.
func told(t *testing.T, w *notify.Watcher, want bool) {
	t.Helper()
	if got := w.Told(); want && !got {
		t.Skip("there is no inotify to be had: other processes of this user have all instances, or the file system is a network's")
	} else if got != want {
		t.Errorf("told is %t", got)
	}
}

// awaits waits until the file is there, whatever wakes it.
func awaits(t *testing.T, w *notify.Watcher, name string) {
	t.Helper()
	for {
		if _, err := os.Stat(name); err == nil {
			return
		}
		if err := w.Wait(t.Context(), func(path string) bool { return path == name }); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFileIsSeenWhoeverTells(t *testing.T) {
	for name, poll := range map[string]bool{"the kernel": false, "nobody": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := notify.Open(poll)
			defer w.Close()
			w.Only(dir)
			told(t, w, !poll)
			file := filepath.Join(dir, "file")
			done := make(chan error)
			go func() { done <- os.WriteFile(file, nil, 0o600) }()
			awaits(t, w, file)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestADirectoryThatIsMadeLaterOrAnewIsSeenInto(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sub")
	w := notify.Open(false)
	defer w.Close()
	for range 2 {
		w.Only(dir)
		if w.Told() {
			t.Error("a directory that is not there is told of")
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "file")
		w.Only(dir)
		told(t, w, true)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		awaits(t, w, file)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		for w.Told() {
			if err := w.Wait(t.Context(), func(string) bool { return false }); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestTheEndOfTheContextEndsAWait(t *testing.T) {
	w := notify.Open(false)
	defer w.Close()
	w.Only(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Wait(ctx, func(string) bool { return true }); err != context.Canceled {
		t.Error(err)
	}
}
