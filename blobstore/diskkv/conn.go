package diskkv

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"modernc.org/sqlite"

	"github.com/agentrun/agentrun/blobstore"
)

// conn is one connection of SQLite with its prepared statements. It serves one
// goroutine at a time. database/sql is left out of the way: it would copy every
// value once more, and which connection writes is decided here anyway.
type conn struct {
	raw   driver.Conn
	stmts map[string]driver.Stmt
}

// dsn names a database to the driver. Whatever the path holds is escaped: none of it
// is taken for a parameter.
func dsn(path string, params ...string) string {
	s := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_defensive=1&_dqs=0&_error_rc=1&_pragma=trusted_schema(0)&_pragma=mmap_size(0)"
	for _, p := range params {
		s += "&" + p
	}
	return s
}

func busyTimeout(d time.Duration) string {
	return "_busy_timeout=" + strconv.FormatInt(d.Milliseconds(), 10)
}

// connect opens a database. SQLite reads it with the first statement only.
func connect(ctx context.Context, name string) (*conn, error) {
	connector, err := sqlite.NewConnector(name)
	if err != nil {
		return nil, err
	}
	raw, err := connector.Connect(ctx)
	if err != nil {
		return nil, describe(err)
	}
	return &conn{raw: raw, stmts: make(map[string]driver.Stmt)}, nil
}

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.raw.Close())...)
}

func (c *conn) prepare(ctx context.Context, text string) (driver.Stmt, error) {
	if s, ok := c.stmts[text]; ok {
		return s, nil
	}
	s, err := c.raw.(driver.ConnPrepareContext).PrepareContext(ctx, text)
	if err != nil {
		return nil, describe(err)
	}
	c.stmts[text] = s
	return s, nil
}

func named(args []driver.Value) []driver.NamedValue {
	list := make([]driver.NamedValue, len(args))
	for i, v := range args {
		list[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return list
}

// exec runs a statement and returns how many rows it changed.
func (c *conn) exec(ctx context.Context, text string, args ...driver.Value) (int64, error) {
	s, err := c.prepare(ctx, text)
	if err != nil {
		return 0, err
	}
	result, err := s.(driver.StmtExecContext).ExecContext(ctx, named(args))
	if err != nil {
		return 0, describe(err)
	}
	return result.RowsAffected()
}

// query hands each row to row until there are no more or row returns an error. The
// bytes of a row are the receiver's to keep: the driver makes new ones for each.
func (c *conn) query(ctx context.Context, row func(values []driver.Value) error, text string, args ...driver.Value) (err error) {
	s, err := c.prepare(ctx, text)
	if err != nil {
		return err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(ctx, named(args))
	if err != nil {
		return describe(err)
	}
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = describe(cerr)
		}
	}()
	values := make([]driver.Value, len(rows.Columns()))
	for {
		switch err := rows.Next(values); {
		case err == io.EOF:
			return nil
		case err != nil:
			return describe(err)
		}
		if err := row(values); err == errEnough {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// errEnough ends a query before its last row.
var errEnough = errors.New("enough rows")

// ErrBusy means that other processes held the lock of the file for as long as
// Options.BusyTimeout says. Nothing was stored. It matches blobstore.ErrUnavailable, so
// that layer retry tries again.
var ErrBusy error = &blobstore.UnavailableError{Err: errors.New("the database is locked by another process")}

// ErrUnfinished means that another program died in the middle of a transaction, and
// that it has to be taken back before the file can be read. Opening the file with that program does it.
var ErrUnfinished = errors.New("a transaction of its program is not finished")

// Result codes of SQLite, https://www.sqlite.org/rescode.html.
const (
	codeError    = 1
	codeBusy     = 5
	codeLocked   = 6
	codeReadOnly = 8
	codeCorrupt  = 11
	codeCantOpen = 14
	codeTooBig   = 18
	codeNotADB   = 26

	codeReadOnlyRollback = 776 // extended
)

// describe says in the words of package blobstore what an error of SQLite means.
func describe(err error) error {
	switch codeOf(err) {
	case codeBusy, codeLocked:
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case codeReadOnly:
		var serr *sqlite.Error
		if errors.As(err, &serr) && serr.Code() == codeReadOnlyRollback {
			return fmt.Errorf("%w: %w", ErrUnfinished, err)
		}
		return fmt.Errorf("%w: %w", blobstore.ErrReadOnly, err)
	case codeCorrupt, codeNotADB:
		return fmt.Errorf("%w: %w", errDamaged, err)
	case codeTooBig:
		return fmt.Errorf("%w: %w", blobstore.ErrTooLarge, err)
	}
	return err
}

// errDamaged is what SQLite finds wrong with its file.
var errDamaged error = &damagedError{"the database file is damaged"}

// damagedError matches blobstore.ErrCorrupt without speaking of a blob.
type damagedError struct{ text string }

func (e *damagedError) Error() string { return e.text }

// Is reports that the error matches blobstore.ErrCorrupt.
func (e *damagedError) Is(target error) bool { return target == blobstore.ErrCorrupt }

// codeOf returns the primary result code of an error, or 0 for another error.
func codeOf(err error) int {
	var serr *sqlite.Error
	if !errors.As(err, &serr) {
		return 0
	}
	return serr.Code() & 0xff
}
