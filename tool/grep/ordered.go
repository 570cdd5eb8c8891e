package grep

import (
	"io"
	"sync"
)

// ordered puts together what several goroutines write at once, in the order of the parts.
// The part whose turn it is goes straight through; the others wait in memory, and when
// there is maxAhead of that, they wait themselves.
type ordered struct {
	out io.Writer

	mu    sync.Mutex // guards all below, and the fields of parts
	turn  *sync.Cond
	next  int
	ahead int           // bytes that wait
	ready map[int]*part // begun, and not gone out yet
	err   error         // the first of out
}

// maxAhead is how many bytes may wait for their turn.
const maxAhead = 16 << 20

func newOrdered(out io.Writer) *ordered {
	o := &ordered{out: out, ready: map[int]*part{}}
	o.turn = sync.NewCond(&o.mu)
	return o
}

// part is what one goroutine writes.
type part struct {
	*ordered
	index int
	held  []byte
	done  bool
}

// part begins a part. Parts are numbered from 0, begun in order, and each is closed.
func (o *ordered) part(index int) *part {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := &part{ordered: o, index: index}
	o.ready[index] = p
	return p
}

// Write takes bytes of the part.
func (p *part) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.index != p.next && p.ahead+len(b) > maxAhead && p.err == nil {
		p.turn.Wait()
	}
	switch {
	case p.err != nil:
		return 0, p.err
	case p.index != p.next:
		p.held = append(p.held, b...)
		p.ahead += len(b)
		return len(b), nil
	}
	p.flush(p)
	p.emit(b)
	return len(b), p.err
}

// emit writes to the end. mu is held.
func (o *ordered) emit(b []byte) {
	if o.err == nil && len(b) > 0 {
		_, o.err = o.out.Write(b)
	}
}

func (o *ordered) flush(p *part) {
	o.emit(p.held)
	o.ahead -= len(p.held)
	p.held = nil
}

// Close ends the part, and lets go what waited for it.
func (p *part) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	for {
		first := p.ready[p.next]
		if first == nil {
			break
		}
		p.flush(first)
		if !first.done {
			break
		}
		delete(p.ready, p.next)
		p.next++
	}
	p.turn.Broadcast()
}
