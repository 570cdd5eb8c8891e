package session

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// BranchOptions say how a branch begins.
type BranchOptions struct {
	// Summary stands for the path that is left. A model reads it as the first thing
	// of the new branch; "" tells it nothing.
	Summary string
}

// Branch moves the leaf to an entry, "" for before the first one: what is appended
// next goes under it. It returns the id of the entry that records this, which is the
// new leaf. So the branch is durable without another message, and pi and oh-my-pi
// follow it, for whom the last entry of the file is the leaf.
//
// The recording entry is a custom one, which no model sees, or, with a summary,
// a branch_summary. Errors are those of Append, and ErrNoEntry.
func (s *Session) Branch(ctx context.Context, id string, o BranchOptions) (leaf string, err error) {
	from := id
	if from == "" {
		from = "root" // the word of oh-my-pi and pi
	}
	if strings.TrimSpace(o.Summary) != "" {
		return s.AppendUnder(ctx, id, entry.BranchSummary{FromID: from, Summary: o.Summary})
	}
	left, err := s.Leaf(ctx)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(struct {
		Reason string `json:"reason"`
		From   string `json:"from"`
		Left   string `json:"left,omitempty"`
	}{"branch", from, left})
	if err != nil {
		return "", fmt.Errorf("branching %s: %w", s.Path(), err)
	}
	return s.AppendUnder(ctx, id, entry.Custom{CustomType: entry.CustomTypeLeaf, Data: data})
}

// maxLabelBytes bounds a label: it has to fit on a line beside an entry.
const maxLabelBytes = 200

// Label names an entry, on whatever branch it stands; "" takes its name away. It
// returns the id of the entry that records it, which goes under the leaf. A label is
// one line of at most 200 bytes; runs of white space become a space.
func (s *Session) Label(ctx context.Context, id, label string) (string, error) {
	clean := CleanTitle(label)
	switch {
	case !utf8.ValidString(label) || strings.ContainsFunc(label, unicode.IsControl):
		return "", fmt.Errorf("labelling entry %.40q: a label is one line of plain text; leave control characters out", id)
	case len(clean) > maxLabelBytes:
		return "", fmt.Errorf("labelling entry %.40q: the label has %d bytes and may have %d; shorten it", id, len(clean), maxLabelBytes)
	}
	t, err := s.Tree(ctx)
	if err != nil {
		return "", err
	}
	if t.Find(id) < 0 {
		return "", fmt.Errorf("labelling entry %.40q of %s: %w", id, s.Path(), ErrNoEntry)
	}
	return s.Append(ctx, entry.Label{TargetID: id, Label: clean})
}

// Labels returns the labels of all entries by id: for each entry the last one in the
// file counts, on whatever branch it stands.
func (s *Session) Labels(ctx context.Context) (map[string]string, error) {
	t, err := s.Tree(ctx)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{}
	for i := range t.nodes.list {
		if t.nodes.list[i].kind != kindLabel {
			continue
		}
		e, err := t.entry(i)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", s.Path(), err)
		}
		var l entry.Label
		if e.Decode(&l) != nil {
			continue // it names nothing
		}
		if l.Label == "" {
			delete(labels, l.TargetID)
		} else {
			labels[l.TargetID] = l.Label
		}
	}
	return labels, nil
}

// FindEntry returns the id of the entry that name stands for: an id, a label, or the
// beginning of exactly one id, in this order. The error matches ErrNoEntry when there is
// none, and is an *AmbiguousEntryError when there are several.
func (s *Session) FindEntry(ctx context.Context, name string) (string, error) {
	t, err := s.Tree(ctx)
	if err != nil {
		return "", err
	}
	if i := t.Find(name); i >= 0 {
		return name, nil
	}
	labels, err := s.Labels(ctx)
	if err != nil {
		return "", err
	}
	ambiguous := &AmbiguousEntryError{Abbreviation: name}
	label := CleanTitle(name)
	if label != "" {
		ambiguous.Label = true
		for id, l := range labels {
			if l == label && t.Find(id) >= 0 {
				ambiguous.IDs = append(ambiguous.IDs, id)
			}
		}
		slices.Sort(ambiguous.IDs)
	}
	if len(ambiguous.IDs) == 0 && name != "" {
		ambiguous.Label = false
		seen := map[string]bool{}
		for i := range t.nodes.list {
			id := string(t.nodes.id(int32(i)))
			if strings.HasPrefix(id, name) && !seen[id] {
				seen[id] = true
				ambiguous.IDs = append(ambiguous.IDs, id)
			}
		}
	}
	switch len(ambiguous.IDs) {
	case 0:
		return "", fmt.Errorf("looking for entry %.40q of %s: %w; `agentrun sessions tree` shows what there is", name, s.Path(), ErrNoEntry)
	case 1:
		return ambiguous.IDs[0], nil
	}
	return "", ambiguous
}

// AmbiguousEntryError says that several entries have ids that begin as given, or that
// label.
type AmbiguousEntryError struct {
	Abbreviation string
	Label        bool
	IDs          []string // all of them; the sentence names five
}

func (e *AmbiguousEntryError) Error() string {
	ids := catalog.Several(e.IDs)
	if e.Label {
		return fmt.Sprintf("several entries are labelled %.40q: give the id of one (%s)", e.Abbreviation, ids)
	}
	return fmt.Sprintf("several entries begin with %.40q: give more of the id (%s)", e.Abbreviation, ids)
}
