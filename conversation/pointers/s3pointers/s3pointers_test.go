package s3pointers_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore/s3store"
	"github.com/agentrun/agentrun/conversation/pointers"
	"github.com/agentrun/agentrun/conversation/pointers/pointerstest"
	"github.com/agentrun/agentrun/conversation/pointers/s3pointers"
	"github.com/agentrun/agentrun/internal/s3test"
)

func TestPointersInABucket(t *testing.T) {
	server := s3test.Start(t)
	n := 0
	pointerstest.Run(t, func(t *testing.T) pointers.Pointers {
		n++
		return s3pointers.New(openObjects(t, server, fmt.Sprint("p", n)))
	})
}

func openObjects(t *testing.T, server s3test.Server, prefix string) *s3store.Objects {
	t.Helper()
	o, err := s3store.OpenObjects(s3store.Options{Endpoint: server.Endpoint, Bucket: server.Bucket, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

func TestObjectsOfOthersAreNoPointers(t *testing.T) {
	o := openObjects(t, s3test.Start(t), "p")
	p := s3pointers.New(o)
	one, two := blobref.Of([]byte("1")), blobref.Of([]byte("2"))
	for _, c := range []pointers.Change{{New: one}, {Old: one, New: two}} {
		if err := p.CompareAndSet(t.Context(), "c", c); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"c/readme": "x", "c/latest/x": "x", "c/at/b": "x", "now": "x", "d/latest/now": `{"blob":"zz"}`} {
		if _, err := o.PutIfAbsent(t.Context(), name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	found := 0
	for got, err := range p.List(t.Context()) {
		switch {
		case got.Conversation == "c" && err == nil && got.Ref == two:
			found++
		case got.Conversation == "d" && errors.Is(err, pointers.ErrDamaged):
			found++
		default:
			t.Errorf("List yields %v, %v", got, err)
		}
	}
	if found != 2 {
		t.Errorf("%d pointers were found", found)
	}
	if err := p.CompareAndSet(t.Context(), "d", pointers.Change{New: one}); !errors.Is(err, pointers.ErrDamaged) {
		t.Errorf("a damaged pointer was set: %v", err)
	}
}
