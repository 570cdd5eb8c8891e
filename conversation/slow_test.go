package conversation_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
)

// slow is a store that takes a second for each blob, and ends with the context.
type slow struct{ blobstore.Store }

func (s slow) Set(ctx context.Context, r blobref.Ref, data []byte) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second):
		return s.Store.Set(ctx, r, data)
	}
}

func TestALongLogIsProjectedIntoAStoreThatIsSlowerThanItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := manyTurns(2)
		for i := range 2000 { // of which nothing but lines is stored
			log = fmt.Appendf(log, `{"type":"custom","id":"c%d","parentId":"a1","timestamp":"2026-01-02T03:04:05.000Z","customType":"x","data":"%05000d"}`+"\n", i, i)
		}
		store := memory.New(blobstore.Verified)
		p, err := conversation.NewProjector(slow{store}, conversation.ProjectorOptions{}).Project(t.Context(), logOf(log))
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range conversation.Walk(t.Context(), store, p.Root, conversation.Limits{}) {
			if err != nil {
				t.Error(err)
			}
		}
	})
}
