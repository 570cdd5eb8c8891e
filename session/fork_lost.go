package session

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session/internal/record"
)

// citedOf returns the artifacts that the entries of a fork cite and of which nothing is
// among used. The entries are read only if there can be one: numbers are given out
// without gaps, but for those of artifacts that were discarded.
func (s *Session) citedOf(ctx context.Context, c *cut, used map[int64]bool) ([]int64, error) {
	highest, err := s.MaxArtifactID(ctx)
	if err != nil || highest < 0 {
		return nil, err
	}
	below := int64(0)
	for id := range used {
		if id <= highest {
			below++
		}
	}
	if below == highest+1 {
		return nil, nil
	}
	found := map[int64]bool{}
	for _, span := range c.spans {
		if err := citedIn(ctx, c.src, span, used, found); err != nil {
			return nil, fmt.Errorf("reading which artifacts %s cites: %w", s.Path(), err)
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// UntracedArtifacts returns the artifacts that entries of the session, or of the sessions
// nested in dir, its directory of artifacts, cite and of which there is nothing. used are
// the numbers of which dir has something.
func (s *Session) UntracedArtifacts(ctx context.Context, dir string, used map[int64]bool) ([]artifacts.Untraced, error) {
	st, err := s.snapshot(ctx)
	if err != nil || st.file == nil || st.none {
		return nil, err
	}
	return s.untraced(ctx, &cut{src: st.src, spans: []stretch{{st.end, st.src.size}}}, dir, used)
}

// untraced is citedOf with what the sessions nested in dir cite, each artifact once.
func (s *Session) untraced(ctx context.Context, c *cut, dir string, used map[int64]bool) ([]artifacts.Untraced, error) {
	ids, err := s.citedOf(ctx, c, used)
	if err != nil {
		return nil, err
	}
	nested, err := s.untracedNested(ctx, dir)
	if err != nil {
		return nil, err
	}
	list := make([]artifacts.Untraced, 0, len(ids)+len(nested))
	for _, id := range ids {
		list = append(list, artifacts.Untraced{ID: id})
	}
	list = append(list, nested...)
	slices.SortFunc(list, artifacts.Untraced.Compare)
	return slices.Compact(list), nil
}

// citedIn adds to found what entries in a span cite and is not among used.
func citedIn(ctx context.Context, src source, span stretch, used, found map[int64]bool) error {
	return eachPassing(ctx, src, span.from, span.to, func(line []byte, _ int64) bool {
		if bytes.Contains(line, artifactKey) {
			eachRecord(line, func(raw []byte, _ int, _ record.Envelope) {
				ids, _ := artifactsIn(raw)
				for _, id := range ids {
					if !used[id] {
						found[id] = true
					}
				}
			}, nil)
		}
		return true
	})
}
