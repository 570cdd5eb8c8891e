package hook

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agentrun/agentrun/internal/durable"
)

// File is where the hooks of a project are, below its directory.
const File = ".agentrun/hooks.json"

// trustDir is the directory of a home that says which files are trusted: one file for each, named for the path and the content.
const trustDir = "trusted-hooks"

// Project is the file of hooks of a project.
type Project struct {
	Path    string // absolute, without symbolic links
	Hooks   []Hook
	Trusted bool
	data    []byte
}

// Read reads the hooks of the project in dir, nil if it has none. Whether the person of home trusts them is in it; those of
// a file that is not trusted must not be run.
func Read(home, dir string) (*Project, error) {
	path := filepath.Join(dir, File)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	path, err := filepath.EvalSymlinks(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the hooks of %s: %w", dir, err)
	}
	p := &Project{Path: path}
	if p.data, err = durable.ReadFile(nil, path, MaxFile); err != nil {
		return nil, fmt.Errorf("reading the hooks of %s: %w", path, err)
	}
	if p.Hooks, err = ParseFile(path, p.data); err != nil {
		return nil, err
	}
	_, err = os.Lstat(p.mark(home))
	p.Trusted = err == nil
	return p, nil
}

// mark is the file that says that a file of hooks is trusted as it is.
func (p *Project) mark(home string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d %s\n", len(p.Path), p.Path)
	h.Write(p.data)
	return filepath.Join(home, trustDir, hex.EncodeToString(h.Sum(nil)))
}

// Trust keeps in home that the file of hooks may be run as it was read. It is on disk then.
func (p *Project) Trust(home string) error {
	if err := durable.MkdirAll(nil, filepath.Join(home, trustDir)); err != nil {
		return fmt.Errorf("trusting %s: %w", p.Path, err)
	}
	if err := durable.WriteFile(nil, p.mark(home), true, []byte(p.Path+"\n")); err != nil {
		return fmt.Errorf("trusting %s: %w", p.Path, err)
	}
	p.Trusted = true
	return nil
}

// Distrust takes that back.
func (p *Project) Distrust(home string) error {
	if err := durable.OS.Remove(p.mark(home)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("trusting %s no more: %w", p.Path, err)
	}
	p.Trusted = false
	return nil
}
