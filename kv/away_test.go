package kv_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/kv"
)

var errNobody = errors.New("connection refused")

// absentFrom plays connections whose peers break off after one answer; from each of them
// on, as many dials as its number fail, and after the last one all.
func absentFrom(t *testing.T, opts kv.RemoteOptions, fails ...int) (r *kv.Remote, dials func() int) {
	t.Helper()
	var peers sync.WaitGroup
	var mu sync.Mutex
	count, failed := 0, 0
	r = kv.NewRemote(func(context.Context) (kv.Stream, error) {
		mu.Lock()
		defer mu.Unlock()
		count++
		if len(fails) == 0 || failed < fails[0] {
			failed++
			return nil, errNobody
		}
		fails, failed = fails[1:], 0
		near, far := kv.Pipe(kv.MaxMessage(opts.MaxBlob))
		peers.Go(func() {
			defer far.Close()
			a := &answerer{t, far}
			a.send(got(a.asked().GetId(), blob))
			a.asked() // the next one is lost
		})
		return near, nil
	}, opts)
	t.Cleanup(func() {
		r.Close()
		peers.Wait()
	})
	return r, func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

// wantNobody checks an error of a call for which nobody was there.
func wantNobody(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, blobstore.ErrUnavailable) || errors.Is(err, kv.ErrTimeout) || !errors.Is(err, errNobody) {
		t.Errorf("the error is %v, want ErrUnavailable and why, without a timeout", err)
	}
}

func TestAPeerThatWasNeverThereFailsCallsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, dials := absentFrom(t, kv.RemoteOptions{})
		began := time.Now()
		for range 3 {
			_, err := r.Get(t.Context(), blobRef)
			wantNobody(t, err)
			wantNobody(t, r.Set(t.Context(), blobRef, blob))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("six calls took %v, want no time: each dials once", took)
		}
		if n := dials(); n != 6 {
			t.Errorf("dialled %d times for 6 calls", n)
		}
	})
}

func TestAllCallsThatWaitForAPeerThatWasNeverThereFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		r := kv.NewRemote(func(context.Context) (kv.Stream, error) {
			<-open
			return nil, errNobody
		}, kv.RemoteOptions{})
		defer r.Close()
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				_, err := r.Get(t.Context(), blobRef)
				wantNobody(t, err)
			})
		}
		synctest.Wait()
		close(open)
		callers.Wait()
	})
}

func TestAPeerThatComesLaterIsFoundByTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := absentFrom(t, kv.RemoteOptions{}, 2)
		for range 2 {
			_, err := r.Get(t.Context(), blobRef)
			wantNobody(t, err)
		}
		if data, err := r.Get(t.Context(), blobRef); err != nil || string(data) != "blob" {
			t.Errorf("Get = %q, %v", data, err)
		}
	})
}

func TestAShortRestartLosesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := absentFrom(t, kv.RemoteOptions{}, 0, 4)
		for call := range 2 { // the second one breaks the first stream
			if data, err := r.Get(t.Context(), blobRef); err != nil || string(data) != "blob" {
				t.Errorf("Get %d = %q, %v", call, data, err)
			}
		}
		if stats := r.Stats(); stats.AskedAgain != 1 || stats.Connections != 2 {
			t.Errorf("counted %+v", stats)
		}
	})
}

func TestAPeerThatWentAwayIsWaitedForAsLongAsPatienceLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, patience := range []time.Duration{0, 7 * time.Second} {
			r, dials := absentFrom(t, kv.RemoteOptions{DialPatience: patience, BackoffLimit: time.Second}, 0)
			if _, err := r.Get(t.Context(), blobRef); err != nil {
				t.Fatal(err)
			}
			want := patience
			if want == 0 {
				want = 2 * time.Second
			}
			began := time.Now()
			_, err := r.Get(t.Context(), blobRef)
			wantNobody(t, err)
			if took := time.Since(began); took != want {
				t.Errorf("a call waited %v, want %v", took, want)
			}
			if n := dials(); n < 5 {
				t.Errorf("dialled %d times, want several before giving up", n)
			}
			// That it is away is known now.
			began = time.Now()
			_, err = r.Get(t.Context(), blobRef)
			wantNobody(t, err)
			if took := time.Since(began); took != 0 {
				t.Errorf("the next call waited %v, want that it fails at once", took)
			}
		}
	})
}

func TestPatienceBeginsWhenAPeerIsFoundAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := absentFrom(t, kv.RemoteOptions{}, 0, 3, 3)
		for call := range 3 {
			if data, err := r.Get(t.Context(), blobRef); err != nil || string(data) != "blob" {
				t.Errorf("Get %d = %q, %v", call, data, err)
			}
			time.Sleep(time.Hour) // of silence, which costs no patience
		}
	})
}

func TestWithoutEndOfPatienceAPeerIsWaitedForUntilTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, dials := absentFrom(t, kv.RemoteOptions{DialPatience: -1, Timeout: time.Minute, Backoff: time.Second, BackoffLimit: 10 * time.Second})
		began := time.Now()
		_, err := r.Get(t.Context(), blobRef)
		if took := time.Since(began); took != time.Minute || !errors.Is(err, kv.ErrTimeout) || !errors.Is(err, blobstore.ErrUnavailable) || !errors.Is(err, errNobody) {
			t.Errorf("Get = %v after %v", err, took)
		}
		// 1, 2, 4, 8 seconds and then 10, each less up to a half.
		if n := dials(); n < 8 || n > 16 {
			t.Errorf("dialled %d times in a minute", n)
		}
	})
}

func TestTheLimitOfABlobIsSaidAsPeopleReadIt(t *testing.T) {
	const limit = 64 << 10
	r := script(t, kv.RemoteOptions{MaxBlob: limit})
	large := make([]byte, limit+1)
	for _, err := range []error{
		r.Set(t.Context(), blobref.Of(large), large),
		func() error { _, err := r.PutBytes(t.Context(), large); return err }(),
	} {
		if !errors.Is(err, blobstore.ErrTooLarge) || !strings.Contains(err.Error(), "64KiB") || !strings.Contains(err.Error(), "64.0 KB (65537 bytes)") {
			t.Errorf("storing more than the limit = %v", err)
		}
	}
}
