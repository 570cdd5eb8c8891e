package writethrough_test

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
	"github.com/agentrun/agentrun/blobstore/writethrough"
)

// open returns a store that is closed at the end of the test. What it reports goes to
// the log of the test.
func open(t testing.TB, local, remote blobstore.Store, dir string, opts writethrough.Options) *writethrough.Store {
	t.Helper()
	s, err := writethrough.New(local, remote, dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func openDir(t testing.TB, dir string, mode blobstore.Mode) blobstore.Store {
	t.Helper()
	s, err := localdir.Open(dir, localdir.Options{Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// modes runs a test in both modes.
func modes(t *testing.T, run func(t *testing.T, mode blobstore.Mode, opts []storetest.Option)) {
	t.Run("verified", func(t *testing.T) { run(t, blobstore.Verified, nil) })
	t.Run("opaque", func(t *testing.T) { run(t, blobstore.Opaque, []storetest.Option{storetest.Opaque()}) })
}

func TestStore(t *testing.T) {
	modes(t, func(t *testing.T, mode blobstore.Mode, opts []storetest.Option) {
		for name, local := range map[string]func(dir string) blobstore.Store{
			"memory":   func(string) blobstore.Store { return memory.New(mode) },
			"localdir": func(dir string) blobstore.Store { return openDir(t, filepath.Join(dir, "store"), mode) },
		} {
			t.Run("over "+name, func(t *testing.T) {
				t.Parallel()
				base, n := t.TempDir(), 0
				type place struct {
					local, remote blobstore.Store
					dir           string
				}
				places := make(map[blobstore.Store]place)
				reopen := storetest.Reopen(func(s blobstore.Store) blobstore.Store {
					p := places[s]
					if err := s.(*writethrough.Store).Close(); err != nil {
						t.Error(err)
					}
					again := open(t, p.local, p.remote, p.dir, writethrough.Options{})
					places[again] = p
					return again
				})
				storetest.Run(t, func() blobstore.Store {
					n++
					dir := filepath.Join(base, strconv.Itoa(n))
					p := place{local(dir), memory.New(mode), filepath.Join(dir, "queue")}
					s := open(t, p.local, p.remote, p.dir, writethrough.Options{StreamOver: 200 << 10})
					places[s] = p
					return s
				}, append(opts, reopen)...)
			})
		}
	})
}

func TestFaultsOfTheRemote(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode blobstore.Mode, opts []storetest.Option) {
		storetest.RunFaults(t, func(t *testing.T, inner blobstore.Store) blobstore.Store {
			return open(t, memory.New(mode), inner, t.TempDir(), writethrough.Options{StreamOver: 50_000})
		}, opts...)
	})
}

func TestFaultsOfTheLocalStore(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode blobstore.Mode, opts []storetest.Option) {
		storetest.RunFaults(t, func(t *testing.T, inner blobstore.Store) blobstore.Store {
			return open(t, inner, memory.New(mode), t.TempDir(), writethrough.Options{StreamOver: 50_000})
		}, append(opts, storetest.TrustsBelow())...)
	})
}
