// Package notify waits until something may have changed in a directory.
//
// The kernel tells (inotify, by fsnotify) where it can. It does not tell of what
// other hosts do on a network file system, and gives a user a bounded number of
// instances and watches (fs.inotify.max_user_instances, 128 by default): there a
// Watcher looks again every [Interval]. Where the kernel tells it looks as well, every
// [Check], so that an event that got lost delays and never loses anything.
//
// A return of Wait is a hint, never more: who waits looks at the files and decides.
// Nothing here costs the process that changes the files anything.
package notify

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// How often a Watcher looks again by itself.
const (
	Interval = 50 * time.Millisecond // where nobody tells of changes
	Check    = 2 * time.Second       // where the kernel does
)

// Watcher waits for changes in directories. It belongs to one goroutine and must be
// closed.
type Watcher struct {
	kernel *fsnotify.Watcher // nil where there is none to be had
	dirs   map[string]bool   // whether the kernel tells of all that happens there
}

// Open returns a Watcher of no directory. It never fails: without inotify it looks.
// With poll it does so even where the kernel would tell.
func Open(poll bool) *Watcher {
	w := &Watcher{dirs: map[string]bool{}}
	if poll {
		return w
	}
	if k, err := fsnotify.NewWatcher(); err == nil {
		w.kernel = k
	}
	return w
}

// Add watches one more directory. It may be added again, and has to be when it was
// removed and made anew, or another one was put in its place.
func (w *Watcher) Add(dir string) {
	told := false
	if w.kernel != nil && !remote(dir) {
		told = w.kernel.Add(dir) == nil
	}
	w.dirs[dir] = told
}

// Only watches these directories and no others.
func (w *Watcher) Only(dirs ...string) {
	for old := range w.dirs {
		keep := false
		for _, dir := range dirs {
			keep = keep || dir == old
		}
		if !keep {
			if w.kernel != nil {
				_ = w.kernel.Remove(old) // it may be gone by itself
			}
			delete(w.dirs, old)
		}
	}
	for _, dir := range dirs {
		if !w.dirs[dir] {
			w.Add(dir)
		}
	}
}

// Told reports whether the kernel tells of all that happens in the directories.
func (w *Watcher) Told() bool {
	for _, told := range w.dirs {
		if !told {
			return false
		}
	}
	return true
}

// Wait returns when a file whose path is of interest may have changed, and when it is
// time to look again. The error is that of ctx.
func (w *Watcher) Wait(ctx context.Context, interest func(path string) bool) error {
	pause := Check
	if !w.Told() {
		pause = Interval
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	var events chan fsnotify.Event
	var errs chan error
	if w.kernel != nil {
		events, errs = w.kernel.Events, w.kernel.Errors
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			return nil
		case <-errs:
			return nil // events were dropped, or worse: look at the files
		case ev := <-events:
			if _, watched := w.dirs[ev.Name]; watched && ev.Op.Has(fsnotify.Remove|fsnotify.Rename) {
				w.dirs[ev.Name] = false // the directory itself is gone, and its watch with it
				return nil
			}
			if interest(filepath.Clean(ev.Name)) {
				w.drain()
				return nil
			}
		}
	}
}

// drain takes what has come by now: one look at the files answers all of it.
func (w *Watcher) drain() {
	for {
		select {
		case ev := <-w.kernel.Events:
			if _, watched := w.dirs[ev.Name]; watched && ev.Op.Has(fsnotify.Remove|fsnotify.Rename) {
				w.dirs[ev.Name] = false
			}
		default:
			return
		}
	}
}

// Close frees what the Watcher holds.
func (w *Watcher) Close() {
	if w.kernel != nil {
		_ = w.kernel.Close() // there is nothing to be done about it
	}
}

// remoteTypes are file systems that others change without our kernel's knowledge
// (f_type of statfs(2)).
var remoteTypes = map[int64]bool{
	unix.NFS_SUPER_MAGIC:  true,
	unix.SMB_SUPER_MAGIC:  true,
	unix.SMB2_SUPER_MAGIC: true,
	unix.CIFS_SUPER_MAGIC: true,
	unix.CEPH_SUPER_MAGIC: true,
	unix.AFS_SUPER_MAGIC:  true,
	unix.AFS_FS_MAGIC:     true,
	unix.CODA_SUPER_MAGIC: true,
	unix.V9FS_MAGIC:       true, // shared with the host of a virtual machine
	unix.FUSE_SUPER_MAGIC: true, // sshfs, and many a local one: looking is right for both
}

func remote(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) != nil || remoteTypes[int64(uint32(st.Type))]
}
