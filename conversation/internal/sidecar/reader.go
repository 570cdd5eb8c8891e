package sidecar

import (
	"context"
	"fmt"
	"iter"

	"github.com/agentrun/agentrun/blobref"
)

// Get returns the bytes of a blob.
type Get func(ctx context.Context, id blobref.Ref) ([]byte, error)

// HoleError says that a blob could not be read.
type HoleError struct {
	ID     blobref.Ref
	Weight uint64 // of what is below it
	Count  uint64
	Err    error
}

func (e *HoleError) Error() string { return fmt.Sprintf("blob %s: %v", e.ID.Hex(), e.Err) }
func (e *HoleError) Unwrap() error { return e.Err }

// node reads the node that t names.
func (t Tree) node(ctx context.Context, get Get) ([]Record, error) {
	data, err := get(ctx, t.ID)
	if err != nil {
		return nil, &HoleError{t.ID, t.Weight, t.Count, err}
	}
	records, err := parseNode(data, t)
	if err != nil {
		return nil, &HoleError{t.ID, t.Weight, t.Count, err}
	}
	return records, nil
}

// Child is the tree below a record of t's root node.
func (t Tree) Child(r Record) Tree { return Tree{r.ID, r.Weight, r.Count, t.Level - 1} }

// Parse reads the root node of the tree.
func (t Tree) Parse(data []byte) ([]Record, error) { return parseNode(data, t) }

// At returns item i.
func (t Tree) At(ctx context.Context, get Get, i uint64) (Record, error) {
	if i >= t.Count {
		return Record{}, fmt.Errorf("item %d of %d: %w", i, t.Count, ErrFormat)
	}
	for {
		records, err := t.node(ctx, get)
		if err != nil {
			return Record{}, err
		}
		k := 0
		for k < len(records)-1 && i >= records[k].Count {
			i -= records[k].Count
			k++
		}
		if t.Level == 0 {
			return records[k], nil
		}
		t = t.Child(records[k])
	}
}

// Items yields the items whose weight is in [from, to), each with the weight before
// it. A node that cannot be read is a *HoleError with the weight before it, and the
// sequence goes on behind it.
func (t Tree) Items(ctx context.Context, get Get, from, to uint64) iter.Seq2[Placed, error] {
	return func(yield func(Placed, error) bool) {
		if !t.Empty() && from < to {
			t.items(ctx, get, 0, from, to, yield)
		}
	}
}

// Placed is an item and the weight of all before it.
type Placed struct {
	Record
	Before uint64
}

func (t Tree) items(ctx context.Context, get Get, before, from, to uint64, yield func(Placed, error) bool) bool {
	if err := ctx.Err(); err != nil {
		yield(Placed{}, err)
		return false
	}
	records, err := t.node(ctx, get)
	if err != nil {
		return yield(Placed{Before: before}, err)
	}
	for _, r := range records {
		end := before + r.Weight
		switch {
		case before >= to:
			return true
		case end <= from:
		case t.Level == 0:
			if !yield(Placed{r, before}, nil) {
				return false
			}
		default:
			if !t.Child(r).items(ctx, get, before, from, to, yield) {
				return false
			}
		}
		before = end
	}
	return true
}
