package read

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/workspace"
)

// openDirectory lists a directory, an entry a line in the order of names: directories with a
// slash, links with where they lead, files with their size. What the rules of the call hide is left out, and counted.
func openDirectory(ctx context.Context, w *workspace.Workspace, name string) (*internalurl.Resource, error) {
	d, err := directory(w, name)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", name, workspace.Bare(err))
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", name, workspace.Bare(err))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	dir := "/proc/self/fd/" + strconv.Itoa(int(d.Fd()))
	hides, hidden := tool.HiddenOf(ctx), 0
	real := ""
	if hides != nil {
		if real, err = os.Readlink(dir); err != nil {
			return nil, fmt.Errorf("listing %s: %w", name, err)
		}
	}
	var list bytes.Buffer
	for _, e := range entries {
		if hides != nil && hides(filepath.Join(name, e.Name()), leadsTo(filepath.Join(real, e.Name()), e)) {
			hidden++
			continue
		}
		fmt.Fprintf(&list, "%s%s\n", oneLine(e.Name()), suffix(dir, e))
	}
	if hidden > 0 {
		fmt.Fprintf(&list, "[%s left out, because of the rules about which files may be read]\n", quantity.Count(int64(hidden), "entry", "entries"))
	}
	return &internalurl.Resource{URL: name, Kind: "directory", ContentType: internalurl.TypeText, Content: newText(list.Bytes(), nil)}, nil
}

// leadsTo is where an entry of a directory is, without symbolic links.
func leadsTo(path string, e fs.DirEntry) string {
	if e.Type()&fs.ModeSymlink == 0 {
		return path
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

func directory(w *workspace.Workspace, name string) (*os.File, error) {
	if w == nil {
		return os.Open(name)
	}
	p, err := w.Resolve(name)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.OpenDir()
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
		return " -> " + oneLine(target)
	}
	info, err := os.Lstat(dir + "/" + e.Name()) // by the directory that is open
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return "  " + outputsink.FormatBytes(info.Size())
}
