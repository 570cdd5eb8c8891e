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

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/archive"
	"github.com/agentrun/agentrun/internal/charset"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/tool/workspace"
)

// named is what the name of a file with more at its end stands for.
type named struct {
	path   string
	member string // of an archive; "" for none
	sel    internalurl.Selector
}

// cutFile takes a selector off the end of a file name, and the name of a member of an
// archive. A name with colons of its own is recognised by the file being there.
func cutFile(w *workspace.Workspace, name string) (named, error) {
	for end := len(name); end > 0; end = strings.LastIndexByte(name[:end], ':') {
		if end > unix.PathMax || !exists(w, name[:end]) {
			continue
		}
		sel, err := internalurl.ParseSelector(name[end:])
		if err == nil || len(name)-end < 2 {
			return named{path: name[:end], sel: sel}, err
		}
		member, sel, merr := internalurl.CutSelector(name[end+1:])
		if member = strings.TrimLeft(member, "/"); merr != nil || member == "" {
			return named{path: name[:end]}, err
		}
		return named{path: name[:end], member: member, sel: sel}, nil
	}
	path, sel, err := internalurl.CutSelector(name)
	return named{path: path, sel: sel}, err
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
func openFile(ctx context.Context, w *workspace.Workspace, name string) (*internalurl.Resource, error) {
	f, path, err := openByName(w, name)
	var irregular *durable.NotRegularError
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return nil, belowFile(w, name, err)
	case name == "":
		return nil, errors.New("the path is empty: name a file, or a URL such as artifact://0")
	case errors.Is(err, fs.ErrNotExist):
		if target, lerr := os.Readlink(name); w == nil && lerr == nil {
			return nil, fmt.Errorf("%s is a symbolic link to %s, which is not there: name a file", name, target)
		}
		return nil, fmt.Errorf("%s not found: name a file, or a URL such as artifact://0%s", name, meant(ctx, w, name))
	case errors.As(err, &irregular) && irregular.Kind == "a directory":
		return openDirectory(ctx, w, name)
	case errors.As(err, &irregular):
		return nil, fmt.Errorf("%s is %s: name a regular file", name, irregular.Kind)
	case err != nil:
		return nil, err
	}
	res := &internalurl.Resource{URL: name, Kind: "file", ContentType: internalurl.TypeText, Content: &file{File: f, path: path}}
	made, err := generated(ctx, f)
	switch {
	case err != nil:
		_ = f.Close() // the error to report is that of reading
		return nil, fmt.Errorf("reading %s: %w", name, workspace.Bare(err))
	case made != nil:
		res.Content = made
		if made.cut {
			res.Notes = append(res.Notes, made.remark())
		}
	}
	return res, nil
}

// belowFile says of a path through a file what that file is.
func belowFile(w *workspace.Workspace, name string, err error) error {
	for i, b := range []byte(name) {
		if i == 0 || b != '/' || name[i-1] == '/' {
			continue
		}
		f, _, oerr := openByName(w, name[:i])
		if oerr != nil {
			continue
		}
		defer f.Close()
		head := make([]byte, archive.Window)
		n, _ := f.ReadAt(head, 0) // what cannot be read is no archive
		if rest := strings.TrimLeft(name[i:], "/"); archive.Detect(head[:n]) != "" && rest != "" {
			return fmt.Errorf("%s is an archive, not a directory: its member is read as %[1]s:%s", name[:i], rest)
		}
		return fmt.Errorf("%s is a file, not a directory, so there is nothing below it: read %[1]s", name[:i])
	}
	return err
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
		path, err = workspace.RealPath(path)
	}
	if err != nil {
		return nil, "", fmt.Errorf("opening %s: %w", name, workspace.Bare(err))
	}
	f, err := durable.OS.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, "", fmt.Errorf("opening %s: %w", name, workspace.Bare(err))
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
