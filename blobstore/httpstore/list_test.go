package httpstore

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
)

func TestPagesAreTheWholeList(t *testing.T) {
	store := memory.New(blobstore.Verified)
	server := httptest.NewServer(NewHandler(store, HandlerOptions{}))
	defer server.Close()
	s, err := Open(server.URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := map[blobref.Ref]bool{}
	for i := range 100 {
		ref, err := store.PutBytes(t.Context(), fmt.Append(nil, i))
		if err != nil {
			t.Fatal(err)
		}
		want[ref] = true
	}
	for _, s.page = range []int{1, 7, 50, 99, 100, 101} {
		found := map[blobref.Ref]bool{}
		for info, err := range s.Walk(t.Context()) {
			if err != nil || found[info.Ref] || !want[info.Ref] {
				t.Fatalf("pages of %d: %v, %v", s.page, info, err)
			}
			found[info.Ref] = true
		}
		if len(found) != len(want) {
			t.Errorf("pages of %d list %d blobs, want %d", s.page, len(found), len(want))
		}
	}
}

func FuzzParsePage(f *testing.F) {
	ref := blobref.Of(nil).Hex()
	f.Add([]byte(`{"ref":"` + ref + `","size":0,"time":"2026-01-02T03:04:05Z"}` + "\n" + `{"end":true}` + "\n"))
	f.Add([]byte(`{"ref":"` + ref + `","size":7}` + "\n" + `{"next":"` + ref + `"}` + "\n"))
	f.Add([]byte(strings.Repeat("x", 2000)))
	f.Fuzz(func(t *testing.T, b []byte) {
		page, more, err := parsePage(bytes.NewReader(b), blobref.Ref{})
		if err != nil {
			return
		}
		if more && len(page) == 0 {
			t.Error("it goes on from nowhere")
		}
		for i, e := range page {
			if i > 0 && compare(page[i-1].info.Ref, e.info.Ref) >= 0 || e.info.Size < 0 {
				t.Errorf("%v", e)
			}
		}
	})
}
