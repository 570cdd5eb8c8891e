package session_test

import (
	"slices"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/session"
)

func TestBlobsOfAnEntryAreThoseItNeedsAndNotThoseItMentions(t *testing.T) {
	a, b := blobref.Of([]byte("a")), blobref.Of([]byte("b"))
	for name, c := range map[string]struct {
		line string
		want []blobref.Ref
	}{
		"an image":               {`{"type":"message","id":"1","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":[{"type":"image","data":"` + a.String() + `","mimeType":"image/png"}],"timestamp":1}}`, []blobref.Ref{a}},
		"files before and after": {`{"type":"custom","id":"1","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","customType":"agentrun.checkpoint","data":{"files":[{"before":"` + a.String() + `","after":"` + b.String() + `"}]}}`, []blobref.Ref{a, b}},
		"talk of one":            {`{"type":"message","id":"1","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"see ` + a.String() + `","timestamp":1}}`, nil},
	} {
		entries := session.LineEntries([]byte(c.line), 0, 1)
		if len(entries) != 1 {
			t.Fatalf("%s: %d entries", name, len(entries))
		}
		if got := session.EntryBlobs(entries[0]); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
}
