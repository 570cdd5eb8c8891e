package httpstore_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/httpstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
)

// serve serves store on a port of its own and returns a client of it.
func serve(t *testing.T, store blobstore.Store, o httpstore.Options, ho httpstore.HandlerOptions) *httpstore.Store {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpstore.NewServer(httpstore.NewHandler(store, ho))
	server.Start()
	t.Cleanup(server.Close)
	client, err := httpstore.Open(server.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func TestAStoreOverAConnectionPassesTheSuite(t *testing.T) {
	storetest.Run(t, func() blobstore.Store {
		return serve(t, memory.New(blobstore.Verified), httpstore.Options{}, httpstore.HandlerOptions{})
	}, storetest.NotLocal())
}

func TestAnOpaqueStoreOverAConnectionPassesTheSuite(t *testing.T) {
	storetest.Run(t, func() blobstore.Store {
		return serve(t, memory.New(blobstore.Opaque), httpstore.Options{Mode: blobstore.Opaque}, httpstore.HandlerOptions{})
	}, storetest.NotLocal(), storetest.Opaque())
}

func TestADirectoryOverAConnectionPassesTheSuite(t *testing.T) {
	below := map[blobstore.Store]*localdir.Store{}
	storetest.Run(t, func() blobstore.Store {
		dir, err := localdir.Open(filepath.Join(t.TempDir(), "store"), localdir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := serve(t, dir, httpstore.Options{Token: "a-token"}, httpstore.HandlerOptions{Token: "a-token"})
		below[s] = dir
		return s
	}, storetest.NotLocal(), storetest.Corrupt(func(s blobstore.Store, ref blobref.Ref, data []byte) error {
		return os.WriteFile(filepath.Join(below[s].Dir(), ref.Hex()), data, 0o600)
	}))
}
