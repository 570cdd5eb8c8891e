package session

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/agentrun/agentrun/session/entry"
)

// ResumeOptions say what a resumed context is like.
type ResumeOptions struct {
	// Restore puts images and long strings back into the messages at once, as in
	// ContextOptions.
	Restore bool
	// Images bounds the images; the zero value is DefaultImageLimits.
	Images ImageLimits
	// KeepToolOutput prunes old tool output, as in entry.ContextOptions.
	KeepToolOutput int64
}

// Resumed is a session as a model call at its leaf finds it.
type Resumed struct {
	// Context is what providers accept. Where it differs from the log, Repairs says so.
	Context *entry.Context
	// Leaf is the entry that the context was built at.
	Leaf string
	// Repairs lists what was repaired: first the way through the file, then messages.
	Repairs []entry.Repair
	// Written is how many entries WriteRepairs has appended, and Again how many of them
	// are entries of the log once more, on a new branch.
	Written, Again int

	path *whole
}

// Resume builds a context that providers accept, whatever happened to the log: calls
// without a result, results without a call, repeated and empty turns, images that
// are too large, blobs that are missing, calls that share an id, parents that are not there or lead back to
// their child. Signed reasoning is never changed. The log stays as it is;
// WriteRepairs appends the repairs to it.
//
// Like Context it reads the file backwards, only as far as the context reaches,
// unless the way up breaks off: then all of it. Each image of the context is read
// and verified.
func (s *Session) Resume(ctx context.Context, o ResumeOptions) (*Resumed, error) {
	st, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if st.file == nil || st.none {
		return &Resumed{Context: entry.BuildContext(nil, entry.ContextOptions{}), path: &whole{}}, nil
	}
	w, err := s.wholePath(ctx, st)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.Path(), err)
	}
	build := entry.ContextOptions{Strict: true, KeepToolOutput: o.KeepToolOutput, SessionID: st.header.ID}
	if w.reach.NeedSettings() && len(w.entries) > 0 {
		if build.Settings, err = s.settingsBefore(ctx, st, w.entries[0]); err != nil {
			return nil, err
		}
	}
	c := entry.BuildContext(w.entries, build)
	renamed := w.rename(c)
	if len(renamed) > 0 {
		c = entry.BuildContext(w.entries, build)
	}
	check := attachments{s: s, limits: o.Images.orDefault(), session: st.header.ID}
	if err := check.look(ctx, c.Messages); err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.Path(), err)
	}
	r := &Resumed{Context: c, Leaf: st.leaf, path: w}
	if len(check.changed) > 0 {
		w.change(check.changed)
		r.Context = entry.BuildContext(w.entries, build)
	}
	if o.Restore {
		whole := slices.Clone(w.entries)
		if _, err := s.RestoreAll(ctx, whole); err != nil {
			return nil, err
		}
		r.Context = entry.BuildContext(whole, build)
	}
	r.Repairs = slices.Concat(w.repairs, check.repairs, renamed, r.Context.Repairs)
	return r, nil
}

// change puts entries in the places of those that they are instead of.
func (w *whole) change(entries map[int64]entry.Entry) {
	if w.changed == nil {
		w.changed = map[int64]entry.Entry{}
	}
	maps.Copy(w.changed, entries)
	w.entries = slices.Clone(w.entries)
	for i := range w.entries {
		if e, ok := entries[w.entries[i].Offset()]; ok {
			w.entries[i] = e
		}
	}
}

// rename takes over the ids of calls that c had to change, and returns those repairs.
func (w *whole) rename(c *entry.Context) []entry.Repair {
	renamed := map[int64]entry.Entry{}
	for _, m := range c.Messages {
		if m.Renamed {
			renamed[m.Entry().Offset()] = m.Entry()
		}
	}
	if len(renamed) == 0 {
		return nil
	}
	w.change(renamed)
	return slices.DeleteFunc(slices.Clone(c.Repairs), func(r entry.Repair) bool { return r.Kind != entry.RepairCallID })
}
