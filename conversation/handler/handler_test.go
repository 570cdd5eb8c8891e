package handler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation/handler"
	"github.com/agentrun/agentrun/conversation/pointers"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

func state(n int) handler.Checkpoint {
	return handler.Checkpoint{State: &agentv1.ConversationStateStructure{SelfSummaryCount: uint32(n)}}
}

func number(c handler.Checkpoint) int { return int(c.State.GetSelfSummaryCount()) }

func options() handler.Options {
	return handler.Options{Blobs: memory.New(blobstore.Verified), Pointers: &pointers.Memory{}}
}

func open(t *testing.T, opts handler.Options) *handler.Handler {
	t.Helper()
	h, err := handler.Open(t.Context(), "c", opts)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func handle(t *testing.T, h *handler.Handler, c handler.Checkpoint) handler.Checkpoint {
	t.Helper()
	done, err := h.Handle(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func TestACheckpointIsStoredNotedAndTold(t *testing.T) {
	var told []int
	opts := options()
	opts.OnCheckpoint = func(ctx context.Context, c handler.Checkpoint) {
		p, err := opts.Pointers.Get(ctx, "c", "")
		if err != nil || p.Ref != c.Ref {
			t.Errorf("told of %v while the pointer is %v, %v", c.Ref, p, err)
		}
		told = append(told, number(c))
	}
	h := open(t, opts)
	if got := h.Latest(); got.State != nil || !got.Ref.IsZero() {
		t.Errorf("there is a checkpoint before the first: %v", got)
	}
	for i := range 3 {
		c := state(i)
		c.Bubble = fmt.Sprint("m", i)
		c = handle(t, h, c)
		if h.Latest().Ref != c.Ref || number(h.Latest()) != i {
			t.Errorf("the latest is %v, want %v", h.Latest(), c)
		}
		at, err := opts.Pointers.Get(t.Context(), "c", c.Bubble)
		if err != nil || at.Ref != c.Ref {
			t.Errorf("the checkpoint of the bubble is %v, %v", at, err)
		}
		data, err := opts.Blobs.Get(t.Context(), c.Ref)
		if err != nil || proto.Unmarshal(data, &agentv1.ConversationStateStructure{}) != nil {
			t.Error(data, err)
		}
	}
	if want := []int{0, 1, 2}; !slices.Equal(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
	if again := open(t, opts); number(again.Latest()) != 2 {
		t.Errorf("opened anew, the latest is %v", again.Latest())
	}
}

func TestBytesThatAreStoredAlreadyAreNotMadeAnew(t *testing.T) {
	opts := options()
	data := []byte{0x88, 0x01, 0x05, 0x88, 0x01, 0x07} // field 17 twice, as no encoder writes it
	ref, err := blobstore.Put(t.Context(), opts.Blobs, data)
	if err != nil {
		t.Fatal(err)
	}
	c := state(7)
	c.Ref = ref
	handle(t, open(t, opts), c)
	if p, err := opts.Pointers.Get(t.Context(), "c", ""); err != nil || p.Ref != ref {
		t.Error(p, err)
	}
}

func TestOfTwoWritersOneIsToldThatItWasNotTheFirst(t *testing.T) {
	opts := options()
	one, two := open(t, opts), open(t, opts)
	first := handle(t, one, state(1))
	var conflict *pointers.ConflictError
	c := state(2)
	c.Bubble = "m"
	if _, err := two.Handle(t.Context(), c); !errors.As(err, &conflict) || conflict.Now != first.Ref {
		t.Fatalf("%v, want a conflict with %v", err, first.Ref)
	}
	if two.Latest().State != nil {
		t.Error("a checkpoint that was refused is the latest")
	}
	if p, err := opts.Pointers.Get(t.Context(), "c", ""); err != nil || p.Ref != first.Ref {
		t.Errorf("the first checkpoint is gone: %v, %v", p, err)
	}
	if _, err := opts.Pointers.Get(t.Context(), "c", "m"); !errors.Is(err, pointers.ErrNotFound) {
		t.Errorf("the bubble has a checkpoint: %v", err)
	}
	anew := open(t, opts)
	handle(t, anew, state(2))
}

// failing is a store whose next operation fails.
type failing struct {
	*memory.Store
	set, flush error
}

func (f *failing) PutBytes(ctx context.Context, data []byte) (blobref.Ref, error) {
	if f.set != nil {
		return blobref.Ref{}, f.set
	}
	return f.Store.PutBytes(ctx, data)
}

func (f *failing) Flush(context.Context) error { return f.flush }

func TestAStateThatIsNotSafeHasNoPointer(t *testing.T) {
	gone := errors.New("the disk is gone")
	for name, store := range map[string]*failing{
		"storing fails":  {Store: memory.New(blobstore.Verified), set: gone},
		"flushing fails": {Store: memory.New(blobstore.Verified), flush: gone},
	} {
		opts := options()
		opts.Blobs = store
		opts.OnCheckpoint = func(context.Context, handler.Checkpoint) { t.Errorf("%s: told of it", name) }
		h := open(t, opts)
		if _, err := h.Handle(t.Context(), state(1)); !errors.Is(err, gone) {
			t.Errorf("%s: %v", name, err)
		}
		if p, err := opts.Pointers.Get(t.Context(), "c", ""); !errors.Is(err, pointers.ErrNotFound) {
			t.Errorf("%s: the pointer is %v, %v", name, p, err)
		}
	}
	if _, err := open(t, options()).Handle(t.Context(), handler.Checkpoint{}); err == nil {
		t.Error("a checkpoint without a state was taken")
	}
}

func TestTranscriptsAreWrittenInTheBackground(t *testing.T) {
	opts := options()
	var mu sync.Mutex
	var wrote, told []int
	begun, release := make(chan int), make(chan bool)
	opts.WriteTranscript = func(_ context.Context, c handler.Checkpoint) error {
		begun <- number(c)
		<-release
		mu.Lock()
		defer mu.Unlock()
		wrote = append(wrote, number(c))
		return nil
	}
	opts.OnTranscriptWritten = func(conversation string) {
		mu.Lock()
		defer mu.Unlock()
		if conversation != "c" {
			t.Error(conversation)
		}
		told = append(told, len(wrote))
	}
	h := open(t, opts)
	handle(t, h, state(1))
	if n := <-begun; n != 1 {
		t.Errorf("the transcript of %d is written first", n)
	}
	for i := 2; i <= 4; i++ {
		handle(t, h, state(i)) // none of them waits for the writer
	}
	flushed := make(chan error)
	go func() { flushed <- h.Flush(t.Context()) }()
	release <- true
	if n := <-begun; n != 4 {
		t.Errorf("the transcript of %d is written next, want the newest", n)
	}
	release <- true
	if err := <-flushed; err != nil {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(wrote, []int{1, 4}) || !slices.Equal(told, []int{1, 2}) {
		t.Errorf("wrote %v, told after %v", wrote, told)
	}
}

func TestATranscriptThatCannotBeWrittenIsReportedAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left")
		opts := options()
		tries := 0
		var at []time.Duration
		began := time.Now()
		opts.WriteTranscript = func(context.Context, handler.Checkpoint) error {
			at = append(at, time.Since(began))
			if tries++; tries < 9 {
				return full
			}
			return nil
		}
		var reports []string
		opts.Report = func(conversation string, err error) {
			if !errors.Is(err, full) || conversation != "c" {
				t.Error(conversation, err)
			}
			reports = append(reports, err.Error())
		}
		h := open(t, opts)
		handle(t, h, state(1))
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := h.Flush(short); !errors.Is(err, full) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush = %v, want why it waits", err)
		}
		if err := h.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 123, 183}
		for i := range want {
			want[i] *= time.Second
		}
		if !slices.Equal(at, want) {
			t.Errorf("tried after %v, want %v", at, want)
		}
		if len(reports) != 8 || !strings.Contains(reports[1], "transcript of conversation c: no space left; it is tried again in 2s") {
			t.Errorf("%q", reports)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestClosingTellsOfATranscriptThatIsNotWritten(t *testing.T) {
	opts := options()
	begun := make(chan bool)
	opts.WriteTranscript = func(ctx context.Context, _ handler.Checkpoint) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}
	opts.OnTranscriptWritten = func(string) { t.Error("told of a transcript") }
	h := open(t, opts)
	handle(t, h, state(1))
	<-begun
	if err := h.Close(); !errors.Is(err, handler.ErrClosed) || !strings.Contains(err.Error(), "not written") {
		t.Errorf("Close = %v", err)
	}
	if err := h.Flush(t.Context()); !errors.Is(err, handler.ErrClosed) {
		t.Errorf("Flush = %v", err)
	}
	if _, err := h.Handle(t.Context(), state(2)); !errors.Is(err, handler.ErrClosed) {
		t.Errorf("Handle = %v", err)
	}
	if p, err := opts.Pointers.Get(t.Context(), "c", ""); err != nil || p.Ref != h.Latest().Ref {
		t.Errorf("%v, %v", p, err)
	}
}

func TestAllWhoAskForAConversationGetOneHandler(t *testing.T) {
	hs := handler.NewHandlers(options())
	if hs.Find("a") != nil {
		t.Error("a handler is there before it is opened")
	}
	var wg sync.WaitGroup
	got := make([]*handler.Handler, 16)
	for i := range got {
		wg.Go(func() {
			h, err := hs.Open(t.Context(), []string{"a", "b"}[i%2])
			if err != nil {
				t.Error(err)
			}
			got[i] = h
		})
	}
	wg.Wait()
	for i, h := range got {
		if h != got[i%2] || h != hs.Find(h.Conversation()) {
			t.Errorf("there are several handlers of %s", h.Conversation())
		}
	}
	if _, err := hs.Open(t.Context(), "../x"); !errors.Is(err, pointers.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if err := hs.Close(); err != nil {
		t.Error(err)
	}
	if _, err := hs.Open(t.Context(), "a"); !errors.Is(err, handler.ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, err := got[0].Handle(t.Context(), state(1)); !errors.Is(err, handler.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestAStateThatIsLostOrNoneIsSaid(t *testing.T) {
	opts := options()
	if err := opts.Pointers.CompareAndSet(t.Context(), "c", pointers.Change{New: blobref.Of(nil)}); err != nil {
		t.Fatal(err)
	}
	if _, err := handler.Open(t.Context(), "c", opts); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("%v", err)
	}
	ref, err := blobstore.Put(t.Context(), opts.Blobs, []byte{0xff})
	if err != nil {
		t.Fatal(err)
	}
	if err := opts.Pointers.CompareAndSet(t.Context(), "c", pointers.Change{Old: blobref.Of(nil), New: ref}); err != nil {
		t.Fatal(err)
	}
	if _, err := handler.Open(t.Context(), "c", opts); err == nil || !strings.Contains(err.Error(), "is no state") {
		t.Errorf("%v", err)
	}
}

func Example() {
	ctx := context.Background()
	h, err := handler.Open(ctx, "01a2", handler.Options{
		Blobs: memory.New(blobstore.Verified), Pointers: &pointers.Memory{},
		OnCheckpoint: func(_ context.Context, c handler.Checkpoint) { fmt.Println("at message", c.Bubble) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = h.Handle(ctx, handler.Checkpoint{State: &agentv1.ConversationStateStructure{}, Bubble: "3f"})
	fmt.Println(err, h.Close())
	// Output:
	// at message 3f
	// <nil> <nil>
}
