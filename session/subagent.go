package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/session/internal/catalog"
)

// FindSubagent returns the session of a subagent by the whole id in its header. Such
// a session lies among the artifacts of another one of the home and is in no listing,
// so this looks at all of them. The error matches ErrNotFound.
func (m *Manager) FindSubagent(ctx context.Context, id string) (Info, error) {
	l, err := m.List(ctx, "")
	if err != nil {
		return Info{}, err
	}
	for _, s := range l.Sessions {
		if err := ctx.Err(); err != nil {
			return Info{}, err
		}
		dir := ArtifactsPath(s.Path)
		if dir == "" {
			continue
		}
		list, err := m.opts.FS.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Info{}, fmt.Errorf("looking for the session of a subagent: %w", err)
		}
		for _, e := range list {
			name := e.Name()
			if !e.Type().IsRegular() || !strings.HasSuffix(name, catalog.PlainExt) && !strings.HasSuffix(name, catalog.ColdExt) {
				continue
			}
			path := filepath.Join(dir, name)
			log, err := m.OpenLog(path)
			if err != nil {
				continue // whatever it is, it has no header with that id
			}
			found := log.ID() == id
			if err := log.Close(); err != nil {
				return Info{}, err
			}
			if found {
				return m.Find(ctx, path)
			}
		}
	}
	return Info{}, fmt.Errorf("no subagent has the session %q: %w", id, ErrNotFound)
}
