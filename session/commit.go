package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// LockWait is how long a writer waits for another process that is appending. For one
// that moves the session it waits as long as that takes, see EventWaiting.
const LockWait = 10 * time.Second

// maxOwn is how many of our own entries are remembered, to be written again when
// a program without locks drops them.
const maxOwn = 1 << 16

// ownEntry is an entry that this Session wrote: where it should lie in the file
// that was written, unless a program without a lock wrote at the same moment. After another program has replaced that file the old one still
// has the line for as long as it is open.
type ownEntry struct {
	id   string
	file durable.File
	off  int64
	size int
}

// writer is what only the leader of the commit queue touches.
type writer struct {
	file    durable.File // opened for appending; nil until the first append
	fileID  durable.Identity
	lock    *durable.Lock
	locked  string // the path of the log that lock is of
	buf     []byte
	own     []ownEntry
	pending []*request
}

// commit writes the entries of a batch behind those that are pending.
func (s *Session) commit(ctx context.Context, batch []*group) {
	w := &s.writer
	old := len(w.pending)
	for _, g := range batch {
		for _, r := range g.reqs {
			r.id = record.NewID()
			w.pending = append(w.pending, r)
		}
	}
	for _, g := range batch {
		if g.closes {
			defer func() {
				if g.err == nil {
					g.err = s.lastLook(ctx)
				}
				s.shut()
			}()
			break
		}
	}
	err := s.flushPending(ctx)
	if err == nil {
		clear(w.pending[:cap(w.pending)])
		w.pending = w.pending[:0]
		if old > 0 {
			s.setPending(nil)
		}
		for _, g := range batch {
			g.err = nil
			if g.do != nil {
				g.err = s.exclusive(ctx, g.asIs, g.do)
			}
		}
		return
	}
	if errors.Is(err, ErrReadOnly) || errors.Is(err, ErrClosed) {
		// Nothing can ever be written: what came now is not accepted.
		clear(w.pending[old:])
		w.pending = w.pending[:old]
	} else {
		ids := make([]string, len(w.pending))
		for i, r := range w.pending {
			ids[i] = r.id
		}
		s.setPending(ids)
		err = &PendingError{IDs: slices.Clone(ids), Err: err}
	}
	for _, g := range batch {
		g.err = err
	}
}

// lastLook writes again what another program's rewrite has dropped since the last
// append. Nobody would later. A file that is gone is no concern of who closes it.
func (s *Session) lastLook(ctx context.Context) error {
	if len(s.writer.own) == 0 || s.catchUp() != nil {
		return nil
	}
	s.mu.Lock()
	replaced := s.replaced
	s.mu.Unlock()
	if !replaced {
		return nil
	}
	return s.exclusive(ctx, true, func() error { return nil })
}

// setPending notes which entries wait, for those who want to append under them.
func (s *Session) setPending(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = ids
}

// flushPending writes s.writer.pending.
func (s *Session) flushPending(ctx context.Context) error {
	if len(s.writer.pending) == 0 {
		return nil
	}
	if err := s.register(ctx); err != nil {
		s.report(Event{Kind: EventRegistry, Path: s.Path(), Err: err})
	}
	for _, r := range s.writer.pending {
		if err := s.prepare(ctx, r, false); err != nil {
			return fmt.Errorf("appending to %s: storing a blob: %w", s.Path(), err)
		}
	}
	return s.exclusive(ctx, false, func() error {
		reqs, err := s.notWritten(ctx, s.writer.pending)
		if err != nil {
			return err
		}
		for _, r := range reqs {
			r.tried = true
		}
		return s.write(reqs)
	})
}

// notWritten leaves out what a failed attempt has put into the file after all:
// the file was replaced and only its directory could not be synced, or a line
// could not be taken back. Such entries are made durable here.
func (s *Session) notWritten(ctx context.Context, reqs []*request) ([]*request, error) {
	if !slices.ContainsFunc(reqs, func(r *request) bool { return r.tried }) {
		return reqs, nil
	}
	st := s.known()
	if st.file == nil {
		return reqs, nil
	}
	t := &Tree{end: st.end}
	if err := t.extend(ctx, st.src, st.src.size); err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.Path(), err)
	}
	var left []*request
	written := false
	for _, r := range reqs {
		switch {
		case !r.tried || t.Find(r.id) < 0:
			left = append(left, r)
		default:
			written = true
			if r.back != nil && r.explicit && t.Find(r.back.id) < 0 {
				left = append(left, r.back)
			}
		}
	}
	if !written || s.durability != Sync {
		return left, nil
	}
	f, err := s.fs.OpenFile(s.Path(), os.O_RDWR, 0)
	if err != nil {
		return nil, openError(s.Path(), err)
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = s.syncDirs(filepath.Dir(s.Path()))
	}
	if err != nil {
		return nil, fmt.Errorf("appending to %s: %w", s.Path(), err)
	}
	return left, nil
}

// exclusive runs fn while this process has the session's lock and knows all that
// is in the file, which it first brings into the form that is appended to unless
// asIs is set. Only the leader of the commit queue calls it.
func (s *Session) exclusive(ctx context.Context, asIs bool, fn func() error) error {
	if s.isClosed() {
		return fmt.Errorf("appending to %s: %w", s.Path(), ErrClosed)
	}
	if !s.Exists() {
		return fn() // the file comes into being under a name that nobody knows
	}
	for try := 0; ; try++ {
		err := s.locked(ctx, asIs, fn)
		if !errors.Is(err, errAway) || try == maxHops {
			return err
		}
		// Without the lock: who moves the log, or goes on with that, needs it.
		if err := s.follow(ctx); err != nil {
			return err
		}
	}
}

// locked is exclusive for a log that stays where it is. The error matches errAway
// when it was moved before the lock was taken.
func (s *Session) locked(ctx context.Context, asIs bool, fn func() error) error {
	w := &s.writer
	path := s.Path()
	if w.lock != nil && w.locked != path {
		w.lock.Close()
		w.lock, s.dirSynced = nil, false
	}
	if w.lock == nil {
		lock, err := durable.OpenLock(s.fs, catalog.LockPath(path))
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("its directory was removed: %w", ErrGone)
		}
		if err != nil {
			return fmt.Errorf("appending to %s: %w", path, err)
		}
		w.lock, w.locked = lock, path
	}
	if err := s.manager.lockBehindMove(ctx, w.lock, path); err != nil {
		return fmt.Errorf("appending to %s: %w", path, err)
	}
	err := s.upToDate(ctx, asIs, fn)
	for try := 0; try < maxReplaced && errors.Is(err, errReplaced); try++ {
		err = s.upToDate(ctx, asIs, fn)
	}
	if uerr := w.lock.Unlock(); err == nil && uerr != nil {
		// The entries are written; the lock is freed with its file at the latest.
		s.report(Event{Kind: EventLock, Path: s.Path(), Err: uerr})
	}
	return err
}

// errReplaced says that a program without a lock put another file in the place of
// the one that was looked at, before anything was written.
var errReplaced = fmt.Errorf("%w", ErrGone)

// maxReplaced is how often a writer looks again because of that.
const maxReplaced = 16

// upToDate runs fn when all that is in the file is known. The lock is held.
func (s *Session) upToDate(ctx context.Context, asIs bool, fn func() error) error {
	err := s.catchUp()
	if err == nil && s.Path() != s.writer.locked {
		err = fmt.Errorf("appending to %s: %w", s.writer.locked, errAway) // a reader of ours has followed it
	}
	if err == nil {
		err = s.restoreOwn(ctx)
	}
	if err == nil && !asIs {
		err = s.needsRewrite(ctx)
	}
	if err == nil {
		err = fn()
	}
	return err
}

// known returns what is known of the file. Readers may learn more meanwhile.
func (s *Session) known() state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st
}

// knownFresh is known, and the header that a file without one gets.
func (s *Session) knownFresh() (state, record.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st, s.fresh
}

// lines renders reqs behind each other. Each goes under the one before it, the
// first one under leaf, unless it names its parent.
func (s *Session) lines(dst []byte, reqs []*request, leaf string) []byte {
	now := s.now()
	for _, r := range reqs {
		parent := leaf
		if r.explicit {
			parent = r.parent
		}
		start := len(dst)
		if r.raw != nil {
			dst = append(append(dst, r.raw...), '\n')
		} else {
			at := now
			if !r.at.IsZero() {
				at = r.at
			}
			dst = record.Begin(dst, r.typ, r.id, parent, at)
			dst = append(dst, r.fields...)
			dst = record.Seal(dst, start)
		}
		r.off = int64(start)
		leaf = r.id
	}
	return dst
}

// write appends reqs to the file, or makes it with them.
func (s *Session) write(reqs []*request) error {
	if len(reqs) == 0 {
		return nil
	}
	st := s.known()
	if st.file == nil || st.none {
		return s.create(reqs)
	}
	w := &s.writer
	if w.file == nil {
		f, err := s.fs.OpenFile(s.Path(), os.O_RDWR|os.O_APPEND, 0)
		if err != nil {
			return openError(s.Path(), err)
		}
		if id, err := f.Identify(); err != nil || !id.SameFile(st.id) {
			f.Close()
			return fmt.Errorf("appending to %s: it was replaced just now, try again: %w", s.Path(), errors.Join(err, errReplaced))
		}
		w.file, w.fileID = f, st.id
	}
	if !w.fileID.SameFile(st.id) {
		// A reader of this process has seen another file since we looked.
		return fmt.Errorf("appending to %s: %w", s.Path(), errReplaced)
	}
	reqs, err := s.resolveBeside(&st, reqs)
	if err != nil {
		return err
	}
	before := st.src.size
	buf := w.buf[:0]
	if st.unclosed {
		buf = append(buf, '\n') // whatever stands there stays a line of its own
	}
	buf = s.lines(buf, reqs, st.leaf)
	if cap(buf) <= maxKeptBuffer {
		w.buf = buf
	} else {
		w.buf = nil
	}
	var was durable.Identity
	note := annotates(reqs)
	if note {
		if was, err = w.file.Identify(); err != nil {
			note = false // the session counts as worked on
		}
	}
	if err := s.writeThrough(w.file, buf, before); err != nil {
		return err
	}
	if note {
		asOld(w.file, was, before+int64(len(buf)))
	}
	s.wrote(int64(len(buf)), reqs)

	s.mu.Lock()
	defer s.mu.Unlock()
	last := reqs[len(reqs)-1]
	for i, r := range reqs {
		end := int64(len(buf))
		if i+1 < len(reqs) {
			end = reqs[i+1].off
		}
		s.remember(ownEntry{id: r.id, file: w.file, off: before + r.off, size: int(end - r.off - 1)})
		r.off += before
	}
	if now := &s.st; now.src.size == before {
		if now.unclosed && now.end == before {
			now.end++ // the newline of the header
		}
		now.src.size, now.size = before+int64(len(buf)), before+int64(len(buf))
		now.leaf, now.lastAt, now.leafLast, now.unclosed = last.id, last.off, true, false
	}
	return nil
}

// resolveBeside decides where the entries of AppendBeside go, now that the leaf is
// known and stays.
func (s *Session) resolveBeside(st *state, reqs []*request) ([]*request, error) {
	if !slices.ContainsFunc(reqs, func(r *request) bool { return r.beside }) {
		return reqs, nil
	}
	out := make([]*request, 0, len(reqs)+1)
	parents := map[string]string{} // of out
	leaf := st.leaf
	add := func(r *request) {
		parents[r.id] = leaf
		if r.explicit {
			parents[r.id] = r.parent
		}
		out, leaf = append(out, r), r.id
	}
	for _, r := range reqs {
		if !r.beside {
			add(r)
			continue
		}
		// Up through what is written with it, then through the file.
		at := leaf
		for parent, ok := parents[at]; ok && at != r.parent; parent, ok = parents[at] {
			at = parent
		}
		under := at == r.parent
		if !under {
			var err error
			if under, err = st.descends(at, r.parent); err != nil {
				return nil, fmt.Errorf("appending to %s: %w", s.Path(), err)
			}
		}
		if r.explicit = !under; under {
			add(r)
			continue
		}
		if r.back.id == "" {
			r.back.id = record.NewID()
		}
		r.back.parent, r.back.explicit = leaf, true
		add(r)
		add(r.back)
	}
	return out, nil
}

// maxKeptBuffer is the size up to which the line buffer is reused.
const maxKeptBuffer = 1 << 20

// writeThrough appends buf with one write and makes it durable. On an error the
// file is as before.
func (s *Session) writeThrough(f durable.File, buf []byte, before int64) error {
	n, err := f.Write(buf)
	if err == nil && n < len(buf) {
		err = io.ErrShortWrite
	}
	if err == nil && s.durability == Sync {
		err = f.Sync()
		if err == nil && !s.dirSynced {
			// The name may be as new as the entry, made by another process.
			if err = s.fs.SyncDir(filepath.Dir(s.Path())); err == nil {
				s.dirSynced = true
			}
		}
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("appending to %s: %w", s.Path(), err)
	if terr := s.takeBack(f, before, int64(n)); terr != nil {
		err = fmt.Errorf("%w; and the %d bytes written could not be taken back: %w", err, n, terr)
	}
	return err
}

// takeBack cuts off the n bytes that a failed append left behind before, unless
// a program that takes no lock has written behind them.
func (s *Session) takeBack(f durable.File, before, n int64) error {
	if n == 0 {
		return nil
	}
	id, err := f.Identify()
	if err == nil && id.Size != before+n {
		err = fmt.Errorf("the file is %d bytes long instead of %d", id.Size, before+n)
	}
	if err == nil {
		err = f.Truncate(before)
	}
	if err != nil {
		s.mu.Lock()
		// What stands there now is read at the next look, as anybody's line.
		s.st.unclosed = true
		s.mu.Unlock()
	}
	return err
}

// remember keeps where an entry of ours is. s.mu is held.
func (s *Session) remember(e ownEntry) {
	w := &s.writer
	if len(w.own) >= maxOwn {
		n := copy(w.own, w.own[len(w.own)/2:])
		clear(w.own[n:])
		w.own = w.own[:n]
	}
	w.own = append(w.own, e)
}
