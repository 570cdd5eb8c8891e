package gc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/internal/durable"
)

type blobRef = blobref.Ref

// markBlobs marks what marked blobs mention: a string of a megabyte that left its
// line, the content of a file at a checkpoint. Blobs never change, so each is read
// once in its life, and none when there is nothing to remove.
func (c *collector) markBlobs(ctx context.Context, stores []*localdir.Store) error {
	paths, err := c.blobPaths(stores)
	if err != nil {
		return err
	}
	for {
		var unread []blobRef
		candidates := false
		for ref, path := range paths {
			if c.marks.has(ref) {
				if !c.markCited(ref) {
					unread = append(unread, ref)
				}
			} else if !candidates {
				id, err := c.FS.Identify(path)
				candidates = err == nil && time.Unix(0, id.ModTime).Before(c.grace)
			}
		}
		if len(unread) == 0 && c.marks.settledCitations() || !candidates {
			return nil
		}
		if err := c.readBlobs(ctx, paths, unread); err != nil {
			return err
		}
	}
}

// blobPaths are the blobs there are, with what a killed collector had moved away.
func (c *collector) blobPaths(stores []*localdir.Store) (map[blobRef]string, error) {
	paths := map[blobRef]string{}
	for _, s := range stores {
		for _, dir := range []string{s.Dir(), filepath.Join(s.Dir(), ".gc")} {
			entries, err := c.FS.ReadDir(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			beside := []fs.DirEntry{}
			for _, e := range entries {
				if ref, err := blobref.ParseHex(e.Name()); err == nil {
					paths[ref] = dir + "/" + e.Name()
				} else if e.Name()[0] == '.' {
					beside = append(beside, e)
				}
			}
			c.besideBlobs[dir] = beside
		}
	}
	return paths, nil
}

// markCited marks what a blob mentions, if that is known.
func (c *collector) markCited(ref blobRef) (known bool) {
	m := c.marks
	m.mu.Lock()
	defer m.mu.Unlock()
	cited, known := m.blobs[ref]
	for _, ref := range cited {
		if _, ok := m.refs[ref]; !ok {
			m.refs[ref], m.grown = struct{}{}, true
		}
	}
	return known
}

// settledCitations reports whether no mark came from a blob since the last call.
func (m *marks) settledCitations() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	grown := m.grown
	m.grown = false
	return !grown
}

// readBlobs reads what blobs mention. One that cannot be read leaves paths: a later
// run looks again.
func (c *collector) readBlobs(ctx context.Context, paths map[blobRef]string, refs []blobRef) error {
	type result struct {
		cited []blobRef
		err   error
	}
	results := make([]result, len(refs))
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(workers, len(refs)) {
		g.Go(func() error {
			for i := int(next.Add(1)) - 1; i < len(refs); i = int(next.Add(1)) - 1 {
				results[i].cited, results[i].err = mentionsInBlob(ctx, c.FS, paths[refs[i]])
				if err := ctx.Err(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, ref := range refs {
		switch err := results[i].err; {
		case err == nil:
			c.marks.setCited(ref, results[i].cited)
			continue
		case !errors.Is(err, fs.ErrNotExist):
			c.marks.problem(fmt.Errorf("%w; mend or remove it", err))
		}
		delete(paths, ref)
	}
	return nil
}

func (m *marks) setCited(ref blobRef, cited []blobRef) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blobs[ref], m.newBlobs = cited, true
}

// images are the first bytes of what most blobs are. They mention nothing.
var images = [][]byte{[]byte("\x89PNG\r\n\x1a\n"), {0xff, 0xd8, 0xff}, []byte("GIF8"), []byte("RIFF")}

func mentionsInBlob(ctx context.Context, fsys durable.FS, path string) ([]blobRef, error) {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var head [8]byte
	n, err := f.Read(head[:])
	if err != nil && err != io.EOF {
		return nil, err
	}
	for _, magic := range images {
		if bytes.HasPrefix(head[:n], magic) {
			return nil, nil
		}
	}
	refs, err := appendMentions(ctx, nil, io.MultiReader(bytes.NewReader(head[:n]), f))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return distinct(refs), nil
}
