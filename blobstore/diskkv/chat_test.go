package diskkv_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/diskkv"
)

func TestTheFileOfOneChatIsRead(t *testing.T) {
	ctx, path := t.Context(), temp(t)
	run := func(text string, args ...any) {
		t.Helper()
		if err := execute(t, path, text, args...); err != nil {
			t.Fatal(err)
		}
	}
	run("CREATE TABLE blobs (id TEXT PRIMARY KEY, data BLOB)")
	run("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
	const n = 1500 // more than are listed at a time
	for i := range n {
		if i%500 == 0 {
			run("INSERT INTO blobs VALUES(?, ?)", blobref.Of(fmt.Append(nil, i)).Hex(), fmt.Append(nil, i))
		}
	}
	run("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1499) INSERT OR IGNORE INTO blobs SELECT printf('%064x', i + 1), 'no blob' FROM n")
	root := blobref.Of([]byte("0"))
	run("INSERT INTO meta VALUES('0', ?)", fmt.Sprintf("%x", `{"agentId":"a","latestRootBlobId":"`+root.Hex()+`","name":"New Agent"}`))
	run("INSERT INTO blobs VALUES('notes', x'00')")

	before := snapshot(t, filepath.Dir(path))
	s := open(t, path, diskkv.Options{})
	if ref, err := s.LatestRoot(ctx); err != nil || ref != root {
		t.Errorf("LatestRoot = %v, %v", ref, err)
	}
	for _, i := range []int{0, 500, 1000} {
		want := fmt.Append(nil, i)
		got, err := s.Get(ctx, blobref.Of(want))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("Get = %q, %v", got, err)
		}
		if info, err := s.Stat(ctx, blobref.Of(want)); err != nil || info.Size != int64(len(want)) {
			t.Errorf("Stat = %+v, %v", info, err)
		}
	}
	if got, err := s.Get(ctx, refA); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Get of another blob = %q, %v", got, err)
	}
	listed := 0
	for _, err := range s.Walk(ctx) {
		if listed++; err != nil {
			t.Fatal(err)
		}
	}
	if listed != n+3 {
		t.Errorf("Walk yielded %d blobs, want %d", listed, n+3)
	}
	found := 0
	for f, err := range s.Verify(ctx) {
		if err != nil || !errors.Is(f.Err, blobstore.ErrCorrupt) {
			t.Fatalf("Verify found %+v, %v", f, err)
		}
		found++
	}
	if found != n {
		t.Errorf("Verify found %d blobs that are none, want %d", found, n)
	}
	if _, err := s.Checkpoint(ctx, "c"); !errors.Is(err, diskkv.ErrNoRecord) {
		t.Errorf("Checkpoint = %v", err)
	}
	if got := pointers(t, s); len(got) > 0 {
		t.Errorf("Checkpoints yielded %q", got)
	}
	refusesWrites(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if after := snapshot(t, filepath.Dir(path)); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
}

func TestAChatWithoutAStateSaysSo(t *testing.T) {
	for name, tt := range map[string]struct {
		value any
		err   error
	}{
		"no meta":        {nil, diskkv.ErrNoRecord},
		"no root":        {fmt.Sprintf("%x", `{"name":"x"}`), diskkv.ErrNoRecord},
		"an empty root":  {fmt.Sprintf("%x", `{"latestRootBlobId":""}`), diskkv.ErrNoRecord},
		"another root":   {fmt.Sprintf("%x", `{"latestRootBlobId":"abcd"}`), blobstore.ErrCorrupt},
		"a number":       {fmt.Sprintf("%x", `{"latestRootBlobId":1}`), blobstore.ErrCorrupt},
		"no JSON":        {fmt.Sprintf("%x", `{`), blobstore.ErrCorrupt},
		"no hexadecimal": {`{"latestRootBlobId":""}`, blobstore.ErrCorrupt},
	} {
		path := temp(t)
		err := errors.Join(execute(t, path, "CREATE TABLE blobs (id TEXT PRIMARY KEY, data BLOB)"),
			execute(t, path, "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)"), execute(t, path, "INSERT INTO meta VALUES('0', ?)", tt.value))
		if err != nil {
			t.Fatal(err)
		}
		if ref, err := open(t, path, diskkv.Options{}).LatestRoot(t.Context()); !errors.Is(err, tt.err) {
			t.Errorf("%s: LatestRoot = %v, %v; want %v", name, ref, err, tt.err)
		}
	}
	if ref, err := open(t, temp(t), diskkv.Options{}).LatestRoot(t.Context()); !errors.Is(err, diskkv.ErrNoRecord) {
		t.Errorf("LatestRoot of no file = %v, %v", ref, err)
	}
}
