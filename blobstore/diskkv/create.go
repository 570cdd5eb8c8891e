package diskkv

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
)

// tableSchema is the table as the programs that share the format make it.
const tableSchema = "CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)"

// Keys that, beside applicationID in the header, mark a file of our own.
const (
	formatKey     = "agentrun:format"
	modeKey       = "agentrun:mode"
	formatVersion = "1"
)

const lockWait = 10 * time.Second

// create makes the file, whole and under its name at once, unless it is there.
func (s *Store) create() error {
	image, err := emptyImage(s.opts.Mode)
	if err != nil {
		return fmt.Errorf("making %s: %w", s.path, err)
	}
	if err := s.makeDir(); err != nil {
		return fmt.Errorf("making %s: %w", s.path, err)
	}
	return s.locked(context.Background(), func() error {
		switch info, err := s.fsys.Lstat(s.path); {
		case err == nil && info.Mode().IsRegular() && info.Size() == 0:
			return s.begin()
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		// A log that another file left would be taken for that of this one.
		if _, err := s.setAside(sides...); err != nil {
			return err
		}
		return durable.WriteNewFunc(s.fsys, s.path, s.opts.Sync, func(w io.Writer) error {
			_, err := w.Write(image)
			return err
		})
	})
}

// begin makes what create makes in an empty file, which another program may have open:
// SQLite writes it, with its locks, unless that program did so meanwhile.
func (s *Store) begin() (err error) {
	ctx := context.Background()
	h, err := hold(s.fsys, s.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.drop()) }()
	c, err := connect(ctx, dsn(s.path, "mode=rw", busyTimeout(s.opts.BusyTimeout), "_synchronous=FULL"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if _, err := c.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	tables := int64(-1)
	err = c.query(ctx, func(v []driver.Value) error {
		tables, _ = v[0].(int64)
		return nil
	}, "SELECT count(*) FROM sqlite_schema")
	if err == nil && tables == 0 {
		err = c.makeTable(ctx, s.opts.Mode)
	}
	if err != nil {
		_, undone := c.exec(ctx, "ROLLBACK")
		return errors.Join(err, undone)
	}
	_, err = c.exec(ctx, "COMMIT")
	return err
}

// makeTable makes the table and its marks in an empty database.
func (c *conn) makeTable(ctx context.Context, mode blobstore.Mode) error {
	for _, text := range []string{
		fmt.Sprintf("PRAGMA application_id = %d", applicationID),
		tableSchema,
		"INSERT INTO cursorDiskKV VALUES('" + formatKey + "', '" + formatVersion + "'), ('" + modeKey + "', '" + mode.String() + "')",
	} {
		if _, err := c.exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// makeDir makes the directory, and remembers which names a sync has to look after.
func (s *Store) makeDir() error {
	var missing []string
	for dir := filepath.Dir(s.path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := s.fsys.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, filepath.Dir(dir))
	}
	if err := durable.MkdirAll(s.fsys, filepath.Dir(s.path)); err != nil {
		return err
	}
	s.namesMu.Lock()
	defer s.namesMu.Unlock()
	s.names = append(s.names, missing...)
	return nil
}

// syncName makes the file itself survive power loss, as it was made, by whomever. What
// SQLite writes later it syncs itself, and its log with the directory that that is in.
func (s *Store) syncName(x *source) error {
	if x.synced.Load() {
		return nil
	}
	if err := x.held.open[0].Sync(); err != nil {
		return err
	}
	s.namesMu.Lock()
	defer s.namesMu.Unlock()
	for _, dir := range append([]string{filepath.Dir(s.path)}, s.names...) {
		if err := s.fsys.SyncDir(dir); err != nil {
			return err
		}
	}
	s.names = nil
	x.synced.Store(true)
	return nil
}

// locked calls do while no other process makes the file or moves it aside.
func (s *Store) locked(ctx context.Context, do func() error) error {
	l, err := durable.OpenLock(s.fsys, s.path+".lock")
	if err == nil {
		err = l.Lock(ctx, lockWait)
		if err == nil {
			err = do()
		}
		err = errors.Join(err, l.Close())
	}
	if err != nil {
		return fmt.Errorf("making %s: %w", s.path, err)
	}
	return nil
}

// emptyImage returns the bytes of a database without blobs.
func emptyImage(mode blobstore.Mode) (_ []byte, err error) {
	ctx := context.Background()
	c, err := connect(ctx, "file::memory:")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.makeTable(ctx, mode); err != nil {
		return nil, err
	}
	image, err := c.raw.(interface{ Serialize() ([]byte, error) }).Serialize()
	if err != nil {
		return nil, err
	}
	image[offWriteVer], image[offReadVer] = walVersion, walVersion
	return image, nil
}

// sides are the files beside the file that belong to it.
var sides = []string{journalSuffix, walSuffix, shmSuffix}

// mayMoveAside reports whether an error of opening the file is one for which it is
// moved aside: it is ours, may be written to, and SQLite cannot read it.
func (s *Store) mayMoveAside(err error) bool {
	if code := codeOf(err); s.opts.ReadOnly || code != codeCorrupt && code != codeNotADB {
		return false
	}
	if unix.Access(s.path, unix.W_OK) != nil || unix.Access(filepath.Dir(s.path), unix.W_OK) != nil {
		return false
	}
	h, err := hold(s.fsys, s.path)
	if err != nil {
		return false
	}
	head, err := h.header()
	return errors.Join(err, h.drop()) == nil && head.app == applicationID
}

// moveAside moves a damaged file of ours away and makes an empty one, unless another
// process did so meanwhile.
func (s *Store) moveAside(ctx context.Context) (damage *Damage, err error) {
	err = s.locked(ctx, func() error {
		x, err := s.openSource(ctx)
		if err == nil {
			return x.close()
		}
		if errors.Is(err, errAbsent) || !s.mayMoveAside(err) {
			return err
		}
		moved, merr := s.setAside(append([]string{""}, sides...)...)
		if merr != nil {
			return merr
		}
		damage = &Damage{File: s.path, Moved: moved, Cause: err}
		return nil
	})
	if err == nil && damage != nil {
		err = s.create()
	}
	return damage, err
}

// setAside renames what is there of the file and of what is beside it, so that the
// names still belong together, and returns the new name of the file.
func (s *Store) setAside(suffixes ...string) (string, error) {
	base := s.damagedName()
	for _, suffix := range suffixes {
		err := s.fsys.RenameNoReplace(s.path+suffix, base+suffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	if s.opts.Sync {
		return base, s.fsys.SyncDir(filepath.Dir(s.path))
	}
	return base, nil
}
