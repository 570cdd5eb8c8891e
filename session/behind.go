package session

import (
	"context"
	"fmt"
	"slices"

	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/record"
)

// Behind returns the entries on the way from the entry after, which must be one of this Session's, to the leaf, without
// after itself and in the order of the way: what a context that was built at after lacks. Entries that stand on another
// branch are passed over. onPath is false when the leaf is neither after nor below it; then a context is to be built
// anew. Only what stands behind after in the file is read. Entries are as in the file: Restore puts images and long
// strings back.
func (s *Session) Behind(ctx context.Context, after entry.Entry) (entries []entry.Entry, onPath bool, err error) {
	st, err := s.snapshot(ctx)
	if err != nil {
		return nil, false, err
	}
	if st.leaf == after.ID() {
		return nil, true, nil
	}
	if st.file == nil || st.none {
		return nil, false, nil
	}
	// Where it stood; after a rewrite something else may, and then the walk meets no end and says so.
	from := after.Offset()
	if from < st.end || from >= st.src.size {
		from = st.end
	}
	err = walkUp(ctx, st.src, from, st.leaf, func(raw []byte, at int64, e record.Envelope) bool {
		if onPath = string(e.ID) == after.ID(); onPath {
			return false
		}
		entries = append(entries, newEntry(raw, at, e, 0))
		return true
	}, func(e record.Envelope) bool { return string(e.ID) != after.ID() })
	if err != nil {
		return nil, false, fmt.Errorf("reading %s: %w", s.Path(), err)
	}
	if !onPath {
		return nil, false, nil
	}
	slices.Reverse(entries)
	return entries, true, nil
}
