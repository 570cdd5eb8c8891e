package kvhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
	"github.com/agentrun/agentrun/kv"
	"github.com/agentrun/agentrun/kv/kvhttp"
)

// fate is what becomes of one connection through a proxy.
type fate struct {
	cutAfter  int64         // bytes, in both directions together, after which it is cut; 0 is never
	holdAfter int64         // bytes after which nothing passes any more, and nobody is told; 0 is never
	delay     time.Duration // of every piece
}

// proxy is a bad network between a client and a server.
type proxy struct {
	ln     net.Listener
	target string
	fate   func(connection int) fate

	count atomic.Int64
	cuts  atomic.Int64 // connections that were cut
	holds atomic.Int64 // connections that were held

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // guarded by mu
	closed bool                  // guarded by mu
	work   sync.WaitGroup
}

func newProxy(t *testing.T, target string, fate func(connection int) fate) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: target[len("http://"):], fate: fate, conns: make(map[net.Conn]struct{})}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		ln.Close()
		p.mu.Lock()
		p.closed = true
		for c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.work.Wait()
	})
	return p
}

func (p *proxy) address() string { return "http://" + p.ln.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.keep(client, server) {
			client.Close()
			if server != nil {
				server.Close()
			}
			continue
		}
		f := p.fate(int(p.count.Add(1)) - 1)
		passed := new(atomic.Int64)
		end := sync.OnceFunc(func() {
			client.Close()
			server.Close()
		})
		p.work.Go(func() { p.pass(server, client, f, passed, end) })
		p.work.Go(func() { p.pass(client, server, f, passed, end) })
	}
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

// pass forwards one direction until it ends or meets its fate.
func (p *proxy) pass(to, from net.Conn, f fate, passed *atomic.Int64, end func()) {
	defer end()
	buf := make([]byte, 8<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if f.delay > 0 {
			time.Sleep(f.delay) // this is the network, not a wait for something
		}
		before := passed.Add(int64(n)) - int64(n)
		if f.holdAfter > 0 && before+int64(n) > f.holdAfter {
			p.holds.Add(1)
			io.Copy(io.Discard, from) //nolint:errcheck // until somebody gives up
			return
		}
		if f.cutAfter > 0 && before+int64(n) > f.cutAfter {
			p.cuts.Add(1)
			to.Write(buf[:max(0, f.cutAfter-before)]) //nolint:errcheck // cut in the middle
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// through returns a Remote that has patience with a bad network.
func through(t *testing.T, address string, protocol kvhttp.Protocol, mode blobstore.Mode) *kv.Remote {
	t.Helper()
	dialer, err := kvhttp.NewDialer(address, kvhttp.ServicePath, kv.MaxMessage(0), kvhttp.DialOptions{Protocol: protocol, Ping: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r := kv.NewRemote(dialer.Open, kv.RemoteOptions{
		Mode: mode, Attempts: 1000, Timeout: time.Minute, Backoff: time.Millisecond, BackoffLimit: 20 * time.Millisecond,
		DialPatience: -1,
	})
	t.Cleanup(func() { r.Close() })
	return r
}

// badNetworks are what every second connection suffers. The others are whole, so that
// the largest blob comes through in the end.
var badNetworks = map[string]func(rng *rand.Rand) fate{
	"that cuts":       func(rng *rand.Rand) fate { return fate{cutAfter: 1 + rng.Int64N(20_000)} },
	"that partitions": func(rng *rand.Rand) fate { return fate{holdAfter: 200 + rng.Int64N(20_000)} },
	"that delays":     func(rng *rand.Rand) fate { return fate{delay: time.Duration(rng.IntN(2000)) * time.Microsecond} },
}

func TestNothingIsLostOverABadNetwork(t *testing.T) {
	rounds := 1
	if os.Getenv("AGENTRUN_TEST_ROUNDS") != "" {
		rounds = 20
	}
	for name, network := range badNetworks {
		t.Run("a network "+name, func(t *testing.T) {
			for round := range rounds {
				seed := uint64(time.Now().UnixNano()) + uint64(round)
				t.Logf("seed %d", seed)
				testBadNetwork(t, network, rand.New(rand.NewPCG(seed, 0)))
			}
		})
	}
}

func testBadNetwork(t *testing.T, network func(*rand.Rand) fate, rng *rand.Rand) {
	store := memory.New(blobstore.Verified)
	p := newProxy(t, serve(t, store, kvhttp.ServeOptions{Ping: 100 * time.Millisecond}), func(connection int) fate {
		if connection < 6 || connection%2 == 0 {
			return network(rng) // of the goroutine that accepts alone
		}
		return fate{}
	})
	r := through(t, p.address(), kvhttp.Connect, blobstore.Verified)
	var callers sync.WaitGroup
	for caller := range 16 {
		callers.Go(func() {
			for i := range 20 {
				data := bytes.Repeat(fmt.Appendf(nil, "%d/%d ", caller, i), 1+i*10)
				ref := blobref.Of(data)
				if err := r.Set(t.Context(), ref, data); err != nil {
					t.Errorf("Set: %v", err)
					return
				}
				// What is acknowledged is stored.
				if stored, err := store.Get(t.Context(), ref); err != nil || !bytes.Equal(stored, data) {
					t.Errorf("after Set the store has %d bytes, %v", len(stored), err)
				}
				if got, err := r.Get(t.Context(), ref); err != nil || !bytes.Equal(got, data) {
					t.Errorf("Get = %d bytes, %v; want %d", len(got), err, len(data))
				}
			}
		})
	}
	callers.Wait()
	stats := r.Stats()
	if stats.Asked != 16*20*2 || stats.Answered != stats.Asked {
		t.Errorf("counted %+v", stats)
	}
	if p.cuts.Load()+p.holds.Load() > 0 && stats.Connections < 2 {
		t.Errorf("%d connections were cut and %d held, and %d made", p.cuts.Load(), p.holds.Load(), stats.Connections)
	}
	t.Logf("%d cuts, %d holds, %+v", p.cuts.Load(), p.holds.Load(), stats)
}

func TestARemoteOverABadNetworkIsAStore(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of connections are cut")
	}
	for protocol, mode := range map[kvhttp.Protocol]blobstore.Mode{kvhttp.Connect: blobstore.Verified, kvhttp.GRPC: blobstore.Opaque} {
		t.Run(fmt.Sprintf("%v, %v", protocol, mode), func(t *testing.T) {
			options := []storetest.Option{storetest.NotLocal()}
			if mode == blobstore.Opaque {
				options = append(options, storetest.Opaque())
			}
			rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
			add := serveMany(t)
			// One proxy for all stores, each of which has a path of its own.
			probe := add(memory.New(mode))
			p := newProxy(t, probe[:len(probe)-len("/1")], func(connection int) fate {
				if connection%3 == 2 {
					return fate{}
				}
				return fate{cutAfter: 1 + rng.Int64N(50_000), delay: time.Duration(rng.IntN(100)) * time.Microsecond}
			})
			storetest.Run(t, func() blobstore.Store {
				address := add(memory.New(mode))
				return through(t, p.address()+address[len("http://")+len(p.target):], protocol, mode)
			}, options...)
			if p.cuts.Load() == 0 {
				t.Error("no connection was cut: the test shows nothing")
			}
		})
	}
}

func TestAServerThatComesBackIsFound(t *testing.T) {
	store := memory.New(blobstore.Verified)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	var r *kv.Remote
	for i := range 3 {
		if i > 0 {
			if ln, err = net.Listen("tcp", address); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- kvhttp.Serve(ctx, ln, store, kvhttp.ServeOptions{}) }()
		if i == 0 {
			r = dial(t, "http://"+address, kvhttp.DialOptions{})
		}
		data := []byte{byte(i)}
		if err := r.Set(t.Context(), blobref.Of(data), data); err != nil {
			t.Errorf("life %d: %v", i, err)
		}
		cancel()
		if err := <-served; err != nil {
			t.Errorf("life %d: Serve = %v", i, err)
		}
	}
	// Nobody comes back now: the call ends with its context.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Get(ctx, blobref.Of(nil)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Get = %v", err)
	}
}
