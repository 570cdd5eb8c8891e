package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// CreateNested makes the session of a subagent: its log lies among the artifacts of root, under the agent's id, which
// must be reserved, and has these artifacts too: a number means the same to both, also when root is moved, forked,
// exported and imported. root must have a file; it may be nested itself. The new session has the working directory cwd, and a
// file with its first entry. There must be no log under that id; one that is there is opened with Open.
func (m *Manager) CreateNested(ctx context.Context, root *Session, id artifacts.AgentID, cwd string) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, _, err := root.LocateArtifacts(ctx, true)
	switch {
	case err != nil:
		return nil, fmt.Errorf("making the session of subagent %s: %w", id, err)
	case id.IsZero():
		return nil, errors.New("making the session of a subagent: it has no id")
	case dir == "" || !root.Exists():
		return nil, fmt.Errorf("making the session of subagent %s: the session that started it has no file", id)
	}
	path := filepath.Join(dir, id.String()+catalog.PlainExt)
	for _, name := range []string{path, catalog.ColdPath(path)} {
		if _, err := m.opts.FS.Identify(name); err == nil {
			return nil, fmt.Errorf("making the session of subagent %s: %s: %w", id, name, fs.ErrExist)
		}
	}
	own, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("making a session id: %w", err)
	}
	h := root.head()
	s := m.newSession(path)
	s.fresh = record.NewHeader(own.String(), cwd, m.opts.Now())
	s.fresh.Project = m.project(ctx, cwd)
	s.fresh.ParentSession = h.ID
	s.fresh.ArtifactRoot = record.ArtifactRoot{Session: h.ID, Path: "."}
	if h.ArtifactRoot.Session != "" {
		s.fresh.ArtifactRoot.Session = h.ArtifactRoot.Session
	}
	return s, nil
}

// rootArtifacts is the artifact directory that the header names, if it is one that the log lies in. A header is hostile:
// the way to the directory only goes up.
func (s *Session) rootArtifacts() (dir string, ok bool) {
	way := s.head().ArtifactRoot.Path
	if way == "" || strings.Count(way, "/") > maxNesting {
		return "", false
	}
	for step := range strings.SplitSeq(way, "/") {
		if step != "." && step != ".." {
			return "", false
		}
	}
	dir = filepath.Join(filepath.Dir(s.Path()), filepath.FromSlash(way))
	return dir, s.manager.besideLog(dir)
}

// nested reports whether the log lies among the artifacts of another session, where
// nobody would find a new one.
func (s *Session) nested() bool { return s.manager.besideLog(filepath.Dir(s.Path())) }

// besideLog reports whether a directory is the artifact directory of a log.
func (m *Manager) besideLog(dir string) bool {
	for _, ext := range []string{catalog.PlainExt, catalog.ColdExt} {
		if _, err := m.opts.FS.Identify(dir + ext); err == nil {
			return true
		}
	}
	return false
}
