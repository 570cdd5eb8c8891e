// Package writethrough is a blob store that keeps every blob on this machine and sends
// it to a remote store behind the back of its caller.
//
// # What is promised
//
// When Set returns, the blob is in the local store, as safe as that keeps it, and its
// id is in a queue on disk. Workers send what is queued, several blobs at once; kill
// -9, a full disk or days without a network lose nothing: an id leaves the queue after
// the remote has acknowledged the blob, and whoever opens the queue next goes on with
// it. A blob whose arrival is not certain is asked for first, so that it is sent once;
// where the remote cannot be asked (it is no Stater) it may be sent again.
//
// Flush waits until all that was queued before has arrived, and for the Flush of the
// remote. Blobs that cannot go, because the local bytes are damaged or the remote
// refuses them, are set aside, reported by every Flush (UndeliveredError), and tried
// again by the next; they are never dropped. Without a network Flush waits until its
// context ends.
//
// When more than MaxQueued blobs wait, Set waits too, after it has done its work. When
// its context ends before there is room, it returns blobstore.ErrQueueFull: the local
// copy is there, its id is in the queue nevertheless, and will arrive; the error is for
// the caller to slow down, and each blob beyond the limit costs a hundred bytes of
// memory.
//
// Get, Open and GetRange read the local store. What that has not, or has damaged, is
// fetched from the remote, once for all who wait, verified, and kept with SetLocal. A
// GetRange of an absent blob fetches all of it. SetLocal stays here: its blob is not
// queued, until it is Set. In mode Opaque, where it may have other bytes than those that
// are queued, it waits until these have arrived.
//
// Delete removes a blob from the queue, from the remote and from the local store, in
// this order, and fails when one of them cannot. Stat asks the local store, then the
// remote; Walk yields what either has, each blob once.
//
// # Processes
//
// Several processes may share a queue and a local store. All of them add to the queue,
// one of them sends: the one that holds the lock of it, which another takes over when
// that ends. Flush waits for blobs that another process sends. One thing they cannot
// do: a Delete may come while another process sends that very blob; that one then
// deletes it from the remote as soon as it notices, and says so to Report when it
// cannot.
//
// # The queue on disk
//
// A directory of three files, 0600 in 0700: queue (the ids, see internal/idlog), lock,
// and sender.lock. A record that is damaged beyond reading is counted: Flush returns
// ErrQueueDamaged until Reconcile has compared both stores.
//
// A Store works in mode Verified and in mode Opaque, in that of both its stores. In
// mode Opaque nobody can tell damage, and a blob that was stored again before it was sent
// is sent once, as it is then. Safe for concurrent use.
package writethrough

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/writethrough/internal/idlog"
	"github.com/agentrun/agentrun/internal/durable"
)

// Defaults of Options.
const (
	DefaultWorkers    = 4
	DefaultMaxQueued  = 100_000
	DefaultStreamOver = 4 << 20
)

// Options say how a store works. The zero value is the defaults.
type Options struct {
	// Workers is how many blobs are sent at once. 0 means DefaultWorkers.
	Workers int

	// MaxQueued is how many blobs may wait for the remote before Set waits too.
	// 0 means DefaultMaxQueued.
	MaxQueued int

	// StreamOver is the size in bytes above which a blob is streamed between the
	// stores, where both can, and not loaded. 0 means DefaultStreamOver.
	StreamOver int64

	// Sync makes the queue survive power loss, not only the process.
	Sync bool

	// Observer is told what the store does, as layer writethrough. May be nil.
	Observer blobstore.Observer

	// Report is told what goes wrong where no caller waits: an attempt to send
	// that failed and is repeated, a fetched blob that could not be kept. It is
	// called concurrently and must not block. May be nil.
	Report func(error)

	// FS is the file system of the queue; nil means durable.OS. Tests inject
	// faults here.
	FS durable.FS
}

// Store keeps blobs in a local store and sends them to a remote one.
type Store struct {
	local, remote blobstore.Store
	mode          blobstore.Mode
	opts          Options

	log    *idlog.Log
	queue  *queue
	sender *durable.Lock
	refs   refLocks // orders Set, Delete and the keeping of what was fetched
	fetchs fetches

	end      context.CancelFunc
	ended    chan struct{} // closed when no goroutine is left
	closing  sync.Once
	closeErr error
}

var (
	_ blobstore.Store           = (*Store)(nil)
	_ blobstore.Stater          = (*Store)(nil)
	_ blobstore.Walker          = (*Store)(nil)
	_ blobstore.Deleter         = (*Store)(nil)
	_ blobstore.Opener          = (*Store)(nil)
	_ blobstore.RangeReader     = (*Store)(nil)
	_ blobstore.Putter          = (*Store)(nil)
	_ blobstore.BytesPutter     = (*Store)(nil)
	_ blobstore.ExclusiveSetter = (*Store)(nil)
	_ blobstore.StreamSetter    = (*Store)(nil)
	_ blobstore.Moder           = (*Store)(nil)
	_ blobstore.Unwrapper       = (*Store)(nil)
)

// New returns a store around local and remote with its queue in queueDir, which is made
// when it is not there, and begins to send what is queued. Both stores have the same
// mode, else the error matches blobstore.ErrMode. A queue belongs to one pair of
// stores: give each pair a directory of its own. Close frees the store.
func New(local, remote blobstore.Store, queueDir string, opts Options) (*Store, error) {
	mode := blobstore.ModeOf(local)
	if other := blobstore.ModeOf(remote); other != mode {
		return nil, fmt.Errorf("opening a writethrough store: %w: the local store is %v, the remote one %v", blobstore.ErrMode, mode, other)
	}
	if opts.Workers <= 0 {
		opts.Workers = DefaultWorkers
	}
	if opts.MaxQueued <= 0 {
		opts.MaxQueued = DefaultMaxQueued
	}
	if opts.StreamOver <= 0 {
		opts.StreamOver = DefaultStreamOver
	}
	dir, err := filepath.Abs(queueDir)
	if err != nil {
		return nil, fmt.Errorf("opening queue %s: %w", queueDir, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{local: local, remote: remote, mode: mode, opts: opts, queue: newQueue(mode), end: cancel, ended: make(chan struct{})}
	if s.log, err = idlog.Open(ctx, opts.FS, dir, opts.Sync, s.queue); err != nil {
		cancel()
		return nil, fmt.Errorf("opening queue %s: %w", dir, err)
	}
	if s.sender, err = durable.OpenLock(opts.FS, filepath.Join(dir, "sender.lock")); err != nil {
		cancel()
		return nil, fmt.Errorf("opening queue %s: %w", dir, errors.Join(err, s.log.Close()))
	}
	go func() {
		defer close(s.ended)
		s.drain(ctx)
	}()
	return s, nil
}

// Close ends what is being sent, which is tried again when the queue is opened the next
// time, and frees the queue. It does not wait for the queue to be empty: Flush does.
// The stores stay open. Calls after Close fail where they need the queue.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.end()
		<-s.ended
		s.fetchs.close()
		s.closeErr = errors.Join(s.sender.Close(), s.log.Close())
	})
	return s.closeErr
}

// Mode returns the mode of both stores.
func (s *Store) Mode() blobstore.Mode { return s.mode }

// Unwrap returns the local store.
func (s *Store) Unwrap() blobstore.Store { return s.local }

func (s *Store) begin(ctx context.Context, name string) (context.Context, blobstore.Span) {
	return blobstore.Begin(ctx, s.opts.Observer, blobstore.Op{Layer: "writethrough", Name: name})
}

func (s *Store) report(err error) {
	if s.opts.Report != nil {
		s.opts.Report(err)
	}
}

// Set stores the blob here and queues it for the remote. See the package comment for
// what it does when too many wait.
func (s *Store) Set(ctx context.Context, ref blobref.Ref, data []byte) (err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	err = s.change(ctx, ref, func() error {
		if err := s.local.Set(ctx, ref, data); err != nil {
			return err
		}
		return s.enqueue(ctx, ref)
	})
	if err != nil {
		return err
	}
	return s.waitForRoom(ctx, ref)
}

// change runs do while no other call changes the local copy of ref, and lets nothing be
// kept that was fetched before.
func (s *Store) change(ctx context.Context, ref blobref.Ref, do func() error) error {
	s.fetchs.outdate(ref) // which ends one that holds the lock
	unlock, err := s.refs.lock(ctx, ref)
	if err != nil {
		return err
	}
	defer unlock()
	defer s.fetchs.outdate(ref) // also what began to be fetched since
	return do()
}

// enqueue writes down that the blob, which is in the local store, has to go.
func (s *Store) enqueue(ctx context.Context, ref blobref.Ref) error {
	err := s.log.Update(ctx, func() []idlog.Record {
		// Only here: what was known before may be old, and another process have sent
		// the blob since, and deleted it.
		if s.queue.queued(ref) {
			return nil
		}
		return []idlog.Record{{Kind: idlog.Queued, Ref: ref}}
	})
	if err != nil {
		return fmt.Errorf("queueing %s for the remote store (the local copy is stored; store it again): %w", ref, err)
	}
	return nil
}

func (s *Store) waitForRoom(ctx context.Context, ref blobref.Ref) error {
	for {
		room := s.queue.full(s.opts.MaxQueued)
		if room == nil {
			return nil
		}
		if err := s.await(ctx, room); err != nil {
			return fmt.Errorf("storing %s: %w (it is stored here and queued; more than %d wait): %w", ref, blobstore.ErrQueueFull, s.opts.MaxQueued, err)
		}
	}
}

// Flush waits until the remote has all that was queued before the call. Errors match
// UndeliveredError for blobs that cannot go, ErrQueueDamaged, what the remote's own
// Flush returns, and the error of the context.
func (s *Store) Flush(ctx context.Context) (err error) {
	ctx, span := s.begin(ctx, "flush")
	defer func() { span.End(err) }()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("flushing: %w", err)
	}
	if err := s.local.Flush(ctx); err != nil {
		return fmt.Errorf("flushing the local store: %w", err)
	}
	// Parked blobs are tried again; this also hears of other processes' blobs.
	if err := s.log.Update(ctx, s.queue.parkedRecords); err != nil {
		return fmt.Errorf("flushing the queue: %w", err)
	}
	w := s.queue.wait()
	err = s.await(ctx, w.done)
	if left := s.queue.forget(w); err != nil {
		err = fmt.Errorf("waiting for %d blobs to reach the remote store: %w%s", left, err, s.queue.lastFailure())
	}
	if len(w.undel.Refs) > 0 {
		err = errors.Join(err, &w.undel)
	}
	if s.queue.damage() > 0 {
		err = errors.Join(err, ErrQueueDamaged)
	}
	if rerr := s.remote.Flush(ctx); rerr != nil {
		err = errors.Join(err, fmt.Errorf("flushing the remote store: %w", rerr))
	}
	return err
}
