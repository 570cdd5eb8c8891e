package storeurl_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// queues returns the queues beside a store.
func queues(t *testing.T, place string) []string {
	t.Helper()
	entries, err := os.ReadDir(place + ".queue")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestARemoteHasOneQueueHoweverItIsSpelled(t *testing.T) {
	far := filepath.Join(t.TempDir(), "far")
	if err := os.Mkdir(far, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(far, link); err != nil {
		t.Fatal(err)
	}
	for name, spellings := range map[string][]string{
		"a server":    {"https://example.com/store", "https://EXAMPLE.com/store/", "https://example.com:443/store", "https://example.com/store%3Fretry=on"},
		"this one":    {"http://localhost/store", "http://LOCALHOST:80/store"},
		"one by IPv6": {"http://[::1]/store", "http://[::1]:80/store"},
		"a peer":      {"kv:http://localhost:4711", "kv:http://LocalHost:4711/"},
		"a bucket":    {"s3://bucket/prefix", "s3://bucket/prefix/", "s3://bucket/prefix%3Fendpoint=https://s3.amazonaws.com:443%26region=us-east-1", "s3://bucket/prefix%3Fendpoint=https://S3.amazonaws.com"},
		"a directory": {"dir:" + far, "dir:" + far + "/", "dir:" + far + "/../far", "dir:" + link},
		"a file":      {"diskkv:" + far + "/x.db", "diskkv:" + far + "//x.db", "diskkv:" + link + "/x.db"},
	} {
		here := filepath.Join(t.TempDir(), "here")
		for _, spelling := range spellings {
			s := open(t, "dir:"+here+"?remote="+spelling)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if got := queues(t, here); len(got) != 1 {
				t.Errorf("%s: with %s there are the queues %q", name, spelling, got)
			}
		}
	}
	// Others have their own.
	here := filepath.Join(t.TempDir(), "here")
	others := []string{
		"http://localhost/store", "http://localhost/Store", "http://localhost:8080/store", "http://127.0.0.1/store", "https://localhost/store",
		"kv:http://localhost:80", "s3://bucket/prefix", "s3://bucket/prefix%3Fendpoint=https://example.com", "s3://bucket/prefix%3Fregion=eu-west-1",
	}
	for _, other := range others {
		if err := open(t, "dir:"+here+"?remote="+other).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := queues(t, here); len(got) != len(others) {
		t.Errorf("%d remotes have %d queues", len(others), len(got))
	}
}

func TestAQueueThatIsThereIsUsed(t *testing.T) {
	// By the digest of the text http://LOCALHOST:1/store, as it was before.
	here := filepath.Join(t.TempDir(), "here")
	old := filepath.Join(here+".queue", "69f3cdb32f0a7e72")
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := open(t, "dir:"+here+"?remote=http://LOCALHOST:1/store").Close(); err != nil {
		t.Fatal(err)
	}
	if got := queues(t, here); len(got) != 1 {
		t.Errorf("there are the queues %q", got)
	}
}

func TestTheBlobsOfAHomeHealThoughNobodyCollectedThere(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "agentrun.home"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	blobs := filepath.Join(home, "blobs")
	if err := os.Mkdir(blobs, 0o700); err != nil {
		t.Fatal(err)
	}
	right := []byte("the right bytes")
	ref := blobref.Of(right)
	if err := os.WriteFile(filepath.Join(blobs, ref.Hex()), []byte("other bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, "dir:"+blobs)
	if err := s.Store.Set(t.Context(), ref, right); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Store.Get(t.Context(), ref); err != nil || string(got) != string(right) {
		t.Errorf("Get = %q, %v", got, err)
	}
	if _, err := s.Store.Get(t.Context(), blobref.Of(nil)); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Get of another = %v", err)
	}
}
