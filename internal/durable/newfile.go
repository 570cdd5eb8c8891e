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
func WriteNewTemp(fsys FS, name, prefix string, sync bool, write func(io.Writer) error) error {
	fsys = or(fsys)
	temp, err := writeTemp(fsys, name, prefix, sync, write)
	if err != nil {
		return err
	}
	left := temp
	if err = fsys.RenameNoReplace(temp, name); err == nil && sync {
		left = name // not acknowledged before its directory is synced
		err = fsys.SyncDir(filepath.Dir(name))
	}
	if err != nil {
		_ = fsys.Remove(left)
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
