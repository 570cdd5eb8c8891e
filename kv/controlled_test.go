package kv_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/kv"
)

// asker is a peer that asks, by the generated messages.
type asker struct {
	t      *testing.T
	stream kv.Stream
	served chan error
	*kv.Controlled
}

func newAsker(t *testing.T, store blobstore.Store, opts kv.ControlledOptions) *asker {
	t.Helper()
	c := kv.NewControlled(store, opts)
	near, far := kv.Pipe(c.MaxMessage())
	a := &asker{t: t, stream: near, served: make(chan error, 1), Controlled: c}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { a.served <- c.Serve(ctx, far) }()
	t.Cleanup(func() {
		cancel()
		near.Close()
		<-a.served
	})
	return a
}

func (a *asker) send(messages ...*agentv1.KvServerMessage) {
	a.t.Helper()
	for _, m := range messages {
		data, err := proto.Marshal(m)
		if err != nil {
			a.t.Fatal(err)
		}
		a.sendBytes(data)
	}
}

func (a *asker) sendBytes(message []byte) {
	a.t.Helper()
	if err := a.stream.Send(kv.AppendMessage(nil, message)); err != nil {
		a.t.Fatal(err)
	}
}

func (a *asker) answer() *agentv1.KvClientMessage {
	a.t.Helper()
	data, err := a.stream.Recv()
	if err != nil {
		a.t.Fatal(err)
	}
	var m agentv1.KvClientMessage
	if err := proto.Unmarshal(data, &m); err != nil {
		a.t.Fatal(err)
	}
	return &m
}

// alive asks for what is there, to see that the stream goes on.
func (a *asker) alive(ref blobref.Ref) {
	a.t.Helper()
	a.send(askGet(4711, ref))
	if got := a.answer(); got.GetId() != 4711 || got.GetGetBlobResult().BlobData == nil {
		a.t.Fatalf("the stream does not go on: %v", got)
	}
}

func askGet(id uint32, ref blobref.Ref) *agentv1.KvServerMessage {
	sum := ref.Sum()
	return askGetBytes(id, sum[:])
}

func askGetBytes(id uint32, blobID []byte) *agentv1.KvServerMessage {
	return &agentv1.KvServerMessage{Id: id, Message: &agentv1.KvServerMessage_GetBlobArgs{GetBlobArgs: &agentv1.GetBlobArgs{BlobId: blobID}}}
}

func askSet(id uint32, ref blobref.Ref, data []byte) *agentv1.KvServerMessage {
	sum := ref.Sum()
	return askSetBytes(id, sum[:], data)
}

func askSetBytes(id uint32, blobID, data []byte) *agentv1.KvServerMessage {
	return &agentv1.KvServerMessage{Id: id, Message: &agentv1.KvServerMessage_SetBlobArgs{SetBlobArgs: &agentv1.SetBlobArgs{BlobId: blobID, BlobData: data}}}
}

func put(t *testing.T, store blobstore.Store, data []byte) blobref.Ref {
	t.Helper()
	ref, err := blobstore.Put(t.Context(), store, data)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// gate is a store whose gets of some blobs wait until they are let through or their
// context ends, and whose gets of others fail.
type gate struct {
	blobstore.Store
	shut  map[blobref.Ref]chan struct{}
	fails map[blobref.Ref]error
}

func (g *gate) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	if err := g.fails[ref]; err != nil {
		return nil, err
	}
	if ch := g.shut[ref]; ch != nil {
		select {
		case <-ch:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return g.Store.Get(ctx, ref)
}

func TestWhatIsAnswered(t *testing.T) {
	store := memory.New(blobstore.Verified)
	full, empty, zero := put(t, store, []byte("full")), put(t, store, nil), put(t, store, []byte{0})
	failing, corrupt := blobref.Of([]byte("failing")), blobref.Of([]byte("corrupt"))
	verified := &gate{Store: store, fails: map[blobref.Ref]error{
		failing: errors.New("the disk is on fire"),
		corrupt: blobstore.ErrCorrupt,
	}}
	absent, fresh := blobref.Of([]byte("absent")), []byte("fresh")
	long := make([]byte, 33)

	tests := []struct {
		name  string
		store blobstore.Store
		ask   *agentv1.KvServerMessage
		data  []byte // nil for absent
		fails string // part of the error; empty for none
	}{
		{"a blob", verified, askGet(1, full), []byte("full"), ""},
		{"a blob asked for with id 0", verified, askGet(0, full), []byte("full"), ""},
		{"a blob asked for with the last id", verified, askGet(1<<32-1, full), []byte("full"), ""},
		{"an empty blob is there, with length 0", verified, askGet(1, empty), []byte{}, ""},
		{"a blob of one zero byte", verified, askGet(1, zero), []byte{0}, ""},
		{"an absent blob has no data and no error", verified, askGet(1, absent), nil, ""},
		{"the zero id is absent", verified, askGet(1, blobref.Ref{}), nil, ""},
		{"an id without bytes is absent", verified, askGetBytes(1, nil), nil, ""},
		{"an id of 31 bytes is absent", verified, askGetBytes(1, long[:31]), nil, ""},
		{"an id of 33 bytes is absent", verified, askGetBytes(1, long), nil, ""},
		{"a get that fails has an error and no data", verified, askGet(1, failing), nil, "on fire"},
		{"a corrupt blob has an error and no data", verified, askGet(1, corrupt), nil, "corrupt"},
		{"a set", verified, askSet(1, blobref.Of(fresh), fresh), nil, ""},
		{"a set with id 0", verified, askSet(0, blobref.Of(fresh), fresh), nil, ""},
		{"a set of the empty blob", verified, askSet(1, blobref.Of(nil), nil), nil, ""},
		{"a set of other bytes", verified, askSet(1, blobref.Of(fresh), []byte("other")), nil, "do not match"},
		{"a set of other bytes in a store that does not check", trusting{memory.New(blobstore.Opaque)}, askSet(1, blobref.Of(fresh), []byte("other")), nil, "do not match"},
		{"a set of other bytes in an opaque store", memory.New(blobstore.Opaque), askSet(1, blobref.Of(fresh), []byte("other")), nil, ""},
		{"a set under the zero id", memory.New(blobstore.Opaque), askSet(1, blobref.Ref{}, fresh), nil, "zero reference"},
		{"a set without an id", verified, askSetBytes(1, nil, fresh), nil, "32 bytes"},
		{"a set under an id of 31 bytes", verified, askSetBytes(1, long[:31], fresh), nil, "32 bytes"},
		{"a set under an id of 33 bytes", memory.New(blobstore.Opaque), askSetBytes(1, long, fresh), nil, "32 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newAsker(t, tt.store, kv.ControlledOptions{})
			a.send(tt.ask)
			got := a.answer()
			if got.GetId() != tt.ask.GetId() {
				t.Errorf("answered with id %d, asked with %d", got.GetId(), tt.ask.GetId())
			}
			var failure *agentv1.Error
			if tt.ask.GetGetBlobArgs() != nil {
				result := got.GetGetBlobResult()
				if result == nil || !bytes.Equal(result.BlobData, tt.data) || (result.BlobData == nil) != (tt.data == nil) {
					t.Errorf("answered %v, want data %q", got, tt.data)
				}
				failure = result.GetError()
			} else {
				result := got.GetSetBlobResult()
				if result == nil {
					t.Errorf("answered %v, want the result of a set", got)
				}
				failure = result.GetError()
			}
			if (failure == nil) != (tt.fails == "") || !strings.Contains(failure.GetMessage(), tt.fails) {
				t.Errorf("the error is %v, want %q", failure, tt.fails)
			}
			// Whatever it was, the next one is answered.
			a.send(askGet(2, absent))
			if next := a.answer(); next.GetId() != 2 {
				t.Errorf("then answered %v", next)
			}
		})
	}
}

func TestASlowGetDoesNotHoldTheOthers(t *testing.T) {
	store := memory.New(blobstore.Verified)
	slow, fast := put(t, store, []byte("slow")), put(t, store, []byte("fast"))
	open := make(chan struct{})
	a := newAsker(t, &gate{Store: store, shut: map[blobref.Ref]chan struct{}{slow: open}}, kv.ControlledOptions{})
	a.send(askGet(1, slow))
	for id := uint32(2); id < 200; id++ {
		a.send(askGet(id, fast))
		if got := a.answer(); got.GetId() != id {
			t.Fatalf("answered %v, want id %d", got, id)
		}
	}
	close(open)
	if got := a.answer(); got.GetId() != 1 || string(got.GetGetBlobResult().BlobData) != "slow" {
		t.Errorf("at last answered %v", got)
	}
}

func TestNoMoreRequestsRunThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(blobstore.Verified)
		open := make(chan struct{})
		g := &counting{Store: store, open: open}
		a := newAsker(t, g, kv.ControlledOptions{Concurrency: 3})
		go func() {
			for id := range uint32(20) {
				data, _ := proto.Marshal(askGet(id, blobref.Of([]byte{byte(id)})))
				a.stream.Send(kv.AppendMessage(nil, data)) //nolint:errcheck // seen by the answers
			}
		}()
		synctest.Wait()
		if got := g.running.Load(); got != 3 {
			t.Errorf("%d requests run, want 3", got)
		}
		close(open)
		seen := make(map[uint32]bool)
		for range 20 {
			seen[a.answer().GetId()] = true
		}
		if len(seen) != 20 || g.most.Load() != 3 {
			t.Errorf("%d answered, %d at once", len(seen), g.most.Load())
		}
	})
}

func TestARequestThatTakesTooLongIsAnsweredWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(blobstore.Verified)
		slow, fast := put(t, store, []byte("slow")), put(t, store, []byte("fast"))
		a := newAsker(t, &gate{Store: store, shut: map[blobref.Ref]chan struct{}{slow: make(chan struct{})}},
			kv.ControlledOptions{RequestTimeout: time.Minute})
		began := time.Now()
		a.send(askGet(1, slow))
		got := a.answer()
		if took := time.Since(began); took < time.Minute || took > 64*time.Second || got.GetGetBlobResult().GetError() == nil {
			t.Errorf("answered %v after %v, want an error after a minute", got, took)
		}
		a.alive(fast)
		// Those that begin later have their own time.
		began = time.Now()
		a.send(askGet(2, slow))
		time.Sleep(30 * time.Second)
		a.send(askGet(3, slow))
		for id := uint32(2); id < 4; id++ {
			got := a.answer()
			want := time.Minute + time.Duration(id-2)*30*time.Second
			if took := time.Since(began); got.GetId() != id || took < want || took > want+4*time.Second {
				t.Errorf("answered %v after %v, want id %d after %v", got, took, id, want)
			}
		}
	})
}

func TestAnIdInProgressIsNotUsedTwice(t *testing.T) {
	store := memory.New(blobstore.Verified)
	slow, fast := put(t, store, []byte("slow")), put(t, store, []byte("fast"))
	open := make(chan struct{})
	a := newAsker(t, &gate{Store: store, shut: map[blobref.Ref]chan struct{}{slow: open}}, kv.ControlledOptions{})
	a.send(askGet(5, slow), askGet(5, fast))
	if got := a.answer(); got.GetId() != 5 || got.GetGetBlobResult().GetError() == nil || got.GetGetBlobResult().BlobData != nil {
		t.Errorf("the second request was answered %v, want an error", got)
	}
	close(open)
	if got := a.answer(); got.GetId() != 5 || string(got.GetGetBlobResult().BlobData) != "slow" {
		t.Errorf("the first request was answered %v", got)
	}
	// Once answered the id is free.
	a.send(askGet(5, fast))
	if got := a.answer(); got.GetId() != 5 || string(got.GetGetBlobResult().BlobData) != "fast" {
		t.Errorf("the third request was answered %v", got)
	}
	if stats := a.Stats(); stats.Duplicate != 1 || stats.Answered != 3 || stats.Failed != 1 {
		t.Errorf("counted %+v", stats)
	}
}

func TestWhatIsNotUnderstoodIsPassedBy(t *testing.T) {
	store := memory.New(blobstore.Verified)
	ref := put(t, store, []byte("blob"))
	a := newAsker(t, store, kv.ControlledOptions{})
	a.send(&agentv1.KvServerMessage{Id: 1})                  // no case
	a.sendBytes([]byte{0x08, 0x02, 0xaa, 0x06, 0x00})        // case 101
	a.sendBytes([]byte{0x08, 0x02, 0x12, 0xff})              // cut off
	a.sendBytes([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")) // something else
	a.sendBytes(nil)
	// Unknown fields beside a known case change nothing.
	known, err := proto.Marshal(askGet(3, ref))
	if err != nil {
		t.Fatal(err)
	}
	a.sendBytes(append(known, 0xaa, 0x06, 0x00))
	if got := a.answer(); got.GetId() != 3 || string(got.GetGetBlobResult().BlobData) != "blob" {
		t.Errorf("answered %v", got)
	}
	if stats := a.Stats(); stats.Ignored != 3 || stats.Malformed != 2 {
		t.Errorf("counted %+v", stats)
	}
}

func TestWhatIsTooLargeIsAnsweredAndPassedBy(t *testing.T) {
	store := memory.New(blobstore.Verified)
	small := put(t, store, []byte("small"))
	large := make([]byte, 300<<10)
	stored := put(t, store, large)
	a := newAsker(t, store, kv.ControlledOptions{MaxBlob: 100 << 10})
	check := func(id uint32, failure *agentv1.Error) {
		t.Helper()
		if got := failure.GetMessage(); !strings.Contains(got, "too large") {
			t.Errorf("request %d was answered with %q, want that it is too large", id, got)
		}
		a.alive(small)
	}
	// Over the limit of the message; over the limit of the blob alone; a get of one.
	a.send(askSet(7, stored, large))
	check(7, a.answer().GetSetBlobResult().GetError())
	middle := large[:120<<10]
	a.send(askSet(8, blobref.Of(middle), middle))
	check(8, a.answer().GetSetBlobResult().GetError())
	a.send(askGet(9, stored))
	check(9, a.answer().GetGetBlobResult().GetError())
	// What does not even say what it is.
	a.sendBytes(bytes.Repeat([]byte{0xff}, 200<<10))
	a.alive(small)
	if stats := a.Stats(); stats.TooLarge != 2 {
		t.Errorf("counted %+v", stats)
	}
}

func TestWhatIsTooLargeDoesNotAnswerAnotherRequest(t *testing.T) {
	store := memory.New(blobstore.Verified)
	slow, fast := put(t, store, []byte("slow")), put(t, store, []byte("fast"))
	open := make(chan struct{})
	a := newAsker(t, &gate{Store: store, shut: map[blobref.Ref]chan struct{}{slow: open}}, kv.ControlledOptions{MaxBlob: 1000})
	a.send(askGet(0, slow))
	// Its id stands behind its bytes: nobody can know it without reading all of them.
	large, err := proto.Marshal(askSet(0, slow, make([]byte, 200<<10)))
	if err != nil {
		t.Fatal(err)
	}
	a.sendBytes(append(large, 0x08, 0x05))
	a.alive(fast)
	close(open)
	if got := a.answer(); got.GetId() != 0 || string(got.GetGetBlobResult().BlobData) != "slow" {
		t.Errorf("the request with id 0 was answered %v", got)
	}
}

func TestAPeerThatClaims2GBAndStallsHoldsNothingUp(t *testing.T) {
	store := memory.New(blobstore.Verified)
	ref := put(t, store, []byte("blob"))
	c := kv.NewControlled(store, kv.ControlledOptions{})
	in, out := io.Pipe()
	stalled := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { stalled <- c.Serve(ctx, kv.NewStream(in, io.Discard, c.MaxMessage(), in.Close)) }()
	if _, err := out.Write([]byte{0, 0x7f, 0xff, 0xff, 0xff, 0x08, 0x01, 0x1a}); err != nil {
		t.Fatal(err)
	}
	// Another stream of the same store is served meanwhile, and the stalled one ends
	// when it is told to.
	newAsker(t, store, kv.ControlledOptions{}).alive(ref)
	cancel()
	if err := <-stalled; !errors.Is(err, context.Canceled) {
		t.Errorf("Serve = %v, want context.Canceled", err)
	}
}

func TestRequestsInProgressAreAnsweredWhenTheAskerEnds(t *testing.T) {
	store := memory.New(blobstore.Verified)
	slow := put(t, store, []byte("slow"))
	open := make(chan struct{})
	c := kv.NewControlled(&gate{Store: store, shut: map[blobref.Ref]chan struct{}{slow: open}}, kv.ControlledOptions{})
	in, ask := io.Pipe()
	answers, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- c.Serve(t.Context(), kv.NewStream(in, out, c.MaxMessage(), nil))
		out.Close()
	}()
	data, err := proto.Marshal(askGet(1, slow))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask.Write(kv.AppendMessage(nil, data)); err != nil {
		t.Fatal(err)
	}
	ask.Close()
	close(open)
	answer, err := io.ReadAll(answers)
	if err != nil || !bytes.HasSuffix(answer, []byte("slow")) {
		t.Errorf("answered %q, %v", answer, err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve = %v", err)
	}
}

func TestABrokenStreamCancelsWhatIsInProgress(t *testing.T) {
	store := memory.New(blobstore.Verified)
	slow := put(t, store, []byte("slow"))
	a := newAsker(t, &gate{Store: store, shut: map[blobref.Ref]chan struct{}{slow: make(chan struct{})}}, kv.ControlledOptions{RequestTimeout: -1})
	a.send(askGet(1, slow))
	// An envelope that nobody can read on from.
	pipe := a.stream
	if err := pipe.Send([]byte{0xf0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	err := <-a.served
	a.served <- nil // for the cleanup
	if err == nil || !strings.Contains(err.Error(), "flags") {
		t.Errorf("Serve = %v, want an error about flags", err)
	}
}

func TestTheContextEndsServing(t *testing.T) {
	c := kv.NewControlled(memory.New(blobstore.Verified), kv.ControlledOptions{})
	_, far := kv.Pipe(c.MaxMessage())
	why := errors.New("because")
	ctx, cancel := context.WithCancelCause(t.Context())
	served := make(chan error, 1)
	go func() { served <- c.Serve(ctx, far) }()
	cancel(why)
	if err := <-served; !errors.Is(err, why) {
		t.Errorf("Serve = %v, want the cause", err)
	}
}

func TestAPeerThatTakesNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(blobstore.Verified)
		ref := put(t, store, make([]byte, 1<<20))
		a := newAsker(t, store, kv.ControlledOptions{SendTimeout: time.Minute})
		go func() {
			// It floods and never reads; it is stopped long before all of it is taken.
			for id := range uint32(10_000) {
				data, _ := proto.Marshal(askGet(id, ref))
				if a.stream.Send(kv.AppendMessage(nil, data)) != nil {
					return
				}
			}
			t.Error("10,000 requests were taken from a peer that takes no answer")
		}()
		err := <-a.served
		a.served <- nil // for the cleanup
		if !errors.Is(err, kv.ErrStalled) {
			t.Errorf("Serve = %v, want ErrStalled", err)
		}
	})
}
