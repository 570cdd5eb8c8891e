package idlog_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore/writethrough/internal/idlog"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

// set is the simplest state: the ids that are queued.
type set struct {
	mu      sync.Mutex
	ids     map[blobref.Ref]bool // guarded by mu
	damaged int                  // guarded by mu
}

func (s *set) Apply(reset bool, records []idlog.Record, damaged int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reset || s.ids == nil {
		s.ids, s.damaged = make(map[blobref.Ref]bool), 0
	}
	s.damaged += damaged
	for _, r := range records {
		switch r.Kind {
		case idlog.Queued:
			s.ids[r.Ref] = true
		case idlog.Done, idlog.Deleted:
			delete(s.ids, r.Ref)
		case idlog.Damaged:
			s.damaged++
		}
	}
}

func (s *set) Live() []idlog.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var records []idlog.Record
	for ref := range s.ids {
		records = append(records, idlog.Record{Kind: idlog.Queued, Ref: ref})
	}
	return records
}

func (s *set) all() map[blobref.Ref]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ids)
}

func id(i int) blobref.Ref { return blobref.Of(binary.AppendVarint(nil, int64(i))) }

func open(t testing.TB, fsys durable.FS, dir string) (*idlog.Log, *set) {
	t.Helper()
	s := new(set)
	l, err := idlog.Open(t.Context(), fsys, dir, false, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, s
}

func add(l *idlog.Log, kind idlog.Kind, ids ...int) error {
	return l.Update(context.Background(), func() []idlog.Record {
		var records []idlog.Record
		for _, i := range ids {
			records = append(records, idlog.Record{Kind: kind, Ref: id(i)})
		}
		return records
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t testing.TB, s *set, ids ...int) {
	t.Helper()
	all := make(map[blobref.Ref]bool)
	for _, i := range ids {
		all[id(i)] = true
	}
	if got := s.all(); !maps.Equal(got, all) {
		t.Fatalf("%d ids are queued, want %d", len(got), len(all))
	}
}

func TestWhatWasAppendedIsThereAfterReopening(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	l, s := open(t, nil, dir)
	must(t, add(l, idlog.Queued, 1, 2, 3))
	must(t, add(l, idlog.Done, 2))
	want(t, s, 1, 3)
	must(t, l.Close())
	must(t, l.Close())
	_, s = open(t, nil, dir)
	want(t, s, 1, 3)
	for name, perm := range map[string]fs.FileMode{"": 0o700, "queue": 0o600, "lock": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != perm {
			t.Errorf("%q: %v, %v", name, info.Mode(), err)
		}
	}
	if err := add(l, idlog.Queued, 4); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("an append after Close = %v", err)
	}
}

func TestTwoLogsOnOneDirectorySeeEachOther(t *testing.T) {
	dir := t.TempDir()
	one, ones := open(t, nil, dir)
	two, twos := open(t, nil, dir)
	must(t, add(one, idlog.Queued, 1))
	must(t, add(two, idlog.Queued, 2))
	want(t, twos, 1, 2)
	must(t, one.CatchUp(t.Context()))
	want(t, ones, 1, 2)
	must(t, add(one, idlog.Done, 2))
	must(t, two.CatchUp(t.Context()))
	want(t, twos, 1)
}

func TestACompactedLogSaysTheSameAndOthersFollow(t *testing.T) {
	dir := t.TempDir()
	one, _ := open(t, nil, dir)
	two, twos := open(t, nil, dir)
	for i := range 2000 {
		must(t, add(one, idlog.Queued, i))
		if i%100 != 0 {
			must(t, add(one, idlog.Done, i))
		}
	}
	must(t, two.CatchUp(t.Context()))
	before, err := os.Stat(filepath.Join(dir, "queue"))
	must(t, err)
	must(t, one.Compact(t.Context()))
	after, err := os.Stat(filepath.Join(dir, "queue"))
	must(t, err)
	if after.Size() != 20*88 {
		t.Errorf("%d bytes became %d, want %d", before.Size(), after.Size(), 20*88)
	}
	must(t, add(two, idlog.Queued, 5000)) // to the new file, not the one that it had open
	must(t, add(one, idlog.Done, 0))
	must(t, two.CatchUp(t.Context()))
	left := []int{5000}
	for i := 100; i < 2000; i += 100 {
		left = append(left, i)
	}
	want(t, twos, left...)
	_, threes := open(t, nil, dir)
	want(t, threes, left...)
}

func TestALogThatSomebodyRemovedIsWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	l, s := open(t, nil, dir)
	must(t, add(l, idlog.Queued, 1, 2))
	must(t, os.Remove(filepath.Join(dir, "queue")))
	must(t, add(l, idlog.Done, 1))
	want(t, s, 2)
	_, s = open(t, nil, dir)
	want(t, s, 2)
}

func TestATornTailIsOverwritten(t *testing.T) {
	for cut := 1; cut < 88; cut += 7 {
		dir := t.TempDir()
		l, _ := open(t, nil, dir)
		must(t, add(l, idlog.Queued, 1, 2))
		must(t, l.Close())
		must(t, os.Truncate(filepath.Join(dir, "queue"), int64(2*88-cut)))
		l, s := open(t, nil, dir)
		want(t, s, 1)
		if s.damaged != 0 {
			t.Errorf("%d bytes missing pass for damage", cut)
		}
		must(t, add(l, idlog.Queued, 3))
		_, s = open(t, nil, dir)
		want(t, s, 1, 3)
	}
}

func TestAnAppendOverATornTailOfAnotherProcessLosesNothing(t *testing.T) {
	dir := t.TempDir()
	l, s := open(t, nil, dir)
	must(t, add(l, idlog.Queued, 1))
	f, err := os.OpenFile(filepath.Join(dir, "queue"), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString("half a record of a process that was killed")
	must(t, errors.Join(err, f.Close()))
	must(t, add(l, idlog.Queued, 2))
	want(t, s, 1, 2)
	_, s = open(t, nil, dir)
	want(t, s, 1, 2)
	if s.damaged != 0 {
		t.Error("the tail passes for damage")
	}
}

// TestFlipsAreHarmlessOrFound flips single bits, and pairs of bits in one record, in
// random places.
func TestFlipsAreHarmlessOrFound(t *testing.T) {
	dir := t.TempDir()
	l, s := open(t, nil, dir)
	for i := range 100 {
		must(t, add(l, idlog.Queued, i))
		if i%3 == 0 {
			must(t, add(l, idlog.Done, i))
		}
	}
	intact := s.all()
	must(t, l.Close())
	good, err := os.ReadFile(filepath.Join(dir, "queue"))
	must(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	found := 0
	for round := range 1000 {
		bad := slices.Clone(good)
		at := random.IntN(len(bad))
		bad[at] ^= 1 << random.IntN(8)
		if round%2 == 1 { // a second one, so that both copies may be hit
			bad[at/88*88+random.IntN(88)] ^= 1 << random.IntN(8)
		}
		must(t, os.WriteFile(filepath.Join(dir, "queue"), bad, 0o600))
		s := new(set)
		l, err := idlog.Open(t.Context(), nil, dir, false, s)
		must(t, err)
		must(t, l.Close())
		if s.damaged > 0 {
			found++
		} else if !maps.Equal(s.all(), intact) {
			t.Fatalf("round %d: a flip at %d changed the queue unnoticed", round, at)
		}
	}
	if found == 0 {
		t.Error("no flip was ever found, so both copies were never hit")
	}
}

func TestAFileThatIsNoLogIsDamage(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "queue"), []byte(strings.Repeat("not a queue\n", 100)), 0o600))
	_, s := open(t, nil, dir)
	if s.damaged == 0 || len(s.ids) != 0 {
		t.Errorf("%d ids, %d damaged", len(s.ids), s.damaged)
	}
}

func TestAHugeFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "queue"), nil, 0o600))
	must(t, os.Truncate(filepath.Join(dir, "queue"), 10<<30))
	if _, err := idlog.Open(t.Context(), nil, dir, false, new(set)); !errors.Is(err, durable.ErrTooLarge) {
		t.Errorf("Open = %v", err)
	}
}

func TestTemporariesOfAKilledCompactionAreRemoved(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, ".tmp-queue-abc"), nil, 0o600))
	open(t, nil, dir)
	if _, err := os.Stat(filepath.Join(dir, ".tmp-queue-abc")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
}

func TestAWaitForTheLockEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	l, _ := open(t, nil, dir)
	other, err := durable.OpenLock(nil, filepath.Join(dir, "lock"))
	must(t, err)
	defer other.Close()
	if ok, err := other.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- l.CatchUp(ctx) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("CatchUp = %v", err)
	}
}

func TestAppendsOfManyAreNotLost(t *testing.T) {
	dir := t.TempDir()
	const logs, each = 6, 200
	var all sync.WaitGroup
	for w := range logs {
		l, _ := open(t, nil, dir)
		all.Go(func() {
			for i := range each {
				n := w*each + i
				if err := errors.Join(add(l, idlog.Queued, n), add(l, idlog.Queued, 1e6+n), add(l, idlog.Done, 1e6+n)); err != nil {
					t.Error(err)
				}
				if i%50 == 0 {
					if err := l.Compact(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	_, s := open(t, nil, dir)
	var ids []int
	for i := range logs * each {
		ids = append(ids, i)
	}
	want(t, s, ids...)
}

// TestAfterAnyFaultTheLogHasWhatWasAcknowledged lets each operation of the disk fail in
// turn, and looks at what another process finds, and at what the same process does
// next.
func TestAfterAnyFaultTheLogHasWhatWasAcknowledged(t *testing.T) {
	for name, arm := range map[string]func(*faultfs.FS, int){
		"EIO":         func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"a full disk": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"a crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, first %v", name, first), func(t *testing.T) {
				for n := 0; ; n++ {
					fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
					arm(fsys, n)
					if !faultRound(t, fsys, name == "a crash", first) {
						if n == 0 {
							t.Error("no fault was ever hit")
						}
						break
					}
				}
			})
		}
	}
}

func faultRound(t *testing.T, fsys *faultfs.FS, crash, first bool) (hit bool) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home", "queue")
	acked, tried := make(map[blobref.Ref]bool), make(map[blobref.Ref]bool)
	try := func(l *idlog.Log, i int) error {
		tried[id(i)] = true
		err := add(l, idlog.Queued, i)
		acked[id(i)] = err == nil
		return err
	}
	if !first { // process of this home
		healthy, _ := open(t, nil, dir)
		for i := range 10 {
			must(t, try(healthy, i))
		}
		for range 100 { // so much that there is something to compact
			must(t, add(healthy, idlog.Done, 100, 101, 102, 103, 104, 105, 106, 107, 108))
		}
		must(t, healthy.Close())
	}
	s := new(set)
	l, err := idlog.Open(t.Context(), fsys, dir, true, s)
	if err == nil {
		_ = try(l, 20)
		_ = try(l, 21)
		_ = add(l, idlog.Done, 20)
		acked[id(20)] = false // may be gone, and may not
		_ = l.Compact(t.Context())
		_ = try(l, 22)
	}
	hit = fsys.Fired()
	check := func(who string, ids map[blobref.Ref]bool) {
		t.Helper()
		for ref, yes := range acked {
			if yes && !ids[ref] {
				t.Fatalf("%s does not see an acknowledged id, after %q", who, last(fsys.Ops()))
			}
		}
		for ref := range ids {
			if !tried[ref] {
				t.Fatalf("%s sees an id that nobody queued, after %q", who, last(fsys.Ops()))
			}
		}
	}
	_, other := open(t, nil, dir)
	check("another process", other.all())
	if other.damaged > 0 {
		t.Fatalf("another process sees damage after %q", last(fsys.Ops()))
	}
	if l == nil || crash {
		return hit
	}
	fsys.FailAt(-1, nil) // the disk works again
	tried[id(9999)], acked[id(9999)] = true, true
	if err := add(l, idlog.Queued, 9999); err != nil {
		t.Fatalf("the next append fails: %v, after %q", err, last(fsys.Ops()))
	}
	check("the process itself", s.all())
	_, other = open(t, nil, dir)
	check("another process", other.all())
	must(t, l.Close())
	return hit
}

func last(ops []string) string { return fmt.Sprint(ops[max(0, len(ops)-3):]) }
