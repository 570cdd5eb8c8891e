// Package stacks_test composes the layers of package blobstore as programs do:
// every layer around every kind of store below, and all of them in their order,
// cached(encrypted(writethrough(local, retry(remote)))). What one layer promises
// must hold when the others do their part.
package stacks_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/cached"
	"github.com/agentrun/agentrun/blobstore/diskkv"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/retry"
	"github.com/agentrun/agentrun/blobstore/storetest"
	"github.com/agentrun/agentrun/blobstore/writethrough"
	"github.com/agentrun/agentrun/kv"
)

// parts makes stores and layers that end with their test, and tell observer what
// they do.
type parts struct {
	t        *testing.T
	observer blobstore.Observer // may be nil
}

func (p parts) memory(mode blobstore.Mode) blobstore.Store {
	if p.observer == nil {
		return memory.New(mode)
	}
	return memory.New(mode, memory.Observed(p.observer))
}

func (p parts) dir(mode blobstore.Mode) blobstore.Store {
	p.t.Helper()
	s, err := localdir.Open(p.t.TempDir(), localdir.Options{Mode: mode})
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p parts) diskkv(mode blobstore.Mode) blobstore.Store {
	p.t.Helper()
	s, _, err := diskkv.Open(p.t.Context(), filepath.Join(p.t.TempDir(), "state.vscdb"), diskkv.Options{Mode: mode})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = s.Close() })
	return s
}

// remote is a store at the other end of a stream, which keeps its blobs in inner.
func (p parts) remote(inner blobstore.Store) blobstore.Store {
	p.t.Helper()
	c := kv.NewControlled(inner, kv.ControlledOptions{Observer: p.observer})
	asker, answerer := kv.Pipe(c.MaxMessage())
	served := make(chan error, 1)
	go func() { served <- c.Serve(p.t.Context(), answerer) }()
	r := kv.NewRemote(kv.Once(asker), kv.RemoteOptions{Mode: blobstore.ModeOf(inner), Observer: p.observer})
	p.t.Cleanup(func() {
		_ = r.Close()
		<-served
	})
	return r
}

func (p parts) retry(inner blobstore.Store) *retry.Store {
	return retry.New(inner, retry.Policy{Observer: p.observer})
}

func (p parts) writethrough(local, remote blobstore.Store) blobstore.Store {
	p.t.Helper()
	s, err := writethrough.New(local, remote, filepath.Join(p.t.TempDir(), "queue"), writethrough.Options{Observer: p.observer})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			p.t.Errorf("closing the queue: %v", err)
		}
	})
	return s
}

func (p parts) encrypted(inner blobstore.Store) blobstore.Store {
	p.t.Helper()
	keys, err := encrypted.NewKeyring([]byte("correct horse"))
	if err != nil {
		p.t.Fatal(err)
	}
	s, err := encrypted.New(inner, keys, encrypted.Options{
		KDF:      encrypted.KDF{Time: 1, Threads: 1, MemoryKiB: 8}, // strong ones are measured elsewhere
		Observer: p.observer,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p parts) cached(inner blobstore.Store) blobstore.Store {
	return cached.New(inner, cached.Options{MaxBytes: 1 << 20, Observer: p.observer})
}

// stack is a composition of layers.
type stack struct {
	name string
	mode blobstore.Mode
	open func(p parts) blobstore.Store
}

const (
	verified = blobstore.Verified
	opaque   = blobstore.Opaque
)

// stacks are those whose stores are at the other end of a stream or in a file of
// SQLite, outermost layer first; and one in another order.
var stacks = []stack{
	{"retry(kv)", verified, func(p parts) blobstore.Store { return p.retry(p.remote(p.memory(verified))) }},
	{"retry(kv), opaque", opaque, func(p parts) blobstore.Store { return p.retry(p.remote(p.memory(opaque))) }},
	{"retry(encrypted(memory))", verified, func(p parts) blobstore.Store { return p.retry(p.encrypted(p.memory(opaque))) }},
	{"writethrough(diskkv, retry(directory)), opaque", opaque, func(p parts) blobstore.Store {
		return p.writethrough(p.diskkv(opaque), p.retry(p.dir(opaque)))
	}},
	{"cached(writethrough(directory, retry(kv)))", verified, func(p parts) blobstore.Store {
		return p.cached(p.writethrough(p.dir(verified), p.retry(p.remote(p.memory(verified)))))
	}},
	{"cached(retry(diskkv))", verified, func(p parts) blobstore.Store { return p.cached(p.retry(p.diskkv(verified))) }},
	{"all over kv", verified, func(p parts) blobstore.Store { return p.all(p.dir(opaque), p.remote(p.memory(opaque))) }},
	{"kv to all", verified, func(p parts) blobstore.Store { return p.remote(p.all(p.memory(opaque), p.memory(opaque))) }},
}

// all is every layer, in order.
func (p parts) all(local, remote blobstore.Store) blobstore.Store {
	return p.cached(p.encrypted(p.writethrough(local, p.retry(remote))))
}

func TestEveryStackIsAStore(t *testing.T) {
	for i, s := range stacks {
		t.Run(s.name, func(t *testing.T) {
			if testing.Short() && i%3 != 0 {
				t.Skip("a third of the stacks is enough for a quick look")
			}
			t.Parallel() // they wait for disks
			opts := []storetest.Option{storetest.Largest(1 << 20)}
			if s.mode == opaque {
				opts = append(opts, storetest.Opaque())
			}
			if strings.HasPrefix(s.name, "retry(kv)") || strings.HasPrefix(s.name, "kv") {
				opts = append(opts, storetest.NotLocal())
			}
			storetest.Run(t, func() blobstore.Store { return s.open(parts{t: t}) }, opts...)
		})
	}
}
