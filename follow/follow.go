// Package follow yields what happens in a session while other processes work on it:
// every entry, and the bytes of artifacts as they come.
//
// # What is promised
//
//   - Every entry behind the one to begin with is yielded once and in the order of the
//     file, across rewrites by other programs, compression, truncation and moves of the
//     log. Entries are whole: images and long strings are put back. See
//     session.Session.Watch.
//   - The bytes of an artifact are yielded in order and without a gap. Of artifacts
//     that are being written when following begins those behind that moment are, of
//     later ones all. What an artifact holds comes before the entry that the run ends
//     with. An artifact that drops bytes of its middle to stay within a limit is
//     yielded as it stands: Chunk.Offset then goes back.
//   - The writers do not notice: they take no other lock and make no other system call
//     than without followers.
//
// An entry comes within a few milliseconds where the kernel tells of changes; without
// inotify, and on network file systems, within 50.
package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/notify"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// Event is an entry or a piece of an artifact.
type Event struct {
	Entry entry.Entry // when Chunk is nil
	Chunk *Chunk
}

// Chunk is a piece of an artifact. Data is valid until the next event.
type Chunk struct {
	ID     int64
	Offset int64 // of Data in the file
	Data   []byte
}

// URL is how the artifact is read within its session.
func (c *Chunk) URL() string { return fmt.Sprintf("artifact://%d", c.ID) }

// Options say what to follow. The zero value is every entry of the session and no
// artifact.
type Options struct {
	Since     string // the entry behind which it begins; "" is the first one
	Artifacts bool   // also the bytes of artifacts
	Poll      bool   // look by itself even where the kernel would tell
}

// chunkBytes is how much of an artifact is yielded at once.
const chunkBytes = 64 << 10

// Session yields what happens in s until ctx is done, which is no error. An error ends
// the sequence; it matches session.ErrNoEntry when there is no entry Since, and
// session.ErrGone when the session was removed. s is used by nobody else meanwhile.
func Session(ctx context.Context, s *session.Session, o Options) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		f := &follower{s: s, o: o, entries: make(chan result), changed: make(chan struct{}, 1), yield: yield}
		defer f.running.Wait()
		defer f.close()
		defer cancel() // first: it ends the goroutines
		if err := f.run(ctx); err != nil && ctx.Err() == nil {
			yield(Event{}, fmt.Errorf("following %s: %w", s.Path(), err))
		}
	}
}

// errStopped ends a run when who receives has enough.
var errStopped = errors.New("stopped")

// result is what the log has told.
type result struct {
	entry entry.Entry
	err   error
}

// follower is one sequence on its way.
type follower struct {
	s       *session.Session
	o       Options
	yield   func(Event, error) bool
	entries chan result
	changed chan struct{} // something about artifacts may have changed
	running sync.WaitGroup

	dir  *artifacts.Dir
	path string          // of dir
	done map[int64]bool  // artifacts that are not looked at any more
	open map[int64]*tail // those that may grow
	buf  []byte
}

// tail is how far an artifact was yielded.
type tail struct {
	r  *artifacts.Reader
	at int64
}

func (f *follower) run(ctx context.Context) error {
	if f.o.Artifacts {
		if err := f.begin(ctx); err != nil {
			return err
		}
		f.running.Go(func() { f.watchArtifacts(ctx) })
	}
	f.running.Go(func() { f.watchLog(ctx) })
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.changed:
			if err := f.artifacts(ctx); err != nil {
				return silent(err)
			}
		case r := <-f.entries:
			if err := f.entry(ctx, r); err != nil {
				return silent(err)
			}
		}
	}
}

// silent takes the end that who receives wanted for none.
func silent(err error) error {
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// entry yields an entry, and before it what the artifact holds that it is about.
func (f *follower) entry(ctx context.Context, r result) error {
	if r.err != nil {
		return r.err
	}
	whole, _, err := f.s.Restore(ctx, r.entry)
	if err != nil {
		return err
	}
	if f.o.Artifacts {
		if err := f.artifacts(ctx); err != nil {
			return err
		}
	}
	if !f.yield(Event{Entry: whole}, nil) {
		return errStopped
	}
	return nil
}

// watchLog hands over the entries.
func (f *follower) watchLog(ctx context.Context) {
	for e, err := range f.s.Watch(ctx, f.o.Since) {
		select {
		case f.entries <- result{e, err}:
		case <-ctx.Done():
			return
		}
	}
}

// watchArtifacts says when there may be more of artifacts.
func (f *follower) watchArtifacts(ctx context.Context) {
	w := notify.Open(f.o.Poll)
	defer w.Close()
	for {
		dir := f.s.ArtifactsDir()
		if dir == "" {
			return
		}
		// The directory above as well: the one of artifacts comes with the first.
		w.Only(filepath.Dir(dir))
		if exists(dir) {
			w.Only(filepath.Dir(dir), dir)
		}
		select {
		case f.changed <- struct{}{}:
		default: // it is known
		}
		err := w.Wait(ctx, func(path string) bool {
			return path == dir || filepath.Dir(path) == dir && !strings.HasPrefix(filepath.Base(path), ".tmp-")
		})
		if err != nil {
			return
		}
	}
}

// begin takes the artifacts that are there for told, as far as they go.
func (f *follower) begin(ctx context.Context) error {
	f.done, f.open = map[int64]bool{}, map[int64]*tail{}
	if !f.enter() {
		return nil
	}
	infos, err := f.dir.List(ctx)
	if err != nil {
		return err
	}
	for _, info := range infos {
		f.done[info.ID] = true
		if info.State == artifacts.Writing {
			if err := f.add(ctx, info.ID, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// enter goes to where the artifacts are, which a move of the session changes. It
// reports whether there is such a place.
func (f *follower) enter() bool {
	path := f.s.ArtifactsDir()
	if path == "" {
		return false
	}
	if path != f.path {
		f.dir, f.path = artifacts.Open(path, artifacts.Options{}), path
	}
	return true
}

// add begins to tell of an artifact, from its end or its beginning.
func (f *follower) add(ctx context.Context, id int64, fromEnd bool) error {
	f.done[id] = true
	r, err := f.dir.Open(ctx, id)
	if errors.Is(err, artifacts.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return nil // discarded meanwhile
	}
	if err != nil {
		return err
	}
	t := &tail{r: r}
	f.open[id] = t
	if fromEnd {
		t.at, err = r.Size()
	}
	return err
}

// artifacts yields what has come.
func (f *follower) artifacts(ctx context.Context) error {
	if !f.enter() {
		return nil
	}
	ids, err := f.dir.Numbers(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !f.done[id] {
			if err := f.add(ctx, id, false); err != nil {
				return err
			}
		}
	}
	for _, id := range sorted(f.open) {
		if err := f.read(ctx, id, f.open[id]); err != nil {
			return err
		}
	}
	return nil
}

func sorted(open map[int64]*tail) []int64 {
	ids := make([]int64, 0, len(open))
	for id := range open {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// read yields what is new of one artifact. What was finished before it was read to its
// end does not grow any more.
func (f *follower) read(ctx context.Context, id int64, t *tail) error {
	info, err := f.dir.Lookup(ctx, id)
	finished := err != nil || info.State != artifacts.Writing
	size, err := t.r.Size()
	if err != nil {
		return err
	}
	if size < t.at {
		t.at = 0 // cut, to go on with something else
	}
	if f.buf == nil {
		f.buf = make([]byte, chunkBytes)
	}
	for t.at < size {
		n, err := t.r.ReadAt(f.buf[:min(int64(len(f.buf)), size-t.at)], t.at)
		if n == 0 {
			if errors.Is(err, io.EOF) {
				break // cut while it was read
			}
			return err
		}
		c := &Chunk{ID: id, Offset: t.at, Data: f.buf[:n]}
		t.at += int64(n)
		if !f.yield(Event{Chunk: c}, nil) {
			return errStopped
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if finished {
		delete(f.open, id)
		return t.r.Close()
	}
	return nil
}

// close frees the artifacts.
func (f *follower) close() {
	for _, t := range f.open {
		_ = t.r.Close() // it was only read
	}
}
