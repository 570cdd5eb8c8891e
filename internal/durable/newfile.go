package durable

import (
	"fmt"
	"io"
	"path/filepath"
)

// WriteNewFunc makes a file that is not there yet: it appears under its name when
// write is done, whole, and never in the place of another. The error matches
// fs.ErrExist when something stands there by then. On an error no file and no
// temporary is left, unless removing it failed too.
func WriteNewFunc(fsys FS, name string, sync bool, write func(io.Writer) error) error {
	return WriteNewTemp(fsys, name, filepath.Base(name), sync, write)
}

// WriteNewTemp is WriteNewFunc with a prefix for the temporary, as WriteFileTemp has it.
func WriteNewTemp(fsys FS, name, prefix string, sync bool, write func(io.Writer) error) (err error) {
	fsys = or(fsys)
	dir := filepath.Dir(name)
	f, err := CreateTemp(fsys, dir, prefix)
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	left := f.Name()
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing %s: %w", name, err)
			_ = fsys.Remove(left)
		}
	}()
	err = write(f)
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err = fsys.RenameNoReplace(left, name); err != nil {
		return err
	}
	left = name // not acknowledged before its directory is synced
	if sync {
		return fsys.SyncDir(dir)
	}
	return nil
}
