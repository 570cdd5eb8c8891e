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

	"github.com/agentrun/agentrun/internal/charset"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/tool/workspace"
)

// cutFile takes a selector off the end of a file name, and the name of a member of an
// archive. A name with colons of its own is recognised by the file being there.
func cutFile(w *workspace.Workspace, name string) (path, member string, sel internalurl.Selector, err error) {
	for end := len(name); end > 0; end = strings.LastIndexByte(name[:end], ':') {
		if !exists(w, name[:end]) {
			continue
		}
		sel, err := internalurl.ParseSelector(name[end:])
		if err == nil || len(name)-end < 2 {
			return name[:end], "", sel, err
		}
		member, sel, merr := internalurl.CutSelector(name[end+1:])
		if member = strings.TrimLeft(member, "/"); merr != nil || member == "" {
			return name[:end], "", sel, err
		}
		return name[:end], member, sel, nil
	}
	path, sel, err = internalurl.CutSelector(name)
	return path, "", sel, err
}

func exists(w *workspace.Workspace, name string) bool {
	if w == nil {
		_, err := os.Lstat(name)
		return err == nil
	}
	p, err := w.Resolve(name)
	if err != nil {
		return false
	}
	defer p.Close()
	_, err = p.Stat()
	return err == nil
}

// openFile opens a regular file, also through links: it is the user who names it.
func openFile(w *workspace.Workspace, name string) (*internalurl.Resource, error) {
	f, path, err := openByName(w, name)
	var irregular *durable.NotRegularError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s not found: name a file, or a URL such as artifact://0", name)
	case errors.As(err, &irregular) && irregular.Kind == "a directory":
		return openDirectory(w, name)
	case errors.As(err, &irregular):
		return nil, fmt.Errorf("%s is %s: name a regular file", name, irregular.Kind)
	case err != nil:
		return nil, err
	}
	return &internalurl.Resource{URL: name, Kind: "file", ContentType: internalurl.TypeText, Content: &file{File: f, path: path}}, nil
}

// openByName opens a file, and returns where it is.
func openByName(w *workspace.Workspace, name string) (durable.File, string, error) {
	if w != nil {
		p, err := w.Resolve(name)
		if err != nil {
			return nil, "", err
		}
		defer p.Close()
		f, err := p.OpenFile()
		if errors.Is(err, fs.ErrNotExist) {
			w.Seen().Forget(p.Path) // who reads it knows now
		}
		return f, p.Path, err
	}
	path, err := filepath.Abs(name)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil, "", fmt.Errorf("opening %s: %w", name, err)
	}
	f, err := durable.OS.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, "", fmt.Errorf("opening %s: %w", name, err)
	}
	return f, path, nil
}

// file is the content of a file, as it was at the first look.
type file struct {
	durable.File
	path string // without symbolic links

	mu    sync.Mutex // guards all below
	ix    lineindex.Index
	check charset.Checker
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
		f.ix, err = lineindex.Build(ctx, io.TeeReader(io.NewSectionReader(f.File, 0, size), &f.check))
	}
	if err != nil {
		return lineindex.Index{}, fmt.Errorf("counting the lines of %s: %w", f.Name(), err)
	}
	f.known = true
	return f.ix, nil
}

// guess is the encoding of the whole.
func (f *file) guess(ctx context.Context) (charset.Encoding, error) {
	if _, err := f.Index(ctx); err != nil {
		return charset.Encoding{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.check.Guess(), nil
}

// shown tells who wants to know what the file held, as far as all of it was looked at.
func (f *file) shown(opt Options) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known {
		return
	}
	if opt.Files != nil {
		opt.Files.Seen().NoteSum(f.path, f.ix.Size, f.ix.CRC32C)
	}
	if opt.Seen != nil {
		opt.Seen(f.path, f.ix.Size, f.ix.CRC32C)
	}
}
