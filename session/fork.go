package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// ForkOptions say what a fork takes over. The zero value takes everything.
type ForkOptions struct {
	// At is the entry that the fork ends with; "" means the last one. The fork then
	// is the log as it was when At was its last entry: nothing that was written
	// later, other branches before it included.
	At string
	// PathOnly leaves out everything but the entries from the root to At, or to the
	// leaf, and the labels of those. Of artifacts, outputs of agents and sessions of
	// subagents it leaves out those that none of these entries cites.
	PathOnly bool
	// Progress is told, from the calling goroutine, how many files of how many beside
	// the log are done; nil means that nobody is.
	Progress func(done, total int)
}

// Forked describes a new session that goes on from another one.
type Forked struct {
	ID   string
	Path string // of the log
	// Parent is what its header names as the session it came from: its id, or with
	// PathOnly the path of its log, as oh-my-pi has it.
	Parent    string
	Artifacts artifacts.Cloned
}

// Fork makes a new session, beside the log at path, that goes on from it: with an id
// of its own, the same title and entries under the same ids, every line to the byte.
// Images and long strings stay where they are, in the blob store. Artifacts, outputs
// of agents and sessions of subagents come along as artifacts.Clone says; a file that
// could not is in Forked.Artifacts.Failed, and is no error.
//
// The session may be written to meanwhile: the fork has a prefix of it, of whole
// lines, and every artifact that those cite. Damaged stretches within are taken over,
// a last line that was never finished is not. The log is published last, and whole: a
// crash leaves no fork, or a directory that belongs to no session.
//
// A session without entries, and one of a version that is not understood here, is
// refused; an entry that there is not with an error that matches ErrNoEntry.
func (m *Manager) Fork(ctx context.Context, path string, o ForkOptions) (Forked, error) {
	s, err := m.View(ctx, path)
	if err != nil {
		return Forked{}, err
	}
	defer s.Close()
	forked, err := s.fork(ctx, o)
	if err != nil {
		return Forked{}, fmt.Errorf("forking %s: %w", s.Path(), err)
	}
	return forked, nil
}

func (s *Session) fork(ctx context.Context, o ForkOptions) (Forked, error) {
	st, err := s.prefix(ctx)
	if err != nil {
		return Forked{}, err
	}
	switch {
	case st.file == nil || st.none || st.leaf == "":
		return Forked{}, errors.New("it has no entries yet; start a new session with agentrun sessions new")
	case !st.header.Writable():
		return Forked{}, fmt.Errorf("it has version %s of the format, and this program writes up to %d; update agentrun: %w",
			versionText(st.header), record.Version, ErrReadOnly)
	}
	cut, err := s.cut(ctx, st, o)
	if err != nil {
		return Forked{}, err
	}
	child, err := s.sibling(st)
	if err != nil {
		return Forked{}, err
	}
	size := cut.size() + int64(len(st.line))
	if s.quota != nil {
		if err := s.quota.Log(0, size); err != nil {
			return Forked{}, err
		}
	}
	child.fresh.ParentSession = st.header.ID
	if o.PathOnly {
		child.fresh.ParentSession = s.Path()
	}
	if cut.title != "" {
		child.fresh.Title = cut.title
	}
	forked := Forked{ID: child.fresh.ID, Path: child.Path(), Parent: child.fresh.ParentSession}
	// Behind the look at the log: what it cites by then is there.
	if forked.Artifacts, err = s.cloneArtifacts(ctx, child, cut, o); err != nil {
		return Forked{}, err
	}
	if s.quota != nil {
		if err := s.quota.Arrive(0, forked.Artifacts.Bytes, forked.Artifacts.Shared, false); err != nil {
			s.quota.Logged(-size)
			child.discardArtifacts()
			return Forked{}, err
		}
	}
	child.registerFork(ctx, cut)
	if child.fresh.KeepTitle = cut.untitled; o.At == "" && !o.PathOnly {
		if err := s.keepTitle(ctx, st, &child.fresh); err != nil {
			child.discardArtifacts()
			return Forked{}, err
		}
	}
	header := child.fresh.AppendLine(nil)
	if err := child.publish(func(w io.Writer) error { return cut.write(ctx, w, header) }); err != nil {
		child.discardArtifacts()
		return Forked{}, fmt.Errorf("writing %s: %w", child.Path(), err)
	}
	return forked, nil
}

// discardArtifacts removes what was cloned for a log that could not be written. The
// error that came first is the one to report; what cannot be removed belongs to no
// session and is collected.
func (s *Session) discardArtifacts() {
	if _, err := s.fs.Identify(s.Path()); errors.Is(err, fs.ErrNotExist) {
		_ = durable.RemoveAll(s.fs, s.ArtifactsDir())
	}
}

// prefix is what is in the file at a moment when no process that takes the lock
// writes to it. Where the lock cannot be taken, because the directory is another
// user's or the disk is full, the end may be a line that is being written.
func (s *Session) prefix(ctx context.Context) (state, error) {
	if lock, err := durable.OpenLock(s.fs, catalog.LockPath(s.Path())); err == nil {
		defer lock.Close()
		if err := lock.Lock(ctx, LockWait); err != nil {
			return state{}, err
		}
	}
	return s.snapshot(ctx)
}

// sibling is the session that the fork will be: beside this one, with its header
// under another id.
func (s *Session) sibling(st state) (*Session, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("making a session id: %w", err)
	}
	now := s.now()
	name, err := catalog.FileName(now, id.String())
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(s.Path())
	if s.nested() && st.header.CWD != "" {
		if dir, _, err = s.manager.placeFor(st.header.CWD); err != nil {
			return nil, err
		}
	}
	child := s.manager.newSession(filepath.Join(dir, name))
	h := st.header
	h.ID, h.Timestamp = id.String(), record.NewHeader("", "", now).Timestamp
	h.PreviousSessionFiles = nil // of the other file
	h.ArtifactRoot = record.ArtifactRoot{}
	if st.hasSlot {
		h.Title, h.TitleSource = st.slot.Title, st.slot.Source
	}
	child.fresh = h
	return child, nil
}

// maxMoves is how often the artifacts are looked for again when the session is moved
// meanwhile.
const maxMoves = 16

// cloneArtifacts brings along what lies beside the log.
func (s *Session) cloneArtifacts(ctx context.Context, child *Session, cut *cut, o ForkOptions) (artifacts.Cloned, error) {
	if s.ArtifactsDir() == "" {
		return artifacts.Cloned{}, nil
	}
	to := child.ArtifactsDir()
	if err := s.manager.makeDir(filepath.Dir(to)); err != nil {
		return artifacts.Cloned{}, err
	}
	for try := 0; ; try++ {
		from, _, err := s.LocateArtifacts(ctx, true)
		if err != nil {
			return artifacts.Cloned{}, err
		}
		if cut.cites != nil {
			if err := s.followAgents(ctx, from, cut.cites); err != nil {
				return artifacts.Cloned{}, err
			}
		}
		cloned, err := artifacts.Clone(ctx, from, to, artifacts.CloneOptions{
			Sync: s.durability == Sync, Now: s.now, FS: s.fs, Progress: o.Progress, Only: cut.cites,
			Cited: func(ctx context.Context, used map[int64]bool) ([]artifacts.Untraced, error) {
				return s.untraced(ctx, cut, to, used) // what is nested has come along by then
			},
		})
		now, settled, lerr := s.LocateArtifacts(ctx, false)
		// It may have been away and come back: then something is missing, or all.
		away := (cloned.Vanished || errors.Is(err, fs.ErrNotExist)) && try < maxMoves && there(s.fs, from)
		if lerr == nil && settled && now == from && !away {
			return cloned, err
		}
		if err == nil {
			child.discardArtifacts()
		}
		if lerr != nil || ctx.Err() != nil || try == maxMoves {
			return artifacts.Cloned{}, errors.Join(errors.New("it was moved meanwhile, try again"), lerr, ctx.Err())
		}
	}
}

// registerFork makes a fork that lies outside of the home known to it before it is there:
// the collector reads there which blobs it names.
func (s *Session) registerFork(ctx context.Context, cut *cut) {
	if s.manager.holds(s.Path()) {
		return
	}
	if err := s.prepareHome(); err != nil {
		s.report(Event{Kind: EventRegistry, Path: s.Path(), Err: err})
		return
	}
	line := registryLine{Session: s.Path(), Since: s.now().UTC().Format(time.RFC3339), Size: max(cut.size(), 1)}
	if err := s.manager.appendRegistry(ctx, line); err != nil {
		s.report(Event{Kind: EventRegistry, Path: s.Path(), Err: err})
	}
}

// origin is the id of the session that this one was forked from, "" when it was not or
// its header names a path that does not tell.
func (st *state) origin() string {
	parent := st.header.ParentSession
	if _, id, ok := catalog.ParseFileName(filepath.Base(parent)); ok {
		return id
	}
	return parent
}
