package encrypted_test

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
)

// cheap is as little work as Argon2id can be.
var cheap = encrypted.KDF{Time: 1, Threads: 1, MemoryKiB: 8}

func ring(t testing.TB, passphrases ...string) *encrypted.Keyring {
	t.Helper()
	var all [][]byte
	for _, p := range passphrases {
		all = append(all, []byte(p))
	}
	k, err := encrypted.NewKeyring(all...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func open(t testing.TB, inner blobstore.Store, keys *encrypted.Keyring, opts encrypted.Options) *encrypted.Store {
	t.Helper()
	if opts.KDF == (encrypted.KDF{}) {
		opts.KDF = cheap
	}
	s, err := encrypted.New(inner, keys, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// storedAs returns under which id the store below keeps a blob: the one that holds it
// when a copy of all the others does not.
func storedAs(t testing.TB, s *encrypted.Store, ref blobref.Ref) blobref.Ref {
	t.Helper()
	id, err := encrypted.StoredAs(context.Background(), s, ref)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// whole hides every ability of a store but what Store itself has.
type whole struct{ blobstore.Store }

func (whole) Mode() blobstore.Mode { return blobstore.Opaque }

func TestStore(t *testing.T) {
	for name, opts := range map[string]encrypted.Options{
		"own form":            {},
		"own form, keyed ids": {KeyedIDs: true},
		"own form, 4 KiB":     {ChunkBytes: 4 << 10},
		"seed's form":         {Form: encrypted.Seed},
		"opaque":              {Mode: blobstore.Opaque},
		"opaque, keyed ids":   {Mode: blobstore.Opaque, KeyedIDs: true},
	} {
		keys := ring(t, "newest", "older")
		run := func(name string, largest int, below func() blobstore.Store) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				options := []storetest.Option{
					storetest.Largest(largest),
					storetest.Reopen(func(s blobstore.Store) blobstore.Store {
						return open(t, s.(*encrypted.Store).Unwrap(), keys, opts)
					}),
					storetest.Corrupt(func(s blobstore.Store, ref blobref.Ref, data []byte) error {
						e := s.(*encrypted.Store)
						return e.Unwrap().Set(context.Background(), storedAs(t, e, ref), data)
					}),
				}
				if opts.Mode == blobstore.Opaque {
					options = append(options, storetest.Opaque())
				}
				storetest.Run(t, func() blobstore.Store { return open(t, below(), keys, opts) }, options...)
			})
		}
		run(name+" over memory", 16<<20, func() blobstore.Store { return memory.New(blobstore.Opaque) })
		if opts.ChunkBytes > 0 || opts.Mode == blobstore.Opaque && !opts.KeyedIDs {
			continue // what a store below can do makes no difference to these
		}
		run(name+" over a store without abilities", 1<<20, func() blobstore.Store { return whole{memory.New(blobstore.Opaque)} })
		base, n := t.TempDir(), 0
		run(name+" over a directory", 1<<20, func() blobstore.Store {
			n++
			s, err := localdir.Open(filepath.Join(base, strconv.Itoa(n)), localdir.Options{Mode: blobstore.Opaque})
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	}
}
