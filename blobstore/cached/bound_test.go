package cached_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/cached"
	"github.com/agentrun/agentrun/blobstore/memory"
)

func TestWhatIsKeptStaysWithinItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 8<<10).Draw(t, "limit")
		c := cached.New(memory.New(blobstore.Verified), cached.Options{MaxBytes: limit, AbsentFor: time.Hour})
		sizes := rapid.SliceOfN(rapid.IntRange(0, 3<<10), 1, 60).Draw(t, "sizes")
		for i, size := range sizes {
			data := make([]byte, size)
			if size > 8 {
				binary.LittleEndian.PutUint64(data, uint64(i%7))
			}
			ref := blobref.Of(data)
			var err error
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0:
				err = c.Set(context.Background(), ref, data)
			case 1:
				_, err = c.Get(context.Background(), ref)
			case 2:
				_, err = c.Get(context.Background(), blobref.Of([]byte{byte(i), byte(size), 1}))
			case 3:
				err = c.Delete(context.Background(), ref)
			}
			if err != nil && !errors.Is(err, blobstore.ErrNotFound) {
				t.Fatal(err)
			}
			if u := c.Usage(); u.Bytes > limit || u.Bytes < int64(u.Blobs)*256 {
				t.Fatalf("%+v is kept of at most %d", u, limit)
			}
		}
	})
}

func TestBlobsThatAreWantedOutlastOnesThatWereReadOnce(t *testing.T) {
	b := &below{Store: memory.New(blobstore.Verified)}
	c := cached.New(b, cached.Options{MaxBytes: 32 << 10})
	blob := func(i int) []byte { return bytes.Repeat([]byte(fmt.Sprintf("%04d", i)), 256) }
	wanted := make([]blobref.Ref, 8)
	for i := range wanted {
		wanted[i] = b.put(t, blob(i))
		want(t, c, wanted[i], blob(i))
	}
	for i := 100; i < 300; i++ { // eight times what there is room for
		want(t, c, b.put(t, blob(i)), blob(i))
		for j := range wanted {
			want(t, c, wanted[j], blob(j))
		}
	}
	b.wantGets(t, 8+200)
}

func TestAHitCostsItsCopyAlone(t *testing.T) {
	c := cached.New(memory.New(blobstore.Verified), cached.Options{})
	ref, err := c.PutBytes(t.Context(), make([]byte, 1<<10))
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = c.Get(context.Background(), ref) }); n > 1 {
		t.Errorf("a hit allocates %v times, want once", n)
	}
}
