package usage_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/usage"
)

func TestBlobsThatCheckpointsNeedAreOfAClassOfTheirOwn(t *testing.T) {
	home := t.TempDir()
	blob := func(text string) blobref.Ref {
		ref := blobref.Of([]byte(text))
		write(t, filepath.Join(home, "blobs", ref.Hex()), text)
		return ref
	}
	cited, kept, both := blob("session"), blob("checkpoint!"), blob("both")
	blob("nobody's blob")
	write(t, filepath.Join(home, "sessions", "-w", "2026-01-02T03-04-05-000Z_s.jsonl"),
		`{"type":"session","version":3,"id":"s","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/w"}
{"type":"custom","id":"e","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","customType":"x","data":["`+cited.String()+`","`+both.String()+`"]}
`)
	damaged := errors.New("a checkpoint is damaged")
	r, err := usage.Measure(t.Context(), home, usage.MeasureOptions{
		Cited: func(_ context.Context, of string) iter.Seq2[blobref.Ref, error] {
			return func(yield func(blobref.Ref, error) bool) {
				if of != home {
					t.Errorf("asked of %s", of)
				}
				_ = yield(kept, nil) && yield(blobref.Ref{}, damaged) && yield(both, nil)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := usage.BlobBytes{Unique: 7 + 4, Checkpoints: 11, Unreferenced: 13}
	if r.Classes.Blobs != want || want.Bytes() != 35 {
		t.Errorf("%+v, want %+v", r.Classes.Blobs, want)
	}
	if len(r.Unreadable) != 1 || r.Unreadable[0] != damaged.Error() {
		t.Errorf("unreadable: %q", r.Unreadable)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
