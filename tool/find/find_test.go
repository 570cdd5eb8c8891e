package find

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/tool/workspace"
)

func files(t *testing.T, names ...string) *workspace.Workspace {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	w, err := workspace.Open(workspace.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// kept has one artifact.
type kept struct{}

func (kept) Sources(_ context.Context, url string) ([]Source, error) {
	if url != "artifact://" {
		return nil, errors.New("no such thing")
	}
	return []Source{{URL: "artifact://0", Name: "0.bash.log", Open: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("kept")), nil
	}}}, nil
}

func TestAPathThatIsNotThereIsToldWithWhatMayBeMeant(t *testing.T) {
	w := files(t, "a.go")
	for target, want := range map[string]string{
		"*.go":   "a pattern of names is a glob, and no path",
		"~/a.go": "~ stands for no directory here",
		"b.go":   "b.go not found: name a file or directory, or a URL such as artifact://0",
	} {
		if _, err := List(t.Context(), w, nil, Options{}, target); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", target, err, want)
		}
	}
}

func TestAFileIsListedThatMatchesOneOfTheGlobs(t *testing.T) {
	w := files(t, "a.go", "dir/b.go", "dir/c.txt", "d.md")
	l, err := List(t.Context(), w, nil, Options{Globs: []string{"*.md", "dir/*.txt", "*.txt"}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if len(l.Items) != 2 || l.Items[0].Name != "d.md" || l.Items[1].Name != "dir/c.txt" {
		t.Errorf("%v", l.Items)
	}
	if _, err := List(t.Context(), w, nil, Options{Globs: []string{"*.md", ""}}); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty glob among them: %v", err)
	}
}

func TestGlobsChooseFiles(t *testing.T) {
	w := files(t, "a.go", "dir/b.go", "dir/deep/c.txt", ".hidden/d.go")
	for _, c := range []struct {
		glob    string
		targets []string
		want    string
	}{
		{"", nil, ".hidden/d.go a.go dir/b.go dir/deep/c.txt"},
		{"*.go", nil, ".hidden/d.go a.go dir/b.go"},
		{"dir/*", nil, "dir/b.go"},
		{"/a.go", nil, "a.go"},
		{"**/*.{go,txt}", []string{"dir"}, "dir/b.go dir/deep/c.txt"},
		{"deep/**", []string{"dir"}, "dir/deep/c.txt"},
		{"", []string{"dir/b.go", "a.go"}, "dir/b.go a.go"},
		{"*.txt", []string{"a.go"}, ""},
		{"*.bash.log", []string{"artifact://", "dir"}, "artifact://0"},
	} {
		l, err := List(t.Context(), w, kept{}, Options{Globs: OneGlob(c.glob)}, c.targets...)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, item := range l.Items {
			names = append(names, item.Name)
			f, err := item.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if data, err := io.ReadAll(f); err != nil || len(data) == 0 {
				t.Errorf("%s: %q, %v", item.Name, data, err)
			}
			f.Close()
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%q in %v: %s, want %s", c.glob, c.targets, got, c.want)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTheToolAnswersAModel(t *testing.T) {
	w := files(t, "a.go", "b.go")
	tool := Tool{Workspace: w, Sources: kept{}, Artifacts: artifacts.Open(filepath.Join(t.TempDir(), "artifacts"), artifacts.Options{})}
	for _, c := range []struct {
		in, want string
		isError  bool
	}{
		{`{}`, "a.go\nb.go", false},
		{`{"glob":"*.c"}`, "(no files)", false},
		{`{"paths":["artifact://"]}`, "artifact://0", false},
		{`{"paths":["agent://"]}`, "no such thing", true},
		{`{"paths":["/etc"]}`, "outside of the workspace", true},
		{`{"paths":["nosuch"]}`, "nosuch not found", true},
		{`{"glob":"[a"}`, "close its brackets", true},
		{`{"nope":1}`, "not as the schema says", true},
	} {
		res, err := tool.Call(t.Context(), json.RawMessage(c.in))
		if err != nil || !strings.Contains(res.Text, c.want) || res.IsError != c.isError {
			t.Errorf("%s: %+v, %v", c.in, res, err)
		}
	}
	var many []string
	for range 2000 {
		many = append(many, strings.Repeat("n", 100))
	}
	long := files(t)
	for i := range many {
		if err := os.WriteFile(filepath.Join(long.Dir(), many[i]+string(rune('a'+i%26))+strings.Repeat("x", i/26)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool.Workspace = long
	res, err := tool.Call(t.Context(), json.RawMessage(`{}`))
	if err != nil || res.Artifact != "artifact://0" || !strings.Contains(res.Text, "artifact://0") {
		t.Errorf("%d bytes, %q, %v", len(res.Text), res.Artifact, err)
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("**/*.{go,[a-z]}", "a/b.go")
	f.Fuzz(func(t *testing.T, glob, name string) {
		if len(glob) > 64 || len(name) > 256 {
			return
		}
		o := Options{Globs: OneGlob(glob)}
		o.wants(name)
	})
}
