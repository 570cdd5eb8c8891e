package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// CreateExclusive makes a new file, 0600. It fails with an error that matches
// fs.ErrExist when anything stands under name.
func CreateExclusive(fsys FS, name string) (File, error) {
	return or(fsys).OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, FilePerm)
}

// WriteFile replaces name by data, atomically; with sync also durably. A symbolic
// link of that name is replaced, not followed. On an error the old file is as it
// was and no temporary is left, unless removing it failed too; only when the
// fsync of the directory is what failed, the new file stands, and a power loss
// may bring back the old one.
func WriteFile(fsys FS, name string, sync bool, data []byte) error {
	return WriteFileFunc(fsys, name, sync, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// WriteFileFunc is WriteFile for content that write produces.
func WriteFileFunc(fsys FS, name string, sync bool, write func(io.Writer) error) error {
	return WriteFileTemp(fsys, name, filepath.Base(name), sync, write)
}

// WriteFileTemp is WriteFileFunc with a prefix of the caller's choice for the
// temporary, see CreateTemp: by it the caller knows what a killed process of his has
// left in a directory that is not his.
func WriteFileTemp(fsys FS, name, prefix string, sync bool, write func(io.Writer) error) error {
	fsys = or(fsys)
	temp, err := writeTemp(fsys, name, prefix, sync, write)
	if err != nil {
		return err
	}
	if err = fsys.Rename(temp, name); err != nil {
		_ = fsys.Remove(temp)
	} else if sync {
		err = fsys.SyncDir(filepath.Dir(name))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// writeTemp writes what is to be called name into a temporary beside it. On an error
// none is left, unless removing it failed too: the first error is the one to report,
// and a leftover temporary is only space, and every reader skips it.
func writeTemp(fsys FS, name, prefix string, sync bool, write func(io.Writer) error) (temp string, err error) {
	f, err := CreateTemp(fsys, filepath.Dir(name), prefix)
	if err != nil {
		return "", fmt.Errorf("writing %s: %w", name, err)
	}
	err = write(f)
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = fsys.Remove(f.Name())
		return "", fmt.Errorf("writing %s: %w", name, err)
	}
	return f.Name(), nil
}

// ErrTooLarge is returned by ReadFile for a file beyond the caller's limit.
var ErrTooLarge = errors.New("file is larger than expected")

// ReadFile returns the content of name, at most limit bytes.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	fsys = or(fsys)
	if direct, ok := fsys.(osFS); ok {
		return direct.readFile(name, limit)
	}
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	id, err := f.Identify()
	if err != nil {
		return nil, err
	}
	return readAll(name, id.Size, limit, f.Read)
}

// readAll reads a file of about size bytes to its end.
func readAll(name string, size, limit int64, read func([]byte) (int, error)) ([]byte, error) {
	if size > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: ErrTooLarge}
	}
	data := make([]byte, 0, size+1)
	for {
		n, err := read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case int64(len(data)) > limit:
			return nil, &fs.PathError{Op: "read", Path: name, Err: ErrTooLarge}
		case err == io.EOF:
			return data, nil
		case err != nil:
			return nil, err
		case len(data) == cap(data):
			data = append(data, 0)[:len(data)]
		}
	}
}
