package session

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/agentrun/agentrun/internal/project"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// project returns the fingerprint of the project that the directory cwd, as a header
// records it, is in.
func (m *Manager) project(ctx context.Context, cwd string) string {
	return project.Finder{Cache: filepath.Join(m.home, "projects"), FS: m.opts.FS}.Of(ctx, cwd)
}

// Stray returns the sessions that belong into the working directory cwd and are kept
// for another one, the one modified last first: those of the same project, and of the
// same directory in it, whose own directory is gone, or holds another project now.
// Move makes them sessions of cwd. Sessions of programs that record no project are not
// found.
func (m *Manager) Stray(ctx context.Context, cwd string) ([]Info, error) {
	cwd, err := catalog.Resolve(cwd)
	if err != nil {
		return nil, err
	}
	here := m.project(ctx, cwd)
	if here == "" {
		return nil, nil
	}
	all, err := m.List(ctx, "")
	if err != nil {
		return nil, err
	}
	gone := map[string]bool{cwd: false}
	return slices.DeleteFunc(all.Sessions, func(s Info) bool {
		if !project.Same(s.Project, here) || !filepath.IsAbs(s.CWD) {
			return true
		}
		away, known := gone[s.CWD]
		if !known {
			away = m.left(ctx, s.CWD, here)
			gone[s.CWD] = away
		}
		return !away
	}), nil
}

// left reports whether the project with that fingerprint is not in the directory cwd,
// where it was.
func (m *Manager) left(ctx context.Context, cwd, fingerprint string) bool {
	info, err := os.Stat(cwd)
	if err != nil || !info.IsDir() {
		return err == nil || errors.Is(err, fs.ErrNotExist)
	}
	now, err := catalog.Resolve(cwd)
	return err == nil && !project.Same(m.project(ctx, now), fingerprint)
}
