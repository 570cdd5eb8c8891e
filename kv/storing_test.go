package kv_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/kv"
)

// slowSets is a store whose sets wait until they are let through.
type slowSets struct {
	blobstore.Store
	open chan struct{}
}

func (s slowSets) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	select {
	case <-s.open:
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.Store.Set(ctx, ref, data)
}

func TestSlowSetsOfLargeBlobsDoNotHoldGets(t *testing.T) {
	store := memory.New(blobstore.Verified)
	small := put(t, store, []byte("small"))
	slow := slowSets{store, make(chan struct{})}
	a := newAsker(t, slow, kv.ControlledOptions{})
	large := [][]byte{make([]byte, 40<<20), make([]byte, 40<<20)}
	large[1][0] = 1
	for id, data := range large {
		a.send(askSet(uint32(id), blobref.Of(data), data))
	}
	for range 100 {
		a.alive(small)
	}
	close(slow.open)
	for range large {
		if got := a.answer(); got.GetSetBlobResult() == nil || got.GetSetBlobResult().GetError() != nil {
			t.Errorf("a large set was answered %v", got)
		}
	}
}

func TestAStoreThatTakesNothingHoldsGetsForAMomentAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(blobstore.Verified)
		small := put(t, store, []byte("small"))
		slow := slowSets{store, make(chan struct{})}
		a := newAsker(t, slow, kv.ControlledOptions{MaxBlob: 1000, RequestTimeout: -1})
		// As much as is held at once, and then more.
		for id := range uint32(4) {
			data := []byte{byte(id), 499: 1}
			a.send(askSet(id, blobref.Of(data), data))
		}
		a.alive(small)
		more := make([]byte, 500)
		for id := uint32(10); id < 13; id++ {
			data, err := proto.Marshal(askSet(id, blobref.Of(more), more))
			if err != nil {
				t.Fatal(err)
			}
			go a.stream.Send(kv.AppendMessage(nil, data)) //nolint:errcheck // seen by its answer
			got := a.answer()
			if failure := got.GetSetBlobResult().GetError().GetMessage(); got.GetId() != id || !strings.Contains(failure, "other blobs") || !strings.Contains(failure, "again") {
				t.Errorf("one set too many was answered %v", got)
			}
			a.alive(small)
		}
		close(slow.open)
		for range 4 {
			if got := a.answer(); got.GetId() > 3 || got.GetSetBlobResult().GetError() != nil {
				t.Errorf("a set that was held was answered %v", got)
			}
		}
		a.send(askSet(10, blobref.Of(more), more))
		if got := a.answer(); got.GetSetBlobResult().GetError() != nil {
			t.Errorf("asked again it was answered %v", got)
		}
	})
}
