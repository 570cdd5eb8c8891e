package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/faultstore"
	"github.com/agentrun/agentrun/blobstore/memory"
)

// world is a layer over a store that fails, and what is known of its blobs.
type world struct {
	*faultSuite
	t     *testing.T
	what  string // the fault, for messages
	base  blobstore.Store
	below *faultstore.Store
	store blobstore.Store
	known map[blobref.Ref]*knowledge
}

// knowledge is what the calls so far say about one blob.
type knowledge struct {
	values    [][]byte // each of these may be what is stored; after a success it is one
	stored    bool     // it cannot be absent
	absent    bool     // it cannot be there
	localOnly bool     // Flush says nothing of it
	cut       bool     // anything may be stored: a write was cut in an Opaque store
}

func (f *faultSuite) world(t *testing.T, what string) *world {
	mode := f.mode
	if f.opaqueBelow {
		mode = blobstore.Opaque
	}
	w := &world{faultSuite: f, t: t, what: what, base: memory.New(mode), known: make(map[blobref.Ref]*knowledge)}
	w.below = faultstore.New(w.base)
	w.store = f.layer(t, w.below)
	return w
}

// elsewhere stores blobs by another layer, so that this one has no copy of its own yet.
func (w *world) elsewhere(blobs ...[]byte) {
	w.t.Helper()
	other := w.layer(w.t, w.base)
	for _, data := range blobs {
		err := other.Set(w.t.Context(), w.id(data), data)
		w.wrote("Set", w.id(data), data, false, err)
		if err != nil {
			w.fatalf("Set without a fault: %v", err)
		}
	}
	if err := other.Flush(w.t.Context()); err != nil {
		w.fatalf("Flush without a fault: %v", err)
	}
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s: %s", w.what, fmt.Sprintf(format, args...))
}

func (w *world) of(ref blobref.Ref) *knowledge {
	k, ok := w.known[ref]
	if !ok {
		k = &knowledge{absent: true}
		w.known[ref] = k
	}
	return k
}

// wrote notes the outcome of a call that stores data under ref.
func (w *world) wrote(how string, ref blobref.Ref, data []byte, local bool, err error) {
	w.t.Helper()
	k := w.of(ref)
	switch {
	case err == nil:
		again := k.stored && !k.localOnly && len(k.values) == 1 && bytes.Equal(k.values[0], data)
		k.values, k.stored, k.absent, k.cut = [][]byte{bytes.Clone(data)}, true, false, false
		k.localOnly = local && !again
	case errors.Is(err, blobstore.ErrMismatch), errors.Is(err, blobstore.ErrNotFound):
		w.fatalf("%s of %d right bytes = %v", how, len(data), err)
	case errors.Is(err, blobstore.ErrUnsupported), errors.Is(err, blobstore.ErrNotLocal):
	default:
		k.values, k.absent = append(k.values, bytes.Clone(data)), false
		k.cut = k.cut || w.mode == blobstore.Opaque && !k.stored
	}
}

// read checks what a call handed out, part being what it should be of a value.
func (w *world) read(how string, ref blobref.Ref, got []byte, err error, part func([]byte) []byte) {
	w.t.Helper()
	k := w.of(ref)
	switch {
	case errors.Is(err, blobstore.ErrNotFound) && k.stored:
		w.fatalf("%s says that a blob is absent which was stored: %v", how, err)
	case err != nil:
		return
	case k.absent:
		w.fatalf("%s returned %d bytes of a blob that is not there", how, len(got))
	case k.cut:
		return
	}
	for _, value := range k.values {
		if bytes.Equal(got, part(value)) {
			return
		}
	}
	w.fatalf("%s returned %d wrong bytes", how, len(got))
}

func whole(data []byte) []byte { return data }

// call is one call of the layer, with its check.
type call struct {
	name string
	do   func(w *world, ctx context.Context, data []byte) error
}

var faultCalls = []call{
	{"Set", func(w *world, ctx context.Context, data []byte) error {
		ref := w.id(data)
		err := w.store.Set(ctx, ref, data)
		w.wrote("Set", ref, data, false, err)
		return err
	}},
	{"Get", func(w *world, ctx context.Context, data []byte) error {
		got, err := w.store.Get(ctx, w.id(data))
		w.read("Get", w.id(data), got, err, whole)
		return err
	}},
	{"PutBytes", func(w *world, ctx context.Context, data []byte) error {
		_, err := blobstore.Put(ctx, w.store, data)
		w.wrote("PutBytes", blobref.Of(data), data, false, err)
		return err
	}},
	{"Open", func(w *world, ctx context.Context, data []byte) error {
		b, err := blobstore.Open(ctx, w.store, w.id(data))
		var got []byte
		if err == nil {
			got, err = io.ReadAll(b)
			b.Close()
		}
		w.read("Open", w.id(data), got, err, whole)
		return err
	}},
	{"Put", func(w *world, ctx context.Context, data []byte) error {
		_, _, err := blobstore.PutStream(ctx, w.store, struct{ io.Reader }{bytes.NewReader(data)})
		w.wrote("Put", blobref.Of(data), data, false, err)
		return err
	}},
	{"GetRange", func(w *world, ctx context.Context, data []byte) error {
		got, err := blobstore.GetRange(ctx, w.store, w.id(data), 1, 1<<20)
		w.read("GetRange", w.id(data), got, err, func(value []byte) []byte { return value[min(1, len(value)):] })
		return err
	}},
	{"Flush", func(w *world, ctx context.Context, _ []byte) error {
		err := w.store.Flush(ctx)
		if err == nil {
			w.flushed()
		}
		return err
	}},
	{"SetLocal", func(w *world, ctx context.Context, data []byte) error {
		ref := w.id(data)
		err := w.store.SetLocal(ctx, ref, data)
		w.wrote("SetLocal", ref, data, true, err)
		return err
	}},
	{"SetStream", func(w *world, ctx context.Context, data []byte) error {
		ref := w.id(data)
		err := blobstore.SetStream(ctx, w.store, ref, bytes.NewReader(data), int64(len(data)))
		w.wrote("SetStream", ref, data, false, err)
		return err
	}},
	{"Set of other bytes", func(w *world, ctx context.Context, data []byte) error {
		ref := w.id(data)
		if w.mode == blobstore.Opaque {
			data = append(bytes.Clone(data), "and more"...)
		}
		err := w.store.Set(ctx, ref, data)
		w.wrote("Set", ref, data, false, err)
		return err
	}},
	{"Stat", func(w *world, ctx context.Context, data []byte) error {
		_, err := blobstore.Stat(ctx, w.store, w.id(data))
		if errors.Is(err, blobstore.ErrNotFound) && w.of(w.id(data)).stored {
			w.fatalf("Stat says that a blob is absent which was stored: %v", err)
		}
		return err
	}},
	{"Walk", func(w *world, ctx context.Context, _ []byte) error {
		found := make(map[blobref.Ref]bool)
		for info, err := range blobstore.Walk(ctx, w.store) {
			if err != nil {
				return err
			}
			found[info.Ref] = true
		}
		for ref, k := range w.known {
			if k.stored && !found[ref] {
				w.fatalf("Walk ended well without %v, which was stored", ref)
			}
		}
		return nil
	}},
	{"Delete", func(w *world, ctx context.Context, data []byte) error {
		k := w.of(w.id(data))
		err := blobstore.Delete(ctx, w.store, w.id(data))
		switch {
		case errors.Is(err, blobstore.ErrUnsupported):
		case err == nil:
			*k = knowledge{absent: true}
		default:
			k.stored = false // it may have gone
		}
		return err
	}},
}

// flushed looks, through a second layer, whether what the first one acknowledged is
// in the store below.
func (w *world) flushed() {
	w.t.Helper()
	other := w.layer(w.t, w.base)
	for ref, k := range w.known {
		if k.localOnly && w.mode == blobstore.Opaque {
			continue // there may be an older value
		}
		got, err := other.Get(w.t.Context(), ref)
		if k.stored && !k.localOnly && err != nil {
			w.fatalf("Flush said that all is done, but another layer over the same store has no %v: %v", ref, err)
		}
		if k.stored || k.absent {
			w.read("another layer", ref, got, notFoundUnless(k.stored && !k.localOnly, err), whole)
		}
	}
}

// notFoundUnless forgets that a blob is absent where it may be.
func notFoundUnless(stored bool, err error) error {
	if !stored && err != nil {
		return errors.New("absent, as it may be")
	}
	return err
}

// recovers ends the faults and expects everything to be well soon.
func (w *world) recovers() {
	w.t.Helper()
	w.below.Plan(nil)
	for ref, k := range w.known {
		if !k.stored {
			continue
		}
		w.soon("Get", func() error {
			got, err := w.store.Get(w.t.Context(), ref)
			w.read("Get", ref, got, err, whole)
			return err
		})
	}
	w.soon("Flush", func() error { return w.store.Flush(w.t.Context()) })
	w.flushed()
	// What failed succeeds when it is done again, over whatever was left.
	for ref, k := range w.known {
		if k.stored || len(k.values) == 0 {
			continue
		}
		data := k.values[0]
		w.soon("Set", func() error {
			err := w.store.Set(w.t.Context(), ref, data)
			w.wrote("Set", ref, data, false, err)
			return err
		})
		got, err := w.store.Get(w.t.Context(), ref)
		if err != nil {
			w.fatalf("Get after a Set that healed: %v", err)
		}
		w.read("Get", ref, got, err, whole)
	}
	w.soon("Flush", func() error { return w.store.Flush(w.t.Context()) })
	w.flushed()
}

// soon repeats do until it succeeds. A layer may leave a store that failed alone for
// a while.
func (w *world) soon(what string, do func() error) {
	w.t.Helper()
	tries, pause := 50, time.Minute
	if w.realTime {
		tries, pause = 500, 20*time.Millisecond
	}
	for ; ; tries-- {
		err := do()
		if err == nil {
			return
		}
		if tries == 0 {
			w.fatalf("%s still fails although the store below works again: %v", what, err)
		}
		time.Sleep(pause) // a layer is given time, there is no event
	}
}

// script calls everything, with blobs of several sizes.
func (w *world) script() {
	w.t.Helper()
	ctx := w.t.Context()
	for i, size := range []int{1000, 0, 70_000} {
		data := random(size, 40)
		for j := range faultCalls {
			_ = faultCalls[(i+j)%len(faultCalls)].do(w, ctx, data)
		}
		// Stored in one way only, and vouched for at once.
		for _, c := range []string{"Set", "Flush", "Get"} {
			_ = w.call(c, random(size, 42))
		}
	}
}

func (w *world) call(name string, data []byte) error {
	for _, c := range faultCalls {
		if c.name == name {
			return c.do(w, w.t.Context(), data)
		}
	}
	panic("no call " + name)
}
