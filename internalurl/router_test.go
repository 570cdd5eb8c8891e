package internalurl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/internal/lineindex"
)

// view is a session of two entries.
type view struct{ id, dir string }

func (v view) ID() string           { return v.id }
func (v view) ArtifactsDir() string { return v.dir }
func (v view) Metadata(context.Context) ([]byte, error) {
	return []byte(`{"id":"` + v.id + `"}`), nil
}

func (v view) EntryJSON(_ context.Context, id string) ([]byte, error) {
	if id != "ab12cd34" {
		return nil, fmt.Errorf("entry %s: %w", id, ErrNoEntry)
	}
	return []byte(`{"type":"message","id":"ab12cd34"}`), nil
}

type views map[string]view

func (v views) FindSession(_ context.Context, id string) (SessionView, error) {
	s, ok := v[id]
	if !ok {
		return nil, ErrNoSession
	}
	return s, nil
}

const otherID = "02b2fa9b-9d2c-7c3e-8a4f-0123456789ab"

// fixture is a router over two sessions: the one at hand has artifacts and
// agents, the other an artifact of another content.
func fixture(t *testing.T) (*Router, string) {
	t.Helper()
	root := t.TempDir()
	here, there := filepath.Join(root, "here"), filepath.Join(root, "there")
	for name, content := range map[string]string{
		"here/0.bash.log":         "one\ntwo\nthree\n",
		"here/1.bash.log":         "",
		"here/7.md":               "agent seven",
		"here/8.bash.log.tmp-u":   "half",
		"here/9.patch":            "patch",
		"here/0-Par.md":           `{"a":[{"b":"text"},2],"length":5,"x y":{"k":1e2},"n":null,"dup":1,"dup":{"z":3}}`,
		"here/Anna.md":            "# Anna\nnot JSON",
		"here/Anna.json":          `{"from":"sidecar"}`,
		"here/Anna/Anna.Bob.md":   "Bob's",
		"here/Old.md":             "first",
		"here/Old.v2.md":          "second",
		"here/String.md":          `"a\u0041\n"`,
		"here/0-Par.1-Child.md":   "child",
		"there/0.bash.log":        "other session\n",
		"there/3.read.log":        "only there\n",
		"here/local/0.secret.log": "not reachable",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(here, "10.dir.log"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(here, "0.bash.log"), filepath.Join(here, "11.bash.log")); err != nil {
		t.Fatal(err)
	}
	store := memory.New(blobstore.Verified)
	for _, data := range []string{"blob text\n", "\x89PNG\r\n\x1a\n\x00rest"} {
		if _, err := blobstore.Put(t.Context(), store, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	r := NewRouter(Sources{
		Session:  view{sid, here},
		Sessions: views{otherID: {otherID, there}, "03b2fa9b-9d2c-7c3e-8a4f-0123456789ab": {"03b2fa9b-9d2c-7c3e-8a4f-0123456789ab", filepath.Join(root, "none")}},
		Blobs:    store,
	})
	return r, root
}

func content(t *testing.T, res *Resource) string {
	t.Helper()
	size, err := res.Size()
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(io.NewSectionReader(res, 0, size))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestOpenGivesWhatTheURLStandsFor(t *testing.T) {
	r, _ := fixture(t)
	text := blobref.Of([]byte("blob text\n")).Hex()
	png := blobref.Of([]byte("\x89PNG\r\n\x1a\n\x00rest")).Hex()
	cases := []struct{ url, typ, content string }{
		{"artifact://0", TypeText, "one\ntwo\nthree\n"},
		{"artifact://" + sid + "/0", TypeText, "one\ntwo\nthree\n"},
		{"artifact://" + otherID + "/0", TypeText, "other session\n"},
		{"artifact://1", TypeText, ""},
		{"agent://7", TypeMarkdown, "agent seven"},
		{"agent://Anna", TypeMarkdown, "# Anna\nnot JSON"},
		{"agent://Anna?q=", TypeMarkdown, "# Anna\nnot JSON"},
		{"agent://Anna/Bob", TypeMarkdown, "Bob's"},
		{"agent://Anna.Bob", TypeMarkdown, "Bob's"},
		{"agent://0-Par/1-Child", TypeMarkdown, "child"},
		{"agent://Anna/from", TypeMarkdown, "sidecar"},
		{"agent://Old", TypeMarkdown, "second"},
		{"agent://Old.v2", TypeMarkdown, "second"},
		{"agent://Old.v1", TypeMarkdown, "first"},
		{"agent://0-Par?q=.a[0].b", TypeMarkdown, "text"},
		{"agent://0-Par/a/0/b", TypeMarkdown, "text"},
		{"agent://0-Par?q=a[1]", TypeJSON, "2"},
		{"agent://0-Par?q=.", TypeJSON, ""},
		{"agent://0-Par?q=['x y']", TypeJSON, "{\n  \"k\": 1e2\n}"},
		{"agent://0-Par/x%20y/k", TypeJSON, "1e2"},
		{"agent://0-Par?q=.length", TypeJSON, "5"},
		{"agent://0-Par?q=.a.length", TypeJSON, "null"},
		{"agent://0-Par?q=.constructor", TypeJSON, "null"},
		{"agent://0-Par?q=.__proto__.x", TypeJSON, "null"},
		{"agent://0-Par?q=.a[2]", TypeJSON, "null"},
		{"agent://0-Par?q=.n", TypeJSON, "null"},
		{"agent://0-Par?q=.dup.z", TypeJSON, "3"},
		{"agent://0-Par?q=.a.0", TypeJSON, "null"},
		{"agent://0-Par?q=[length]", TypeJSON, "5"},
		{"agent://String?q=.", TypeMarkdown, "aA\n"},
		{"session://" + sid, TypeJSON, "{\n  \"id\": \"" + sid + "\"\n}"},
		{"session://" + otherID, TypeJSON, "{\n  \"id\": \"" + otherID + "\"\n}"},
		{"session://" + sid + "/ab12cd34", TypeJSON, "{\n  \"type\": \"message\",\n  \"id\": \"ab12cd34\"\n}"},
		{"blob://sha256/" + text, TypeText, "blob text\n"},
		{"blob://sha256/" + png, "image/png", "\x89PNG\r\n\x1a\n\x00rest"},
	}
	for _, c := range cases {
		res, err := r.Open(t.Context(), c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if got := content(t, res); got != c.content && c.content != "" {
			t.Errorf("%s: content %q, want %q", c.url, got, c.content)
		}
		if res.ContentType != c.typ {
			t.Errorf("%s: type %s, want %s", c.url, res.ContentType, c.typ)
		}
		if err := res.Close(); err != nil {
			t.Errorf("%s: closing: %v", c.url, err)
		}
	}
}

func TestAMissSaysWhatThereIsAndNeverReadsAnotherSession(t *testing.T) {
	r, _ := fixture(t)
	cases := []struct{ url, want string }{
		{"artifact://3", "Artifact 3 not found. Available: 0, 1"}, // 3 exists in the other session
		{"artifact://7", "Artifact 7 not found. Available: 0, 1"},
		{"artifact://8", "Artifact 8 not found. Available: 0, 1"},
		{"artifact://9", "Artifact 9 not found. Available: 0, 1"},
		{"artifact://10", "is not a regular file"},
		{"artifact://11", "is not a regular file"},
		{"artifact://03b2fa9b-9d2c-7c3e-8a4f-0123456789ab/0", "No artifacts directory found"},
		{"agent://03b2fa9b-9d2c-7c3e-8a4f-0123456789ab/X", "No artifacts directory found"},
		{"artifact://04b2fa9b-9d2c-7c3e-8a4f-0123456789ab/0", "Session 04b2fa9b-9d2c-7c3e-8a4f-0123456789ab not found"},
		{"agent://x", "Not found: x\nAvailable: 0-Par, 0-Par.1-Child, 7, Anna, Anna.Bob, Old, String"},
		{"agent://anna", "Not found: anna\nAvailable: "},
		{"agent://Old.v3", "Not found: Old.v3\nAvailable: Old.v1, Old.v2"},
		{"agent://Old/a", "Output Old is not valid JSON: invalid character"},
		{"agent://Old?q=.a", "Output Old is not valid JSON"},
		{"agent://0-Par?q=.a:1-2", "Cannot combine query extraction with line selectors"},
		{"agent://0-Par/a:raw", "Cannot combine query extraction with line selectors"},
		{"session://" + sid + "/nope", "Entry nope not found"},
		{"blob://sha256/" + someID, "Blob " + someID + " not found"},
	}
	for _, c := range cases {
		res, err := r.Open(t.Context(), c.url)
		if err == nil {
			t.Errorf("%s: opened %q", c.url, content(t, res))
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.url, err, c.want)
		}
	}
	empty := NewRouter(Sources{})
	for url, want := range map[string]string{
		"artifact://0":             "No session",
		"artifact://" + sid + "/0": "only the session at hand",
		"session://" + sid:         "only the session at hand",
		"blob://sha256/" + someID:  "No blob store",
	} {
		if _, err := empty.Open(t.Context(), url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

func TestABlobWhoseBytesChangedIsRefused(t *testing.T) {
	dir := t.TempDir()
	store, err := localdir.Open(dir, localdir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := blobstore.Put(t.Context(), store, []byte("some text"))
	if err != nil {
		t.Fatal(err)
	}
	r := NewRouter(Sources{Blobs: store})
	res, err := r.Open(t.Context(), "blob://sha256/"+ref.Hex())
	if err != nil {
		t.Fatal(err)
	}
	if got := content(t, res); got != "some text" {
		t.Errorf("content %q", got)
	}
	if err := res.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ref.Hex()), []byte("some tixt"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Open(t.Context(), "blob://sha256/"+ref.Hex()); err == nil || !strings.Contains(err.Error(), "is corrupt") {
		t.Errorf("opening it: %v", err)
	}
}

func TestLinesAreReadByNumber(t *testing.T) {
	r, _ := fixture(t)
	res, err := r.Open(t.Context(), "artifact://0:2-9")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Close()
	if res.URL != "artifact://0" {
		t.Errorf("URL %s", res.URL)
	}
	s, err := res.Lines(t.Context(), res.Selector.Ranges[0])
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(s)
	if err != nil || string(data) != "two\nthree\n" || s.First != 2 || s.Last != 3 {
		t.Errorf("%q, %d to %d, %v", data, s.First, s.Last, err)
	}
	_, err = res.Lines(t.Context(), Range{9999999, ToEnd})
	want := "Line 9999999 is beyond end of artifact (3 lines total). Use artifact://0:1 to read from the start, or artifact://0:3 to read the last line."
	if err == nil || err.Error() != want {
		t.Errorf("beyond the end: %v", err)
	}
}

func TestAnUnfinishedArtifactSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	d := artifacts.Open(path, artifacts.Options{})
	f, err := d.Create(t.Context(), "bash", artifacts.Provenance{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.WriteString(f, "so far\n"); err != nil {
		t.Fatal(err)
	}
	res, err := NewRouter(Sources{Session: view{sid, path}}).Open(t.Context(), "artifact://0")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Close()
	if len(res.Notes) != 1 || !strings.HasPrefix(res.Notes[0], "Artifact 0 is writing: written by process ") {
		t.Errorf("notes %q", res.Notes)
	}
	ix, err := res.Index(t.Context())
	if err != nil || ix.Lines != 1 {
		t.Fatalf("%d lines, %v", ix.Lines, err)
	}
	if _, err := io.WriteString(f, "more\n"); err != nil {
		t.Fatal(err)
	}
	if ix, err = res.Index(t.Context()); err != nil || ix.Lines != 2 || ix.CRC32C != crcOf("so far\nmore\n") {
		t.Errorf("after more was written: %d lines, %v", ix.Lines, err)
	}
}

func TestAnArtifactWhoseBytesChangedSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	f, err := artifacts.Open(path, artifacts.Options{}).Create(t.Context(), "bash", artifacts.Provenance{})
	if err != nil {
		t.Fatal(err)
	}
	var b lineindex.Builder
	if _, err := io.WriteString(io.MultiWriter(f, &b), "before\n"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Finish(b.Index()), f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ content, note string }{
		{"before\n", ""},
		{"behind\n", "Artifact 0 is changed: its checksum was "},
		{"behind it\n", "Artifact 0 is changed: it had 7 bytes when it was finished and has 10 now"},
	} {
		if c.note != "" {
			if err := os.WriteFile(f.Path(), []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			later := time.Now().Add(time.Hour)
			if err := os.Chtimes(f.Path(), later, later); err != nil {
				t.Fatal(err)
			}
		}
		res, err := NewRouter(Sources{Session: view{sid, path}}).Open(t.Context(), "artifact://0")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Close()
		if note := strings.Join(res.Notes, "; "); (note != "") != (c.note != "") || !strings.HasPrefix(note, c.note) {
			t.Errorf("%q: notes %q, want %q", c.content, note, c.note)
		}
	}
}

func crcOf(s string) uint32 {
	var b lineindex.Builder
	_, _ = b.Write([]byte(s))
	ix := b.Index()
	return ix.CRC32C
}
