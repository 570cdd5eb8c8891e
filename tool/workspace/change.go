package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/quantity"
)

// Old is a file before a change.
type Old struct {
	Path   string // without symbolic links
	Exists bool
	Data   []byte // not to be changed; nil when nothing is there
}

// Changed says what became of a file.
type Changed struct {
	Path string // without symbolic links
	Made bool   // it was not there before
	// Same is set when the new content is the old one, and nothing was written.
	Same     bool
	Old, New []byte
}

// Errors of a change.
var (
	// ErrUnsteady is returned for a file that others write to all the time.
	ErrUnsteady = errors.New("others change it at this moment; try again")
	// ErrTooLarge is returned for a file above MaxFile, before and after the change.
	ErrTooLarge = errors.New("it is too large to be changed")
	// ErrReadOnly is returned for a file that nobody may write to.
	ErrReadOnly = errors.New("nobody may write to it; chmod u+w makes it writable")
)

const (
	// lockWait is how long a change waits for another one of the same file.
	lockWait = 10 * time.Second
	// steadyTries is how often a change begins anew that others interfere with.
	steadyTries = 5
)

// Change gives a file the content that change makes of the old one, and makes it, and
// directories above it, when it is not there. An error of change ends it, with
// nothing done. When only the record of the new content fails (Recorder.After), the
// file is changed, and both results are returned.
func (w *Workspace) Change(ctx context.Context, path string, change func(Old) ([]byte, error)) (Changed, error) {
	if scheme, _, ok := strings.Cut(path, "://"); ok && scheme != "" && !strings.Contains(scheme, "/") {
		// It would become directories of that name.
		return Changed{}, fmt.Errorf("%s is a URL, and what URLs name is only read: name a file", path)
	}
	for range steadyTries {
		done, err := w.changeOnce(ctx, path, change)
		if !errors.Is(err, errRaced) {
			return done, err
		}
	}
	return Changed{}, fmt.Errorf("changing %s: %w", path, ErrUnsteady)
}

// errRaced is returned for a file that is not the one that was read any more.
var errRaced = errors.New("it was replaced meanwhile")

func (w *Workspace) changeOnce(ctx context.Context, path string, change func(Old) ([]byte, error)) (done Changed, err error) {
	p, err := w.Resolve(path)
	if err != nil {
		return Changed{}, err
	}
	defer p.Close()
	if p.base == "." {
		return Changed{}, fmt.Errorf("changing %s: it is a directory: name a file", path)
	}
	t := &turn{Workspace: w, Place: p}
	// A change that is refused makes no directory.
	if len(p.missing) > 0 {
		if done, err = t.prepare(change); err != nil || done.Same {
			return done, t.named(err)
		}
		made, merr := p.makeDirs()
		if merr != nil {
			return Changed{}, t.named(merr)
		}
		for _, dir := range made.above {
			t.grown = append(t.grown, dirName(dir))
		}
		defer func() {
			if err != nil && !t.kept {
				made.remove()
			}
			made.close()
		}()
	}
	if err := t.take(ctx); err != nil {
		return Changed{}, t.named(err)
	}
	defer t.release()
	if done, err = t.prepare(change); err != nil || done.Same {
		return done, t.named(err)
	}
	forget, err := t.ahead(ctx, done)
	defer forget()
	if err != nil {
		return Changed{}, t.named(err)
	}
	if w.opts.Recorder != nil {
		if err := w.opts.Recorder.Before(ctx, p.Path); err != nil {
			return Changed{}, fmt.Errorf("%s was not changed, because it could not be brought back: %w", p.Path, err)
		}
	}
	if err := t.write(done.New); err != nil {
		return Changed{}, t.named(err)
	}
	w.opts.Seen.Note(p.Path, done.New)
	if w.opts.Recorder != nil {
		if rerr := w.opts.Recorder.After(context.WithoutCancel(ctx), p.Path); rerr != nil {
			return done, &RecordError{p.Path, rerr}
		}
	}
	return done, nil
}

// RecordError is returned for a file that was changed, when how it is now could not be
// recorded. How it was before is.
type RecordError struct {
	Path string
	Err  error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("%s was changed, but its new content is not recorded: %v", e.Path, e.Err)
}
func (e *RecordError) Unwrap() error { return e.Err }

// turn is one change of one file, which nobody else of us changes meanwhile.
type turn struct {
	*Workspace
	*Place
	temp  *durable.Lock // the file that takes the place of the old one, locked
	full  bool          // it holds the new content
	kept  bool          // it has
	grown []string      // directories that have new ones in them
	info  fs.FileInfo   // of the file; nil when nothing is there
	id    durable.Identity
}

// named says which file an error is about.
func (t *turn) named(err error) error {
	var refused *refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused), errors.Is(err, ErrChanged):
		return err
	}
	return fmt.Errorf("changing %s: %w", t.Path, Bare(err))
}

// refusal is an error of the caller's function, which names things itself.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// tempName is the file that a change of base is written to.
func tempName(base string) string {
	const prefix = ".tmp-agentrun-"
	if len(prefix)+len(base) <= maxName {
		return prefix + base
	}
	sum := sha256.Sum256([]byte(base))
	return prefix + hex.EncodeToString(sum[:])
}

// take waits until nobody else changes the file: the temporary is the lock. It goes when
// its holder is done, so who waited for it looks whether it is still the one.
func (t *turn) take(ctx context.Context) error {
	temp := t.inDir(tempName(t.base))
	deadline := time.Now().Add(lockWait)
	for {
		lock, err := durable.OpenLock(t.fs, temp)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			return fmt.Errorf("its directory cannot be written to: %w", Bare(err))
		}
		if err != nil {
			return err
		}
		err = lock.Lock(ctx, time.Until(deadline))
		if err == nil {
			mine, err1 := lock.File().Identify()
			now, err2 := t.fs.Identify(temp)
			switch {
			case err1 != nil || err2 != nil || !mine.SameFile(now):
			case mine.Links == 1:
				t.temp = lock
				return nil
			default: // somebody else's file under our name: it must not be written to
				err2 = t.fs.Remove(temp)
			}
			if err = err1; err == nil && !notThere(err2) {
				err = err2
			}
		}
		_ = lock.Close() // it may be the lock of somebody else by now
		if errors.Is(err, durable.ErrLockTimeout) {
			return errors.New("another process is changing it; try again when that is done")
		}
		if err != nil {
			return err
		}
	}
}

// release removes the temporary, unless it has become the file.
func (t *turn) release() {
	if !t.kept {
		_ = t.fs.Remove(t.temp.File().Name()) // it is only space, and used up by the next change
	}
	_ = t.temp.Close() // nothing is written to it any more
}

// prepare reads the file and makes the new content.
func (t *turn) prepare(change func(Old) ([]byte, error)) (Changed, error) {
	data, err := t.read()
	if err != nil {
		return Changed{}, err
	}
	old := Old{Path: t.Path, Exists: t.info != nil, Data: data}
	if err := t.opts.Seen.check(t.Path, old.Exists, data); err != nil {
		return Changed{}, err
	}
	content, err := change(old)
	if err != nil {
		return Changed{}, &refusal{err}
	}
	if len(content) > MaxFile {
		return Changed{}, fmt.Errorf("it would have %s, and %s are the most: %w", quantity.Bytes(int64(len(content))), quantity.Size(MaxFile), ErrTooLarge)
	}
	done := Changed{Path: t.Path, Made: !old.Exists, Old: data, New: content}
	done.Same = old.Exists && bytes.Equal(data, content)
	return done, nil
}

// read reads the file, as far as there is one.
func (t *turn) read() ([]byte, error) {
	t.info = nil
	if len(t.missing) > 0 {
		return nil, nil
	}
	f, err := t.fs.OpenFile(t.name(), os.O_RDONLY, 0)
	if notThere(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case info.Mode().Perm()&0o222 == 0:
		return nil, ErrReadOnly
	case info.Size() > MaxFile:
		return nil, fmt.Errorf("it has %s, and %s are the most: %w", quantity.Bytes(info.Size()), quantity.Size(MaxFile), ErrTooLarge)
	}
	if t.id, err = f.Identify(); err != nil {
		return nil, err
	}
	data := make([]byte, t.id.Size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, errRaced // it became shorter
	}
	t.info = info
	return data, t.still()
}

// still returns errRaced unless the file is the one that was read, as it was.
func (t *turn) still() error {
	now, err := t.fs.Identify(t.name())
	switch {
	case notThere(err) && t.info == nil:
		return nil
	case notThere(err), err == nil && (t.info == nil || now != t.id):
		return errRaced
	}
	return err
}

// large is from when on a change is prepared by several goroutines, in bytes.
const large = 1 << 20

// ahead does at once what a large change would otherwise do one after the other: it
// keeps both contents, and writes the new one to the temporary.
func (t *turn) ahead(ctx context.Context, done Changed) (forget func(), err error) {
	keeper, ok := t.opts.Recorder.(Keeper)
	if !ok || len(done.Old)+len(done.New) < large {
		return func() {}, nil
	}
	old, now := func() {}, func() {}
	var all sync.WaitGroup
	all.Go(func() { now = keeper.Keep(ctx, done.New) })
	if !done.Made {
		all.Go(func() { old = keeper.Keep(ctx, done.Old) })
	}
	err = t.fill(done.New)
	all.Wait()
	return func() { old(); now() }, err
}

// fill writes the new content to the temporary.
func (t *turn) fill(content []byte) error {
	f := t.temp.File()
	// A killed process may have left something in it.
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := t.attributes(f); err != nil {
		return err
	}
	if t.opts.Sync {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	t.full = true
	return nil
}

// write brings the new content into the place of the old one.
func (t *turn) write(content []byte) error {
	f := t.temp.File()
	if !t.full {
		if err := t.fill(content); err != nil {
			return err
		}
	}
	if err := t.still(); err != nil {
		return err
	}
	rename := t.fs.Rename
	if t.info == nil {
		rename = t.fs.RenameNoReplace
	}
	if err := rename(f.Name(), t.name()); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return errRaced
		}
		return err
	}
	t.kept = true
	if !t.opts.Sync {
		return nil
	}
	for _, dir := range t.grown {
		if err := t.fs.SyncDir(dir); err != nil {
			return err
		}
	}
	return t.fs.SyncDir(t.inDir("."))
}

// attributes gives the new file what the old one had.
func (t *turn) attributes(f durable.File) error {
	if t.info == nil {
		return f.Chmod(0o666 &^ umask())
	}
	if st, ok := t.info.Sys().(*syscall.Stat_t); ok && (int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid()) {
		// Before the mode, which it clears bits of. Who may not give a file away owns it.
		if unix.Fchown(int(f.Fd()), int(st.Uid), int(st.Gid)) != nil {
			_ = unix.Fchown(int(f.Fd()), -1, int(st.Gid))
		}
	}
	return f.Chmod(t.info.Mode())
}

// umask is what new files and directories do not get. It can only be asked for where
// nothing changes it.
func umask() fs.FileMode {
	const usual = 0o022
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return usual
	}
	_, rest, _ := strings.Cut(string(status), "\nUmask:")
	digits, _, _ := strings.Cut(rest, "\n")
	mask, err := strconv.ParseUint(strings.TrimSpace(digits), 8, 32)
	if err != nil {
		return usual
	}
	return fs.FileMode(mask) & 0o777
}

// madeDirs are directories that a change has made.
type madeDirs struct {
	place *Place
	dirs  []string   // names, outermost first
	above []*os.File // the directories that they are in
}

// makeDirs makes the directories above the file that are not there.
func (p *Place) makeDirs() (*madeDirs, error) {
	m := &madeDirs{place: p}
	for _, name := range p.missing {
		err := p.fs.Mkdir(p.inDir(name), 0o777)
		switch {
		case err == nil:
			m.dirs = append(m.dirs, name)
		case !errors.Is(err, fs.ErrExist):
			m.remove()
			m.close()
			return nil, fmt.Errorf("making the directory %s: %w", filepath.Dir(p.Path), Bare(err))
		default:
			m.dirs = append(m.dirs, "") // somebody else's
		}
		next, err := os.OpenFile(p.inDir(name), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			m.remove()
			m.close()
			return nil, fmt.Errorf("opening the directory %s: %w", filepath.Dir(p.Path), Bare(err))
		}
		m.above = append(m.above, p.dir)
		p.dir = next
	}
	p.missing = nil
	return m, nil
}

// remove removes those that are empty.
func (m *madeDirs) remove() {
	for i := len(m.dirs) - 1; i >= 0; i-- {
		in := m.place.dir
		if i < len(m.above) {
			in = m.above[i]
		}
		if m.dirs[i] == "" || m.place.fs.Remove(dirName(in)+"/"+m.dirs[i]) != nil {
			return
		}
	}
}

func (m *madeDirs) close() {
	for _, f := range m.above {
		_ = f.Close() // it was only a name
	}
}
