package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// source is a place where what was lost may still be. Nothing is changed there.
type source struct {
	dir    string
	stores []*localdir.Store
}

// openSource opens a home, a directory of blobs, or a directory of artifacts.
func openSource(place string) (source, error) {
	info, err := os.Stat(place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return source{}, fmt.Errorf("looking for lost data in %s: there is no such directory", place)
	case err != nil:
		return source{}, fmt.Errorf("looking for lost data: %w", err)
	case !info.IsDir():
		return source{}, fmt.Errorf("looking for lost data in %s: it is no directory; name a home or a directory of blobs", place)
	}
	s := source{dir: place}
	for _, dir := range []string{catalog.BlobsDir(place), catalog.KeptBlobsDir(place), place} {
		// A directory of ciphertext has nothing that could be verified.
		if store, err := localdir.Open(dir, localdir.Options{}); err == nil {
			s.stores = append(s.stores, store)
		}
	}
	return s, nil
}

// holder returns the store of the first place that has a blob, whole.
func (d *Doctor) holder(ctx context.Context, ref blobref.Ref) *localdir.Store {
	for _, s := range d.from {
		for _, store := range s.stores {
			if _, err := store.Check(ctx, ref); err == nil {
				return store
			}
		}
	}
	return nil
}

// find returns the place that has a blob, "" for none.
func (d *Doctor) find(ctx context.Context, ref blobref.Ref) string {
	if s := d.holder(ctx, ref); s != nil {
		return s.Dir()
	}
	return ""
}

// fetch brings a blob into a store of the home, and returns where it was; "" when no
// place has it.
func (d *Doctor) fetch(ctx context.Context, into *localdir.Store, ref blobref.Ref) (string, error) {
	from := d.holder(ctx, ref)
	if from == nil {
		return "", nil
	}
	b, err := from.Open(ctx, ref)
	if err != nil {
		return "", err
	}
	defer b.Close()
	got, _, err := into.Put(ctx, b)
	if err == nil && got != ref {
		err = fmt.Errorf("%s changed while it was read", filepath.Join(from.Dir(), ref.Hex()))
	}
	return from.Dir(), err
}

// artifact returns a file of that name among the artifacts of a session in one of the
// places, for which good holds.
func (d *Doctor) artifact(dir, name string, good func(path string) bool) string {
	stem := filepath.Base(dir)
	for _, s := range d.from {
		paths := []string{filepath.Join(s.dir, name), filepath.Join(s.dir, stem, name)}
		dirs, _ := os.ReadDir(catalog.SessionsDir(s.dir)) // a place need not be a home
		for _, e := range dirs {
			paths = append(paths, filepath.Join(catalog.SessionsDir(s.dir), e.Name(), stem, name))
		}
		for _, path := range paths {
			if good(path) {
				return path
			}
		}
	}
	return ""
}
