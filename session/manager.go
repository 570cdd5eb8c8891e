package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/journal"
	"github.com/agentrun/agentrun/session/internal/record"
)

// Options of a Manager and the sessions it opens. The zero value is right for
// programs.
type Options struct {
	// Durability of appends; the zero value is Sync.
	Durability Durability
	// Blobs holds images and long strings; nil means the directory blobs of the
	// home. It must be a Verified store.
	Blobs blobstore.Store
	// Report is told what a person should know of; nil means that nobody is. It may
	// be called from any goroutine that appends or closes, and must not call the
	// session that the event is of.
	Report func(Event)
	// Quota is asked before an entry is accepted; nil accepts all.
	Quota Quota
	// Homes is the file that lists the homes of the user, as HomesFile names it, with
	// this one when something is first put into it; "" lists none and knows of none.
	Homes string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// FS is the file system; nil means the real one. Tests inject faults here.
	FS durable.FS

	polls bool // watches look by themselves, as without inotify; for tests
}

// Manager makes, opens and finds the sessions of one home. It is safe for
// concurrent use and holds nothing open.
type Manager struct {
	home    string
	opts    Options
	catalog *catalog.Catalog
	blobs   blobs

	markOnce sync.Mutex // held while the home is being marked
	marked   bool
}

// Errors of finding sessions.
var ErrNotFound = catalog.ErrNotFound

// AmbiguousError lists the sessions that an abbreviation stands for.
type AmbiguousError = catalog.AmbiguousError

// Info is what is known of a session without opening it.
type Info = catalog.Info

// Listing is what Manager.List found.
type Listing = catalog.Listing

// ResolveHome returns the absolute path of a home, as OpenManager finds it: home
// when it is not empty, else what the environment says.
func ResolveHome(home string) (string, error) { return catalog.ResolveHome(home) }

// Unreadable is a file or directory in the place of a session that is none.
type Unreadable = catalog.Unreadable

// OpenManager opens a home: the directory given, or if that is empty the one
// that AGENTRUN_HOME names, or the agentrun directory of XDG_DATA_HOME. Nothing is
// made before something is written. The home may be an agent directory of
// oh-my-pi.
func OpenManager(home string, opts Options) (*Manager, error) {
	home, err := catalog.ResolveHome(home)
	if err != nil {
		return nil, err
	}
	if opts.FS == nil {
		opts.FS = durable.OS
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Report == nil {
		opts.Report = func(Event) {}
	}
	m := &Manager{home: home, opts: opts}
	m.catalog = catalog.Open(home, catalog.Options{FS: opts.FS, Now: opts.Now, Moving: m.moves})
	m.blobs.store = opts.Blobs
	if m.blobs.store == nil {
		if m.blobs.store, err = m.localBlobs(catalog.BlobsDir(home)); err != nil {
			return nil, err
		}
	}
	if m.blobs.kept, err = m.localBlobs(catalog.KeptBlobsDir(home)); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Manager) localBlobs(dir string) (blobstore.Store, error) {
	return localdir.Open(dir, localdir.Options{Sync: m.opts.Durability == Sync, FS: m.opts.FS})
}

// Home is the directory of the manager.
func (m *Manager) Home() string { return m.home }

// Quota is Options.Quota, nil without one.
func (m *Manager) Quota() Quota { return m.opts.Quota }

// Blobs is the store of the images and long strings of the home's sessions.
func (m *Manager) Blobs() blobstore.Store { return m.blobs }

// mark says once that the home is ours, before something of ours is put there.
func (m *Manager) mark() error {
	m.markOnce.Lock()
	defer m.markOnce.Unlock()
	if m.marked {
		return nil
	}
	if err := catalog.MarkHome(m.opts.FS, m.home); err != nil {
		return err
	}
	if err := m.registerHome(); err != nil {
		return err
	}
	if err := m.enlist(context.Background()); err != nil {
		// What is kept is kept; another home's collector may not see what cites its blobs.
		m.opts.Report(Event{Kind: EventRegistry, Path: m.home, Err: err})
	}
	m.marked = true
	return nil
}

// CreateOptions are what is known of a new session besides its directory.
type CreateOptions struct {
	Title       string
	TitleSource string // TitleUser or TitleAuto
	// Parent is the id of the session that this one continues.
	Parent                string
	AdditionalDirectories []string
}

// Create returns a new session of the working directory cwd, which must exist.
// There is no file before the first entry is appended.
func (m *Manager) Create(ctx context.Context, cwd string, o CreateOptions) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	info, err := os.Stat(cwd)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", cwd)
	}
	if err != nil {
		return nil, fmt.Errorf("making a session: working directory: %w", err)
	}
	dir, cwd, err := m.placeFor(cwd)
	if err != nil {
		return nil, fmt.Errorf("making a session: %w", err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("making a session id: %w", err)
	}
	now := m.opts.Now()
	name, err := catalog.FileName(now, id.String())
	if err != nil {
		return nil, err
	}
	s := m.newSession(filepath.Join(dir, name))
	s.fresh = record.NewHeader(id.String(), cwd, now)
	s.fresh.Project = m.project(ctx, cwd)
	s.fresh.Title, s.fresh.TitleSource = CleanTitle(o.Title), o.TitleSource
	s.fresh.ParentSession = o.Parent
	s.fresh.AdditionalDirectories = o.AdditionalDirectories
	return s, nil
}

func (m *Manager) newSession(path string) *Session {
	s := &Session{
		fs: m.opts.FS, blobs: m.blobs, durability: m.opts.Durability,
		now: m.opts.Now, report: m.opts.Report, manager: m, quota: m.opts.Quota,
	}
	s.place.Store(&path)
	return s
}

// Open opens the session file at path, of whatever program, for reading and
// appending. Nothing on disk changes before the first append. Close it.
func (m *Manager) Open(ctx context.Context, path string) (*Session, error) {
	return m.open(ctx, path, false)
}

// View is Open for reading only.
func (m *Manager) View(ctx context.Context, path string) (*Session, error) {
	return m.open(ctx, path, true)
}

func (m *Manager) open(ctx context.Context, path string, readOnly bool) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("opening session: %w", err)
	}
	// A link to a session is the session: its lock and artifacts are there.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	wait := noMove
	if !readOnly {
		wait = movesOf(path)
	}
	m.settle(ctx, wait)
	st, err := load(m.opts.FS, m.blobs, path)
	for try := 0; errors.Is(err, fs.ErrNotExist) && try < maxHops; try++ {
		to, merr := m.moved(ctx, m.resolved(path), "")
		if merr != nil {
			break
		}
		path = to
		st, err = load(m.opts.FS, m.blobs, path)
	}
	if err != nil {
		return nil, err
	}
	s := m.newSession(catalog.PlainPath(path))
	s.readOnly = readOnly
	s.st = *st
	if st.none {
		if s.fresh, err = m.freshHeader(path); err != nil {
			st.close()
			return nil, err
		}
	}
	return s, nil
}

// resolved is a path of which the last element may be gone, with the links before it
// followed.
func (m *Manager) resolved(path string) string {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// freshHeader is the header for a file that has none yet.
func (m *Manager) freshHeader(path string) (record.Header, error) {
	created, id, ok := catalog.ParseFileName(filepath.Base(path))
	if !ok {
		u, err := uuid.NewV7()
		if err != nil {
			return record.Header{}, fmt.Errorf("making a session id: %w", err)
		}
		created, id = m.opts.Now(), u.String()
	}
	cwd, err := os.Getwd()
	if err != nil {
		return record.Header{}, fmt.Errorf("opening session %s: working directory: %w", path, err)
	}
	return record.NewHeader(id, cwd, created), nil
}

// List returns the sessions of a working directory, or of all when cwd is empty,
// the one modified last first.
func (m *Manager) List(ctx context.Context, cwd string) (*Listing, error) {
	m.settle(ctx, noMove)
	return m.catalog.List(ctx, cwd)
}

// Find resolves an id, the beginning of one, a file name or a path. The error
// matches ErrNotFound, or is an *AmbiguousError with the candidates. The path of a log
// that was moved since finds it where it is now. What no session of the home is called
// may be one elsewhere, see Elsewhere.
func (m *Manager) Find(ctx context.Context, arg string) (Info, error) {
	info, err := m.findAtHome(ctx, arg)
	if !errors.Is(err, ErrNotFound) || arg == "" || strings.ContainsRune(arg, filepath.Separator) {
		return info, err
	}
	elsewhere, rerr := m.Elsewhere(ctx)
	if rerr != nil {
		return info, err
	}
	if found, ok, ferr := catalog.Among(elsewhere, arg); ok || ferr != nil {
		return found, ferr
	}
	return info, err
}

// Elsewhere returns the sessions outside of the home that its registry knows and that
// are there, the one modified last first.
func (m *Manager) Elsewhere(ctx context.Context) ([]Info, error) {
	all, err := m.Registry()
	if err != nil {
		return nil, err
	}
	var infos []Info
	for _, r := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if r.Home || m.holds(r.Path) || m.trashed(r.Path) {
			continue
		}
		if info, err := m.catalog.At(r.Path); err == nil {
			infos = append(infos, info)
		}
	}
	slices.SortStableFunc(infos, func(a, b Info) int { return b.Modified.Compare(a.Modified) })
	return infos, nil
}

// findAtHome is Find for all but the names of sessions elsewhere.
func (m *Manager) findAtHome(ctx context.Context, arg string) (Info, error) {
	m.settle(ctx, noMove)
	info, err := m.catalog.Find(ctx, arg)
	if !errors.Is(err, ErrNotFound) || arg == "" {
		return info, err
	}
	if strings.ContainsRune(arg, filepath.Separator) {
		abs, aerr := filepath.Abs(arg)
		if aerr != nil {
			return info, err
		}
		if to, merr := m.moved(ctx, m.resolved(abs), ""); merr == nil {
			return m.catalog.At(to)
		}
	} else if journal.Any(m.opts.FS, m.home) {
		m.settle(ctx, movesLike(arg)) // it may be on its way
		return m.catalog.Find(ctx, arg)
	}
	return info, err
}

// Newest returns the session of cwd that was modified last, and false when there
// is none.
func (m *Manager) Newest(ctx context.Context, cwd string) (Info, bool, error) {
	m.settle(ctx, noMove)
	return m.catalog.Newest(ctx, cwd)
}

// placeFor is the directory for a new session of cwd, and cwd resolved. A symbolic link
// is none: nobody would find a session behind it again.
func (m *Manager) placeFor(cwd string) (dir, resolved string, err error) {
	if dir, resolved, err = m.catalog.Dir(cwd); err != nil {
		return "", "", err
	}
	info, err := m.opts.FS.Lstat(dir)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return "", "", fmt.Errorf("%s is a symbolic link, and links are not followed here; put a directory in its place", dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", err
	}
	return dir, resolved, nil
}

// makeDir makes a directory of sessions in a home that says whose it is.
func (m *Manager) makeDir(dir string) error {
	if _, err := m.opts.FS.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := m.mark(); err != nil {
		return err
	}
	return durable.MkdirAll(m.opts.FS, dir)
}
