package diskkv

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
)

// errAbsent means that there is no file.
var errAbsent = fmt.Errorf("there is no such file: %w", fs.ErrNotExist)

// What SQLite keeps beside its file.
const (
	walSuffix     = "-wal"
	shmSuffix     = "-shm"
	journalSuffix = "-journal"
)

// source is the file, opened in the way in which it can be read as it is now.
type source struct {
	held *heldFile
	own  bool   // it is written to as well, and SQLite takes all locks that this needs
	made bool   // it was made by this package: what is ours in it can be believed
	chat bool   // it is of the form of chat.go
	why  string // it cannot be written to

	damage *Damage // of its log

	// A file that is read without locks, or a copy of it, is good as long as the
	// stamp is that of the file.
	still bool
	stamp stamp
	look  func() (stamp, error)
	temp  string // the directory of a copy

	name    string // for connections that read
	slots   chan struct{}
	mu      sync.Mutex
	idle    []*conn // guarded by mu
	writer  *writer // nil when it is only read
	synced  atomic.Bool
	cleanup []func() error
}

// readers is how many connections read at the same time.
const readers = 8

// stamp is what a file that is read without locks is known again by.
type stamp struct{ db, wal, journal durable.Identity }

func (s *Store) look() (st stamp, err error) {
	if st.db, err = s.fsys.Identify(s.path); err != nil {
		return st, err
	}
	if st.wal, err = s.beside(walSuffix); err != nil {
		return st, err
	}
	st.journal, err = s.beside(journalSuffix)
	return st, err
}

// beside identifies what stands beside the file, or nothing. SQLite would follow a
// symbolic link there, and wait for a FIFO.
func (s *Store) beside(suffix string) (durable.Identity, error) {
	id, err := s.fsys.Identify(s.path + suffix)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return durable.Identity{}, nil
	case err != nil:
		return id, err
	case id.Mode&unix.S_IFMT != unix.S_IFREG:
		return id, fmt.Errorf("%w: %s beside it is not a regular file", ErrFormat, filepath.Base(s.path)+suffix)
	}
	return id, nil
}

// current reports whether what is read is what stands under the name of the file.
func (x *source) current() bool {
	if x.own {
		return true // writes look, see writer.commit
	}
	now, err := x.look()
	if err != nil {
		return false
	}
	return now == x.stamp || !x.still && x.held.is(now.db)
}

// openSource opens the file.
func (s *Store) openSource(ctx context.Context) (_ *source, err error) {
	h, err := hold(s.fsys, s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errAbsent
	}
	if err != nil {
		return nil, err
	}
	x := &source{held: h, look: s.look, slots: make(chan struct{}, readers)}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.close())
		}
	}()
	head, err := h.header()
	if err != nil {
		return nil, err
	}
	if x.stamp, err = s.look(); err != nil {
		return nil, err
	}
	shm, err := s.beside(shmSuffix)
	if err != nil {
		return nil, err
	}
	switch {
	case head.none:
		if x.stamp.wal.Size > 0 || x.stamp.journal.Size > 0 {
			return nil, fmt.Errorf("%w: the file is empty, and what stands beside it may be all of it", ErrFormat)
		}
		return nil, errAbsent // as SQLite makes it, before it has anything to write
	case !h.is(x.stamp.db):
		return nil, errRestless
	case head.app != applicationID:
		x.why = "it is the file of another program"
	case s.opts.ReadOnly:
		x.why = "it was opened for reading"
	case unix.Access(s.path, unix.W_OK) != nil || unix.Access(filepath.Dir(s.path), unix.W_OK) != nil:
		x.why = "the file or its directory may not be written to"
	default:
		if err := s.openOwn(ctx, x); err != nil || x.made {
			return x, err
		}
		x.why = "its header says that it is ours, but no mark in its table does"
	}
	return x, s.openForeign(ctx, x, head, shm)
}

// openOwn opens a file that says to be ours, to write to it. It is left as it was,
// and x.made false, when there is no mark of ours in its table.
func (s *Store) openOwn(ctx context.Context, x *source) error {
	var err error
	if x.damage, err = s.checkLog(ctx); err != nil {
		return err
	}
	// The first look changes nothing of the file: it may be one of a later version.
	x.name = dsn(s.path, "mode=rw", busyTimeout(s.opts.BusyTimeout), "_query_only=1")
	if err := x.with(ctx, func(c *conn) error { return s.inspect(ctx, x, c) }); err != nil {
		return err
	}
	if !x.made {
		return x.closeIdle()
	}
	sync := "_synchronous=NORMAL"
	if s.opts.Sync {
		sync = "_synchronous=FULL"
	}
	w, err := connect(ctx, dsn(s.path, "mode=rw", busyTimeout(s.opts.BusyTimeout), "_journal_mode=WAL", sync))
	if err != nil {
		return err
	}
	if x.damage != nil {
		// What is behind the damage is not found again.
		if err := w.query(ctx, func([]driver.Value) error { return nil }, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			return errors.Join(err, w.close())
		}
	}
	if s.opts.Sync {
		if err := s.syncName(x); err != nil {
			return errors.Join(err, w.close())
		}
	}
	x.own = true
	x.writer = newWriter(w, func() error {
		if id, err := s.fsys.Identify(s.path); err != nil || !x.held.is(id) {
			return errReplaced
		}
		return nil
	})
	return nil
}

// openForeign opens a file to read it, and changes nothing of it or beside it.
func (s *Store) openForeign(ctx context.Context, x *source, head header, shm durable.Identity) error {
	busy := busyTimeout(s.opts.BusyTimeout)
	walUsed, shmThere := x.stamp.wal.Size > 0, shm != durable.Identity{}
	switch {
	case !head.wal, shmThere && x.stamp.wal != durable.Identity{}:
		// With locks, as any reader: what its program has in the log is seen, and the
		// program is waited for. readonly_shm keeps SQLite from making anything.
		x.name = dsn(s.path, "mode=ro", "readonly_shm=1", "_query_only=1", "_pragma=cell_size_check(1)", busy)
	case !walUsed:
		// All there is is in the file. SQLite would make a log beside it to take locks in.
		x.still = true
		x.name = dsn(s.path, "mode=ro", "immutable=1", "_query_only=1", "_pragma=cell_size_check(1)")
	default:
		// A log without its index: nobody has the file open, and reading the log means
		// to make the index.
		x.still = true
		if err := s.copyAside(x); err != nil {
			return err
		}
		x.name = dsn(filepath.Join(x.temp, "db"), "_query_only=1", "_pragma=cell_size_check(1)")
	}
	return x.with(ctx, func(c *conn) error { return s.inspect(ctx, x, c) })
}

// copyAside copies the file and its log to a private directory.
func (s *Store) copyAside(x *source) (err error) {
	if x.temp, err = os.MkdirTemp("", "agentrun-diskkv-"); err != nil {
		return fmt.Errorf("copying it to read its log: %w", err)
	}
	x.cleanup = append(x.cleanup, func() error { return durable.RemoveAll(durable.OS, x.temp) })
	for suffix, size := range map[string]int64{"": x.stamp.db.Size, walSuffix: x.stamp.wal.Size} {
		if err := copyFile(s.fsys, s.path+suffix, filepath.Join(x.temp, "db"+suffix), size); err != nil {
			return fmt.Errorf("copying it to read its log: %w", err)
		}
	}
	return nil
}

func copyFile(fsys durable.FS, from, to string, size int64) (err error) {
	src, err := fsys.OpenFile(from, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	dst, err := durable.CreateExclusive(durable.OS, to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	return durable.Copy(dst, src, 0, size)
}

// with lends a connection to do.
func (x *source) with(ctx context.Context, do func(c *conn) error) error {
	select {
	case x.slots <- struct{}{}:
	default:
		select {
		case x.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { <-x.slots }()
	x.mu.Lock()
	var c *conn
	if n := len(x.idle); n > 0 {
		c, x.idle = x.idle[n-1], x.idle[:n-1]
	}
	x.mu.Unlock()
	if c == nil {
		var err error
		if c, err = connect(ctx, x.name); err != nil {
			return err
		}
	}
	defer x.put(c)
	return do(c)
}

func (x *source) put(c *conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.idle = append(x.idle, c)
}

func (x *source) closeIdle() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for _, c := range x.idle {
		errs = append(errs, c.close())
	}
	x.idle = nil
	return errors.Join(errs...)
}

// close frees the source, which nobody uses any more.
func (x *source) close() error {
	errs := []error{x.closeIdle()}
	if x.writer != nil {
		errs = append(errs, x.writer.conn.close())
	}
	for _, f := range x.cleanup {
		errs = append(errs, f())
	}
	return errors.Join(append(errs, x.held.drop())...)
}

// inspect looks at the schema and the marks, and refuses what is not of the form.
func (s *Store) inspect(ctx context.Context, x *source, c *conn) error {
	tables := 0
	var text string
	err := c.query(ctx, func(v []driver.Value) error {
		kind, name := textOf(v[0]), textOf(v[1])
		switch {
		case kind == "trigger":
			return fmt.Errorf("%w: it has a trigger on its table: %.40q", ErrFormat, name)
		case kind == "index":
			return nil
		case kind != "table" || v[2] == nil || v[2] == int64(0):
			return fmt.Errorf("%w: cursorDiskKV is no table but a %s", ErrFormat, kind)
		}
		tables, text = tables+1, textOf(v[3])
		return nil
	}, "SELECT type, name, rootpage, CASE WHEN octet_length(sql) <= 1024 THEN sql END FROM sqlite_schema WHERE lower(name) = 'cursordiskkv' OR lower(tbl_name) = 'cursordiskkv'")
	if err != nil {
		if code := codeOf(err); code == codeNotADB || code == codeError {
			return fmt.Errorf("%w: %w", ErrFormat, err)
		}
		return err
	}
	if tables == 0 {
		if x.chat, err = inspectChat(ctx, c); err != nil || x.chat {
			return err
		}
		return fmt.Errorf("%w: it has no table cursorDiskKV", ErrFormat)
	}
	if err := checkColumns(ctx, c, "cursorDiskKV", "key", "value"); err != nil {
		return err
	}
	return s.readMarks(ctx, x, c, text)
}

// checkColumns refuses a table without these columns, and one that computes them.
func checkColumns(ctx context.Context, c *conn, table string, columns ...string) error {
	found := 0
	err := c.query(ctx, func(v []driver.Value) error {
		name, hidden := strings.ToLower(textOf(v[1])), v[len(v)-1] != int64(0)
		if slices.Contains(columns, name) {
			if found++; hidden {
				return fmt.Errorf("%w: the column %s of its table %s is computed", ErrFormat, name, table)
			}
		}
		return nil
	}, "PRAGMA table_xinfo("+table+")")
	if err == nil && found != len(columns) {
		err = fmt.Errorf("%w: its table %s has not the columns %s", ErrFormat, table, strings.Join(columns, " and "))
	}
	return err
}

// readMarks looks for what create wrote.
func (s *Store) readMarks(ctx context.Context, x *source, c *conn, schema string) error {
	marks := make(map[string]string)
	err := c.query(ctx, func(v []driver.Value) error {
		marks[textOf(v[0])] = textOf(v[1])
		return nil
	}, "SELECT key, CASE WHEN octet_length(value) <= 64 THEN value END FROM cursorDiskKV WHERE key IN ('"+formatKey+"', '"+modeKey+"')")
	if err != nil {
		return err
	}
	format, ok := marks[formatKey]
	switch {
	case !ok || schema != tableSchema:
		return nil
	case format != formatVersion:
		return fmt.Errorf("%w: it is of format %.20q, which another version of agentrun writes; this one writes %s", ErrFormat, format, formatVersion)
	case marks[modeKey] != s.opts.Mode.String():
		return fmt.Errorf("%w: its blobs are %.20s, not %v", blobstore.ErrMode, marks[modeKey], s.opts.Mode)
	}
	x.made = true
	return nil
}

// textOf returns the text in a column, or "" for a value of another class.
func textOf(v driver.Value) string {
	s, _ := v.(string)
	return s
}
