package search

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/agentrun/agentrun/session"
)

// A transaction is committed when it holds this much text.
const commitBytes = 64 << 20

// tokensAhead is how many chunks' tokens wait for the database, about 10 KB each: the
// workers go on while it sorts what it was given and writes it out.
const tokensAhead = 256

// Update brings the index up to date with the files of all sessions, and makes it
// where there is none, or none that can be used. It never waits: the error matches
// ErrBusy while another process does the same. What was done when ctx ends stays
// done.
func (x *Searcher) Update(ctx context.Context) error { return x.bring(ctx, false) }

// Rebuild makes the index anew.
func (x *Searcher) Rebuild(ctx context.Context) error { return x.bring(ctx, true) }

func (x *Searcher) bring(ctx context.Context, anew bool) error {
	var res Result
	owners, err := x.owners(ctx, &Query{}, &res)
	if err != nil {
		return err
	}
	if len(owners) == 0 && !anew {
		return nil
	}
	var ix *index
	if !anew {
		stale := false
		if ix, err = x.openIndex(ctx); err == nil {
			if err = x.update(ctx, ix, owners, true); err == nil {
				stale, err = ix.stale(ctx)
			}
			x.closeIndex(ix)
		}
		if !stale && (err == nil || ctx.Err() != nil || !corrupt(err)) {
			return err
		}
	}
	l, err := x.lock()
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // the kernel frees it
	if ix, err = x.create(ctx); err != nil {
		return err
	}
	w := &writer{x: x, ix: ix}
	err = w.write(ctx, owners, true)
	return errors.Join(err, w.finish())
}

// backlog is how many bytes the index does not know.
func (x *Searcher) backlog(owners []*owner, known map[fileKey]indexed) int64 {
	var n int64
	for _, o := range owners {
		for i := range o.sources {
			s := &o.sources[i]
			f, ok := known[s.key()]
			switch {
			case !ok:
				n += s.stat.Size
			case f.size == s.stat.Size && f.mtime == s.stat.ModTime:
			case f.size == f.text && s.stat.Size >= f.upTo.off:
				n += max(s.stat.Size-f.upTo.off, 1)
			default:
				n += s.stat.Size
			}
		}
	}
	return n
}

// update reads what the index does not know into it. all says that owners are every
// session, so that what else the index knows is gone.
func (x *Searcher) update(ctx context.Context, ix *index, owners []*owner, all bool) (err error) {
	l, err := x.lock()
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // the kernel frees it
	w := &writer{x: x, ix: ix}
	err = w.write(ctx, owners, all)
	return errors.Join(err, w.settle())
}

// closeIndex closes an index that was read. The last one who closes it may bring
// its log into it, which the stamp has to say.
func (x *Searcher) closeIndex(ix *index) {
	name := filepath.Join(x.home, indexName)
	wal, err := x.fs.Identify(name + "-wal")
	_ = ix.close() // it was only read
	if err != nil || wal.Size == 0 {
		return
	}
	if wal, err = x.fs.Identify(name + "-wal"); err == nil && wal.Size > 0 {
		return // somebody else has it open
	}
	l, err := x.lock()
	if err != nil {
		return // they will
	}
	_ = x.stamp() // without it the index is made anew
	_ = l.Close()
}

// writer adds to an index. It holds the lock.
type writer struct {
	x     *Searcher
	ix    *index
	tx    *sql.Tx
	add   *sql.Stmt // tokens
	place *sql.Stmt // chunks
	next  int64     // id of the next chunk
	held  int64     // bytes of text in the transaction

	progress Progress
	told     time.Time
}

// settle brings everything into the database file and says that it is whole.
func (w *writer) settle() error {
	w.rollback()
	var busy, log, done int
	err := w.ix.db.QueryRow("PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &log, &done)
	if err != nil {
		return fmt.Errorf("writing the search index: %w", err)
	}
	return w.x.stamp()
}

// finish settles and closes.
func (w *writer) finish() error {
	err := w.settle()
	return errors.Join(err, w.ix.close())
}

func (w *writer) rollback() {
	if w.tx != nil {
		_ = w.tx.Rollback() // what was not committed is read again
		w.tx = nil
	}
}

// begin starts a transaction. The end of ctx must not roll it back: what was read
// until then is kept.
func (w *writer) begin(ctx context.Context) (err error) {
	if w.tx != nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	if w.tx, err = w.ix.db.BeginTx(ctx, nil); err != nil {
		return err
	}
	if w.add, err = w.tx.PrepareContext(ctx, "INSERT INTO tokens(rowid, t) VALUES(?, ?)"); err != nil {
		return err
	}
	if w.place, err = w.tx.PrepareContext(ctx, "INSERT INTO chunks VALUES(?, ?, ?, ?, ?, ?)"); err != nil {
		return err
	}
	return w.tx.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'next'").Scan(&w.next)
}

func (w *writer) commit() error {
	if w.tx == nil {
		return nil
	}
	// Ids are never used twice: tokens of forgotten chunks stay in the index.
	_, err := w.tx.Exec("UPDATE meta SET value = ? WHERE key = 'next'", w.next)
	if err == nil {
		err = w.tx.Commit()
	} else {
		w.rollback()
	}
	w.tx, w.held = nil, 0
	return err
}

func (w *writer) write(ctx context.Context, owners []*owner, all bool) (err error) {
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("writing the search index: %w", err)
		}
	}()
	known, err := w.ix.files(ctx)
	if err != nil {
		return err
	}
	w.progress = Progress{Total: w.x.backlog(owners, known)}
	seen := make(map[fileKey]bool)
	for _, o := range owners {
		for i := range o.sources {
			s := &o.sources[i]
			f, ok := known[s.key()]
			if seen[s.key()] || ok && f.size == s.stat.Size && f.mtime == s.stat.ModTime {
				seen[s.key()] = true
				continue
			}
			seen[s.key()] = true
			if err := w.file(ctx, s, f, ok); err != nil {
				if cerr := ctx.Err(); cerr != nil {
					return errors.Join(cerr, w.commit())
				}
				return err
			}
		}
	}
	if all {
		if err := w.prune(ctx, known, seen); err != nil {
			return err
		}
	}
	return w.commit()
}

// prune forgets files that are gone.
func (w *writer) prune(ctx context.Context, known map[fileKey]indexed, seen map[fileKey]bool) error {
	for k, f := range known {
		if seen[k] {
			continue
		}
		if err := w.begin(ctx); err != nil {
			return err
		}
		if err := w.forget(ctx, f.id); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) forget(ctx context.Context, id int64) error {
	_, err := w.tx.ExecContext(ctx, "DELETE FROM chunks WHERE file = ?", id)
	if err == nil {
		_, err = w.tx.ExecContext(ctx, "DELETE FROM files WHERE id = ?", id)
	}
	return err
}

// file reads what is new in one file. What can not be read is left for the query to
// report.
func (w *writer) file(ctx context.Context, s *source, f indexed, known bool) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	dbctx := context.WithoutCancel(ctx)
	t, err := w.x.open(s)
	if err != nil {
		return nil //nolint:nilerr // the query that needs it says so
	}
	defer func() { _ = t.close() }() // it was only read
	if known && !f.extends(t) {
		if err := w.forget(dbctx, f.id); err != nil {
			return err
		}
		known = false
	}
	if !known {
		r, err := w.tx.ExecContext(dbctx, "INSERT INTO files(dev, ino, kind, size, mtime, text, off, line, cut, tail) VALUES(?, ?, ?, -1, 0, 0, 0, 1, 0, 0)",
			int64(s.stat.Dev), int64(s.stat.Ino), s.kind)
		if err != nil {
			return err
		}
		if f.id, err = r.LastInsertId(); err != nil {
			return err
		}
		f.upTo = t.begin
	}
	produce := w.x.outputChunks
	if s.kind == kindLog {
		produce = w.x.logChunks
	}
	var failed error // of the file
	err = ordered(ctx, tokensAhead, func(yield func(*raw) bool) { failed = produce(ctx, t, f.upTo, yield) }, w.x.tokenize,
		func(d *document) (bool, error) {
			if d.err != nil {
				failed = d.err
				return false, nil
			}
			if len(d.tokens) > 0 {
				if _, err := w.place.ExecContext(dbctx, w.next, f.id, d.from.off, d.size, d.from.line, d.from.cut); err != nil {
					return false, err
				}
				if _, err := w.add.ExecContext(dbctx, w.next, string(d.tokens)); err != nil {
					return false, err
				}
				w.next++
			}
			w.tell(d.size)
			f.upTo = d.next
			if w.held += d.size; w.held < commitBytes {
				return true, nil
			}
			// The file is not done: its size says so until it is.
			if err := w.mark(dbctx, t, f, -1); err != nil {
				return false, err
			}
			if err := w.commit(); err != nil {
				return false, err
			}
			return true, w.begin(ctx)
		})
	if err != nil {
		if ctx.Err() != nil && w.tx != nil {
			// Keep what was read of it.
			if merr := w.mark(dbctx, t, f, -1); merr != nil {
				return errors.Join(err, merr)
			}
		}
		return err
	}
	size := t.stat.Size
	if failed != nil {
		size = -1
	}
	return w.mark(dbctx, t, f, size)
}

// mark notes how far a file was read.
func (w *writer) mark(ctx context.Context, t *text, f indexed, size int64) error {
	sum, err := t.tail(f.upTo.off)
	if err != nil {
		return err
	}
	_, err = w.tx.ExecContext(ctx, "UPDATE files SET size = ?, mtime = ?, text = ?, off = ?, line = ?, cut = ?, tail = ? WHERE id = ?",
		size, t.stat.ModTime, t.size, f.upTo.off, f.upTo.line, f.upTo.cut, sum, f.id)
	return err
}

// tell reports progress a few times a second.
func (w *writer) tell(n int64) {
	w.progress.Done += n
	if now := time.Now(); now.Sub(w.told) > 100*time.Millisecond {
		w.told = now
		w.x.report(w.progress)
	}
}

// raw is a stretch of a file on its way into the index.
type raw struct {
	from  place
	next  place
	size  int64
	text  []byte   // of an output
	lines [][]byte // of a log
}

// document is a chunk with its tokens.
type document struct {
	*raw
	tokens []byte
	err    error
}

// outputChunks cuts an output. Its last line is left until it has ended.
func (x *Searcher) outputChunks(ctx context.Context, t *text, from place, yield func(*raw) bool) error {
	b := newBatches(t, from, t.size)
	for b.at.off < b.end {
		c, err := b.next(ctx)
		if err != nil {
			return err
		}
		if c.open {
			return nil
		}
		if !yield(&raw{from: c.place, next: c.next, size: int64(len(c.data)), text: bytes.Clone(c.text)}) {
			return nil
		}
	}
	return nil
}

// logChunks takes lines of a log together.
func (x *Searcher) logChunks(ctx context.Context, t *text, from place, yield func(*raw) bool) error {
	c := &raw{from: from, next: from}
	going := true
	err := t.log.Lines(ctx, from.off, t.size, func(line []byte, at int64) bool {
		end := at + int64(len(line)) + 1
		if end > t.size {
			return false // it has not ended
		}
		c.lines = append(c.lines, line)
		c.size = end - c.from.off
		c.next = place{off: end, line: c.next.line + 1}
		if c.size >= batchSize {
			going = yield(c)
			c = &raw{from: c.next, next: c.next}
		}
		return going
	})
	if err == nil && going && len(c.lines) > 0 {
		yield(c)
	}
	return err
}

// tokenize finds the tokens of a chunk, each once.
func (x *Searcher) tokenize(ctx context.Context, r *raw, s *scratch) *document {
	d := &document{raw: r}
	s.set.reset()
	if r.lines == nil {
		s.folded.fold(s.plainText(r.text), r.from.cut)
		s.folded.tokens(s.set.add)
	}
	number := r.from.line
	at := r.from.off
	for _, line := range r.lines {
		for _, e := range session.LineEntries(line, at, int(number)) {
			text, err := x.entryText(ctx, e, s)
			if err != nil {
				d.err = err
				return d
			}
			s.folded.fold(text, false)
			s.folded.tokens(s.set.add)
		}
		number++
		at += int64(len(line)) + 1
	}
	d.tokens = bytes.Clone(s.set.doc)
	r.text, r.lines = nil, nil // it may wait for long
	return d
}
