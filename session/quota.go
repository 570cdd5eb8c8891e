package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/session/internal/persist"
)

// Quota is asked before an entry is accepted. An entry that is refused was not
// accepted: it is not pending, and what was accepted before is as it was.
//
// AppendBeside is never refused: it ends something that was let begin.
//
// Its methods may be called by several goroutines at once.
type Quota interface {
	// Log asks for n more bytes in a log that has size bytes.
	Log(size, n int64) error
	// Blob asks for a blob of n bytes for a session that cites blobs of cited bytes
	// besides; fresh says that it is not stored yet.
	Blob(cited, n int64, fresh bool) error
	// Logged tells that logs have grown by n bytes beside what was asked for, or have
	// shrunk: by the end of something that was let begin, by a rewrite.
	Logged(n int64)
	// Arrive asks for a session that comes into the home as a whole, with a log and
	// artifacts of so many bytes. Of the artifacts, shared are other names of files
	// that the home has. back says that the session was in the home before.
	Arrive(log, artifacts, shared int64, back bool) error
}

// envelopeBytes is about what an entry's line holds besides its fields.
const envelopeBytes = 160

// admit asks for room for entries that are about to be queued. Their blobs are
// stored here, because it is known only by then how long the lines will be.
func (s *Session) admit(ctx context.Context, reqs ...*request) error {
	st, header := s.knownFresh()
	n := st.src.size - st.size // more when the log is compressed: it will be a plain one
	if st.file == nil {
		n = int64(len(header.AppendLine(nil)))
	}
	for _, r := range reqs {
		err := s.prepare(ctx, r, true)
		var no *refusal
		if errors.As(err, &no) {
			return fmt.Errorf("appending to %s: %w", s.Path(), no.err)
		}
		// Any other failure is found again, and kept as pending, by whoever writes.
		n += int64(len(r.fields)) + envelopeBytes
	}
	if err := s.quota.Log(st.size, n); err != nil {
		return fmt.Errorf("appending to %s: %w", s.Path(), err)
	}
	reqs[0].asked = n
	return nil
}

// wrote tells the quota how much longer the log is by reqs than was asked for.
func (s *Session) wrote(n int64, reqs []*request) {
	if s.quota == nil {
		return
	}
	for _, r := range reqs {
		n -= r.asked
		r.asked = 0
	}
	if n != 0 {
		s.quota.Logged(n)
	}
}

// admitSession asks the quota for a session that comes into the home, with a log of so many
// bytes and what lies in dir.
func (m *Manager) admitSession(log int64, dir string, back bool) error {
	if m.opts.Quota == nil {
		return nil
	}
	artifacts, shared, err := m.artifactBytes(dir)
	if err != nil {
		return err
	}
	return m.opts.Quota.Arrive(log, artifacts, shared, back)
}

// artifactBytes is how much lies in a directory of artifacts, and how much of it has
// other names. Indexes do not count. What is gone meanwhile holds nothing.
func (m *Manager) artifactBytes(dir string) (all, shared int64, err error) {
	entries, err := m.opts.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			if e.Name() == ".index" { // of artifacts, and rebuildable
				continue
			}
			a, s, err := m.artifactBytes(path)
			if err != nil {
				return 0, 0, err
			}
			all, shared = all+a, shared+s
			continue
		}
		id, err := m.opts.FS.Identify(path)
		if err != nil || !e.Type().IsRegular() {
			continue
		}
		if all += id.Size; id.Links > 1 {
			shared += id.Size
		}
	}
	return all, shared, nil
}

// refusal is a no of the quota to a blob.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// citations are the blobs that a session cites. It is read from the log once, when
// a quota asks; what other processes append since is not among it.
type citations struct {
	mu    sync.Mutex
	read  bool
	refs  map[blobref.Ref]bool
	bytes int64
}

// admitBlob stores a blob if the quota has room for it.
func (s *Session) admitBlob(ctx context.Context, data []byte) (blobref.Ref, error) {
	ref := blobref.Of(data)
	c := &s.cited
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.readCitations(ctx); err != nil {
		return blobref.Ref{}, err
	}
	if !c.refs[ref] {
		_, stored := s.blobSize(ctx, ref)
		if err := s.quota.Blob(c.bytes, int64(len(data)), !stored); err != nil {
			return blobref.Ref{}, &refusal{err}
		}
	}
	got, err := s.putBlob(ctx, data)
	if err == nil && !c.refs[ref] {
		c.refs[ref], c.bytes = true, c.bytes+int64(len(data))
	}
	return got, err
}

// readCitations fills s.cited, whose lock is held.
func (s *Session) readCitations(ctx context.Context) error {
	c := &s.cited
	if c.read {
		return nil
	}
	st, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	refs, total := map[blobref.Ref]bool{}, int64(0)
	if st.file != nil && !st.none {
		err = eachForward(ctx, st.src, st.end, st.src.size, func(line []byte, _ int64) bool {
			for _, ref := range persist.Refs(line) {
				if !refs[ref] {
					refs[ref] = true
					size, _ := s.blobSize(ctx, ref)
					total += size
				}
			}
			return true
		})
	}
	if err != nil {
		return fmt.Errorf("reading which blobs %s cites: %w", s.Path(), err)
	}
	c.read, c.refs, c.bytes = true, refs, total
	return nil
}

// blobSize is the size of a blob that is stored. A store that does not tell has
// none, and then everything counts as new.
func (s *Session) blobSize(ctx context.Context, ref blobref.Ref) (int64, bool) {
	st, ok := blobstore.As[blobstore.Stater](s.blobs)
	if !ok {
		return 0, false
	}
	info, err := st.Stat(ctx, ref)
	return info.Size, err == nil
}
