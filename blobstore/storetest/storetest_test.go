package storetest_test

import (
	"context"
	"io"
	"iter"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
)

// flawed is a correct store with one mistake on top. It keeps the abilities of
// the store below to itself unless a mistake is in one.
type flawed struct{ blobstore.Store }

// flaws are mistakes that stores have, and the test of the suite that must find
// each.
var flaws = []struct {
	name    string
	foundBy string // a part of the path of the test
	make    func() blobstore.Store
	opts    []storetest.Option
}{
	{"nil for an absent blob", "an absent blob is not found", func() blobstore.Store { return nilForAbsent{verified()} }, nil},
	{"nil for the empty blob", "the empty blob is a blob", func() blobstore.Store { return nilForEmpty{verified()} }, nil},
	{"the last byte lost", "a stored blob comes back", func() blobstore.Store { return lastByteLost{verified()} }, nil},
	{"the caller's slice kept", "slices belong to the caller", func() blobstore.Store { return newSharing(true, false) }, nil},
	{"the stored slice handed out", "slices belong to the caller", func() blobstore.Store { return newSharing(false, true) }, nil},
	{"a slice that waits in a queue", "slices belong to the caller", func() blobstore.Store { return &queueing{flawed: verified()} }, nil},
	{"a slice kept by SetLocal", "slices belong to the caller", func() blobstore.Store { return newSharing(true, false).localOnly() }, nil},
	{"room behind a slice used", "slices belong to the caller", func() blobstore.Store { return appending{verified()} }, nil},
	{"ranges of the stored slice", "slices belong to the caller", func() blobstore.Store { return rangesShared{newSharing(false, false)} }, nil},
	{"a value replaced in place", "slices handed out stay as they are", func() blobstore.Store { return &inPlace{blobs: make(map[blobref.Ref][]byte)} }, []storetest.Option{storetest.Opaque()}},
	{"a replaced value cached", "an opaque store replaces by every way in", func() blobstore.Store { return staleCache{memory.New(blobstore.Opaque), new(sync.Map)} }, []storetest.Option{storetest.Opaque()}},
	{"no look at the context", "a cancelled context changes nothing", func() blobstore.Store { return heedless{verified()} }, nil},
	{"no look at the hash", "a verified store refuses other bytes", func() blobstore.Store { return flawed{memory.New(blobstore.Opaque)} }, nil},
	{"the first value kept", "an opaque store takes any bytes under any id", func() blobstore.Store { return firstKept{flawed{memory.New(blobstore.Opaque)}} }, []storetest.Option{storetest.Opaque()}},
	{"a cut-off stream stored", "Put hashes a stream", func() blobstore.Store { return cutOff{verified()} }, nil},
	{"ranges of other bytes", "GetRange reads parts", func() blobstore.Store { return offByOne{verified()} }, nil},
	{"an ability hidden", "a layer forwards what is below it", func() blobstore.Store { return hiding{verified()} }, nil},
	{"a deletion that is not one", "Delete removes", func() blobstore.Store { return undead{verified()} }, nil},
	{"a listing that forgets", "Walk lists", func() blobstore.Store { return forgetful{memory.New(blobstore.Verified)} }, nil},
	{"the wrong mode", "", func() blobstore.Store { return memory.New(blobstore.Opaque) }, nil},
}

func verified() flawed { return flawed{memory.New(blobstore.Verified)} }

// TestTheSuiteFindsFlaws runs the suite on each flawed store in a process of its
// own, because a failing subtest fails all that it is in.
func TestTheSuiteFindsFlaws(t *testing.T) {
	if testing.Short() {
		t.Skip("a process and a whole suite for each flaw")
	}
	found := make(map[string]string) // by test of the suite
	for _, flaw := range flaws {
		found[flaw.name] = flaw.foundBy
	}
	for _, flaw := range faultFlaws {
		found[flaw.name] = flaw.foundBy
	}
	for name, foundBy := range found {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFlawed$", "-test.v", "-rapid.nofailfile")
			cmd.Env = append(os.Environ(), "STORETEST_FLAW="+name)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite passes a store with %s", name)
			}
			want := "--- FAIL: TestFlawed"
			if foundBy != "" {
				want += "/" + strings.ReplaceAll(foundBy, " ", "_")
			}
			if !strings.Contains(string(out), want) || strings.Contains(string(out), "panic:") {
				t.Errorf("%q is not in the output:\n%s", want, out)
			}
		})
	}
}

func TestFlawed(t *testing.T) {
	name := os.Getenv("STORETEST_FLAW")
	if name == "" {
		t.Skip("runs only as a child of TestTheSuiteFindsFlaws")
	}
	for _, flaw := range flaws {
		if flaw.name == name {
			storetest.Run(t, flaw.make, append(flaw.opts, storetest.Largest(1<<20))...)
		}
	}
	for _, flaw := range faultFlaws {
		if flaw.name == name {
			storetest.RunFaults(t, flaw.make, flaw.opts...)
		}
	}
}

type nilForAbsent struct{ flawed }

func (s nilForAbsent) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	data, err := s.Store.Get(ctx, ref)
	if ctx.Err() == nil {
		err = nil
	}
	return data, err
}

type nilForEmpty struct{ flawed }

func (s nilForEmpty) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	data, err := s.Store.Get(ctx, ref)
	if len(data) == 0 {
		data = nil
	}
	return data, err
}

type lastByteLost struct{ flawed }

func (s lastByteLost) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	data, err := s.Store.Get(ctx, ref)
	return data[:max(len(data)-1, 0)], err
}

// sharing keeps the slices it is given, or hands out those it keeps.
type sharing struct {
	flawed
	in, out bool

	mu    sync.Mutex
	blobs map[blobref.Ref][]byte // guarded by mu
}

func newSharing(in, out bool) *sharing {
	return &sharing{flawed: verified(), in: in, out: out, blobs: make(map[blobref.Ref][]byte)}
}

func (s *sharing) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	if err := s.Store.Set(ctx, ref, data); err != nil {
		return err
	}
	if !s.in {
		data = append([]byte{}, data...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blobs[ref] = data
	return nil
}

func (s *sharing) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.Set(ctx, ref, data)
}

func (s *sharing) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	if data, err := s.Store.Get(ctx, ref); err != nil {
		return data, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.out {
		return append([]byte{}, s.blobs[ref]...), nil
	}
	return s.blobs[ref], nil
}

type heedless struct{ flawed }

func (s heedless) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.Store.Set(context.WithoutCancel(ctx), ref, data)
}

type firstKept struct{ flawed }

func (s firstKept) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	if _, err := s.Get(ctx, ref); err == nil {
		return nil
	}
	return s.Store.Set(ctx, ref, data)
}

type cutOff struct{ flawed }

func (s cutOff) Put(ctx context.Context, r io.Reader) (blobref.Ref, int64, error) {
	buf := make([]byte, 4<<20)
	n, err := io.ReadFull(r, buf)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return blobref.Ref{}, 0, err
	}
	ref, err := blobstore.Put(ctx, s.Store, buf[:n])
	return ref, int64(n), err
}

type offByOne struct{ flawed }

func (s offByOne) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) ([]byte, error) {
	return s.Store.(*memory.Store).GetRange(ctx, ref, off+1, n)
}

type hiding struct{ flawed }

func (s hiding) Unwrap() blobstore.Store { return s.Store }

type undead struct{ flawed }

func (s undead) Delete(ctx context.Context, ref blobref.Ref) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.Get(ctx, ref)
	return err
}

type forgetful struct{ *memory.Store }

func (s forgetful) Walk(ctx context.Context) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		const page = 40 // and the next is never asked for
		n := 0
		for info, err := range s.Store.Walk(ctx) {
			if n++; n > page || !yield(info, err) {
				return
			}
		}
	}
}
