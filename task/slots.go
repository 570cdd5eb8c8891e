package task

import (
	"container/list"
	"context"
	"sync"
)

// slots are how many agents of a tree may work at once.
type slots struct {
	mu      sync.Mutex
	free    int
	waiting list.List // of *place, the one that came first in front
}

// place is somebody's place in the queue for a slot.
type place struct {
	of    *slots
	ready chan struct{} // closed when the slot is theirs
	at    *list.Element // nil when they wait no more
}

// queue takes a place.
func (s *slots) queue() *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &place{of: s, ready: make(chan struct{})}
	if s.free > 0 {
		s.free--
		close(p.ready)
		return p
	}
	p.at = s.waiting.PushBack(p)
	return p
}

// wait returns a slot, or why the context is done.
func (p *place) wait(ctx context.Context) (*slot, error) {
	select {
	case <-p.ready:
		return &slot{of: p.of}, nil
	case <-ctx.Done():
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.at == nil { // it was given meanwhile
		p.of.give()
	} else {
		p.of.waiting.Remove(p.at)
		p.at = nil
	}
	return nil, context.Cause(ctx)
}

// give gives a slot to who waits longest. s.mu is held.
func (s *slots) give() {
	first := s.waiting.Front()
	if first == nil {
		s.free++
		return
	}
	p := s.waiting.Remove(first).(*place)
	p.at = nil
	close(p.ready)
}

// slot is the right of one agent to work. Who waits for agents below lends it to them, so that a tree of any depth goes on
// with any number of slots.
type slot struct {
	of *slots // nil for the root, which needs none

	mu      sync.Mutex
	waiting int // calls of this agent that wait
}

// free gives the slot back for good.
func (s *slot) free() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.give()
}

// lend gives the slot back for as long as somebody of this agent waits.
func (s *slot) lend() {
	if s.of == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting++; s.waiting == 1 {
		s.free()
	}
}

// reclaim waits for a slot once nobody of this agent waits any more. No end of a context ends that: who works must have
// one, if only to come to an end.
func (s *slot) reclaim() {
	if s.of == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting--; s.waiting == 0 {
		<-s.of.queue().ready
	}
}
