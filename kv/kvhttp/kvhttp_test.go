package kvhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
	"github.com/agentrun/agentrun/kv"
	"github.com/agentrun/agentrun/kv/kvhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var protocols = []kvhttp.Protocol{kvhttp.Connect, kvhttp.GRPC}

// serve serves a store on a loopback address until the test ends, and returns the
// address.
func serve(t *testing.T, store blobstore.Store, opts kvhttp.ServeOptions) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- kvhttp.Serve(ctx, ln, store, opts) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	scheme := "http://"
	if opts.TLS != nil {
		scheme = "https://"
	}
	return scheme + ln.Addr().String()
}

func dial(t *testing.T, address string, opts kvhttp.DialOptions) *kv.Remote {
	t.Helper()
	r, err := kvhttp.Dial(t.Context(), address, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// serveMany serves as many stores as add is called for, each at an address of its own.
func serveMany(t *testing.T) (add func(blobstore.Store) (address string)) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- kvhttp.ServeHandler(ctx, ln, mux, kvhttp.ServeOptions{}) }()
	t.Cleanup(func() {
		cancel()
		<-served
	})
	stores := 0
	return func(store blobstore.Store) string {
		stores++
		prefix := fmt.Sprintf("/%d", stores)
		c := kv.NewControlled(store, kv.ControlledOptions{})
		mux.Handle(prefix+kvhttp.ServicePath, kvhttp.NewHandler(c.Serve, c.MaxMessage(), ""))
		return "http://" + ln.Addr().String() + prefix
	}
}

func TestARemoteOverAConnectionIsAStore(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol.String()+", verified", func(t *testing.T) {
			add := serveMany(t)
			storetest.Run(t, func() blobstore.Store {
				return dial(t, add(memory.New(blobstore.Verified)), kvhttp.DialOptions{Protocol: protocol})
			}, storetest.NotLocal())
		})
		t.Run(protocol.String()+", opaque", func(t *testing.T) {
			add := serveMany(t)
			storetest.Run(t, func() blobstore.Store {
				return dial(t, add(memory.New(blobstore.Opaque)), kvhttp.DialOptions{Protocol: protocol, Remote: kv.RemoteOptions{Mode: blobstore.Opaque}})
			}, storetest.NotLocal(), storetest.Opaque())
		})
	}
}

func TestPlaintextStaysOnThisMachine(t *testing.T) {
	ln, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	err = kvhttp.Serve(t.Context(), ln, memory.New(blobstore.Verified), kvhttp.ServeOptions{Token: "secret"})
	if !errors.Is(err, kvhttp.ErrPlaintext) || strings.Contains(err.Error(), "secret") {
		t.Errorf("serving on all addresses without TLS = %v, want ErrPlaintext", err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is still open: %v", err)
	}
	for _, address := range []string{"http://192.0.2.1:80", "http://example.com", "http://127.0.0.1.example.com"} {
		if _, err := kvhttp.Dial(t.Context(), address, kvhttp.DialOptions{}); !errors.Is(err, kvhttp.ErrPlaintext) {
			t.Errorf("Dial(%s) = %v, want ErrPlaintext", address, err)
		}
	}
}

func TestAddressesThatAreNone(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1:80", "ftp://127.0.0.1", "http://", "http://u:p@127.0.0.1", "http://127.0.0.1?x", "http://127.0.0.1#x"} {
		if _, err := kvhttp.Dial(t.Context(), address, kvhttp.DialOptions{}); err == nil {
			t.Errorf("Dial(%q) succeeded", address)
		}
	}
}

func TestAServerThatIsNotThereIsKnownAtOnce(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if _, err := kvhttp.Dial(t.Context(), "http://"+ln.Addr().String(), kvhttp.DialOptions{}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("Dial = %v, want connection refused", err)
	}
}

func TestATokenIsAskedFor(t *testing.T) {
	address := serve(t, memory.New(blobstore.Verified), kvhttp.ServeOptions{Token: "open-sesame"})
	for _, protocol := range protocols {
		for token, want := range map[string]error{"open-sesame": blobstore.ErrNotFound, "open-sesam": kv.ErrRefused, "other": kv.ErrRefused, "": kv.ErrRefused} {
			r := dial(t, address, kvhttp.DialOptions{Protocol: protocol, Token: token})
			_, err := r.Get(t.Context(), blobref.Of(nil))
			if !errors.Is(err, want) || strings.Contains(err.Error(), "sesam") {
				t.Errorf("%v: Get with token %q = %v, want %v", protocol, token, err, want)
			}
			if refused := errors.Is(want, kv.ErrRefused); strings.Contains(err.Error(), kvhttp.TokenEnv) != refused ||
				strings.Contains(err.Error(), "no token was sent") != (token == "") {
				t.Errorf("%v: Get with token %q = %v, want that a refused token names %s", protocol, token, err, kvhttp.TokenEnv)
			}
		}
	}
}
