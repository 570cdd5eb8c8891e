package conversation_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
)

// transferOf is the file of a state.
func transferOf(t *testing.T, log []byte) (blobref.Ref, []byte) {
	t.Helper()
	store := memory.New(blobstore.Verified)
	p := project(t, store, log)
	tr, err := conversation.StateForTransfer(t.Context(), store, p.Root, conversation.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if holes, err := tr.Write(&file); err != nil || len(holes) > 0 {
		t.Fatal(holes, err)
	}
	return p.Root, file.Bytes()
}

func TestALongTextFormIsReadAsItComes(t *testing.T) {
	root, file := transferOf(t, manyTurns(400))
	if len(file) < 200_000 {
		t.Fatalf("%d bytes are no long text", len(file))
	}
	coded := "~" + base64.StdEncoding.EncodeToString(file)
	lines := func(text string) string {
		var b strings.Builder
		for len(text) > 0 {
			n := min(76, len(text))
			b.WriteString(text[:n] + "\r\n")
			text = text[n:]
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"base64":                     coded,
		"base64 of the other kind":   "~" + base64.URLEncoding.EncodeToString(file),
		"base64 without padding":     strings.TrimRight(coded, "="),
		"base64 in lines":            "\n " + lines(coded),
		"digits":                     hex.EncodeToString(file),
		"large digits":               strings.ToUpper(hex.EncodeToString(file)) + "\n",
		"digits, white space around": " \r\n\t" + hex.EncodeToString(file) + " \n\n",
	} {
		if got, err := conversation.ReadTransfer(t.Context(), strings.NewReader(text), memory.New(blobstore.Verified)); err != nil || got != root {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for name, text := range map[string]string{
		"another byte in base64":  coded[:150_000] + "!" + coded[150_001:],
		"more behind the padding": strings.TrimRight(coded, "=") + "=A",
		"another byte in digits":  hex.EncodeToString(file)[:150_000] + "g" + hex.EncodeToString(file)[150_001:],
		"half a byte":             hex.EncodeToString(file)[:300_001],
		"a space within":          hex.EncodeToString(file)[:150_000] + " " + hex.EncodeToString(file)[150_000:],
	} {
		if got, err := conversation.ReadTransfer(t.Context(), strings.NewReader(text), memory.New(blobstore.Verified)); !errors.Is(err, conversation.ErrNotState) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// aheadOf counts how far a file was read when the first blob of it was stored.
type aheadOf struct {
	blobstore.Store
	read  atomic.Int64
	first atomic.Int64
}

func (a *aheadOf) Set(ctx context.Context, r blobref.Ref, data []byte) error {
	a.first.CompareAndSwap(0, a.read.Load())
	return a.Store.Set(ctx, r, data)
}

type countedReader struct {
	r  io.Reader
	to *atomic.Int64
}

func (c countedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.to.Add(int64(n))
	return n, err
}

func TestBlobsOfAFileAreStoredAsItIsRead(t *testing.T) {
	_, file := transferOf(t, manyTurns(4000))
	if file[0] != 'B' { // the tag of a turn looks like a digit
		t.Fatalf("it begins with %q", file[0])
	}
	store := &aheadOf{Store: memory.New(blobstore.Verified)}
	if _, err := conversation.ReadTransfer(t.Context(), countedReader{bytes.NewReader(file), &store.read}, store); err != nil {
		t.Fatal(err)
	}
	if first := store.first.Load(); first > int64(len(file))/2 {
		t.Errorf("of %d bytes %d were read before the first blob was stored", len(file), first)
	}
}

// withBlob is an empty state with a blob.
func withBlob(id blobref.Ref, data []byte) []byte {
	sum := id.Sum()
	one := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), sum[:])
	one = protowire.AppendBytes(protowire.AppendTag(one, 2, protowire.BytesType), data)
	return protowire.AppendBytes(protowire.AppendTag(nil, conversation.TransferField, protowire.BytesType), one)
}

func TestALargeBlobIsStoredWithoutBeingInMemory(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	ref := blobref.Of(data)
	file := withBlob(ref, data)
	for name, open := range map[string]func() blobstore.Store{
		"a directory": func() blobstore.Store {
			s, err := localdir.Open(t.TempDir(), localdir.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		"a store of whole blobs":      func() blobstore.Store { return memory.New(blobstore.Verified) },
		"a store that checks nothing": func() blobstore.Store { return memory.New(blobstore.Opaque) },
	} {
		t.Run(name, func(t *testing.T) {
			store := open()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range 2 { // the second time it is there
				if _, err := conversation.ReadTransfer(t.Context(), bytes.NewReader(file), store); err != nil {
					t.Fatal(err)
				}
			}
			runtime.ReadMemStats(&after)
			if name == "a directory" && after.TotalAlloc-before.TotalAlloc > uint64(len(data))/2 {
				t.Errorf("%d bytes were allocated for a blob of %d", after.TotalAlloc-before.TotalAlloc, len(data))
			}
			if got, err := store.Get(t.Context(), ref); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			other := blobref.Of([]byte("another"))
			if _, err := conversation.ReadTransfer(t.Context(), bytes.NewReader(withBlob(other, data)), store); !errors.Is(err, blobstore.ErrMismatch) {
				t.Errorf("a blob that is another one: %v", err)
			}
			if _, err := store.Get(t.Context(), other); !errors.Is(err, blobstore.ErrNotFound) {
				t.Errorf("a blob that is another one was stored: %v", err)
			}
			for _, cut := range []int{20, 45, 100, len(file) / 2, len(file) - 1} {
				if _, err := conversation.ReadTransfer(t.Context(), bytes.NewReader(file[:cut]), open()); !errors.Is(err, conversation.ErrNotState) {
					t.Errorf("cut at %d: %v", cut, err)
				}
			}
		})
	}
}
