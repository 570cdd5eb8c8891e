package httpstore_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/httpstore"
	"github.com/agentrun/agentrun/blobstore/memory"
)

// whole is a store that takes no streams.
type whole struct{ blobstore.Store }

func (w whole) Unwrap() blobstore.Store { return w.Store }

func TestBodiesThatDoNotComeTakeNoMemoryOfOthers(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	ref := blobref.Of(wanted)
	if err := below.Set(t.Context(), ref, wanted); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(httpstore.NewHandler(whole{below}, httpstore.HandlerOptions{MaxBodyBytes: 1 << 20, Memory: 1 << 20}))
	t.Cleanup(server.Close)
	address := server.Listener.Addr().String()
	for _, length := range []string{"Transfer-Encoding: chunked", "Content-Length: 1048576", "Transfer-Encoding: chunked"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "PUT /blobs/%s HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\n%s\r\n\r\n", blobref.Of(nil).Hex(), address, length)
		// The server says so when it wants the body.
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100") {
			t.Fatalf("%s: %q, %v", length, line, err)
		}
	}
	client, err := httpstore.Open(server.URL, httpstore.Options{Mode: blobstore.Opaque})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if got, err := client.Get(t.Context(), ref); err != nil || string(got) != string(wanted) {
		t.Errorf("Get = %q, %v", got, err)
	}
	full := make([]byte, 1<<20-4096)
	if err := client.Set(t.Context(), ref, full); err != nil {
		t.Errorf("Set of a large blob: %v", err)
	}
}
