package checkpoint

import (
	"context"
	"path/filepath"
)

// maxUnrecordedLooks bounds how many names Unrecorded looks at: it is for a remark, and
// a directory may hold a million files.
const maxUnrecordedLooks = 20_000

// Unrecorded is a directory that was looked through, and how many files have come to be
// in it since that no record names.
type Unrecorded struct {
	Dir   string
	Files int
	More  bool // there may be more: not all of it was looked at
}

// Unrecorded counts the files that have come to be in directories that were looked
// through, and that no record names: a rewind leaves them. What a checkpoint left out is
// not counted, nor what cannot be read. It looks at names only, at the first 20,000.
func (r *Recorder) Unrecorded(ctx context.Context) ([]Unrecorded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.update(ctx); err != nil {
		return nil, err
	}
	var list []Unrecorded
	left := maxUnrecordedLooks
	for _, dir := range r.history.dirs() {
		if r.history.forbidden(dir) != "" || r.history.onTheWay(dir) != (way{}) {
			continue // it is not there, or a link leads elsewhere
		}
		u := Unrecorded{Dir: dir}
		if err := r.countNew(ctx, dir, &u, &left); err != nil {
			return nil, err
		}
		if u.Files > 0 {
			list = append(list, u)
		}
	}
	return list, nil
}

func (r *Recorder) countNew(ctx context.Context, dir string, u *Unrecorded, left *int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := r.opts.FS.ReadDir(dir)
	if err != nil {
		return nil // it is only for a remark
	}
	for _, e := range entries {
		if *left--; *left < 0 {
			u.More = true
			return nil
		}
		path := filepath.Join(dir, e.Name())
		switch {
		case r.history.forbidden(path) != "":
		case e.IsDir():
			if err := r.countNew(ctx, path, u, left); err != nil {
				return err
			}
		case e.Type().IsRegular() && r.history.files[path] == nil && r.history.isNew(path):
			u.Files++
		}
	}
	return nil
}
