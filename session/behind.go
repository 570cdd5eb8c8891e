package session

import (
	"context"
	"fmt"
	"iter"
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

// Backward yields every entry of the file from the last one on, whatever branch it is on, for those who look for
// something near the end: no more of the file is read than they take. Entries are as in the file: Restore puts images and
// long strings back. Damaged stretches are passed over. An error ends the sequence.
func (s *Session) Backward(ctx context.Context) iter.Seq2[entry.Entry, error] {
	return func(yield func(entry.Entry, error) bool) {
		st, err := s.snapshot(ctx)
		if err == nil && st.file != nil && !st.none {
			err = eachBackward(ctx, st.src, st.end, st.src.size, func(line []byte, at int64) bool {
				var here []entry.Entry
				eachRecord(line, func(raw []byte, in int, e record.Envelope) {
					if !e.IsHeader() && !e.IsSlot() {
						here = append(here, newEntry(raw, at+int64(in), e, 0))
					}
				}, nil)
				for _, e := range slices.Backward(here) {
					if !yield(e, nil) {
						return false
					}
				}
				return true
			})
		}
		if err != nil {
			yield(entry.Entry{}, fmt.Errorf("reading %s: %w", s.Path(), err))
		}
	}
}
