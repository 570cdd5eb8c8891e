package read

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/tool"
)

func TestADirectoryShowsNoNameThatARuleHides(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".env", "a.txt", "b.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"link", "dangling"} {
		if err := os.Symlink(map[string]string{"link": ".env", "dangling": "nowhere"}[link], filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	ctx := tool.WithHidden(t.Context(), func(path, real string) bool {
		return filepath.Base(path) == ".env" || filepath.Base(real) == ".env"
	})
	page, err := Read(ctx, nil, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := "a.txt  1 B\nb.txt  1 B\ndangling -> nowhere\n[2 entries left out, because of the rules about which files may be read]\n"
	if !strings.HasPrefix(page.Text, want) {
		t.Errorf("got %q", page.Text)
	}
}
