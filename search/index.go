package search

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"modernc.org/sqlite" // pure Go: there is no C compiler where agentrun is built

	"github.com/agentrun/agentrun/internal/durable"
)

// formatVersion changes with the schema, and with what the tokens of a text are or
// where it is cut. An index of another version is made anew.
const formatVersion = "1"

// Files of an index in a home.
const (
	indexName = "search.db"
	stampName = "search.stamp"
	lockName  = "search.lock"
)

// The index is an FTS5 table without content, positions or sizes: it says which
// chunks of which files hold a token, no more. Every hit is looked up in its file.
const schema = `
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE files(
	id INTEGER PRIMARY KEY, dev INTEGER, ino INTEGER, kind INTEGER,
	size INTEGER, mtime INTEGER, text INTEGER, -- when it was read; text is longer than a compressed file
	off INTEGER, line INTEGER, cut INTEGER, -- where reading goes on
	tail INTEGER,                           -- CRC-32C of the bytes before off
	UNIQUE(dev, ino, kind));
CREATE TABLE chunks(id INTEGER PRIMARY KEY, file INTEGER, off INTEGER, size INTEGER, line INTEGER, cut INTEGER);
CREATE VIRTUAL TABLE tokens USING fts5(t, content='', columnsize=0, detail=none, tokenize='ascii');
INSERT INTO tokens(tokens, rank) VALUES('automerge', 0), ('hashsize', 8388608);
INSERT INTO meta VALUES('format', '` + formatVersion + `'), ('next', 1);
`

// errNoIndex is returned where there is no index that can be used; why says so to a
// person.
type errNoIndex struct{ why string }

func (e *errNoIndex) Error() string { return e.why }

// index is an open database.
type index struct {
	db *sql.DB
}

// openIndex opens the index of a home to read it. The error is an *errNoIndex when
// there is none, or none that can be believed.
func (x *Searcher) openIndex(ctx context.Context) (*index, error) {
	name := filepath.Join(x.home, indexName)
	id, err := x.fs.Identify(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &errNoIndex{"there is no index yet"}
	case err != nil:
		return nil, &errNoIndex{"the index cannot be read: " + err.Error()}
	}
	wal, werr := x.fs.Identify(name + "-wal")
	pending := werr == nil && wal.Size > 0
	if !pending && !x.stamped(id) {
		return nil, &errNoIndex{"the index was changed by something else, or a write of it was interrupted"}
	}
	ix, err := openDatabase(ctx, name, "")
	if err != nil && !pending {
		// In a home that cannot be written to.
		ix, err = openDatabase(ctx, name, "immutable=1&mode=ro&")
	}
	if err != nil {
		return nil, err
	}
	// What was opened may have been replaced before its log was: then they are not of
	// each other.
	if now, err := x.fs.Identify(name); err != nil || !now.SameFile(id) {
		return nil, errors.Join(&errNoIndex{"the index is being made anew"}, ix.close())
	}
	return ix, nil
}

// checkpointPages is how long the log of the database grows before it is brought into
// it, in pages of 8 KiB: a build rewrites many pages, and syncs twice each time.
const checkpointPages = 8192

// openDatabase opens a database and sees that it is an index of this version.
func openDatabase(ctx context.Context, name, how string) (*index, error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: name}).EscapedPath()+"?"+how+
		"_pragma=busy_timeout(2000)&_pragma=cache_size(-32768)&_pragma=mmap_size(0)&_txlock=immediate&_pragma=wal_autocheckpoint("+
		strconv.Itoa(checkpointPages)+")")
	if err != nil {
		return nil, fmt.Errorf("opening the search index: %w", err)
	}
	db.SetMaxOpenConns(1)
	ix := &index{db}
	var format string
	err = db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'format'").Scan(&format)
	if err == nil && format != formatVersion {
		err = fmt.Errorf("it is of format %q", format)
	}
	if err != nil {
		_ = db.Close() // the error to report is the one before
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &errNoIndex{"the index cannot be used: " + err.Error()}
	}
	return ix, nil
}

func (ix *index) close() error { return ix.db.Close() }

// stamped reports whether the index is as the last writer left it. SQLite has no
// checksums of pages, so this is what finds a file that something else wrote to.
func (x *Searcher) stamped(id durable.Identity) bool {
	b, err := durable.ReadFile(x.fs, filepath.Join(x.home, stampName), 1<<10)
	return err == nil && string(b) == stampOf(id)
}

func stampOf(id durable.Identity) string {
	return fmt.Sprintf("%s %d %d %d %d\n", formatVersion, id.Dev, id.Ino, id.Size, id.ModTime)
}

// stamp says that the index is whole as it is. All writers hold the lock.
func (x *Searcher) stamp() error {
	name := filepath.Join(x.home, indexName)
	id, err := x.fs.Identify(name)
	if err != nil {
		return err
	}
	return durable.WriteFile(x.fs, filepath.Join(x.home, stampName), false, []byte(stampOf(id)))
}

// ErrBusy is returned while another process writes the index.
var ErrBusy = errors.New("another process is writing the search index")

// lock takes the right to write the index; it never waits.
func (x *Searcher) lock() (*durable.Lock, error) {
	l, err := durable.OpenLock(x.fs, filepath.Join(x.home, lockName))
	if err != nil {
		return nil, err
	}
	ok, err := l.TryLock()
	if err == nil && !ok {
		err = ErrBusy
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// create makes an empty index in the place of what is there. The lock is held.
func (x *Searcher) create(ctx context.Context) (*index, error) {
	name := filepath.Join(x.home, indexName)
	for _, n := range []string{filepath.Join(x.home, stampName), name, name + "-wal", name + "-shm", name + "-journal"} {
		if err := x.fs.Remove(n); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("making the search index: removing the old one: %w", err)
		}
	}
	f, err := durable.CreateExclusive(x.fs, name) // as private as everything else in the home
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("making the search index: %w", err)
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: name}).EscapedPath()+
		"?_pragma=page_size(8192)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err == nil {
		db.SetMaxOpenConns(1)
		_, err = db.ExecContext(ctx, schema)
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("making the search index: %w", err)
	}
	return openDatabase(ctx, name, "")
}

// corrupt reports whether an error of the database means that it has to be made
// anew.
func corrupt(err error) bool {
	var none *errNoIndex
	if errors.As(err, &none) {
		return true
	}
	var serr *sqlite.Error
	if !errors.As(err, &serr) {
		return false
	}
	switch serr.Code() & 0xff {
	case 1, 11, 26: // SQLITE_ERROR (a table is gone), SQLITE_CORRUPT, SQLITE_NOTADB
		return true
	}
	return false
}

// fileKey is what the index knows a file by: a move or a hard link changes nothing.
type fileKey struct {
	dev, ino uint64
	kind     kind
}

func (s *source) key() fileKey { return fileKey{s.stat.Dev, s.stat.Ino, s.kind} }

// indexed is how far a file was read.
type indexed struct {
	id    int64
	size  int64
	mtime int64
	text  int64
	upTo  place
	tail  uint32
}

// files returns what the index knows.
func (ix *index) files(ctx context.Context) (_ map[fileKey]indexed, err error) {
	rows, err := ix.db.QueryContext(ctx, "SELECT id, dev, ino, kind, size, mtime, text, off, line, cut, tail FROM files")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	m := map[fileKey]indexed{}
	for rows.Next() {
		var (
			f        indexed
			k        kind
			dev, ino int64
		)
		if err := rows.Scan(&f.id, &dev, &ino, &k, &f.size, &f.mtime, &f.text, &f.upTo.off, &f.upTo.line, &f.upTo.cut, &f.tail); err != nil {
			return nil, err
		}
		m[fileKey{uint64(dev), uint64(ino), k}] = f
	}
	return m, rows.Err()
}

// chunk is a stretch of a file that the index has tokens of.
type chunk struct {
	place
	size int64
}

// candidates returns the chunks that hold every token of the expression, by file
// and in the order of the file.
func (ix *index) candidates(ctx context.Context, match string) (_ map[int64][]chunk, err error) {
	// One row for each file: handing over rows costs more than finding them.
	rows, err := ix.db.QueryContext(ctx, `
		SELECT c.file, group_concat(printf('%d %d %d %d', c.off, c.size, c.line, c.cut))
		FROM tokens JOIN chunks AS c ON c.id = tokens.rowid
		WHERE tokens MATCH ? GROUP BY c.file`, match)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	m := map[int64][]chunk{}
	for rows.Next() {
		var file int64
		var list string
		if err := rows.Scan(&file, &list); err != nil {
			return nil, err
		}
		chunks := make([]chunk, 0, strings.Count(list, ",")+1)
		for text := range strings.SplitSeq(list, ",") {
			c, err := parseChunk(text)
			if err != nil {
				return nil, err
			}
			chunks = append(chunks, c)
		}
		slices.SortFunc(chunks, func(a, b chunk) int { return cmp.Compare(a.off, b.off) })
		m[file] = chunks
	}
	return m, rows.Err()
}

func parseChunk(text string) (c chunk, err error) {
	var n [4]int64
	for i := range n {
		var word string
		word, text, _ = strings.Cut(text, " ")
		if n[i], err = strconv.ParseInt(word, 10, 64); err != nil {
			return c, &errNoIndex{"the index is damaged"}
		}
	}
	if n[0] < 0 || n[1] <= 0 || n[2] <= 0 {
		return c, &errNoIndex{"the index is damaged"}
	}
	return chunk{place{off: n[0], line: n[2], cut: n[3] != 0}, n[1]}, nil
}

// stale reports whether most of what the index has tokens of is gone.
func (ix *index) stale(ctx context.Context) (bool, error) {
	var ids, live int64
	err := ix.db.QueryRowContext(ctx, "SELECT (SELECT value - 1 FROM meta WHERE key = 'next'), (SELECT count(*) FROM chunks)").Scan(&ids, &live)
	return ids > 2*live+1000, err
}
