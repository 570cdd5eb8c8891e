package bundle

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(importerEnv); job != "" {
		if err := importOnce(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/fsnotify/fsnotify.(*inotify).readEvents"))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newManager(t testing.TB) *session.Manager {
	t.Helper()
	return must(session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{Durability: session.Flush}))
}

func say(text string) entry.Body {
	return entry.MessageBody{Message: fmt.Appendf(nil, `{"role":"user","content":%s,"timestamp":1}`, must(json.Marshal(text)))}
}

func show(data string) entry.Body {
	return entry.MessageBody{Message: fmt.Appendf(nil, `{"role":"user","content":[{"type":"image","mimeType":"image/png","data":%q}],"timestamp":1}`,
		base64.StdEncoding.EncodeToString([]byte(data)))}
}

// big is text or an image that goes to the blob store.
func big(seed string) string { return strings.Repeat(seed+" ", 700_000/len(seed)) }

func write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rich makes a session with all that a session can have.
func rich(t testing.TB, m *session.Manager) *session.Session {
	t.Helper()
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{Title: "rich", TitleSource: session.TitleUser}))
	t.Cleanup(func() { s.Close() })
	for _, b := range []entry.Body{say("hello"), say(big("long")), show(big("image")), show(big("image")), say("bye")} {
		must(s.Append(t.Context(), b))
	}
	dir := artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID})
	for i := range 3 {
		f := must(dir.Create(t.Context(), "bash", artifacts.Provenance{Run: fmt.Sprint("run", i)}))
		must(f.Write([]byte(strings.Repeat(fmt.Sprintf("line of %d\n", i), 1000*(i+1)))))
		if i == 1 {
			// Its number is used up, and nothing of it is left.
			must(0, f.Discard())
		}
		f.Close()
	}
	id := must(dir.Reserve(t.Context(), artifacts.AgentID{}, "Explore", artifacts.Provenance{}))
	must(dir.WriteAgent(t.Context(), id, artifacts.Output{Text: []byte("# one"), JSON: []byte(`{"a":1}`)}))
	must(dir.WriteAgent(t.Context(), id, artifacts.Output{Text: []byte("# two")}))
	must(0, dir.MarkMissing(t.Context(), 40, "left behind"))

	nested := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	must(nested.Append(t.Context(), show(big("nested image"))))
	must(0, nested.Close())
	stem := filepath.Join(s.ArtifactsDir(), id.String())
	write(t, stem+".jsonl", string(must(os.ReadFile(nested.Path()))))
	write(t, stem+".lock", "")
	write(t, stem+".index", "rebuildable")
	write(t, filepath.Join(stem, "local", "notes ü.txt"), "deep")
	write(t, filepath.Join(stem, "0.bash.log.tmp-1234"), "half")
	write(t, filepath.Join(s.ArtifactsDir(), ".tmp-x"), "half")
	write(t, filepath.Join(s.ArtifactsDir(), "draft.txt"), "")
	write(t, s.Path()+".damaged", "damaged bytes\n")
	must(0, os.Remove(nested.Path()))
	return s
}

func export(t testing.TB, m *session.Manager, s *session.Session, o ExportOptions) (*bytes.Reader, Summary) {
	t.Helper()
	var b bytes.Buffer
	sum, err := Export(t.Context(), &b, m, s, o)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Bytes != int64(b.Len()) {
		t.Errorf("%d bytes were told and %d written", sum.Bytes, b.Len())
	}
	return bytes.NewReader(b.Bytes()), sum
}

// tree is every file below dir, with its bytes, but what is not carried.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err == nil && d.Type().IsRegular() {
			all[must(filepath.Rel(dir, name))] = string(must(os.ReadFile(name)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// entries are all entries of a session, with what the persistence rules took out put
// back.
func entries(t testing.TB, m *session.Manager, path string) []string {
	t.Helper()
	s := must(m.View(context.Background(), path))
	defer s.Close()
	var all []string
	for e, err := range s.Entries(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(e.Raw()))
	}
	return all
}
