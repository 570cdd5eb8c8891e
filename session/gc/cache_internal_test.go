package gc

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
)

func refsOf(texts ...string) []blobref.Ref {
	var refs []blobref.Ref
	for _, text := range texts {
		refs = append(refs, blobref.Of([]byte(text)))
	}
	return refs
}

var someFiles = map[string]mentioned{
	"/a/b.jsonl": {stamp: stamp{ino: 12, size: 345, mtime: 1_760_000_000_000_000_000}, refs: refsOf("x", "y")},
	"/a/c\n":     {stamp: stamp{ino: 1 << 63, mtime: -1}},
}

var someBlobs = map[blobref.Ref][]blobref.Ref{refsOf("x")[0]: refsOf("y"), refsOf("y")[0]: nil}

func TestACacheSaysWhatWasWritten(t *testing.T) {
	files, blobs := parseCache(appendCache(nil, someFiles, someBlobs))
	same := func(a, b mentioned) bool { return a.stamp == b.stamp && slices.Equal(a.refs, b.refs) }
	if !maps.EqualFunc(files, someFiles, same) || !maps.EqualFunc(blobs, someBlobs, slices.Equal[[]blobref.Ref]) {
		t.Errorf("%v, %v", files, blobs)
	}
}

func TestADamagedCacheIsNone(t *testing.T) {
	data := appendCache(nil, someFiles, someBlobs)
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 4
		if files, _ := parseCache(bad); files != nil {
			t.Fatalf("byte %d flipped: %v", i, files)
		}
		if files, _ := parseCache(data[:i]); files != nil {
			t.Fatalf("cut to %d bytes: %v", i, files)
		}
	}
}

func TestMentionsAcrossBlocksAreFound(t *testing.T) {
	ref := refsOf("x")[0]
	for _, pad := range []int{0, scanBlock - 70, scanBlock - 64, scanBlock - 32, scanBlock - 1, scanBlock, 2*scanBlock - 10} {
		for _, fill := range []string{"z", "0", "0000000000000000000000000000000z"} {
			text := strings.Repeat(fill, pad/len(fill)+1)[:pad] + "blob:sha256:" + ref.Hex() + `"` + strings.Repeat(fill, 1000)
			got, err := appendMentions(t.Context(), nil, strings.NewReader(text))
			if err != nil || !slices.Contains(got, ref) {
				t.Errorf("behind %d bytes of %q: not found, %v", pad, fill, err)
			}
		}
	}
}

func FuzzParseCache(f *testing.F) {
	f.Add(appendCache(nil, someFiles, someBlobs)[len(cacheMagic)+4:])
	f.Fuzz(func(t *testing.T, body []byte) {
		p := parser{rest: body, ok: true}
		for p.ok && len(p.rest) > 0 {
			p.take(p.number(1))
			p.refs()
		}
		parseCache(append([]byte(cacheMagic), body...))
	})
}
