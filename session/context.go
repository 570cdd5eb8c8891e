package session

import (
	"context"
	"fmt"
	"slices"

	"github.com/agentrun/agentrun/session/entry"
)

// Context builds what a model call at the leaf starts from. The file is read
// backwards, only as far as the messages reach; bodies are decoded on use. Images
// and long strings are still references: Session.Restore puts them back.
func (s *Session) Context(ctx context.Context) (*entry.Context, error) {
	return s.ContextAt(ctx, "")
}

// ContextAt is Context at an entry of the caller's choice, "" for the leaf.
func (s *Session) ContextAt(ctx context.Context, leaf string) (*entry.Context, error) {
	st, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if st.file == nil || st.none {
		return entry.BuildContext(nil, entry.ContextOptions{}), nil
	}
	at := leaf
	if at == "" {
		at = st.leaf
	}
	p, err := s.readPathTo(ctx, st, at)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.path, err)
	}
	if leaf != "" && len(p.entries) == 0 {
		return nil, fmt.Errorf("reading %s: %.40q: %w", s.path, leaf, ErrNoEntry)
	}
	opts := entry.ContextOptions{}
	if p.reach.NeedSettings() && len(p.entries) > 0 {
		if opts.Settings, err = s.settingsBefore(ctx, st, p.entries[0]); err != nil {
			return nil, err
		}
	}
	return entry.BuildContext(p.entries, opts), nil
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
		if p, err = readPath(ctx, st, leaf); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	if leaf == st.leaf && s.st.file == st.file && !s.replaced {
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
	more, err := readPath(ctx, tail, leaf)
	if err != nil || len(more.entries) == 0 || more.entries[0].Parent() != last.ID() {
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
	i := t.Find(first.ID())
	if i < 0 {
		return settings, nil
	}
	path := t.Path(i)
	for _, i := range path[:len(path)-1] {
		switch t.nodes.list[i].kind {
		case kindSettings, kindCompaction, kindMessage, kindOther:
		default:
			continue
		}
		e, err := t.entry(int(i))
		if err != nil {
			return settings, fmt.Errorf("reading %s: %w", s.path, err)
		}
		entry.Fold(&settings, e)
	}
	s.keepIndex(func(ix *index) { ix.First, ix.FirstAt, ix.Settings = first.ID(), first.Offset(), settings })
	return settings, nil
}
