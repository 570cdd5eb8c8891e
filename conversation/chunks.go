package conversation

import (
	"context"
	"slices"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/conversation/internal/sidecar"
)

// chunks cuts a stream of lines into the chunks of a sidecar. The same lines give the
// same chunks, in however many steps they come.
type chunks struct {
	tree  sidecar.Builder
	open  []byte // the last chunk, which may grow
	cites []blobref.Ref
	size  uint64 // of all
}

// add takes a line with its newline, and the blobs that it cites. A line that begins a
// turn begins a chunk.
func (c *chunks) add(ctx context.Context, put sidecar.Put, line []byte, begins bool, cites []blobref.Ref) error {
	if begins || len(c.open)+len(line) > sidecar.ChunkBytes {
		if err := c.cut(ctx, put); err != nil {
			return err
		}
	}
	c.size += uint64(len(line))
	for len(line) > sidecar.ChunkBytes {
		c.open = append(c.open, line[:sidecar.ChunkBytes]...)
		if err := c.cut(ctx, put); err != nil {
			return err
		}
		line = line[sidecar.ChunkBytes:]
	}
	if c.open == nil {
		c.open = make([]byte, 0, max(len(line), 4096))
	}
	c.open = append(c.open, line...)
	for _, ref := range cites {
		if !slices.Contains(c.cites, ref) {
			c.cites = append(c.cites, ref)
		}
	}
	return nil
}

// cut ends the open chunk.
func (c *chunks) cut(ctx context.Context, put sidecar.Put) error {
	if len(c.open) == 0 {
		return nil
	}
	r, err := c.record(ctx, put, c.open)
	if err != nil {
		return err
	}
	c.open, c.cites = nil, nil
	return c.tree.Push(ctx, put, r)
}

func (c *chunks) record(ctx context.Context, put sidecar.Put, data []byte) (sidecar.Record, error) {
	id, err := put(ctx, data)
	return sidecar.Record{ID: id, Weight: uint64(len(data)), Count: 1, Cites: c.cites}, err
}

// root stores what is there, with rest behind it, a line that has no end yet.
func (c *chunks) root(ctx context.Context, put sidecar.Put, rest []byte, begins bool, cites []blobref.Ref) (sidecar.Tree, error) {
	fork := chunks{open: slices.Clone(c.open), cites: slices.Clip(c.cites), tree: c.tree.Fork()}
	if len(rest) > 0 {
		if err := fork.add(ctx, put, rest, begins, cites); err != nil {
			return sidecar.Tree{}, err
		}
	}
	if len(fork.open) == 0 {
		return fork.tree.Tree(ctx, put)
	}
	last, err := fork.record(ctx, put, fork.open)
	if err != nil {
		return sidecar.Tree{}, err
	}
	return fork.tree.Tree(ctx, put, last)
}
