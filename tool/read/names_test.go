package read

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/tool/workspace"
)

func TestFilesOfOddNamesAreReadAndListed(t *testing.T) {
	dir := t.TempDir()
	names := []string{"new\nline", "inv\xff\xfe", "-dash", "--", "a:10-20", "tab\t", "esc\x1b[31mred", "b:raw", strings.Repeat("L", 255)}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("one\ntwo\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := Read(t.Context(), nil, filepath.Join(dir, name), Options{})
		if err != nil || p.Text != "one\ntwo\n" {
			t.Errorf("%q: %+v, %v", name, p, err)
		}
		if p, err := Read(t.Context(), nil, filepath.Join(dir, name)+":2", Options{}); err != nil || p.Text != "two\n" {
			t.Errorf("%q, line 2: %+v, %v", name, p, err)
		}
	}
	p, err := Read(t.Context(), nil, dir, Options{})
	if err != nil || p.Lines != int64(len(names)) || len(p.Notes) != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, want := range []string{"new?line  8 B\n", "esc?[31mred  8 B\n", "tab?  8 B\n", "inv\uFFFD", "--  8 B\n"} {
		if !strings.Contains(p.Text, want) {
			t.Errorf("%q is not in %q", want, p.Text)
		}
	}
}

func TestAFileThatIsNotThereIsToldWithThoseThatMayBeMeant(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("dir", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"main.go", "Makefile", "dir/config.yaml", "x"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const plain = " not found: name a file, or a URL such as artifact://0"
	for name, want := range map[string]string{
		"mian.go":          plain + "; there is main.go",
		"main.rs":          plain + "; there is main.go",
		"makefile":         plain + "; there is Makefile",
		"dir/config.yml":   plain + "; there is dir/config.yaml",
		"./dir/confg.yaml": plain + "; there is ./dir/config.yaml",
		"dir/other.txt":    plain,
		"nowhere/main.go":  plain,
		"y":                plain,
		"~/main.go":        plain + "; ~ stands for no directory here: write it out",
	} {
		for _, w := range []*workspace.Workspace{nil, workspaceHere(t)} {
			if _, err := Read(t.Context(), nil, name, Options{Files: w}); err == nil || err.Error() != name+want {
				t.Errorf("%q: %v, want %q", name, err, want)
			}
		}
	}
}

func workspaceHere(t *testing.T) *workspace.Workspace {
	w, err := workspace.Open(workspace.Options{Dir: "."})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func TestLinksThatLeadNowhereAreToldAsSuch(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, target := range map[string]string{"circle": "circle", "dangling": "gone"} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"circle":   "opening circle: it leads through a symbolic link that leads back to itself",
		"dangling": "dangling is a symbolic link to gone, which is not there: name a file",
		"":         "the path is empty: name a file, or a URL such as artifact://0",
	} {
		if _, err := Read(t.Context(), nil, name, Options{}); err == nil || err.Error() != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}
