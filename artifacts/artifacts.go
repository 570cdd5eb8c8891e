// Package artifacts keeps the files beside a session: the whole output of tools
// that was too long for the log (artifact://<n>) and what subagents hand back
// (agent://<id>).
//
// # The directory
//
// The session <stem>.jsonl has its artifacts in <stem>/, made on first use:
//
//	<n>.<tool>.log         output of a tool, to the byte      artifact://<n>
//	<n>.missing            artifact n stayed behind, and why
//	<id>.md                output of a subagent               agent://<id>
//	<id>.json              the same output as JSON
//	<id>.v2.md             output of that subagent, revived   agent://<id>.v2
//	<id>.jsonl             the subagent's own session
//	.artifact-<n>.json     who wrote artifact n, and how it ended
//	.artifacts-<n>-<crc>.json  the same of many artifacts, in a fork
//	.agent-<id>.json       who reserved the id
//	.index/<n>.idx         line index of artifact n
//	.index/next            numbers handed out so far
//	.index/lock            taken while a number is taken
//
// Visible names and the cleaning of tool names are those of oh-my-pi, which
// reads and writes the same directory and ignores the rest. Everything in
// .index can be removed at any time.
//
// # Promises
//
//   - A number is taken once: not by another process or goroutine, not after a
//     resume, not after its file was removed. It is one more than the highest in
//     any file name, in the session's log, and in .index/next; it is claimed by
//     an exclusive create under the directory's lock. Numbers are taken when
//     there is output to keep, not before.
//   - A lookup serves only a regular file <n>.<tool>.log, never a link, a
//     directory, a temporary, a patch, or an agent whose name begins alike. It
//     lists the directory only for a number it has not seen.
//   - An agent's output is written once. Writing again makes a new version; the
//     old ones stay. One space of ids serves a whole tree of subagents, who
//     share the root session's Dir.
//   - Two files of one number (programs without a lock can make 1.bash.log and
//     1.zsh.log): the one its provenance names is served, else the first by
//     name, every time.
//
// # Crashes and faults
//
// A crash while an artifact is written leaves the bytes written so far, and a
// provenance that says so: State reports it as interrupted once the writer is
// gone. A crash while a number is taken may leave the provenance alone; that
// number is not used again. Output of agents appears whole or not at all. With
// Options.Sync, Finish and WriteAgent return after the data and its name are on
// the disk.
//
// A Dir is safe for concurrent use, and any number of Dirs, in any number of
// processes, may share a directory. A File or Reader belongs to one goroutine,
// except where its methods say otherwise.
package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
)

// LockWait is how long taking a number waits for other processes.
const LockWait = 10 * time.Second

// DefaultMaxJSON is the largest structured output of an agent that AgentJSON
// loads, in bytes.
const DefaultMaxJSON = 64 << 20

// Options say how a Dir keeps its files. The zero value is ready for use.
type Options struct {
	// Sync makes Finish and WriteAgent durable: they return after an fsync of
	// the data and of its directory.
	Sync bool
	// LoggedMax returns the highest artifact number that the session's log
	// names, -1 for none. It is asked whenever a number is taken; nil means that
	// there is no log to ask.
	LoggedMax func(ctx context.Context) (int64, error)
	// Where is asked when something is written, and when the directory is not where it
	// was: the session may have been moved. nil means that it never is.
	Where Locator
	// MaxJSON bounds what AgentJSON loads, in bytes; 0 means DefaultMaxJSON.
	MaxJSON int64
	// Quota is asked before bytes are kept in dir, which is the path of the Dir. It
	// returns how many of n there is room for; with fewer than n comes the error that
	// says why. A negative n gives back what was granted and not used. nil has room for
	// all.
	Quota func(dir string, n int64) (granted int64, err error)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// FS is the file system; nil means durable.OS. Tests inject faults here.
	FS durable.FS
}

// Dir is the artifact directory of one session.
type Dir struct {
	place atomic.Pointer[string] // see Path
	opt   Options
	fs    durable.FS

	turn      chan struct{}            // full while a goroutine has the lock, or is the one that waits for other processes
	listing   sync.Mutex               // held by the one goroutine that lists
	seen      atomic.Pointer[snapshot] // what the last listing found
	published atomic.Bool              // the directory's own name was fsynced

	packsMu sync.Mutex // guards packs
	packs   map[string]map[int64]sidecar
}

// Open returns the artifact directory at path. It touches nothing: the directory
// is made by the first write.
func Open(path string, opt Options) *Dir {
	d := &Dir{opt: opt, fs: opt.FS, turn: make(chan struct{}, 1)}
	d.place.Store(&path)
	if d.fs == nil {
		d.fs = durable.OS
	}
	if d.opt.Now == nil {
		d.opt.Now = time.Now
	}
	if d.opt.MaxJSON == 0 {
		d.opt.MaxJSON = DefaultMaxJSON
	}
	return d
}

// Path is where the directory is or will be.
func (d *Dir) Path() string { return *d.place.Load() }

// sentence is an error whose whole text is meant for a person.
type sentence string

func (s sentence) Error() string { return string(s) }

// ErrNoDirectory is returned for every lookup before anything was written. The
// wording is that of oh-my-pi, which models know.
var ErrNoDirectory error = sentence("No artifacts directory found")

// ErrNotFound matches every error about an artifact or agent output that is not
// there.
var ErrNotFound = errors.New("not found")

// exists checks that the directory is there and is one. A directory that was moved
// since is found again, and one that is being moved is waited for: its log is at the
// new place before it.
func (d *Dir) exists(ctx context.Context) (durable.Identity, error) {
	id, err := d.fs.Identify(d.Path())
	if errors.Is(err, fs.ErrNotExist) && d.opt.Where != nil {
		path, settled, lerr := d.opt.Where.LocateArtifacts(ctx, false)
		if lerr == nil && !settled {
			path, _, lerr = d.opt.Where.LocateArtifacts(ctx, true)
		}
		if lerr == nil {
			d.follow(path)
			id, err = d.fs.Identify(d.Path())
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return id, ErrNoDirectory
	}
	if err != nil {
		return id, fmt.Errorf("looking at the artifacts directory: %w", err)
	}
	if !isDir(id) {
		return id, fmt.Errorf("%s is not a directory; move it away to keep artifacts there", d.Path())
	}
	return id, nil
}

func (d *Dir) join(name string) string { return filepath.Join(d.Path(), name) }

func (d *Dir) index(name string) string { return filepath.Join(d.Path(), indexDir, name) }

// lock makes the directory if it is not there and takes its lock, which release
// gives back. The directory stays where it is until then.
func (d *Dir) lock(ctx context.Context) (release func(), err error) {
	if err := d.await(ctx); err != nil {
		return nil, err
	}
	unlock, err := d.lockOut(ctx)
	if err != nil {
		<-d.turn
		return nil, err
	}
	return func() { unlock(); <-d.turn }, nil
}

// await waits for the turn of this goroutine: of many only one is to poll for the lock, so that it goes from one to the next
// at once.
func (d *Dir) await(ctx context.Context) error {
	select {
	case d.turn <- struct{}{}:
		return nil
	default:
	}
	timeout := time.NewTimer(LockWait)
	defer timeout.Stop()
	select {
	case d.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("locking %s: %w", d.index("lock"), ctx.Err())
	case <-timeout.C:
		return fmt.Errorf("locking %s: waited %s: %w", d.index("lock"), LockWait, durable.ErrLockTimeout)
	}
}

// lockOut takes the lock of the directory from other processes.
func (d *Dir) lockOut(ctx context.Context) (release func(), err error) {
	for try := 0; ; try++ {
		if err := d.locate(ctx); err != nil {
			return nil, err
		}
		l, err := d.hold(ctx)
		if err == nil {
			if err = d.stays(ctx, l); err == nil {
				return func() { _ = l.Close() }, nil // the kernel frees it with the descriptor
			}
			_ = l.Close() // the first error is the one to report
		}
		if errors.Is(err, durable.ErrLockTimeout) && d.isMoving(ctx) {
			continue // locate waits for that, and says so
		}
		if !errors.Is(err, errMoved) || try >= maxMoves {
			return nil, err
		}
	}
}

// isMoving reports whether somebody moves the directory, and so has its lock.
func (d *Dir) isMoving(ctx context.Context) bool {
	if d.opt.Where == nil {
		return false
	}
	_, settled, err := d.opt.Where.LocateArtifacts(ctx, false)
	return err == nil && !settled
}

// hold makes the directory if it is not there and takes its lock.
func (d *Dir) hold(ctx context.Context) (*durable.Lock, error) {
	if err := d.make(ctx); err != nil {
		return nil, err
	}
	l, err := durable.OpenLock(d.fs, d.index("lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errMoved, err)
	}
	if err != nil {
		return nil, err
	}
	if err := l.Lock(ctx, LockWait); err != nil {
		_ = l.Close() // the first error is the one to report
		return nil, err
	}
	return l, nil
}

func (d *Dir) make(ctx context.Context) error {
	index := filepath.Join(d.Path(), indexDir)
	if id, err := d.fs.Identify(index); err == nil && isDir(id) {
		_, err := d.exists(ctx)
		return err
	}
	if err := durable.MkdirAll(d.fs, d.Path()); err != nil {
		return err
	}
	if _, err := d.exists(ctx); err != nil { // a symbolic link passes MkdirAll
		return err
	}
	if err := durable.MkdirAll(d.fs, index); err != nil {
		return err
	}
	if id, err := d.fs.Identify(index); err != nil {
		return err
	} else if !isDir(id) {
		return fmt.Errorf("%s is not a directory; remove it, it holds nothing that cannot be rebuilt", index)
	}
	return nil
}

// publish makes the directory's own name durable, once.
func (d *Dir) publish() error {
	if d.published.Load() {
		return nil
	}
	if err := d.fs.SyncDir(filepath.Dir(d.Path())); err != nil {
		return fmt.Errorf("syncing the directory of %s: %w", d.Path(), err)
	}
	d.published.Store(true)
	return nil
}
