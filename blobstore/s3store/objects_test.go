package s3store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/s3store"
	"github.com/agentrun/agentrun/internal/s3test"
)

func openObjects(t *testing.T) *s3store.Objects {
	t.Helper()
	server := s3test.Start(t)
	o, err := s3store.OpenObjects(s3store.Options{Endpoint: server.Endpoint, Bucket: server.Bucket, Prefix: "pointers"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

func TestAnObjectIsChangedByWhoKnowsItsVersion(t *testing.T) {
	o, ctx := openObjects(t), t.Context()
	if _, _, err := o.Get(ctx, "a/b"); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Get of nothing = %v, want ErrNotFound", err)
	}
	first, err := o.PutIfAbsent(ctx, "a/b", []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.PutIfAbsent(ctx, "a/b", []byte("other")); !errors.Is(err, s3store.ErrConflict) {
		t.Errorf("PutIfAbsent of something = %v, want ErrConflict", err)
	}
	second, err := o.PutIfMatch(ctx, "a/b", []byte("two"), first)
	if err != nil || second == first {
		t.Fatalf("PutIfMatch = %v, %v", second, err)
	}
	if _, err := o.PutIfMatch(ctx, "a/b", []byte("other"), first); !errors.Is(err, s3store.ErrConflict) {
		t.Errorf("PutIfMatch of an old version = %v, want ErrConflict", err)
	}
	if _, err := o.PutIfMatch(ctx, "a/b", []byte("other"), s3store.Version{}); !errors.Is(err, s3store.ErrConflict) {
		t.Errorf("PutIfMatch of no version = %v, want ErrConflict", err)
	}
	if data, version, err := o.Get(ctx, "a/b"); string(data) != "two" || version != second || err != nil {
		t.Errorf("Get = %q, %v, %v", data, version, err)
	}
	if err := o.Delete(ctx, "a/b"); err != nil {
		t.Error(err)
	}
	if _, err := o.PutIfMatch(ctx, "a/b", []byte("other"), second); !errors.Is(err, s3store.ErrConflict) {
		t.Errorf("PutIfMatch of what is gone = %v, want ErrConflict", err)
	}
	if err := o.Delete(ctx, "a/b"); err != nil {
		t.Errorf("Delete of nothing: %v", err)
	}
	// Something that is empty is something.
	empty, err := o.PutIfAbsent(ctx, "empty", nil)
	if err != nil {
		t.Fatal(err)
	}
	if data, version, err := o.Get(ctx, "empty"); data == nil || len(data) > 0 || version != empty || err != nil {
		t.Errorf("Get = %q, %v, %v", data, version, err)
	}
}

func TestWritersOfOneObjectLoseNothing(t *testing.T) {
	o := openObjects(t)
	const writers, times = 4, 5
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range times {
				if err := increment(o); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if data, _, err := o.Get(t.Context(), "counter"); string(data) != strconv.Itoa(writers*times) || err != nil {
		t.Errorf("the counter is at %q, %v; want %d", data, err, writers*times)
	}
}

// increment adds one to the counter, however often others come first.
func increment(o *s3store.Objects) error {
	ctx := context.Background()
	for {
		data, version, err := o.Get(ctx, "counter")
		switch {
		case errors.Is(err, blobstore.ErrNotFound):
			_, err = o.PutIfAbsent(ctx, "counter", []byte("1"))
		case err == nil:
			var n int
			if n, err = strconv.Atoi(string(data)); err == nil {
				_, err = o.PutIfMatch(ctx, "counter", strconv.AppendInt(nil, int64(n+1), 10), version)
			}
		}
		if !errors.Is(err, s3store.ErrConflict) {
			return err
		}
	}
}

func TestNamesAreListedInOrder(t *testing.T) {
	o := openObjects(t)
	var want []string
	for i := range 12 {
		name := fmt.Sprintf("latest/%02d", i)
		if i%3 == 0 {
			name = fmt.Sprintf("bubble/%02d/x", i)
		} else {
			want = append(want, name)
		}
		if _, err := o.PutIfAbsent(t.Context(), name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for name, err := range o.List(t.Context(), "latest/") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
}

func TestANameThatCouldBeAnotherIsRefused(t *testing.T) {
	o, err := s3store.OpenObjects(s3store.Options{Bucket: "bucket"})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for _, name := range []string{"", "/a", "a/", "a//b", ".", "..", "a/../b", "a\nb", "a\\b", "ä", strings.Repeat("x", 1000)} {
		if _, _, err := o.Get(t.Context(), name); err == nil || errors.Is(err, blobstore.ErrUnavailable) {
			t.Errorf("Get(%q) = %v", name, err)
		}
		if _, err := o.PutIfAbsent(t.Context(), name, nil); err == nil || errors.Is(err, blobstore.ErrUnavailable) {
			t.Errorf("PutIfAbsent(%q) = %v", name, err)
		}
		if err := o.Delete(t.Context(), name); err == nil || errors.Is(err, blobstore.ErrUnavailable) {
			t.Errorf("Delete(%q) = %v", name, err)
		}
	}
}
