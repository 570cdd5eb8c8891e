package internalurl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
)

// ForSession returns a router over the sessions of a home, their artifacts and
// their blobs. s is the session at hand, which must stay open as long as the router
// is used; nil is none. Other sessions are opened, for reading, only while a URL
// needs their log. status is Sources.AgentStatus.
func ForSession(m *session.Manager, s *session.Session, status func(ctx context.Context, dir string, id artifacts.AgentID) (string, error)) *Router {
	src := Sources{Sessions: managed{m}, Blobs: m.Blobs(), AgentStatus: status}
	if s != nil {
		src.Session = opened{m, s}
		src.OpenDir = func(dir string) *artifacts.Dir {
			if dir != s.ArtifactsDir() {
				return artifacts.Open(dir, artifacts.Options{})
			}
			return artifacts.Open(dir, artifacts.Options{LoggedMax: s.MaxArtifactID, Where: s})
		}
	}
	return NewRouter(src)
}

// opened is the view of an open session.
type opened struct {
	m *session.Manager
	*session.Session
}

// Metadata describes the session as `agentrun sessions show` names things. What the
// file does not tell is null.
func (o opened) Metadata(ctx context.Context) ([]byte, error) {
	title, err := o.Title(ctx)
	if err != nil {
		return nil, err
	}
	tree, err := o.Tree(ctx)
	if err != nil {
		return nil, err
	}
	leaf, err := o.Leaf(ctx)
	if err != nil {
		return nil, err
	}
	meta := struct {
		ID       string     `json:"id"`
		Path     string     `json:"path"`
		CWD      string     `json:"cwd"`
		Title    *string    `json:"title"`
		Version  int        `json:"version"`
		Parent   string     `json:"parent,omitempty"`
		Entries  int        `json:"entries"`
		Leaf     *string    `json:"leaf"`
		Created  *time.Time `json:"created"`
		Modified *time.Time `json:"modified"`
		Size     int64      `json:"size"`
	}{
		ID: o.ID(), Path: o.Path(), CWD: o.CWD(), Title: known(title), Version: o.Version(), Parent: o.Parent(),
		Entries: tree.Len(), Leaf: known(leaf), Created: knownTime(o.Created()),
	}
	if o.Exists() { // else there is no file to look at yet
		info, err := o.m.Find(ctx, o.Path())
		if err != nil {
			return nil, err
		}
		meta.Path, meta.Modified, meta.Size = info.Path, knownTime(info.Modified), info.Size
	}
	return json.Marshal(meta)
}

func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func knownTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}

// EntryJSON is the entry as it was appended: what the persistence rules took out
// is put back. It goes by an id, a label, or the beginning of an id.
func (o opened) EntryJSON(ctx context.Context, name string) ([]byte, error) {
	id, err := o.FindEntry(ctx, name)
	if errors.Is(err, session.ErrNoEntry) {
		return nil, fmt.Errorf("entry %s: %w", name, ErrNoEntry)
	}
	if err != nil {
		return nil, err
	}
	e, err := o.Entry(ctx, id)
	if err != nil {
		return nil, err
	}
	return e.Raw(), nil
}

// managed are the sessions of a home.
type managed struct{ *session.Manager }

func (m managed) FindSession(ctx context.Context, id string) (SessionView, error) {
	info, err := m.Find(ctx, id)
	if errors.Is(err, session.ErrNotFound) {
		info, err = m.FindSubagent(ctx, id)
	}
	// Find takes names of files too; a URL names a session by its id, or the beginning.
	if errors.Is(err, session.ErrNotFound) || err == nil && !strings.HasPrefix(info.ID, id) {
		return nil, fmt.Errorf("session %s: %w", id, ErrNoSession)
	}
	if err != nil {
		return nil, err
	}
	return closed{m.Manager, info}, nil
}

// closed is a session that is opened for each look into its log.
type closed struct {
	m    *session.Manager
	info session.Info
}

func (c closed) ID() string { return c.info.ID }

func (c closed) ArtifactsDir() string {
	plain := strings.TrimSuffix(c.info.Path, ".zst")
	stem, ok := strings.CutSuffix(plain, ".jsonl")
	if !ok {
		return ""
	}
	return stem
}

func (c closed) Metadata(ctx context.Context) ([]byte, error) {
	return c.look(ctx, func(o opened) ([]byte, error) { return o.Metadata(ctx) })
}

func (c closed) EntryJSON(ctx context.Context, id string) ([]byte, error) {
	return c.look(ctx, func(o opened) ([]byte, error) { return o.EntryJSON(ctx, id) })
}

func (c closed) look(ctx context.Context, do func(opened) ([]byte, error)) ([]byte, error) {
	s, err := c.m.View(ctx, c.info.Path)
	if err != nil {
		return nil, err
	}
	data, err := do(opened{c.m, s})
	return data, errors.Join(err, s.Close())
}
