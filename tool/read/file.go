package read

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/internalurl"
)

// cutFile takes a selector off the end of a file name. A name with colons of its
// own is recognised by the file being there.
func cutFile(name string) (string, internalurl.Selector, error) {
	for end := len(name); end > 0; end = strings.LastIndexByte(name[:end], ':') {
		if _, err := os.Lstat(name[:end]); err == nil {
			sel, err := internalurl.ParseSelector(name[end:])
			return name[:end], sel, err
		}
	}
	return internalurl.CutSelector(name)
}

// openFile opens a regular file, also through links: it is the user who names it.
func openFile(name string) (*internalurl.Resource, error) {
	path, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s not found: name a file, or a URL such as artifact://0", name)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	f, err := durable.OS.OpenFile(path, os.O_RDONLY, 0)
	var irregular *durable.NotRegularError
	if errors.As(err, &irregular) {
		return nil, fmt.Errorf("%s is %s: name a regular file", name, irregular.Kind)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	return &internalurl.Resource{URL: name, Kind: "file", ContentType: internalurl.TypeText, Content: &file{File: f}}, nil
}

// file is the content of a file, as it was at the first look.
type file struct {
	durable.File

	mu    sync.Mutex // guards all below
	ix    lineindex.Index
	known bool
}

func (f *file) Size() (int64, error) {
	at, err := f.Identify()
	return at.Size, err
}

func (f *file) Index(ctx context.Context) (lineindex.Index, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known {
		return f.ix, nil
	}
	size, err := f.Size()
	if err == nil {
		f.ix, err = lineindex.Build(ctx, io.NewSectionReader(f.File, 0, size))
	}
	if err != nil {
		return lineindex.Index{}, fmt.Errorf("counting the lines of %s: %w", f.Name(), err)
	}
	f.known = true
	return f.ix, nil
}
