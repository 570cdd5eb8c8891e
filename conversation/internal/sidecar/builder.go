package sidecar

import (
	"context"
	"slices"

	"github.com/agentrun/agentrun/blobref"
)

// Put stores bytes under their hash and returns it. The bytes are its own from then on.
type Put func(ctx context.Context, data []byte) (blobref.Ref, error)

// Builder is the growing edge of a tree: for each level the records of its last
// node. The zero Builder is an empty tree. It is not safe for concurrent use.
type Builder struct {
	edge [][]Record
}

// Len is how many items the tree has.
func (b *Builder) Len() uint64 {
	n := uint64(0)
	for _, records := range b.edge {
		for _, r := range records {
			n += r.Count
		}
	}
	return n
}

// Push adds an item for good. A node that is full is stored.
func (b *Builder) Push(ctx context.Context, put Put, r Record) error {
	r.Count = 1
	return b.push(ctx, put, 0, r)
}

func (b *Builder) push(ctx context.Context, put Put, level int, r Record) error {
	if level == len(b.edge) {
		b.edge = append(b.edge, nil)
	}
	if len(b.edge[level]) == FanOut {
		// It stays until there is something behind it, so that a tree whose nodes are
		// all full has no empty edge.
		full, err := b.node(ctx, put, level, b.edge[level])
		if err != nil {
			return err
		}
		if err := b.push(ctx, put, level+1, full); err != nil {
			return err
		}
		b.edge[level] = b.edge[level][:0:0] // forks share the old one
	}
	b.edge[level] = append(b.edge[level], r)
	return nil
}

// node stores a node and returns its record.
func (b *Builder) node(ctx context.Context, put Put, level int, records []Record) (Record, error) {
	id, err := put(ctx, appendNode(nil, level, records))
	up := Record{ID: id}
	for _, r := range records {
		up.Weight += r.Weight
		up.Count += r.Count
	}
	return up, err
}

// Fork returns a builder that grows by itself.
func (b *Builder) Fork() Builder {
	fork := Builder{edge: make([][]Record, len(b.edge))}
	for i, records := range b.edge {
		fork.edge[i] = slices.Clip(records)
	}
	return fork
}

// Tree stores the edge and returns the tree, with items behind it that are not there
// for good: the next call has others.
func (b *Builder) Tree(ctx context.Context, put Put, last ...Record) (Tree, error) {
	fork := b.Fork()
	for _, r := range last {
		if err := fork.Push(ctx, put, r); err != nil {
			return Tree{}, err
		}
	}
	for level := 0; level < len(fork.edge); level++ {
		records := fork.edge[level]
		if level > 0 && len(records) == 1 && level == len(fork.edge)-1 {
			r := records[0]
			return Tree{r.ID, r.Weight, r.Count, level - 1}, nil
		}
		up, err := fork.node(ctx, put, level, records)
		if err != nil {
			return Tree{}, err
		}
		if level == len(fork.edge)-1 {
			return Tree{up.ID, up.Weight, up.Count, level}, nil
		}
		if err := fork.push(ctx, put, level+1, up); err != nil {
			return Tree{}, err
		}
	}
	return Tree{}, nil
}
