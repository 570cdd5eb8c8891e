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
	"github.com/agentrun/agentrun/bundle"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// source is a place where what was lost may still be. Nothing is changed there.
type source struct {
	name   string // as it was given
	dir    string
	temp   bool // dir is ours, to remove
	stores []*localdir.Store
}

// openSource opens a home, a directory of blobs, a directory of artifacts, or a
// bundle, which is unpacked into a directory for temporary files.
func openSource(ctx context.Context, place, passphrase string) (source, error) {
	info, err := os.Stat(place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return source{}, fmt.Errorf("looking for lost data in %s: there is no such directory or bundle", place)
	case err != nil:
		return source{}, fmt.Errorf("looking for lost data: %w", err)
	}
	s := source{name: place, dir: place}
	if !info.IsDir() {
		if s.dir, err = unpack(ctx, place, passphrase); err != nil {
			return source{}, fmt.Errorf("looking for lost data in %s: %w; name a home, a directory of blobs, or a bundle", place, err)
		}
		s.temp = true
	}
	for _, dir := range []string{catalog.BlobsDir(s.dir), catalog.KeptBlobsDir(s.dir), s.dir} {
		// A directory of ciphertext has nothing that could be verified.
		if store, err := localdir.Open(dir, localdir.Options{}); err == nil {
			s.stores = append(s.stores, store)
		}
	}
	return s, nil
}

// unpack makes a home of a bundle, verified, for as long as the doctor needs it. One of
// several may be without a passphrase: what is taken from it is compared with what the
// home says of it.
func unpack(ctx context.Context, file, passphrase string) (dir string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if dir, err = os.MkdirTemp("", "agentrun-doctor-"); err != nil {
		return "", err
	}
	m, err := session.OpenManager(dir, session.Options{Durability: session.Flush})
	if err == nil {
		_, err = bundle.Import(ctx, m, f, bundle.ImportOptions{Passphrase: passphrase})
		if err != nil && passphrase != "" && ctx.Err() == nil {
			if _, oerr := bundle.Import(ctx, m, f, bundle.ImportOptions{}); oerr == nil {
				err = nil
			}
		}
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// holder returns the store of the first place that has a blob, whole, and what to call
// it.
func (d *Doctor) holder(ctx context.Context, ref blobref.Ref) (*localdir.Store, string) {
	for _, s := range d.from {
		for _, store := range s.stores {
			if _, err := store.Check(ctx, ref); err != nil {
				continue
			}
			if s.temp {
				return store, s.name
			}
			return store, store.Dir()
		}
	}
	return nil, ""
}

// find returns the place that has a blob, "" for none.
func (d *Doctor) find(ctx context.Context, ref blobref.Ref) string {
	_, name := d.holder(ctx, ref)
	return name
}

// fetch brings a blob into a store of the home, and returns where it was; "" when no
// place has it.
func (d *Doctor) fetch(ctx context.Context, into *localdir.Store, ref blobref.Ref) (string, error) {
	from, name := d.holder(ctx, ref)
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
	return name, err
}

// artifact returns a file of that name among the artifacts of a session in one of the
// places, for which good holds, and what to call it.
func (d *Doctor) artifact(dir, name string, good func(path string) bool) (path, from string) {
	stem := filepath.Base(dir)
	for _, s := range d.from {
		paths := []string{filepath.Join(s.dir, name), filepath.Join(s.dir, stem, name)}
		dirs, _ := os.ReadDir(catalog.SessionsDir(s.dir)) // a place need not be a home
		for _, e := range dirs {
			paths = append(paths, filepath.Join(catalog.SessionsDir(s.dir), e.Name(), stem, name))
		}
		for _, path := range paths {
			if !good(path) {
				continue
			}
			if s.temp {
				return path, s.name
			}
			return path, path
		}
	}
	return "", ""
}
