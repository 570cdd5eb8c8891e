package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agentrun/agentrun/session/entry"
)

// ContextOptions say which context to build.
type ContextOptions struct {
	// Leaf is the entry to build it at; empty means the last one of the file.
	Leaf string
	// Restore puts images and long strings back into the messages at once, which
	// needs memory for all of them. Otherwise Session.Restore does it entry by
	// entry, and Session.Image image by image.
	Restore bool
	// Strict leaves out what providers refuse, as in entry.ContextOptions. The messages
	// are then those of Resume, but for its notes about images and blobs.
	Strict bool
}

// Context builds what a model call at the leaf starts from. The file is read
// backwards, only as far as the messages reach, unless the way to the root breaks off:
// then all of it, and the context goes on with the nearest entry before the gap, as
// Repairs tells. Bodies are decoded on use. Images and long strings are still
// references.
func (s *Session) Context(ctx context.Context) (*entry.Context, error) {
	c, _, err := s.ContextWith(ctx, ContextOptions{})
	return c, err
}

// ContextWith is Context with options. With Restore it returns, once each, the
// blobs that could not be read.
func (s *Session) ContextWith(ctx context.Context, o ContextOptions) (*entry.Context, []Missing, error) {
	st, err := s.snapshot(ctx)
	if err != nil {
		return nil, nil, err
	}
	if st.file == nil || st.none {
		return entry.BuildContext(nil, entry.ContextOptions{}), nil, nil
	}
	leaf := o.Leaf
	if leaf == "" {
		leaf = st.leaf
	}
	p, err := s.readPathTo(ctx, st, leaf)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", s.Path(), err)
	}
	if o.Leaf != "" && len(p.entries) == 0 {
		return nil, nil, fmt.Errorf("reading %s: %.40q: %w", s.Path(), leaf, ErrNoEntry)
	}
	before := entry.ContextOptions{Strict: o.Strict}
	if p.reach.NeedSettings() && len(p.entries) > 0 {
		if before.Settings, err = s.settingsBefore(ctx, st, p.entries[0]); err != nil {
			return nil, nil, err
		}
	}
	path := p.entries
	var missing []Missing
	if o.Restore {
		path = slices.Clone(path)
		if missing, err = s.RestoreAll(ctx, path); err != nil {
			return nil, nil, err
		}
	}
	c := entry.BuildContext(path, before)
	c.Repairs = slices.Concat(p.repairs, c.Repairs)
	return c, missing, nil
}

// checkpoint completes a compaction of ours with the settings and the title at
// that moment, so that no reader has to go on beyond it. They are those under its
// parent when explicit is set, else under the leaf, and of what is appended
// before it in the same call.
func (s *Session) checkpoint(ctx context.Context, c entry.Compaction, parent string, explicit bool, before []*request) (entry.Body, error) {
	if c.Checkpoint != nil {
		return c, nil
	}
	var point entry.Checkpoint
	if parent != "" || !explicit {
		now, _, err := s.ContextWith(ctx, ContextOptions{Leaf: parent})
		if errors.Is(err, ErrNoEntry) {
			return c, nil // a parent that is pending is in no file yet
		}
		if err != nil {
			return nil, err
		}
		point.Settings = now.Settings.Clone()
	}
	var err error
	if point.Title, err = s.Title(ctx); err != nil {
		return nil, err
	}
	for _, r := range before {
		raw, _ := r.whole()
		e := entry.New(raw, entry.Envelope{Type: r.typ})
		entry.Fold(&point.Settings, e)
		if title, source, ok := e.Title(); ok {
			point.Title, point.TitleSource = title, source
		}
	}
	c.Checkpoint = &point
	return c, nil
}

// readPathTo reads the path to an entry, from what is cached where possible.
func (s *Session) readPathTo(ctx context.Context, st state, leaf string) (*pathCache, error) {
	s.mu.Lock()
	cached := s.ctxPath
	s.mu.Unlock()
	p, err := cached.extend(ctx, st, leaf)
	if err != nil {
		return nil, err
	}
	if p == nil {
		if p, err = readPath(ctx, st, leaf, nil); err != nil {
			return nil, err
		}
		if err := s.heal(ctx, st, p); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	if leaf == st.leaf && s.st.file == st.file && len(p.repairs) == 0 {
		s.ctxPath = p
	}
	s.mu.Unlock()
	return p, nil
}

// extend returns the path to leaf when that continues p, else nil.
func (p *pathCache) extend(ctx context.Context, st state, leaf string) (*pathCache, error) {
	if p == nil || len(p.entries) == 0 || p.end > st.src.size {
		return nil, nil
	}
	last := p.entries[len(p.entries)-1]
	if last.ID() == leaf && p.end == st.src.size {
		return p, nil
	}
	// Read only what was appended; the path must lead to our last entry.
	tail := st
	tail.end = p.end
	more, err := readPath(ctx, tail, leaf, nil)
	if err != nil || more.torn != nil || len(more.entries) == 0 || more.entries[0].Parent() != last.ID() {
		return nil, err
	}
	return &pathCache{
		entries: append(slices.Clip(p.entries), more.entries...),
		end:     st.src.size, reach: p.reach,
	}, nil
}

// settingsBefore returns the settings in force just before first: from the index
// when it reaches that far, else from all entries before it on its path.
func (s *Session) settingsBefore(ctx context.Context, st state, first entry.Entry) (entry.Settings, error) {
	var settings entry.Settings
	if ix, ok := s.loadIndex(st); ok && ix.First == first.ID() && ix.FirstAt == first.Offset() {
		return ix.Settings, nil
	}
	t, err := s.Tree(ctx)
	if err != nil {
		return settings, err
	}
	i := t.at(first.Offset())
	if i < 0 {
		i = t.Find(first.ID()) // the tree has the first of equal lines
	}
	if i < 0 {
		return settings, nil // the file changed meanwhile
	}
	path, _, err := t.way(i)
	if err != nil {
		return settings, fmt.Errorf("reading %s: %w", s.Path(), err)
	}
	for _, i := range path[:len(path)-1] {
		switch t.nodes.list[i].kind {
		case kindSettings, kindCompaction, kindMessage, kindOther:
		default:
			continue
		}
		e, err := t.entry(int(i))
		if err != nil {
			return settings, fmt.Errorf("reading %s: %w", s.Path(), err)
		}
		entry.Fold(&settings, e)
	}
	s.keepIndex(st, func(ix *index) { ix.First, ix.FirstAt, ix.Settings = first.ID(), first.Offset(), settings })
	return settings, nil
}
