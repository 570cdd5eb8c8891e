package read

import (
	"bytes"
	"encoding/json"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/internal/picture"
	"github.com/agentrun/agentrun/tool/workspace"
)

func TestDirectoriesAndPicturesOfAWorkspaceAreShown(t *testing.T) {
	dir := t.TempDir()
	var small, large bytes.Buffer
	for out, width := range map[*bytes.Buffer]int{&small: 200, &large: 2 * picture.MaxSide} {
		if err := png.Encode(out, image.NewGray(image.Rect(0, 0, width, 3))); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string][]byte{"a.png": small.Bytes(), "large.png": large.Bytes(), "bad.png": small.Bytes()[:20], "b": []byte("text\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{os.Mkdir(filepath.Join(dir, "sub"), 0o700), os.Symlink("b", filepath.Join(dir, "link")), os.Symlink("/", filepath.Join(dir, "out"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w, err := workspace.Open(workspace.Options{Dir: dir, Seen: workspace.NewSeen(filepath.Join(t.TempDir(), "seen"), nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, c := range []struct {
		path, want string
		images     int
		isError    bool
	}{
		{"a.png", "[image/png, 200 x 3 pixels, ", 1, false},
		{"large.png", "3136 x 3 pixels, ", 1, false},
		{"bad.png", "which cannot be shown: it is damaged", 0, false},
		{"b", "text\n", 0, false},
		{"link", "text\n", 0, false},
		{".", "b  5 B\n", 0, false},
		{".", "link -> b\n", 0, false},
		{".", "sub/\n", 0, false},
		{"sub", "empty", 0, false},
		{"out", "outside of the workspace", 0, true},
		{"../x", "outside of the workspace", 0, true},
		{"none", "none not found", 0, true},
	} {
		in, err := json.Marshal(input{Path: c.path})
		if err != nil {
			t.Fatal(err)
		}
		res, err := Tool{Files: w}.Call(t.Context(), in)
		if err != nil || !strings.Contains(res.Text, c.want) || len(res.Images) != c.images || res.IsError != c.isError {
			t.Errorf("%s: %q, %d pictures, %t, %v", c.path, res.Text, len(res.Images), res.IsError, err)
		}
		if c.path == "a.png" && !bytes.Equal(res.Images[0].Data, small.Bytes()) {
			t.Error("the picture is another one")
		}
	}
	// What was read and changed since is not changed by us.
	if err := os.WriteFile(filepath.Join(dir, "b"), []byte("other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = w.Change(t.Context(), "b", func(workspace.Old) ([]byte, error) { return nil, nil })
	if err == nil || !strings.Contains(err.Error(), "changed since") {
		t.Error(err)
	}
}
