package httpstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/httpstore"
	"github.com/agentrun/agentrun/blobstore/internal/badline"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/retry"
	"github.com/agentrun/agentrun/blobstore/storetest"
)

// over is a client of a server of inner, both of which end with t.
func over(t *testing.T, inner blobstore.Store, mode blobstore.Mode) blobstore.Store {
	return serve(t, inner, httpstore.Options{Mode: mode}, httpstore.HandlerOptions{})
}

func TestFaultsBehindTheServerAreToldAsTheyAre(t *testing.T) {
	storetest.RunFaults(t, func(t *testing.T, inner blobstore.Store) blobstore.Store {
		return over(t, inner, blobstore.Verified)
	}, storetest.RealTime(), storetest.NotLocal())
}

func TestFaultsBehindTheServerOfAnOpaqueStoreAreToldAsTheyAre(t *testing.T) {
	storetest.RunFaults(t, func(t *testing.T, inner blobstore.Store) blobstore.Store {
		return over(t, inner, blobstore.Opaque)
	}, storetest.RealTime(), storetest.NotLocal(), storetest.Opaque())
}

// overLine is a store, a line to its server, and a client at the end of it that asks again.
func overLine(t *testing.T) (*memory.Store, *badline.Line, blobstore.Store) {
	t.Helper()
	below := memory.New(blobstore.Verified)
	server := httptest.NewServer(httpstore.NewHandler(below, httpstore.HandlerOptions{}))
	t.Cleanup(server.Close)
	p := badline.New(t, server.Listener.Addr().String())
	client, err := httpstore.Open("http://"+p.Addr().String(), httpstore.Options{Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return below, p, retry.New(client, retry.Policy{Attempts: 100, Wait: time.Millisecond, MaxWait: 2 * time.Millisecond, Budget: -1, BreakAfter: -1})
}

func TestNothingIsLostOnALineThatIsCut(t *testing.T) {
	below, p, s := overLine(t)
	p.Cut.Store(100_000)
	ctx := context.Background()
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 20 {
				data := bytes.Repeat([]byte{byte(w), byte(i)}, 1+rand.IntN(20_000))
				ref := blobref.Of(data)
				if err := s.Set(ctx, ref, data); err != nil {
					t.Errorf("Set: %v", err)
					return
				}
				if got, err := below.Get(ctx, ref); err != nil || !bytes.Equal(got, data) {
					t.Errorf("what was acknowledged is not there: %v", err)
				}
				if got, err := s.Get(ctx, ref); err != nil || !bytes.Equal(got, data) {
					t.Errorf("Get = %d bytes, %v", len(got), err)
				}
			}
		})
	}
	all.Wait()
}

func TestNoWrongByteComesOffALineThatFlipsBits(t *testing.T) {
	below, p, _ := overLine(t)
	client, err := httpstore.Open("http://"+p.Addr().String(), httpstore.Options{Grace: 200 * time.Millisecond, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	data := bytes.Repeat([]byte("0123456789"), 3000)
	ref, err := below.PutBytes(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	p.Flip.Store(true)
	for range 100 {
		if got, err := client.Get(t.Context(), ref); err == nil && !bytes.Equal(got, data) {
			t.Fatal("Get handed out other bytes")
		}
		if got, err := client.GetRange(t.Context(), ref, 100, 100); err == nil && !bytes.Equal(got, data[100:200]) {
			t.Fatal("GetRange handed out other bytes")
		}
		b, err := client.Open(t.Context(), ref)
		if err != nil {
			continue
		}
		got, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("Open handed out other bytes (%v)", err)
		}
		b.Close()
	}
}

func TestAPartitionIsToldAndPasses(t *testing.T) {
	_, p, s := overLine(t)
	client := s.(blobstore.Unwrapper).Unwrap()
	p.Dead.Store(true)
	p.HangUp()
	if err := client.Set(t.Context(), blobref.Of(wanted), wanted); !errors.Is(err, blobstore.ErrUnavailable) {
		t.Errorf("Set over a dead line = %v, want ErrUnavailable", err)
	}
	healed := make(chan struct{})
	go func() {
		defer close(healed)
		p.Dead.Store(false)
	}()
	if err := s.Set(t.Context(), blobref.Of(wanted), wanted); err != nil {
		t.Errorf("Set while the line comes back: %v", err)
	}
	<-healed
	if got, err := client.Get(t.Context(), blobref.Of(wanted)); err != nil || !bytes.Equal(got, wanted) {
		t.Errorf("Get = %q, %v", got, err)
	}
}
