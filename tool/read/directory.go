package read

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/tool/workspace"
)

// openDirectory lists a directory, an entry a line in the order of names: directories with a
// slash, links with where they lead, files with their size.
func openDirectory(w *workspace.Workspace, name string) (*internalurl.Resource, error) {
	dir := name
	if w != nil {
		p, err := w.Resolve(name)
		if err != nil {
			return nil, err
		}
		defer p.Close()
		dir = p.Self()
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", name, workspace.Bare(err))
	}
	var list bytes.Buffer
	for _, e := range entries {
		// A name may hold anything, also a newline.
		fmt.Fprintf(&list, "%s%s\n", strings.ReplaceAll(e.Name(), "\n", "?"), suffix(dir, e))
	}
	return &internalurl.Resource{URL: name, Kind: "directory", ContentType: internalurl.TypeText, Content: newText(list.Bytes(), nil)}, nil
}

func suffix(dir string, e fs.DirEntry) string {
	switch {
	case e.IsDir():
		return "/"
	case e.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(dir + "/" + e.Name())
		if err != nil {
			return " -> ?"
		}
		return " -> " + strings.ReplaceAll(target, "\n", "?")
	}
	info, err := e.Info()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return "  " + outputsink.FormatBytes(info.Size())
}
