package memory_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
)

// told keeps what an observer is told, one operation after the other.
type told struct {
	open  int
	ended []string
	last  error
}

func (o *told) Began(ctx context.Context, _ blobstore.Op) context.Context {
	o.open++
	return ctx
}

func (o *told) Ended(_ context.Context, op blobstore.Op, _ time.Duration, err error) {
	o.open--
	o.ended, o.last = append(o.ended, op.Layer+"."+op.Name), err
}

func (*told) Counted(context.Context, string, string, string) {}

func TestAnObserverIsToldOfEachOperationOnceAndHowItEnded(t *testing.T) {
	o := new(told)
	s := memory.New(blobstore.Verified, memory.Observed(o))
	data := []byte("bytes")
	ref, absent := blobref.Of(data), blobref.Of([]byte("absent"))
	ctx := t.Context()
	for _, tt := range []struct {
		name string
		do   func() error
		want string
		err  error
	}{
		{"Get", func() error { _, err := s.Get(ctx, absent); return err }, "in_memory.get_blob", blobstore.ErrNotFound},
		{"Set", func() error { return s.Set(ctx, absent, data) }, "in_memory.set_blob", blobstore.ErrMismatch},
		{"SetLocal", func() error { return s.SetLocal(ctx, ref, data) }, "in_memory.set_blob_locally_only", nil},
		{"PutBytes", func() error { _, err := s.PutBytes(ctx, data); return err }, "in_memory.set_blob", nil},
		{"Put", func() error { _, _, err := s.Put(ctx, bytes.NewReader(data)); return err }, "in_memory.set_blob", nil},
		{"Open", func() error { _, err := s.Open(ctx, ref); return err }, "in_memory.get_blob", nil},
		{"GetRange", func() error { _, err := s.GetRange(ctx, ref, -1, 0); return err }, "in_memory.get_blob", nil},
		{"Flush", func() error { return s.Flush(ctx) }, "in_memory.flush", nil},
	} {
		o.ended = nil
		err := tt.do()
		if !slices.Equal(o.ended, []string{tt.want}) || o.open != 0 {
			t.Errorf("%s was told as %v (%d not ended), want %s once", tt.name, o.ended, o.open, tt.want)
		}
		if !errors.Is(o.last, err) || (tt.err != nil && !errors.Is(err, tt.err)) {
			t.Errorf("%s returned %v, and %v was told", tt.name, err, o.last)
		}
	}
}
