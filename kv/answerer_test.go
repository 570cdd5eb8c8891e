package kv_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
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

// answerer is a peer that answers as a test tells it, by the generated messages.
type answerer struct {
	t      *testing.T
	stream kv.Stream
}

// script returns a Remote each of whose connections is answered by the next function;
// after the last one dialling is refused.
func script(t *testing.T, opts kv.RemoteOptions, connections ...func(*answerer)) *kv.Remote {
	t.Helper()
	var peers sync.WaitGroup
	var mu sync.Mutex
	next := 0
	r := kv.NewRemote(func(context.Context) (kv.Stream, error) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(connections) {
			return nil, fmt.Errorf("connection %d: %w", next, kv.ErrRefused)
		}
		play := connections[next]
		next++
		near, far := kv.Pipe(kv.MaxMessage(opts.MaxBlob))
		peers.Go(func() {
			defer far.Close()
			play(&answerer{t, far})
		})
		return near, nil
	}, opts)
	t.Cleanup(func() {
		r.Close()
		peers.Wait()
	})
	return r
}

// asked returns the next request; nil when the stream has ended.
func (a *answerer) asked() *agentv1.KvServerMessage {
	data, err := a.stream.Recv()
	if err != nil {
		return nil
	}
	var m agentv1.KvServerMessage
	if err := proto.Unmarshal(data, &m); err != nil {
		a.t.Errorf("asked %x: %v", data, err)
	}
	return &m
}

func (a *answerer) send(messages ...*agentv1.KvClientMessage) {
	for _, m := range messages {
		data, err := proto.Marshal(m)
		if err != nil {
			a.t.Error(err)
		}
		a.sendBytes(data)
	}
}

func (a *answerer) sendBytes(message []byte) {
	a.stream.Send(kv.AppendMessage(nil, message)) //nolint:errcheck // the Remote may have gone
}

// untilEnd reads what is asked until the stream ends.
func (a *answerer) untilEnd() {
	for a.asked() != nil {
	}
}

func got(id uint32, data []byte) *agentv1.KvClientMessage {
	return &agentv1.KvClientMessage{Id: id, Message: &agentv1.KvClientMessage_GetBlobResult{GetBlobResult: &agentv1.GetBlobResult{BlobData: data}}}
}

func stored(id uint32) *agentv1.KvClientMessage {
	return &agentv1.KvClientMessage{Id: id, Message: &agentv1.KvClientMessage_SetBlobResult{SetBlobResult: &agentv1.SetBlobResult{}}}
}

var (
	blob    = []byte("blob")
	blobRef = blobref.Of(blob)
)

func TestIdsAreCountedFromZero(t *testing.T) {
	r := script(t, kv.RemoteOptions{}, func(a *answerer) {
		for want := range uint32(4) {
			m := a.asked()
			if m.GetId() != want {
				t.Errorf("asked with id %d, want %d", m.GetId(), want)
			}
			if m.GetGetBlobArgs() != nil {
				a.send(got(m.GetId(), blob))
			} else {
				a.send(stored(m.GetId()))
			}
		}
		a.untilEnd()
	})
	for range 2 {
		if data, err := r.Get(t.Context(), blobRef); err != nil || string(data) != "blob" {
			t.Errorf("Get = %q, %v", data, err)
		}
		if err := r.Set(t.Context(), blobRef, blob); err != nil {
			t.Errorf("Set = %v", err)
		}
	}
}

func TestAnswersToNothingAreIgnoredAndCounted(t *testing.T) {
	r := script(t, kv.RemoteOptions{}, func(a *answerer) {
		a.asked()
		a.send(got(77, []byte("invented")), stored(78), &agentv1.KvClientMessage{Id: 0})
		a.sendBytes([]byte{0xff})
		a.send(got(0, blob), got(0, []byte("again")), stored(0))
		a.asked()
		a.send(got(1, blob))
		a.untilEnd()
	})
	for range 2 {
		if data, err := r.Get(t.Context(), blobRef); err != nil || string(data) != "blob" {
			t.Errorf("Get = %q, %v", data, err)
		}
	}
	if stats := r.Stats(); stats.Ignored != 6 || stats.Answered != 2 {
		t.Errorf("counted %+v", stats)
	}
}

func TestWhatAPeerAnswersIsNotBelieved(t *testing.T) {
	failure := func(text string) *agentv1.Error { return &agentv1.Error{Message: text} }
	tests := []struct {
		name    string
		answer  *agentv1.KvClientMessage
		set     bool
		matches error
		says    string
	}{
		{"absent", got(0, nil), false, blobstore.ErrNotFound, ""},
		{"other bytes", got(0, []byte("other")), false, blobstore.ErrCorrupt, ""},
		{"no bytes, which is a blob", got(0, []byte{}), false, blobstore.ErrCorrupt, ""},
		{"an error", &agentv1.KvClientMessage{Message: &agentv1.KvClientMessage_GetBlobResult{GetBlobResult: &agentv1.GetBlobResult{Error: failure("no disk")}}}, false, nil, "no disk"},
		{"an error with the blob", &agentv1.KvClientMessage{Message: &agentv1.KvClientMessage_GetBlobResult{GetBlobResult: &agentv1.GetBlobResult{BlobData: blob, Error: failure("no disk")}}}, false, nil, "no disk"},
		{"the result of a set", stored(0), false, kv.ErrProtocol, ""},
		{"a set: an error", &agentv1.KvClientMessage{Message: &agentv1.KvClientMessage_SetBlobResult{SetBlobResult: &agentv1.SetBlobResult{Error: failure("disk full")}}}, true, nil, "disk full"},
		{"a set: an error without text", &agentv1.KvClientMessage{Message: &agentv1.KvClientMessage_SetBlobResult{SetBlobResult: &agentv1.SetBlobResult{Error: failure("")}}}, true, nil, "other side says"},
		{"a set: the result of a get", got(0, blob), true, kv.ErrProtocol, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := script(t, kv.RemoteOptions{}, func(a *answerer) {
				a.asked()
				a.send(tt.answer)
				a.untilEnd()
			})
			var err error
			if tt.set {
				err = r.Set(t.Context(), blobRef, blob)
			} else {
				var data []byte
				if data, err = r.Get(t.Context(), blobRef); data != nil {
					t.Errorf("Get returned %q", data)
				}
			}
			if err == nil || tt.matches != nil && !errors.Is(err, tt.matches) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("the error is %v, want %v %s", err, tt.matches, tt.says)
			}
		})
	}
}

func TestAnErrorIsTheSameOnBothSides(t *testing.T) {
	for _, want := range []error{
		blobstore.ErrCorrupt, blobstore.ErrMismatch, blobstore.ErrTooLarge, blobstore.ErrReadOnly, blobstore.ErrQueueFull, blobstore.ErrMode,
		blobstore.ErrNotLocal, blobstore.ErrUnsupported, blobstore.ErrUnavailable, blobref.ErrInvalid,
	} {
		store := &gate{Store: memory.New(blobstore.Verified), fails: map[blobref.Ref]error{blobRef: fmt.Errorf("somewhere: %w", want)}}
		r, _ := pair(t, store, kv.ControlledOptions{}, kv.RemoteOptions{})
		_, err := r.Get(t.Context(), blobRef)
		var peer *kv.PeerError
		if !errors.Is(err, want) || !errors.As(err, &peer) || errors.Is(err, blobstore.ErrNotFound) {
			t.Errorf("Get = %v, want %v", err, want)
		}
	}
}

func TestAnAnswerOverTheLimitFailsItsRequestAlone(t *testing.T) {
	r := script(t, kv.RemoteOptions{MaxBlob: 1000}, func(a *answerer) {
		a.asked()
		a.send(got(0, make([]byte, 200<<10)))
		a.asked()
		a.send(got(1, blob))
		a.untilEnd()
	})
	if _, err := r.Get(t.Context(), blobRef); !errors.Is(err, blobstore.ErrTooLarge) {
		t.Errorf("Get = %v, want ErrTooLarge", err)
	}
	if data, err := r.Get(t.Context(), blobRef); err != nil || string(data) != "blob" {
		t.Errorf("Get = %q, %v", data, err)
	}
	large := make([]byte, 1001)
	if err := r.Set(t.Context(), blobref.Of(large), large); !errors.Is(err, blobstore.ErrTooLarge) {
		t.Errorf("Set = %v, want ErrTooLarge", err)
	}
}

func TestRequestsAreAskedAgainAfterAReconnect(t *testing.T) {
	const calls = 20
	var asked []uint32
	r := script(t, kv.RemoteOptions{},
		func(a *answerer) { // takes all, answers two, and breaks off
			for range calls {
				asked = append(asked, a.asked().GetId())
			}
			a.send(got(asked[3], blob), got(asked[7], blob))
			// The answers are there when the next stream is asked for.
		},
		func(a *answerer) { // breaks off at once
			a.asked()
		},
		func(a *answerer) {
			seen := make(map[uint32]bool)
			for range calls - 2 {
				id := a.asked().GetId()
				if seen[id] || id == asked[3] || id == asked[7] {
					t.Errorf("%d was asked again", id)
				}
				seen[id] = true
				a.send(got(id, blob))
			}
			a.untilEnd()
		})
	var callers sync.WaitGroup
	for range calls {
		callers.Go(func() {
			if data, err := r.Get(t.Context(), blobRef); err != nil || string(data) != "blob" {
				t.Errorf("Get = %q, %v", data, err)
			}
		})
	}
	callers.Wait()
	if stats := r.Stats(); stats.Asked != calls || stats.Answered != calls || stats.Connections != 3 || stats.Ignored != 0 {
		t.Errorf("counted %+v", stats)
	}
}

func TestASetIsAskedAgainWithItsBytes(t *testing.T) {
	r := script(t, kv.RemoteOptions{},
		func(a *answerer) { a.asked() },
		func(a *answerer) {
			m := a.asked()
			if string(m.GetSetBlobArgs().GetBlobData()) != "blob" {
				t.Errorf("asked again: %v", m)
			}
			a.send(stored(m.GetId()))
			a.untilEnd()
		})
	if err := r.Set(t.Context(), blobRef, blob); err != nil {
		t.Errorf("Set = %v", err)
	}
}

func TestARequestThatBreaksEveryConnectionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		breaks := func(a *answerer) { a.asked() }
		r := script(t, kv.RemoteOptions{Attempts: 3}, breaks, breaks, breaks, func(a *answerer) {
			a.send(got(a.asked().GetId(), blob))
			a.untilEnd()
		})
		if _, err := r.Get(t.Context(), blobRef); !errors.Is(err, blobstore.ErrUnavailable) || !strings.Contains(err.Error(), "3 connections") {
			t.Errorf("Get = %v, want ErrUnavailable after 3 connections", err)
		}
		if data, err := r.Get(t.Context(), blobRef); err != nil || string(data) != "blob" {
			t.Errorf("the next Get = %q, %v", data, err)
		}
	})
}

func TestAPeerThatRefusesFailsWhatWaits(t *testing.T) {
	r := script(t, kv.RemoteOptions{})
	for range 2 {
		if _, err := r.Get(t.Context(), blobRef); !errors.Is(err, kv.ErrRefused) {
			t.Errorf("Get = %v, want ErrRefused", err)
		}
	}
}

func TestAPeerThatDoesNotAnswerIsWaitedForUntilTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := script(t, kv.RemoteOptions{Timeout: time.Minute}, func(a *answerer) {
			first := a.asked().GetId()
			second := a.asked().GetId()
			a.send(got(first, blob), got(second, blob)) // the first comes too late
			a.untilEnd()
		})
		if _, err := r.Get(t.Context(), blobRef); !errors.Is(err, kv.ErrTimeout) {
			t.Errorf("Get = %v, want ErrTimeout", err)
		}
		if data, err := r.Get(t.Context(), blobRef); err != nil || string(data) != "blob" {
			t.Errorf("the next Get = %q, %v", data, err)
		}
		if stats := r.Stats(); stats.Ignored != 1 {
			t.Errorf("counted %+v", stats)
		}
	})
}

func TestACancelledCallReturnsAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := script(t, kv.RemoteOptions{}, func(a *answerer) {
		a.asked()
		cancel()
		a.untilEnd()
	})
	if err := r.Set(ctx, blobRef, blob); !errors.Is(err, context.Canceled) {
		t.Errorf("Set = %v, want context.Canceled", err)
	}
}

func TestCallsBeyondTheLimitWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := 0
		r := script(t, kv.RemoteOptions{InFlight: 4}, func(a *answerer) {
			for range 5 {
				var open []uint32
				for range 4 {
					open = append(open, a.asked().GetId())
				}
				synctest.Wait() // all others wait now
				most = max(most, len(open))
				for _, id := range open {
					a.send(got(id, blob))
				}
			}
			a.untilEnd()
		})
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				if _, err := r.Get(t.Context(), blobRef); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.Get(ctx, blobRef); !errors.Is(err, context.Canceled) {
			t.Errorf("Get = %v", err)
		}
	})
}

func TestFlushWaitsForSetsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		r := script(t, kv.RemoteOptions{}, func(a *answerer) {
			id := a.asked().GetId()
			<-open
			a.send(stored(id))
			a.untilEnd()
		})
		set := make(chan error, 1)
		go func() { set <- r.Set(t.Context(), blobRef, blob) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush while a set is in flight = %v, want that the context ended", err)
		}
		flushed := make(chan error, 1)
		go func() { flushed <- r.Flush(t.Context()) }()
		synctest.Wait()
		if len(flushed) > 0 {
			t.Error("Flush returned while a set is in flight")
		}
		close(open)
		if err := errors.Join(<-set, <-flushed, r.Flush(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseFailsWhatWaitsAndWhatComes(t *testing.T) {
	asked := make(chan struct{})
	r := script(t, kv.RemoteOptions{}, func(a *answerer) {
		a.asked()
		close(asked)
		a.untilEnd()
	})
	failed := make(chan error, 1)
	go func() {
		_, err := r.Get(context.Background(), blobRef)
		failed <- err
	}()
	<-asked
	r.Close()
	r.Close()
	if err := <-failed; !errors.Is(err, kv.ErrClosed) {
		t.Errorf("the Get that waited = %v, want ErrClosed", err)
	}
	if _, err := r.Get(t.Context(), blobRef); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("the Get after Close = %v, want ErrClosed", err)
	}
}

func TestAStreamThatNothingReplacesClosesTheRemote(t *testing.T) {
	near, far := kv.Pipe(kv.MaxMessage(0))
	r := kv.NewRemote(kv.Once(near), kv.RemoteOptions{})
	defer r.Close()
	go func() {
		far.Recv() //nolint:errcheck // then it breaks
		far.Close()
	}()
	if _, err := r.Get(t.Context(), blobRef); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("Get = %v, want ErrClosed", err)
	}
}

func TestConnectSaysWhenNobodyIsThere(t *testing.T) {
	want := errors.New("nobody there")
	if _, err := kv.Connect(t.Context(), func(context.Context) (kv.Stream, error) { return nil, want }, kv.RemoteOptions{}); !errors.Is(err, want) {
		t.Errorf("Connect = %v", err)
	}
}

func TestAStreamOverPipesEndsWithItsReader(t *testing.T) {
	s := kv.NewStream(strings.NewReader("\x02\x00\x00\x00\x00"), io.Discard, 100, nil)
	if _, err := s.Recv(); !errors.Is(err, kv.ErrProtocol) {
		t.Errorf("the end of a Connect stream on a pipe: %v", err)
	}
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("the end of a pipe: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
