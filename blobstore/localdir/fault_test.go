package localdir_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

// The actors of the fault tests.
var (
	blobData  = bytes.Repeat([]byte("the blob. "), 100)
	blobName  = blobref.Of(blobData)
	otherData = []byte("another blob that nobody touches")
	otherName = blobref.Of(otherData)
	damage    = []byte("damaged bytes")
	bigData   = bytes.Repeat([]byte("a blob of two chunks. "), 12_500)
	bigName   = blobref.Of(bigData)
)

// A scenario is one call, and what may stand under the name afterwards.
type scenario struct {
	name  string
	mode  blobstore.Mode
	ref   blobref.Ref
	setUp func(t *testing.T, s *localdir.Store) // on a disk that works
	call  func(t *testing.T, s *localdir.Store) error
	old   []byte // nil: no blob
	new   []byte // nil: no blob
}

var scenarios = []scenario{
	{
		name: "the first blob of a home", ref: blobName, new: blobData,
		call: func(t *testing.T, s *localdir.Store) error { return s.Set(t.Context(), blobName, blobData) },
	},
	{
		name: "a new blob", ref: blobName, new: blobData, setUp: setUpOther,
		call: func(t *testing.T, s *localdir.Store) error { return s.Set(t.Context(), blobName, blobData) },
	},
	{
		name: "a new streamed blob", ref: bigName, new: bigData, setUp: setUpOther,
		call: putBig,
	},
	{
		name: "a streamed blob that is there", ref: bigName, old: bigData, new: bigData,
		setUp: func(t *testing.T, s *localdir.Store) { plant(t, s, bigName, bigData) },
		call:  putBig,
	},
	{
		name: "a blob that is there", ref: blobName, old: blobData, new: blobData,
		setUp: func(t *testing.T, s *localdir.Store) { plant(t, s, blobName, blobData) },
		call:  func(t *testing.T, s *localdir.Store) error { return s.Set(t.Context(), blobName, blobData) },
	},
	{
		name: "healing a corrupt blob", ref: blobName, old: damage, new: blobData,
		setUp: func(t *testing.T, s *localdir.Store) { plant(t, s, blobName, damage) },
		call:  func(t *testing.T, s *localdir.Store) error { return s.Set(t.Context(), blobName, blobData) },
	},
	{
		name: "reading a corrupt blob", ref: blobName, old: damage,
		setUp: func(t *testing.T, s *localdir.Store) { plant(t, s, blobName, damage) },
		call: func(t *testing.T, s *localdir.Store) error {
			if got, err := s.Get(t.Context(), blobName); !errors.Is(err, blobstore.ErrCorrupt) || got != nil {
				t.Errorf("Get = %q, %v; want ErrCorrupt whatever the disk does", got, err)
			}
			return nil
		},
	},
	{
		name: "deleting", ref: blobName, old: blobData,
		setUp: func(t *testing.T, s *localdir.Store) { plant(t, s, blobName, blobData) },
		call:  func(t *testing.T, s *localdir.Store) error { return s.Delete(t.Context(), blobName) },
	},
	{
		name: "the first opaque blob", mode: blobstore.Opaque, ref: blobName, new: []byte("ciphertext"),
		call: func(t *testing.T, s *localdir.Store) error {
			return s.Set(t.Context(), blobName, []byte("ciphertext"))
		},
	},
	{
		name: "replacing an opaque blob", mode: blobstore.Opaque, ref: blobName, old: []byte("old ciphertext"), new: []byte("ciphertext"),
		setUp: func(t *testing.T, s *localdir.Store) {
			if err := s.Set(t.Context(), blobName, []byte("old ciphertext")); err != nil {
				t.Fatal(err)
			}
		},
		call: func(t *testing.T, s *localdir.Store) error {
			return s.Set(t.Context(), blobName, []byte("ciphertext"))
		},
	},
}

func setUpOther(t *testing.T, s *localdir.Store) {
	if err := s.Set(t.Context(), otherName, otherData); err != nil {
		t.Fatal(err)
	}
}

func putBig(t *testing.T, s *localdir.Store) error {
	_, _, err := s.Put(t.Context(), struct{ io.Reader }{bytes.NewReader(bigData)}) // one that can't seek
	return err
}

// plant writes a blob's file by hand.
func plant(t *testing.T, s *localdir.Store, ref blobref.Ref, data []byte) {
	t.Helper()
	if err := os.MkdirAll(s.Dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir(), ref.Hex()), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAfterAnyFaultThereIsTheOldStateOrTheNew(t *testing.T) {
	faults := []struct {
		name    string
		arm     func(*faultfs.FS, int)
		crashed bool
	}{
		{"EIO", func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) }, false},
		{"ENOSPC", func(f *faultfs.FS, n int) { f.FailAt(n, unix.ENOSPC) }, false},
		{"a full disk", func(f *faultfs.FS, n int) { f.FullAt(n) }, false},
		{"a crash", func(f *faultfs.FS, n int) { f.CrashAt(n) }, true},
	}
	for _, sc := range scenarios {
		for _, sync := range []bool{false, true} {
			for _, fault := range faults {
				t.Run(fmt.Sprintf("%s/sync=%v/%s", sc.name, sync, fault.name), func(t *testing.T) {
					t.Parallel()
					rounds := 0
					for n := 0; ; n++ {
						fsys := faultfs.New(faultfs.Unsynced{FS: durable.OS})
						if !faultRound(t, sc, sync, fsys, n, fault.arm, fault.crashed) {
							break
						}
						rounds++
					}
					// Storing what is there touches nothing; all else does.
					quiet := sc.name == "a blob that is there" && !sync
					full := fault.name == "a full disk" // hits what takes space
					if !quiet && !full && rounds == 0 {
						t.Error("no fault was ever hit")
					}
				})
			}
		}
	}
}

// faultRound runs a scenario once and reports whether the fault was hit.
func faultRound(t *testing.T, sc scenario, sync bool, fsys *faultfs.FS, n int, arm func(*faultfs.FS, int), crashed bool) (hit bool) {
	dir := filepath.Join(t.TempDir(), "home", "store")
	opts := localdir.Options{Mode: sc.mode, Sync: sync}
	healthy := open(t, dir, localdir.Options{Mode: sc.mode}) // without fsyncs: rounds are many
	if sc.setUp != nil {
		sc.setUp(t, healthy)
	}
	opts.FS = fsys
	failing := open(t, dir, opts)
	arm(fsys, n)
	err := sc.call(t, failing)
	ops, hit := fsys.Ops(), fsys.Fired()
	if t.Failed() {
		t.Fatalf("after %q", ops)
	}

	// A name holds the old bytes or the new ones, never anything else.
	now, rerr := os.ReadFile(filepath.Join(dir, sc.ref.Hex()))
	there := rerr == nil
	switch {
	case there && (sc.old != nil && bytes.Equal(now, sc.old) || sc.new != nil && bytes.Equal(now, sc.new)):
	case !there && errors.Is(rerr, fs.ErrNotExist) && (sc.old == nil || sc.new == nil || bytes.Equal(sc.old, damage)):
		// Damage has no claim to the name: it may be in .corrupt.
	default:
		t.Fatalf("%d bytes (%v) stand under the name after %q", len(now), rerr, ops)
	}
	if err == nil && sc.new != nil && !bytes.Equal(now, sc.new) {
		t.Fatalf("a call that succeeded left %d bytes after %q", len(now), ops)
	}
	if !hit && err != nil {
		t.Fatalf("a call that no fault hit failed: %v", err)
	}
	if bytes.Equal(sc.old, damage) {
		aside, _ := os.ReadFile(filepath.Join(dir, ".corrupt", sc.ref.Hex()))
		if !bytes.Equal(now, damage) && !bytes.Equal(aside, damage) {
			t.Fatalf("the damaged bytes are gone after %q", ops)
		}
	}

	// What is left over is no blob.
	for info, err := range open(t, dir, localdir.Options{Mode: sc.mode}).Walk(t.Context()) {
		if err != nil || info.Ref != sc.ref && info.Ref != otherName {
			t.Fatalf("Walk yields %v, %v after %q", info.Ref, err, ops)
		}
	}
	removeFailed := hit && strings.HasPrefix(ops[n], "remove ")
	if temps, _ := filepath.Glob(filepath.Join(dir, ".tmp-*")); len(temps) > 0 && !crashed && !removeFailed {
		t.Fatalf("%v left after %q: %v", temps, ops, err)
	}

	// Once more, on a disk that works: with the store that saw the fault, and
	// with others.
	want, again := sc.new, sc.call
	if want == nil {
		want = blobData
		again = func(t *testing.T, s *localdir.Store) error { return s.Set(t.Context(), sc.ref, want) }
	}
	next := []*localdir.Store{failing, healthy, open(t, dir, localdir.Options{Mode: sc.mode})}
	if crashed {
		next = next[1:] // its process is gone
	}
	fsys.FailAt(-1, nil) // no operation has that number
	for _, s := range next {
		if err := again(t, s); err != nil {
			t.Fatalf("the next call fails after %q: %v", ops, err)
		}
		got, err := s.Get(t.Context(), sc.ref)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("Get after the next call = %d bytes, %v; after %q", len(got), err, ops)
		}
	}
	return hit
}
