package writethrough_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/faultstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/writethrough"
)

// count returns how many calls of a method there were since the last Plan.
func count(s *faultstore.Store, op faultstore.Op) int {
	n := 0
	for _, c := range s.Calls() {
		if c.Op == op {
			n++
		}
	}
	return n
}

func TestCallersThatMissOneBlobFetchItOnceAndItIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		arrived, remote := newRemote()
		if err := arrived.Set(t.Context(), numberedRef(1), numbered(1)); err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		remote.Plan(faultstore.Always(faultstore.Fault{Hold: hold}, faultstore.Get))
		local := memory.New(blobstore.Verified)
		s := open(t, local, remote, t.TempDir(), writethrough.Options{})
		results, errs := make([][]byte, 20), make(chan error)
		for i := range results {
			go func() {
				data, err := s.Get(t.Context(), numberedRef(1))
				results[i] = data
				errs <- err
			}()
		}
		synctest.Wait()
		close(hold)
		for range results {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		for _, data := range results {
			if !bytes.Equal(data, numbered(1)) {
				t.Fatalf("Get = %q", data)
			}
			clear(data) // it is nobody else's
		}
		if !has(t, local, 1) || !has(t, s, 1) || count(remote, faultstore.Get) != 1 {
			t.Errorf("%d fetches", count(remote, faultstore.Get))
		}
	})
}

func TestAFetchGoesOnAsLongAsOneWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		arrived, remote := newRemote()
		if err := arrived.Set(t.Context(), numberedRef(1), numbered(1)); err != nil {
			t.Fatal(err)
		}
		remote.Plan(faultstore.Always(faultstore.Fault{Delay: time.Minute}, faultstore.Get))
		s := open(t, memory.New(blobstore.Verified), remote, t.TempDir(), writethrough.Options{})
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gone := make(chan error)
		go func() { _, err := s.Get(impatient, numberedRef(1)); gone <- err }()
		synctest.Wait() // the one who began it
		if _, err := s.Get(t.Context(), numberedRef(1)); err != nil {
			t.Error(err)
		}
		if err := <-gone; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the other = %v", err)
		}
		// Nobody waits: the fetch ends, and the next begins anew.
		impatient, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Get(impatient, numberedRef(2)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Get = %v", err)
		}
		if err := arrived.Set(t.Context(), numberedRef(2), numbered(2)); err != nil {
			t.Fatal(err)
		}
		if !has(t, s, 2) {
			t.Error("it is not found")
		}
	})
}

func TestWhatIsStoredWhileItIsFetchedStays(t *testing.T) {
	for name, over := range map[string]int64{"whole": 1 << 20, "streamed": 1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				arrived := memory.New(blobstore.Opaque)
				remote := faultstore.New(arrived)
				ref := numberedRef(1)
				if err := arrived.Set(t.Context(), ref, []byte("the old bytes")); err != nil {
					t.Fatal(err)
				}
				hold := make(chan struct{})
				remote.Plan(faultstore.Always(faultstore.Fault{Hold: hold}, faultstore.Get, faultstore.Open))
				local := memory.New(blobstore.Opaque)
				s := open(t, local, remote, t.TempDir(), writethrough.Options{StreamOver: over})
				fetched := make(chan error)
				go func() { _, err := s.Get(t.Context(), ref); fetched <- err }()
				synctest.Wait()
				if err := s.Set(t.Context(), ref, []byte("the new bytes")); err != nil {
					t.Fatal(err)
				}
				close(hold)
				if err := <-fetched; err != nil {
					t.Errorf("the fetch: %v", err)
				}
				flush(t, s)
				for _, store := range []blobstore.Store{local, s, arrived} {
					if got, err := store.Get(t.Context(), ref); err != nil || string(got) != "the new bytes" {
						t.Errorf("%T holds %q, %v", store, got, err)
					}
				}
			})
		})
	}
}

func TestABlobThatIsDeletedWhileItIsSentOrFetchedStaysDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		arrived, remote := newRemote()
		hold := make(chan struct{})
		local := memory.New(blobstore.Verified)
		s := open(t, local, remote, t.TempDir(), writethrough.Options{})
		remote.Plan(faultstore.Always(faultstore.Fault{Hold: hold}, faultstore.Set))
		set(t, s, 1)
		synctest.Wait() // it is on its way
		if err := s.Delete(t.Context(), numberedRef(1)); err != nil {
			t.Fatal(err)
		}
		close(hold)
		flush(t, s)
		if has(t, arrived, 1) || has(t, local, 1) || has(t, s, 1) {
			t.Error("it is there")
		}
		// Acknowledged by the remote, but late: the effect is there already.
		hold = make(chan struct{})
		remote.Plan(nil)
		set(t, s, 2)
		flush(t, s)
		if err := local.Delete(t.Context(), numberedRef(2)); err != nil {
			t.Fatal(err)
		}
		remote.Plan(faultstore.Always(faultstore.Fault{Hold: hold}, faultstore.Get))
		fetched := make(chan error)
		go func() { _, err := s.Get(t.Context(), numberedRef(2)); fetched <- err }()
		synctest.Wait()
		if err := s.Delete(t.Context(), numberedRef(2)); err != nil {
			t.Fatal(err)
		}
		close(hold)
		<-fetched
		if has(t, arrived, 2) || has(t, local, 2) {
			t.Error("what was fetched came back")
		}
	})
}

func TestADeleteThatFailsLeavesTheBlobAndSendsIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		arrived, remote := newRemote()
		remote.Plan(offline)
		s := open(t, memory.New(blobstore.Verified), remote, t.TempDir(), writethrough.Options{})
		set(t, s, 1)
		if err := s.Delete(t.Context(), numberedRef(1)); !errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("Delete without a network = %v", err)
		}
		remote.Plan(nil)
		flush(t, s)
		if !has(t, arrived, 1) || !has(t, s, 1) {
			t.Error("it is gone")
		}
	})
}

// stubborn is a remote whose Set has its effect when it is let go, whatever became of
// its context.
type stubborn struct {
	*memory.Store
	begun, release chan struct{}
}

func (s stubborn) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	s.begun <- struct{}{}
	<-s.release
	if err := s.Store.Set(context.WithoutCancel(ctx), ref, data); err != nil {
		return err
	}
	return ctx.Err()
}

func newStubborn(mode blobstore.Mode) stubborn {
	return stubborn{memory.New(mode), make(chan struct{}, 100), make(chan struct{})}
}

func TestADeleteByAnotherProcessWhileABlobIsSentIsRepeatedAtTheRemote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		remote := newStubborn(blobstore.Verified)
		local, dir := memory.New(blobstore.Verified), t.TempDir()
		sends := open(t, local, remote, dir, writethrough.Options{})
		set(t, sends, 1)
		<-remote.begun
		other := open(t, local, remote.Store, dir, writethrough.Options{})
		if err := other.Delete(t.Context(), numberedRef(1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // the one that sends has heard of it
		close(remote.release)
		time.Sleep(time.Minute)
		if has(t, remote.Store, 1) || has(t, local, 1) || sends.Queued() != 0 {
			t.Error("it is there")
		}
	})
}

func TestADeleteWaitsForABlobThatIsOnItsWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		remote := newStubborn(blobstore.Verified)
		s := open(t, memory.New(blobstore.Verified), remote, t.TempDir(), writethrough.Options{})
		set(t, s, 1)
		<-remote.begun
		done := make(chan error, 1)
		go func() { done <- s.Delete(t.Context(), numberedRef(1)) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Errorf("Delete = %v while the blob was on its way", err)
		default:
		}
		close(remote.release)
		if err := <-done; err != nil || has(t, remote.Store, 1) {
			t.Errorf("Delete = %v, and the remote has it: %v", err, has(t, remote.Store, 1))
		}
	})
}

func TestWhatIsStoredAgainWhileItIsSentIsSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		remote := newStubborn(blobstore.Opaque)
		s := open(t, memory.New(blobstore.Opaque), remote, t.TempDir(), writethrough.Options{})
		ref := numberedRef(1)
		for i, value := range []string{"first", "second", "third"} {
			if err := s.Set(t.Context(), ref, []byte(value)); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				<-remote.begun
			}
		}
		close(remote.release)
		flush(t, s)
		if got, err := remote.Get(t.Context(), ref); err != nil || string(got) != "third" {
			t.Errorf("the remote has %q, %v", got, err)
		}
		if n := 1 + len(remote.begun); n != 2 {
			t.Errorf("it was sent %d times, want 2", n)
		}
	})
}

// hanging is a remote whose streams give nothing until their context ends.
type hanging struct{ *memory.Store }

func (s hanging) Open(ctx context.Context, ref blobref.Ref) (blobstore.Blob, error) {
	b, err := s.Store.Open(ctx, ref)
	return hangingBlob{b, ctx}, err
}

type hangingBlob struct {
	blobstore.Blob
	ctx context.Context
}

func (b hangingBlob) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func TestAStreamThatHangsHoldsUpNobodyWhoStores(t *testing.T) {
	for name, store := range map[string]func(ctx context.Context, s *writethrough.Store, ref blobref.Ref, data []byte) error{
		"Set": func(ctx context.Context, s *writethrough.Store, ref blobref.Ref, data []byte) error {
			return s.Set(ctx, ref, data)
		},
		"SetLocal": func(ctx context.Context, s *writethrough.Store, ref blobref.Ref, data []byte) error {
			return s.SetLocal(ctx, ref, data)
		},
		"PutBytes": func(ctx context.Context, s *writethrough.Store, _ blobref.Ref, data []byte) error {
			_, err := s.PutBytes(ctx, data)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				remote := hanging{memory.New(blobstore.Opaque)}
				data := []byte("the new bytes")
				ref := blobref.Of(data)
				if err := remote.Set(t.Context(), ref, []byte("the old bytes")); err != nil {
					t.Fatal(err)
				}
				s := open(t, memory.New(blobstore.Opaque), remote, t.TempDir(), writethrough.Options{StreamOver: 1})
				type result struct {
					data []byte
					err  error
				}
				got := make(chan result, 1)
				go func() { data, err := s.Get(t.Context(), ref); got <- result{data, err} }()
				synctest.Wait()
				if err := store(t.Context(), s, ref, data); err != nil {
					t.Fatal(err)
				}
				// It began before, so either value will do.
				if r := <-got; r.err != nil || string(r.data) != "the old bytes" && !bytes.Equal(r.data, data) {
					t.Errorf("who waited for the stream got %q, %v", r.data, r.err)
				}
				if now, err := s.Get(t.Context(), ref); err != nil || !bytes.Equal(now, data) {
					t.Errorf("Get = %q, %v", now, err)
				}
			})
		})
	}
}

// slowCommit is a local store that has read a stream, and stores it when it is let go.
type slowCommit struct {
	*memory.Store
	read, release chan struct{}
}

func (s slowCommit) SetStream(_ context.Context, ref blobref.Ref, r io.Reader, _ int64) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	close(s.read)
	<-s.release
	return s.Store.Set(context.Background(), ref, data)
}

func TestAStreamThatCannotBeEndedAnyMoreIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		remote := memory.New(blobstore.Opaque)
		ref := numberedRef(1)
		if err := remote.Set(t.Context(), ref, []byte("the old bytes")); err != nil {
			t.Fatal(err)
		}
		local := slowCommit{memory.New(blobstore.Opaque), make(chan struct{}), make(chan struct{})}
		s := open(t, local, remote, t.TempDir(), writethrough.Options{StreamOver: 1})
		got, stored := make(chan error, 1), make(chan error, 1)
		go func() { _, err := s.Get(t.Context(), ref); got <- err }()
		<-local.read
		go func() { stored <- s.Set(t.Context(), ref, []byte("the new bytes")) }()
		synctest.Wait()
		close(local.release)
		if err := errors.Join(<-stored, <-got); err != nil {
			t.Fatal(err)
		}
		if now, err := s.Get(t.Context(), ref); err != nil || string(now) != "the new bytes" {
			t.Errorf("Get = %q, %v", now, err)
		}
	})
}

func TestLargeBlobsAreStreamedBothWays(t *testing.T) {
	modesOf(t, func(t *testing.T, mode blobstore.Mode) {
		arrived := memory.New(mode)
		remote := faultstore.New(arrived)
		here := faultstore.New(memory.New(mode))
		base := t.TempDir()
		s := open(t, here, remote, filepath.Join(base, "a"), writethrough.Options{StreamOver: 100_000})
		data := bytes.Repeat([]byte("large "), 50_000)
		ref := blobref.Of(data)
		if err := s.SetStream(t.Context(), ref, bytes.NewReader(data), int64(len(data))); err != nil {
			t.Fatal(err)
		}
		flush(t, s)
		if count(remote, faultstore.Set) != 0 || count(remote, faultstore.SetStream) != 1 || count(here, faultstore.Get) != 0 {
			t.Errorf("sent by %v and %v", remote.Calls(), here.Calls())
		}

		there := faultstore.New(memory.New(mode))
		again := open(t, there, remote, filepath.Join(base, "b"), writethrough.Options{StreamOver: 100_000})
		b, err := again.Open(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, data) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
		if count(remote, faultstore.Get) != 0 || count(there, faultstore.SetStream) != 1 {
			t.Errorf("fetched by %v and %v", remote.Calls(), there.Calls())
		}
	})
}

func modesOf(t *testing.T, run func(t *testing.T, mode blobstore.Mode)) {
	for _, mode := range []blobstore.Mode{blobstore.Verified, blobstore.Opaque} {
		t.Run(mode.String(), func(t *testing.T) { run(t, mode) })
	}
}

// plain is a store without any ability.
type plain struct{ blobstore.Store }

func (plain) Mode() blobstore.Mode { return blobstore.Verified }

func TestARemoteWithoutAbilitiesIsEnough(t *testing.T) {
	arrived := memory.New(blobstore.Verified)
	s := open(t, memory.New(blobstore.Verified), plain{arrived}, t.TempDir(), writethrough.Options{StreamOver: 1})
	set(t, s, 1)
	flush(t, s)
	if !has(t, arrived, 1) {
		t.Error("it has not arrived")
	}
	other := open(t, memory.New(blobstore.Verified), plain{arrived}, t.TempDir(), writethrough.Options{StreamOver: 1})
	if !has(t, other, 1) {
		t.Error("it is not fetched")
	}
	if err := other.Delete(t.Context(), numberedRef(1)); !errors.Is(err, blobstore.ErrUnsupported) || !has(t, other, 1) {
		t.Errorf("Delete = %v", err)
	}
	var found []blobref.Ref
	var last error
	for info, err := range other.Walk(t.Context()) {
		if last = err; err == nil {
			found = append(found, info.Ref)
		}
	}
	if !errors.Is(last, writethrough.ErrRemoteUnlisted) || !errors.Is(last, blobstore.ErrUnsupported) {
		t.Errorf("the walk ends with %v", last)
	}
	if !slices.Equal(found, []blobref.Ref{numberedRef(1)}) {
		t.Errorf("the walk yields %v, want what is here", found)
	}
}

func TestWalkYieldsWhatEitherStoreHasOnce(t *testing.T) {
	arrived, local := memory.New(blobstore.Verified), memory.New(blobstore.Verified)
	s := open(t, local, arrived, t.TempDir(), writethrough.Options{})
	for i := range 10 {
		set(t, s, i)
	}
	flush(t, s)
	set(t, arrived, 20)
	set(t, local, 21)
	found := make(map[blobref.Ref]int)
	for info, err := range s.Walk(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		found[info.Ref]++
	}
	if len(found) != 12 {
		t.Errorf("%d blobs, want 12", len(found))
	}
	for ref, n := range found {
		if n != 1 {
			t.Errorf("%v %d times", ref, n)
		}
	}
}

// told keeps what an observer is told.
type told struct{ ended chan blobstore.Op }

func (o told) Began(ctx context.Context, _ blobstore.Op) context.Context { return ctx }
func (o told) Ended(_ context.Context, op blobstore.Op, _ time.Duration, _ error) {
	o.ended <- op
}
func (told) Counted(context.Context, string, string, string) {}

func TestAnObserverIsToldOfEachCall(t *testing.T) {
	o := told{make(chan blobstore.Op, 100)}
	s := open(t, memory.New(blobstore.Verified), memory.New(blobstore.Verified), t.TempDir(), writethrough.Options{Observer: o})
	set(t, s, 1)
	has(t, s, 1)
	flush(t, s)
	if _, err := s.PutBytes(t.Context(), numbered(2)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.GetRange(t.Context(), numberedRef(2), 0, 1); err != nil {
		t.Fatal(err)
	}
	close(o.ended)
	var names []string
	for op := range o.ended {
		if op.Layer != "writethrough" {
			t.Errorf("layer %q", op.Layer)
		}
		names = append(names, op.Name)
	}
	want := []string{"set_blob", "get_blob", "flush", "set_blob", "get_blob"}
	if len(names) != len(want) {
		t.Fatalf("told %v, want %v", names, want)
	}
	for i := range want {
		if names[i] != want[i] {
			t.Errorf("told %v, want %v", names, want)
		}
	}
}
