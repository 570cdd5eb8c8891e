package session

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/persist"
)

// maxBlobReads is how many blobs are read at once.
const maxBlobReads = 8

// Restore puts back into an entry what the persistence rules took out of its
// line: images and long strings. References whose blob is missing or corrupt stay
// as they are, and are returned.
func (s *Session) Restore(ctx context.Context, e entry.Entry) (entry.Entry, []Missing, error) {
	raw, missing, err := persist.Restore(ctx, e.Raw(), s.getBlob)
	if err != nil {
		return e, nil, fmt.Errorf("reading the blobs of entry %s of %s: %w", e.ID(), s.Path(), err)
	}
	return entry.New(raw, e.Envelope()), missing, nil
}

// Missing is a reference whose blob could not be read.
type Missing = persist.Missing

// Image returns the bytes and the type of the i-th image of an entry, counted
// from 0, and reads no other blob. The error matches ErrNoImage when the entry
// has fewer, and says so when the image is not there any more.
func (s *Session) Image(ctx context.Context, e entry.Entry, i int) (data []byte, mimeType string, err error) {
	img, ok := persist.ImageAt(e.Raw(), i)
	if !ok {
		return nil, "", fmt.Errorf("reading image %d of entry %s: %w", i, e.ID(), ErrNoImage)
	}
	data, mimeType, err = img.Load(ctx, s.getBlob)
	if err != nil {
		return nil, "", fmt.Errorf("reading image %d of entry %s: %w", i, e.ID(), err)
	}
	return data, mimeType, nil
}

// getBlob reads a blob for the persistence rules: a blob that is not there, or is
// not what it was, is an answer and not a failure.
func (s *Session) getBlob(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	return s.blobs.Get(ctx, ref)
}

// restore is Restore for readers that list what is missing elsewhere.
func (s *Session) restore(ctx context.Context, e entry.Entry) (entry.Entry, error) {
	x, _, err := s.Restore(ctx, e)
	return x, err
}

// RestoreAll is Restore for many entries, reading several blobs at once. entries
// is changed in place. A blob that several entries cite is reported once.
func (s *Session) RestoreAll(ctx context.Context, entries []entry.Entry) ([]Missing, error) {
	var (
		mu   sync.Mutex
		seen = map[blobref.Ref]bool{}
		all  = make([][]Missing, len(entries))
	)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxBlobReads)
	for i := range entries {
		if len(persist.Refs(entries[i].Raw())) == 0 {
			continue
		}
		g.Go(func() error {
			x, missing, err := s.Restore(ctx, entries[i])
			if err != nil {
				return err
			}
			entries[i] = x
			mu.Lock()
			defer mu.Unlock()
			for _, m := range missing {
				if !seen[m.Ref] {
					seen[m.Ref] = true
					all[i] = append(all[i], m)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out []Missing
	for _, m := range all {
		out = append(out, m...)
	}
	return out, nil
}
