package stacks_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/storetest"
)

// subset is some of the layers, in their order, around a store.
type subset struct {
	cached, encrypted, writethrough, retry bool
}

// subsets are all that have a layer.
func subsets() []subset {
	var all []subset
	for bits := 1; bits < 16; bits++ {
		all = append(all, subset{bits&8 != 0, bits&4 != 0, bits&2 != 0, bits&1 != 0})
	}
	return all
}

func (s subset) String() string {
	var names []string
	for _, layer := range []struct {
		name string
		in   bool
	}{{"cached", s.cached}, {"encrypted", s.encrypted}, {"writethrough", s.writethrough}, {"retry", s.retry}} {
		if layer.in {
			names = append(names, layer.name)
		}
	}
	return strings.Join(names, "+")
}

// around composes the layers. bottom makes the store below them and, for
// writethrough, the one on this machine.
func (s subset) around(p parts, mode blobstore.Mode, bottom func(blobstore.Mode) blobstore.Store) blobstore.Store {
	below := mode
	if s.encrypted {
		below = opaque
	}
	store := bottom(below)
	if s.retry {
		store = p.retry(store)
	}
	if s.writethrough {
		store = p.writethrough(bottom(below), store)
	}
	if s.encrypted {
		store = p.encrypted(store)
	}
	if s.cached {
		store = p.cached(store)
	}
	return store
}

func TestEverySubsetOfTheLayersIsAStore(t *testing.T) {
	for i, s := range subsets() {
		for _, mode := range []blobstore.Mode{verified, opaque} {
			if mode == opaque && s.encrypted {
				continue // it is opaque below, and verified above
			}
			for name, bottom := range map[string]func(parts, blobstore.Mode) blobstore.Store{
				"memory": parts.memory,
				"dir":    parts.dir,
			} {
				t.Run(s.String()+" "+mode.String()+" over "+name, func(t *testing.T) {
					if testing.Short() && i%4 != 0 {
						t.Skip("a part of the subsets is enough for a quick look")
					}
					odd := i%2 == 1
					if os.Getenv("AGENTRUN_TEST_ROUNDS") == "" && (name == "dir") != (odd == (mode == verified)) {
						t.Skip("every subset runs over one of the two in each mode; over both with AGENTRUN_TEST_ROUNDS")
					}
					t.Parallel() // they wait for disks
					opts := []storetest.Option{storetest.Largest(300 << 10)}
					if mode == opaque {
						opts = append(opts, storetest.Opaque())
					}
					storetest.Run(t, func() blobstore.Store {
						p := parts{t: t}
						return s.around(p, mode, func(m blobstore.Mode) blobstore.Store { return bottom(p, m) })
					}, opts...)
				})
			}
		}
	}
}

// TestMain lets each suite play fewer random histories than it does for one store:
// there are many suites here, and each history has a queue on disk.
func TestMain(m *testing.M) {
	if os.Getenv("AGENTRUN_TEST_ROUNDS") == "" {
		if err := flag.Set("rapid.checks", "10"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
