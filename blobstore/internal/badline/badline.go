// Package badline is a bad network for tests of clients: a line to a server that is cut,
// flips bits, or is dead.
package badline

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Line is a connection between client and server. Its faults may change at any time.
type Line struct {
	net.Listener
	to string

	Dead     atomic.Bool  // nothing gets through
	Cut      atomic.Int64 // connections end after up to so many bytes; 0 is never
	Flip     atomic.Bool  // a bit of each piece that the server sends is another
	FlipSent atomic.Bool  // a bit of each piece that the client sends is another

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
	all   sync.WaitGroup
}

// New puts a line in front of a server, until the end of the test.
func New(t *testing.T, to string) *Line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Line{Listener: l, to: to}
	p.all.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.HangUp()
		p.all.Wait()
	})
	return p
}

func (p *Line) accept() {
	for {
		from, err := p.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.to)
		if err != nil || p.Dead.Load() {
			from.Close()
			if err == nil {
				to.Close()
			}
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, from, to)
		p.mu.Unlock()
		p.all.Go(func() { p.carry(to, from, false) })
		p.all.Go(func() { p.carry(from, to, true) })
	}
}

// carry carries bytes one way until the line is cut.
func (p *Line) carry(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	left := int64(1) << 60
	if most := p.Cut.Load(); most > 0 {
		left = rand.Int64N(most) + 1
	}
	buf := make([]byte, 4096)
	for left > 0 {
		n, err := from.Read(buf[:min(left, int64(len(buf)))])
		flip := &p.FlipSent
		if answers {
			flip = &p.Flip
		}
		if left -= int64(n); n > 0 && flip.Load() {
			buf[rand.IntN(n)] ^= 1 << rand.IntN(8)
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// HangUp cuts all connections that there are.
func (p *Line) HangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}
