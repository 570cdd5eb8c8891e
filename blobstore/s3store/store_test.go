package s3store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/s3store"
	"github.com/agentrun/agentrun/blobstore/storetest"
	"github.com/agentrun/agentrun/internal/s3test"
)

// fresh opens stores under prefixes of their own in one service.
func fresh(t *testing.T, server s3test.Server, mode blobstore.Mode) func() blobstore.Store {
	n := 0
	return func() blobstore.Store {
		n++
		return open(t, s3store.Options{Endpoint: server.Endpoint, Bucket: server.Bucket, Prefix: fmt.Sprintf("store/%d", n), Mode: mode})
	}
}

func open(t *testing.T, o s3store.Options) *s3store.Store {
	t.Helper()
	s, err := s3store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestAVerifiedStoreInABucketPassesTheSuite(t *testing.T) {
	server := s3test.Start(t)
	prefix := map[blobstore.Store]string{}
	n := 0
	storetest.Run(t, func() blobstore.Store {
		n++
		p := fmt.Sprintf("store/%d", n)
		s := open(t, s3store.Options{Endpoint: server.Endpoint, Bucket: server.Bucket, Prefix: p})
		prefix[s] = p
		return s
	}, storetest.NotLocal(), storetest.Corrupt(func(s blobstore.Store, ref blobref.Ref, data []byte) error {
		return os.WriteFile(server.File(prefix[s]+"/"+ref.Hex()), data, 0o600)
	}))
}

func TestAnOpaqueStoreInABucketPassesTheSuite(t *testing.T) {
	storetest.Run(t, fresh(t, s3test.Start(t), blobstore.Opaque), storetest.NotLocal(), storetest.Opaque())
}

func TestALongStreamIsSentInParts(t *testing.T) {
	if testing.Short() {
		t.Skip("it is 18 MiB")
	}
	s := fresh(t, s3test.Start(t), blobstore.Verified)().(*s3store.Store)
	data := make([]byte, 18<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	ref, n, err := s.Put(t.Context(), io.MultiReader(bytes.NewReader(data)))
	if err != nil || ref != blobref.Of(data) || n != int64(len(data)) {
		t.Fatalf("Put = %v, %d, %v", ref, n, err)
	}
	b, err := s.Open(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, data) {
		t.Errorf("Open gives %d bytes, %v", len(got), err)
	}
	if part, err := s.GetRange(t.Context(), ref, 17<<20, 1000); err != nil || !bytes.Equal(part, data[17<<20:][:1000]) {
		t.Errorf("GetRange gives %d bytes, %v", len(part), err)
	}
}

func TestOfManyConditionalPutsOneWins(t *testing.T) {
	server := s3test.Start(t)
	for _, mode := range []blobstore.Mode{blobstore.Verified, blobstore.Opaque} {
		s := open(t, s3store.Options{Endpoint: server.Endpoint, Bucket: server.Bucket, Prefix: mode.String(), Mode: mode})
		var won atomic.Int32
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				data := wanted
				if mode == blobstore.Opaque {
					data = []byte{byte(i)}
				}
				stored, err := s.SetIfAbsent(context.Background(), blobref.Of(wanted), data)
				if err != nil {
					t.Error(err)
				}
				if stored {
					won.Add(1)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Errorf("%v: %d puts won, want 1", mode, won.Load())
		}
	}
}

func TestWhatIsNoBlobIsLeftAlone(t *testing.T) {
	server := s3test.Start(t)
	s := open(t, s3store.Options{Endpoint: server.Endpoint, Bucket: server.Bucket, Prefix: "p"})
	other := open(t, s3store.Options{Endpoint: server.Endpoint, Bucket: server.Bucket, Prefix: "p/below"})
	ref, err := s.PutBytes(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.PutBytes(t.Context(), []byte("another")); err != nil {
		t.Fatal(err)
	}
	for info, err := range s.Walk(t.Context()) {
		if err != nil || info.Ref != ref || info.Size != int64(len(wanted)) || info.ModTime.IsZero() {
			t.Errorf("listed %+v, %v", info, err)
		}
	}
	missing := open(t, s3store.Options{Endpoint: server.Endpoint, Bucket: "missing"})
	if _, err := missing.Get(t.Context(), ref); err == nil || errors.Is(err, blobstore.ErrNotFound) || !strings.Contains(err.Error(), "make the bucket") {
		t.Errorf("Get from a bucket that is not there = %v", err)
	}
}
