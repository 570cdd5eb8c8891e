package internalurl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentrun/agentrun/session"
)

// OpenedSession is the view of a session that is open, for Sources.Session. The
// session must stay open as long as the router is used.
func OpenedSession(s *session.Session) SessionView { return opened{s} }

// ManagedSessions are the sessions of a home, for Sources.Sessions. A session is
// opened, for reading, only while a URL needs its log.
func ManagedSessions(m *session.Manager) Sessions { return managed{m} }

type opened struct{ *session.Session }

// Metadata describes the session as `agentrun sessions show` names things.
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
		ID      string     `json:"id"`
		Path    string     `json:"path"`
		CWD     string     `json:"cwd"`
		Title   string     `json:"title,omitempty"`
		Version int        `json:"version"`
		Parent  string     `json:"parent,omitempty"`
		Created *time.Time `json:"created,omitempty"`
		Entries int        `json:"entries"`
		Leaf    string     `json:"leaf,omitempty"`
	}{o.ID(), o.Path(), o.CWD(), title, o.Version(), o.Parent(), nil, tree.Len(), leaf}
	if t := o.Created(); !t.IsZero() {
		meta.Created = &t
	}
	return json.Marshal(meta)
}

// EntryJSON is the entry as it was appended: what the persistence rules took out
// is put back.
func (o opened) EntryJSON(ctx context.Context, id string) ([]byte, error) {
	e, err := o.Entry(ctx, id)
	if errors.Is(err, session.ErrNoEntry) {
		return nil, fmt.Errorf("entry %s: %w", id, ErrNoEntry)
	}
	if err != nil {
		return nil, err
	}
	return e.Raw(), nil
}

type managed struct{ *session.Manager }

func (m managed) FindSession(ctx context.Context, id string) (SessionView, error) {
	info, err := m.Find(ctx, id)
	// Find takes abbreviations and paths too; a URL names a session by its id.
	if errors.Is(err, session.ErrNotFound) || err == nil && info.ID != id {
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
	data, err := do(opened{s})
	return data, errors.Join(err, s.Close())
}
