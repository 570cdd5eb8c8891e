package session

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// Durability is what an append has outlived when it returns.
type Durability uint8

const (
	// Sync survives power loss: the entry is fsynced, its blobs before it.
	Sync Durability = iota
	// Flush survives the death of the process: the kernel has the entry.
	Flush
)

// Session is an open session log. See the package comment for what it promises.
type Session struct {
	place      atomic.Pointer[string] // of the plain file, whether it is there or not; see Path
	fs         durable.FS
	blobs      blobs
	durability Durability
	now        func() time.Time
	report     func(Event)
	readOnly   bool
	manager    *Manager
	quota      Quota     // nil without one
	cited      citations // of quota
	redactor   *redact.Redactor

	// fresh is the header to write when the file has none. mu guards it.
	fresh record.Header

	queue     commitQueue
	spare     []*group // of the leader of queue
	writer    writer   // of the leader of queue; own is guarded by mu as well
	dirSynced bool     // of the leader of queue
	pins      pins

	mu        sync.Mutex // guards all below; never held while waiting for a lock or a disk flush
	st        state
	replaced  bool // another program's file took the place of ours; see restoreOwn
	closed    bool
	founding  *durable.Lock // held until the file is there; see Manager.Continue
	pending   []string      // ids of what the writer could not write yet; never changed
	tree      *Tree         // cached, immutable
	ctxPath   *pathCache
	index     *index // to write at Close; nil when nothing was learnt
	artifacts artifactMark
	given     titleMark
}

// EventKind says what an Event is about.
type EventKind string

const (
	// EventRestored: another program's rewrite had dropped entries of ours; they
	// were appended again.
	EventRestored EventKind = "restored"
	// EventLost: such entries could not be read any more.
	EventLost EventKind = "lost"
	// EventLock: the append lock could not be given back.
	EventLock EventKind = "lock"
	// EventMove: a move that a crash interrupted could not be finished or undone yet,
	// or what is left behind a move could not be removed. The next use of the home
	// tries again.
	EventMove EventKind = "move"
	// EventIndex: a rebuildable index could not be written; the next open is slower.
	EventIndex EventKind = "index"
	// EventRegistry: the registry of the home could not take in a session that lies
	// outside of it, so the home does not know that it exists.
	EventRegistry EventKind = "registry"
	// EventWaiting: a call waits because somebody moves the session, which to another
	// file system takes as long as copying all of it. It is told every LockWait; the
	// context ends the waiting.
	EventWaiting EventKind = "waiting"
	// EventRemoved: the session was moved to the trash while it was open; it goes on
	// there.
	EventRemoved EventKind = "removed"
	// EventMigrated: the log was of version 1 or 2 of the format and was rewritten as
	// one of version 3, which is appended to.
	EventMigrated EventKind = "migrated"
)

// Event is something that a person should know of and that is no error of the
// call during which it was found.
type Event struct {
	Kind EventKind
	Path string   // of the session
	IDs  []string // of entries
	Err  error
	// Version of the format that the log had, for EventMigrated.
	Version int
}

func (e Event) String() string {
	switch e.Kind {
	case EventRestored:
		return fmt.Sprintf("%s: another program rewrote the file without %s of ours; written again", e.Path, plural(len(e.IDs), "entry", "entries"))
	case EventLost:
		return fmt.Sprintf("%s: another program rewrote the file without %s of ours, and they cannot be read any more: %v", e.Path, plural(len(e.IDs), "entry", "entries"), e.IDs)
	case EventMigrated:
		return fmt.Sprintf("%s: the log had version %d of the format, and has version %d now, as pi and oh-my-pi make of it too; its entries are the same", e.Path, max(e.Version, 1), record.Version)
	case EventRemoved:
		return fmt.Sprintf("the session was removed meanwhile: what comes goes to %s in the trash; agentrun sessions restore gives it back", e.Path)
	}
	return fmt.Sprintf("%s: %s: %v", e.Path, e.Kind, e.Err)
}

// ID is the session's id, "" for a file without a header, which gets one with its
// first entry.
func (s *Session) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st.none || s.st.file == nil && s.st.header.ID == "" {
		return s.idOfNew()
	}
	return s.st.header.ID
}

// idOfNew is the id of a session whose file is not written yet. s.mu is held.
func (s *Session) idOfNew() string {
	if s.st.none {
		return "" // what the file will be called inside is not decided for readers
	}
	return s.fresh.ID
}

// Path is where the log is, or will be when its first entry is appended. It changes
// when the session is moved.
func (s *Session) Path() string { return *s.place.Load() }

// Exists reports whether the session has a file yet.
func (s *Session) Exists() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st.file != nil
}

// ArtifactsDir is the directory of the session's artifacts, "" for a log that is
// not called *.jsonl. It may not exist yet. That of a subagent's session that was made
// with CreateNested is its root's.
func (s *Session) ArtifactsDir() string {
	if dir, ok := s.rootArtifacts(); ok {
		return dir
	}
	dir, _ := catalog.ArtifactsDir(s.Path())
	return dir
}

// CWD is the working directory that the session belongs to.
func (s *Session) CWD() string { return s.head().CWD }

// Version is the version of the format that the file has.
func (s *Session) Version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st.image != nil {
		return s.st.image.version
	}
	if s.st.file == nil || s.st.none {
		return record.Version
	}
	return s.st.header.Version
}

// Parent is the session that this one was forked from, by id or, in files of some
// programs, by path; "" if it was not.
func (s *Session) Parent() string { return s.head().ParentSession }

// Created is when the session was made, zero if the file does not tell.
func (s *Session) Created() time.Time {
	t, _ := record.ParseTime([]byte(s.head().Timestamp))
	return t
}

// Home is the home that holds the session's blobs.
func (s *Session) Home() string { return s.manager.home }

func (s *Session) head() record.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st.file == nil || s.st.none {
		return s.fresh
	}
	return s.st.header
}

// Leaf is the id of the last entry, "" when there is none. It looks at the file
// first.
func (s *Session) Leaf(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.look(ctx); err != nil {
		return "", err
	}
	return s.st.leaf, nil
}

func (s *Session) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// writable says why nothing can be appended, if so.
func (s *Session) writable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("appending to %s: %w", s.Path(), err)
	}
	if s.readOnly {
		return fmt.Errorf("appending to %s: it was opened for reading: %w", s.Path(), ErrReadOnly)
	}
	return nil
}

// knows refuses a parent that is no entry of the session.
func (s *Session) knows(ctx context.Context, id string) error {
	s.mu.Lock()
	known := s.st.leaf == id
	known = known || slices.Contains(s.pending, id)
	for i := len(s.writer.own) - 1; i >= 0 && !known; i-- {
		known = s.writer.own[i].id == id
	}
	s.mu.Unlock()
	if known {
		return nil
	}
	t, err := s.Tree(ctx)
	if err != nil {
		return err
	}
	if t.Find(id) < 0 {
		return fmt.Errorf("appending to %s: parent %q: %w", s.Path(), id, ErrNoEntry)
	}
	return nil
}

// Flush writes the entries that an earlier append could not write. Without such
// entries it does nothing.
func (s *Session) Flush(ctx context.Context) error {
	if err := s.writable(ctx); err != nil {
		return err
	}
	g := &group{wake: make(chan wake, 1)}
	return s.submit(ctx, g)
}

// Close writes what is pending, what another program's rewrite has dropped
// meanwhile, and the index of a large session, and frees the session's files. It
// returns the *PendingError of entries that are lost with it. Close of a closed session does nothing.
func (s *Session) Close() error {
	if s.isClosed() {
		return nil
	}
	if s.readOnly {
		s.shut()
		return nil
	}
	// It takes its turn in the queue: what the writer holds is its leader's.
	return s.submit(context.Background(), &group{wake: make(chan wake, 1), closes: true})
}

// shut frees what the session holds. Only the leader of the commit queue calls
// it, or nobody writes.
func (s *Session) shut() {
	defer s.unpin()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.saveIndex()
	s.founded()
	s.closed = true
	if s.writer.lock != nil {
		s.writer.lock.Close()
	}
	if s.writer.file != nil {
		s.writer.file.Close()
	}
	s.st.close()
}

// prepareHome marks a home as ours before something of ours is in it.
func (s *Session) prepareHome() error { return s.manager.mark() }
