package durable_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

// patient is a wait that no test reaches.
const patient = time.Minute

func openLock(t *testing.T, name string) *durable.Lock {
	t.Helper()
	l, err := durable.OpenLock(nil, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func lockFile(t *testing.T) string { return filepath.Join(t.TempDir(), "l.lock") }

func tryLock(t *testing.T, l *durable.Lock, want bool) {
	t.Helper()
	if ok, err := l.TryLock(); ok != want || err != nil {
		t.Fatalf("TryLock = %v, %v; want %v", ok, err, want)
	}
}

func TestALockHasOneHolder(t *testing.T) {
	for _, c := range []struct {
		name string
		free func(l *durable.Lock) error
	}{
		{"until it unlocks", (*durable.Lock).Unlock},
		{"until it closes", (*durable.Lock).Close},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := lockFile(t)
			one, two := openLock(t, name), openLock(t, name)
			tryLock(t, one, true)
			tryLock(t, one, true) // its holder has it already
			tryLock(t, two, false)
			if err := two.Unlock(); err != nil { // who does not hold it frees nothing
				t.Fatal(err)
			}
			tryLock(t, two, false)
			if err := c.free(one); err != nil {
				t.Fatal(err)
			}
			tryLock(t, two, true)
		})
	}
}

func TestClosingFreesALockWhoseDescriptorAChildStillHas(t *testing.T) {
	name := lockFile(t)
	one, two := openLock(t, name), openLock(t, name)
	tryLock(t, one, true)
	fd, err := unix.Dup(int(one.File().Fd())) // as between fork and exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	tryLock(t, two, true)
}

func TestLockWaitsForItsTurn(t *testing.T) {
	name := lockFile(t)
	one, two := openLock(t, name), openLock(t, name)
	tryLock(t, one, true)
	got := make(chan error, 1)
	go func() { got <- two.Lock(t.Context(), patient) }()
	select {
	case err := <-got:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	if err := one.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	tryLock(t, one, false)
}

func TestLockGivesUp(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	expiring, stop := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer stop()
	for _, c := range []struct {
		name string
		ctx  context.Context
		wait time.Duration
		want error
	}{
		{"at once when there is no time to wait", t.Context(), 0, durable.ErrLockTimeout},
		{"after its wait", t.Context(), 5 * time.Millisecond, durable.ErrLockTimeout},
		{"at the context's deadline", expiring, patient, context.DeadlineExceeded},
		{"when it is cancelled", cancelled, patient, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := lockFile(t)
			one, two, three := openLock(t, name), openLock(t, name), openLock(t, name)
			tryLock(t, one, true)
			if err := two.Lock(c.ctx, c.wait); !errors.Is(err, c.want) || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v, want %v with the name of the file", err, c.want)
			}
			if err := one.Unlock(); err != nil {
				t.Fatal(err)
			}
			tryLock(t, three, true) // so nobody has it
		})
	}
	t.Run("before it took a free lock when it was cancelled before", func(t *testing.T) {
		name := lockFile(t)
		one, two := openLock(t, name), openLock(t, name)
		if err := one.Lock(cancelled, patient); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		tryLock(t, two, true)
	})
}

func TestCancelEndsAWait(t *testing.T) {
	name := lockFile(t)
	one, two := openLock(t, name), openLock(t, name)
	tryLock(t, one, true)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() { got <- two.Lock(ctx, patient) }()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestAClosedLockCannotBeTaken(t *testing.T) {
	l := openLock(t, lockFile(t))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if ok, err := l.TryLock(); ok || err == nil {
		t.Errorf("TryLock = %v, %v", ok, err)
	}
	if err := l.Lock(t.Context(), patient); err == nil {
		t.Error("Lock took it")
	}
}

func TestALockFileIsPrivateAndStays(t *testing.T) {
	openMask(t)
	name := lockFile(t)
	l := openLock(t, name)
	tryLock(t, l, true)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if perm(t, name) != 0o600 {
		t.Errorf("permissions %o", perm(t, name))
	}
}

func TestALockThatIsThereCanBeTakenOnAFullDisk(t *testing.T) {
	name := put(t, lockFile(t), "")
	fsys := faultfs.New(durable.OS)
	fsys.FullAt(0)
	l, err := durable.OpenLock(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tryLock(t, l, true)

	if _, err := durable.OpenLock(fsys, name+"2"); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a new one: error %v, want ENOSPC", err)
	}
}

func TestALockIsNoPlantedThing(t *testing.T) {
	for i, thing := range irregular {
		name, target := plant(t, i)
		_, err := durable.OpenLock(nil, name)
		if refused := (*durable.NotRegularError)(nil); !errors.As(err, &refused) || refused.Kind != thing.kind {
			t.Errorf("%s: error %v", thing.kind, err)
		}
		if got := get(t, target); got != "precious" {
			t.Errorf("%s: what the link leads to now holds %q", thing.kind, got)
		}
	}
}

// holdLock is the child that takes a lock, says so, and has it until its
// standard input ends, or it is killed.
func holdLock(name string) {
	l, err := durable.OpenLock(nil, name)
	if err == nil {
		err = l.Lock(context.Background(), patient)
	}
	fmt.Println(err)
	io.Copy(io.Discard, os.Stdin)
}

func TestALockExcludesOtherProcessesAndDiesWithItsHolder(t *testing.T) {
	name := lockFile(t)
	cmd := child(t, "hold", name)
	stdin, err := cmd.StdinPipe() // never written: the child waits
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "<nil>\n" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	l := openLock(t, name)
	tryLock(t, l, false)
	got := make(chan error, 1)
	go func() { got <- l.Lock(t.Context(), patient) }()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("after kill -9 of its holder: %v", err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the child ended well, so it was not killed")
	}
}

// countRounds is how often each counting process or goroutine counts.
const countRounds = 50

// countUnder adds to the number in the file beside a lock. Without exclusion,
// additions get lost.
func countUnder(name string, rounds int) error {
	l, err := durable.OpenLock(nil, name)
	if err != nil {
		return err
	}
	defer l.Close()
	for range rounds {
		if err := l.Lock(context.Background(), patient); err != nil {
			return err
		}
		text, err := durable.ReadFile(nil, name+".count", 100)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(text))
		if err != nil {
			return err
		}
		// In place, so that a reader without the lock may find no number at all.
		if err := os.WriteFile(name+".count", strconv.AppendInt(nil, int64(n+1), 10), 0o600); err != nil {
			return err
		}
		if err := l.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

func TestNoTurnIsLostBetweenGoroutinesAndProcesses(t *testing.T) {
	name := lockFile(t)
	put(t, name+".count", "0")
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := countUnder(name, countRounds); err != nil {
				t.Error(err)
			}
		})
		cmd := child(t, "count", name)
		all.Go(func() {
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, want := get(t, name+".count"), strconv.Itoa(6*countRounds); got != want {
		t.Errorf("counted to %s, want %s", got, want)
	}
}

func TestWhoAsksForALockNeedsNotWrite(t *testing.T) {
	name := lockFile(t)
	if held, err := durable.Locked(nil, name); held || err != nil {
		t.Errorf("a file that is not there: %v, %v", held, err)
	}
	one := openLock(t, name)
	readOnly := readOnlyFS{durable.OS}
	for _, want := range []bool{false, true, false} {
		if want {
			tryLock(t, one, true)
		} else if err := one.Unlock(); err != nil {
			t.Fatal(err)
		}
		if held, err := durable.Locked(readOnly, name); held != want || err != nil {
			t.Errorf("held: %v, %v; want %v", held, err, want)
		}
	}
	tryLock(t, one, true) // whoever asked is gone
}

// readOnlyFS opens nothing to be written.
type readOnlyFS struct{ durable.FS }

func (r readOnlyFS) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	if flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE) != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: unix.EROFS}
	}
	return r.FS.OpenFile(name, flag, perm)
}
