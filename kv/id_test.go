package kv

import (
	"testing"

	"github.com/agentrun/agentrun/blobref"
)

func TestAnIdInFlightIsNotGivenAgainWhenIdsBeginAnew(t *testing.T) {
	near, far := Pipe(MaxMessage(0))
	r := NewRemote(Once(near), RemoteOptions{})
	defer r.Close()
	// 2^32-1 requests later, with the first one still in flight.
	first := &call{kind: get, reply: make(chan reply, 1), asked: 1}
	r.mu.Lock()
	r.nextID = 1<<32 - 1
	r.calls[0] = first
	r.mu.Unlock()

	asked := make(chan uint32, 3)
	go func() {
		defer close(asked)
		for range 3 {
			message, err := far.Recv()
			if err != nil {
				t.Error(err)
				return
			}
			req, err := parseRequest(message)
			if err != nil {
				t.Error(err)
				return
			}
			asked <- req.id
			if req.id != 0 {
				a := answer{id: req.id, kind: get, found: true}
				if err := far.Send(AppendMessage(nil, a.append(nil))); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	for range 2 {
		if _, err := r.Get(t.Context(), blobref.Of(nil)); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[uint32]bool)
	for id := range asked {
		seen[id] = true
	}
	if len(seen) != 3 || !seen[0] || !seen[1<<32-1] || !seen[1] {
		t.Errorf("asked with ids %v, want 0 once, 4294967295 and 1", seen)
	}
	if len(first.reply) != 0 {
		t.Error("the first request got the answer to another one")
	}
}
