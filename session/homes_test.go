package session_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// listedHome makes a home with one session, which is put on the list.
func listedHome(t *testing.T, home, list string, fsys durable.FS) error {
	t.Helper()
	m, err := session.OpenManager(home, session.Options{Durability: session.Flush, Homes: list, FS: fsys})
	if err != nil {
		return err
	}
	s, err := m.Create(t.Context(), t.TempDir(), session.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = s.Append(t.Context(), entry.Custom{CustomType: "x"})
	return errors.Join(err, s.Close())
}

func knownHomes(t *testing.T, list string) (there, vanished []string) {
	t.Helper()
	m, err := session.OpenManager(filepath.Join(t.TempDir(), "looking"), session.Options{Homes: list})
	if err == nil {
		there, vanished, err = m.KnownHomes()
	}
	if err != nil {
		t.Fatal(err)
	}
	return there[1:], vanished
}

func TestHomesThatAreMadeAtOnceAreAllListed(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "state", "homes")
	var all sync.WaitGroup
	var want []string
	for i := range 16 {
		home := filepath.Join(dir, fmt.Sprint("home", i%8)) // two writers each
		want = append(want, home)
		all.Go(func() {
			if err := listedHome(t, home, list, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	slices.Sort(want)
	there, vanished := knownHomes(t, list)
	if slices.Sort(there); !slices.Equal(there, slices.Compact(want)) || len(vanished) > 0 {
		t.Errorf("listed are %v, not there %v", there, vanished)
	}
}

func TestAListOfHomesThatCannotBeWrittenKeepsNobodyFromWorking(t *testing.T) {
	for _, fault := range []error{unix.EIO, unix.ENOSPC} {
		for n := 0; ; n++ {
			dir := t.TempDir()
			list := filepath.Join(dir, "state", "homes")
			if err := listedHome(t, filepath.Join(dir, "first"), list, nil); err != nil {
				t.Fatal(err)
			}
			fsys := faultfs.New(durable.OS)
			fsys.FailAt(n, fault)
			fails := onlyBelow{FS: durable.OS, faulty: fsys, dir: filepath.Dir(list)}
			if err := listedHome(t, filepath.Join(dir, "second"), list, fails); err != nil {
				t.Fatalf("operation %d, %v: %v", n, fault, err)
			}
			there, _ := knownHomes(t, list)
			if len(there) != 1 && len(there) != 2 || !strings.HasSuffix(there[0], "first") {
				t.Errorf("operation %d, %v: the list has %v", n, fault, there)
			}
			if !fsys.Fired() {
				if len(there) != 2 {
					t.Errorf("without a fault the list has %v", there)
				}
				break
			}
		}
	}
}

// onlyBelow hands operations in one directory to a file system with faults.
type onlyBelow struct {
	durable.FS
	faulty durable.FS
	dir    string
}

func (o onlyBelow) at(name string) durable.FS {
	if strings.HasPrefix(name, o.dir) {
		return o.faulty
	}
	return o.FS
}

func (o onlyBelow) OpenFile(name string, flag int, perm os.FileMode) (durable.File, error) {
	return o.at(name).OpenFile(name, flag, perm)
}
func (o onlyBelow) Rename(from, to string) error { return o.at(from).Rename(from, to) }
func (o onlyBelow) Mkdir(name string, perm os.FileMode) error {
	return o.at(name).Mkdir(name, perm)
}
func (o onlyBelow) SyncDir(name string) error { return o.at(name).SyncDir(name) }
func (o onlyBelow) Remove(name string) error  { return o.at(name).Remove(name) }
