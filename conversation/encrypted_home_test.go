package conversation_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/conversation"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/gc"
)

// encryptedHome opens a home whose blobs are encrypted, beside where they are else: that directory is one of plaintext.
func encryptedHome(t *testing.T, dir string) *session.Manager {
	t.Helper()
	below, err := localdir.Open(filepath.Join(dir, "sealed"), localdir.Options{Mode: blobstore.Opaque})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := encrypted.NewKeyring([]byte("a passphrase that is long enough"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := encrypted.New(below, keys, encrypted.Options{KDF: encrypted.KDF{Time: 1, MemoryKiB: 8, Threads: 1}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := session.OpenManager(dir, session.Options{Durability: session.Flush, Blobs: store})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAHomeMayHaveItsBlobsEncrypted(t *testing.T) {
	dir := t.TempDir()
	m := encryptedHome(t, dir)
	s, err := m.Create(t.Context(), t.TempDir(), session.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	image, long := bytes.Repeat([]byte("image"), 1000), strings.Repeat("long ", 150_000)
	appendAll(t, s, entry.UserMessage{Content: entry.Blocks(
		entry.TextBlock{Text: "what is this?"}, entry.ImageBlock{Data: base64.StdEncoding.EncodeToString(image), MIMEType: "image/png"},
	), Timestamp: 1}, entry.BashExecutionMessage{Command: "make", Output: long, Timestamp: 1})
	p, err := conversation.NewSessionProjector(m, s, m.Blobs()).Project(t.Context())
	if err != nil || len(p.Holes) > 0 {
		t.Fatal(p.Holes, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "sealed", "[0-9a-f]*"))
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		if data, err := os.ReadFile(path); err != nil || bytes.Contains(data, []byte("long long")) || bytes.Contains(data, []byte("imageimage")) {
			t.Errorf("%s is not encrypted (%v)", path, err)
		}
	}
	// Another process with the passphrase has all of it.
	m = encryptedHome(t, dir)
	got, err := conversation.Import(t.Context(), m, load(t, m.Blobs(), p.Root), conversation.ImportOptions{})
	if err != nil || !got.Exact || len(got.Holes) > 0 {
		t.Fatal(got, err)
	}
	// Who collects frees nothing: not of what it cannot read.
	for name, m := range map[string]*session.Manager{"with the passphrase": m, "without": func() *session.Manager {
		plain, err := session.OpenManager(dir, session.Options{Durability: session.Flush})
		if err != nil {
			t.Fatal(err)
		}
		return plain
	}()} {
		if r, err := gc.Run(t.Context(), m, gc.Options{Apply: true}); err != nil || r.Blobs.Count > 0 {
			t.Errorf("%s the collector freed %+v, %v", name, r, err)
		}
	}
	for r, err := range conversation.Walk(t.Context(), m.Blobs(), p.Root, conversation.Limits{}) {
		if err != nil {
			t.Errorf("%v: %v", r, err)
		}
	}
}
