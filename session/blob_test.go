package session_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func withImage(data []byte) entry.Body {
	return entry.MessageBody{Message: must(json.Marshal(map[string]any{
		"role": "user", "timestamp": 1, "content": []any{
			map[string]any{"type": "text", "text": "look"},
			map[string]any{"type": "image", "mimeType": "image/png", "data": base64.StdEncoding.EncodeToString(data)},
		},
	}))}
}

func blobFiles(t *testing.T, home, dir string) []string {
	t.Helper()
	return must(filepath.Glob(filepath.Join(home, dir, "[0-9a-f]*")))
}

func TestImagesAreStoredOnceAndComeBack(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	image := bytes.Repeat([]byte("not really a picture"), 100)
	first := appendOK(t, s, withImage(image))
	appendOK(t, s, withImage(image))
	log := string(must(os.ReadFile(s.Path())))
	if strings.Contains(log, base64.StdEncoding.EncodeToString(image)[:100]) || strings.Count(log, "blob:sha256:") != 2 {
		t.Fatal("the log holds the image itself")
	}
	if files := blobFiles(t, m.Home(), "blobs"); len(files) != 1 {
		t.Fatalf("blobs %v", files)
	}
	c, missing, err := s.ContextWith(t.Context(), session.ContextOptions{Restore: true})
	if err != nil || len(missing) > 0 {
		t.Fatal(missing, err)
	}
	raw := must(c.Messages[0].JSON())
	if !strings.Contains(string(raw), base64.StdEncoding.EncodeToString(image)) {
		t.Fatalf("the message came back as %.200s", raw)
	}
	lazy := must(s.Context(t.Context()))
	data, mime, err := s.Image(t.Context(), lazy.Messages[0].Entry(), 0)
	if err != nil || !bytes.Equal(data, image) || mime != "image/png" {
		t.Fatalf("image of %d bytes, type %s, %v", len(data), mime, err)
	}
	if _, _, err := s.Image(t.Context(), must(s.Entry(t.Context(), first)), 1); !errors.Is(err, session.ErrNoImage) {
		t.Fatalf("a second image: %v", err)
	}
}

func TestMissingAndCorruptBlobsAreToldOnceAndTheRestLoads(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	gone, bad := bytes.Repeat([]byte("gone"), 500), bytes.Repeat([]byte("bad!"), 500)
	appendOK(t, s, withImage(gone))
	appendOK(t, s, withImage(gone))
	appendOK(t, s, withImage(bad))
	appendOK(t, s, user("text"))
	for _, path := range blobFiles(t, m.Home(), "blobs") {
		var err error
		if bytes.Equal(must(os.ReadFile(path)), gone) {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, []byte("changed"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c, missing, err := s.ContextWith(t.Context(), session.ContextOptions{Restore: true})
	if err != nil || len(c.Messages) != 4 {
		t.Fatal(err)
	}
	kinds := map[error]int{}
	for _, x := range missing {
		for _, kind := range []error{blobstore.ErrNotFound, blobstore.ErrCorrupt} {
			if errors.Is(x.Err, kind) {
				kinds[kind]++
			}
		}
	}
	if len(missing) != 2 || kinds[blobstore.ErrNotFound] != 1 || kinds[blobstore.ErrCorrupt] != 1 {
		t.Fatalf("missing %v", missing)
	}
	if raw := must(c.Messages[0].JSON()); !strings.Contains(string(raw), "blob:sha256:") {
		t.Fatalf("the reference is gone: %s", raw)
	}
	// The next put of the same content heals.
	appendOK(t, s, withImage(gone))
	appendOK(t, s, withImage(bad))
	if _, missing, err := s.ContextWith(t.Context(), session.ContextOptions{Restore: true}); err != nil || len(missing) > 0 {
		t.Fatalf("after putting them again: %v, %v", missing, err)
	}
}

func TestASessionRemovedFromAHomeOfOhMyPiKeepsItsBlobs(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "history.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := must(session.OpenManager(home, session.Options{}))
	s := newSession(t, m)
	image := bytes.Repeat([]byte("picture"), 300)
	appendOK(t, s, withImage(image))
	s.Close()
	must(m.Trash(t.Context(), s.Path()))
	for _, path := range blobFiles(t, home, "blobs") { // as its collector does, which sees no reference any more
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if data := must(m.Blobs().Get(t.Context(), blobref.Of(image))); !bytes.Equal(data, image) {
		t.Fatal("the blob differs")
	}
	opener, ok := blobstore.As[blobstore.Opener](m.Blobs())
	if !ok {
		t.Fatal("the blobs of a home cannot be streamed")
	}
	blob := must(opener.Open(t.Context(), blobref.Of(image)))
	defer blob.Close()
	if blob.Size() != int64(len(image)) {
		t.Fatalf("%d bytes", blob.Size())
	}
}

func TestACompactionOfOursRepeatsTheSettings(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	high := "high"
	appendOK(t, s, entry.ModelChange{Model: "p/first"})
	appendOK(t, s, entry.ThinkingLevelChange{ThinkingLevel: &high})
	kept := appendOK(t, s, user("kept"))
	appendOK(t, s, entry.Compaction{Summary: "before", FirstKeptEntryID: kept, TokensBefore: 1})
	appendOK(t, s, user("after"))
	c := must(reopen(t, m, s.Path()).Context(t.Context()))
	if c.Settings.DefaultModel() != "p/first" || c.Settings.Thinking() != "high" {
		t.Fatalf("settings %+v", c.Settings)
	}
	if !strings.Contains(string(must(os.ReadFile(s.Path()))), `"agentrun":{"settings"`) {
		t.Fatal("the compaction has no checkpoint")
	}
}
