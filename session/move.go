package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/journal"
	"github.com/agentrun/agentrun/session/internal/record"
)

// MoveOptions say how a session is moved. The zero value is right for a session that
// the caller does not drive.
type MoveOptions struct {
	// Driver is the lease that the caller holds on the session. It goes along.
	Driver *Driver
	// Progress is told how many bytes were copied, from one goroutine: to another file
	// system all of the session is. nil means that nobody is.
	Progress func(copied int64)
}

// Moved says what became of a session that was moved.
type Moved struct {
	ID   string
	Path string // of the log now
	From string // of the log before; Path when it was there already
	CWD  string // as the header says it now
	// Unchanged is set when the session belonged to that directory already.
	Unchanged bool
}

// Move makes a session one of the working directory cwd, which must exist: log,
// artifacts and damaged bytes go to the directory of cwd's sessions, header.cwd
// says so, and header.previousSessionFiles where the log was. On another file system
// everything is copied, synced, read back and compared before the old is removed.
// The log stays as old as it was: a move is no work on the session, and does not make
// it the newest of its new directory.
//
// It happens whole or not at all. After a crash at any step the next use of the home
// finishes it or takes it back. Appends of other processes that wait meanwhile land in
// the moved session, and whoever has it open goes on at its new place.
//
// A session that another agent loop drives is refused with a *LockedError, and one
// whose artifacts clash with what is at the new place with an
// *artifacts.ClashError; nothing has changed then. When the old files cannot be
// removed after a copy, that is an Event: the next use of the home does it.
func (m *Manager) Move(ctx context.Context, path, cwd string, o MoveOptions) (Moved, error) {
	info, err := os.Stat(cwd)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", cwd)
	}
	if err != nil {
		return Moved{}, fmt.Errorf("moving %s: the new working directory: %w", path, err)
	}
	s, err := m.Open(ctx, path)
	if err != nil {
		return Moved{}, err
	}
	defer s.Close()
	if err := s.movable(); err != nil {
		return Moved{}, err
	}
	resolved, err := catalog.Resolve(cwd)
	if err != nil {
		return Moved{}, fmt.Errorf("moving %s: %w", s.Path(), err)
	}
	project := m.project(ctx, resolved) // before anybody waits for a lock
	driver := o.Driver
	if driver == nil {
		if driver, err = s.Drive(); err != nil {
			return Moved{}, err
		}
		defer driver.Close()
	}
	v := &mover{session: s, fs: s.fs, home: m.home, project: project, driver: driver, report: s.report, progress: o.Progress}
	var moved Moved
	g := &group{wake: make(chan wake, 1), asIs: true, do: func() (err error) {
		moved, err = v.move(ctx, cwd)
		return err
	}}
	if err := s.submit(ctx, g); err != nil {
		return Moved{}, err
	}
	return moved, nil
}

// movable refuses what could not be found again, or not be used, where it would be.
func (s *Session) movable() error {
	st := s.known()
	switch _, named := catalog.ArtifactsDir(s.Path()); {
	case st.file == nil || st.none:
		return fmt.Errorf("moving %s: it has no entry yet; start a new session in the other directory", s.Path())
	case !st.header.Writable():
		return fmt.Errorf("moving %s: it has version %s of the format, and this program writes up to %d: %w",
			s.Path(), versionText(st.header), record.Version, ErrReadOnly)
	case !named:
		return fmt.Errorf("moving %s: only a log that is called *.jsonl can be, and found again; rename it", s.Path())
	case !utf8.ValidString(s.Path()):
		return fmt.Errorf("moving %q: a path that is no UTF-8 cannot stand in a header; rename it", s.Path())
	}
	// A session of another home has its images there.
	sessions := filepath.Dir(filepath.Dir(s.Path()))
	if other := filepath.Dir(sessions); filepath.Base(sessions) == filepath.Base(catalog.SessionsDir("")) && !sameDir(other, s.manager.home) {
		if _, err := s.fs.Identify(catalog.BlobsDir(other)); err == nil {
			return fmt.Errorf("moving %s: it belongs to the home %s, where its images are; name it with --home %s", s.Path(), other, other)
		}
	}
	return nil
}

func sameDir(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// mover moves one session, or goes on with a move that a crash interrupted. The
// locks of both places are held.
type mover struct {
	session *Session // nil when recovering
	fs      durable.FS
	home    string
	project string // the fingerprint of the new directory
	j       journal.Journal
	driver  *Driver        // of the session
	lease   *durable.Lock  // the driver lease of the new place
	copying bool           // the file systems refuse a rename although they look like one
	stuck   bool           // a failed attempt could not be undone
	release []func()       // of the locks of the new place
	held    []func()       // of the artifacts
	undo    []func() error // of the steps that were made, the last one last
	report  func(Event)

	before   durable.Identity   // of the log; zero when recovering
	progress func(copied int64) // nil when recovering
	copied   int64
}

// move does the work of Move under the session's lock.
func (v *mover) move(ctx context.Context, cwd string) (Moved, error) {
	s := v.session
	defer v.letGo()
	if err := s.movable(); err != nil {
		return Moved{}, err // it was replaced while we waited
	}
	if s.manager.moving(s.Path()) {
		return Moved{}, fmt.Errorf("moving %s: %w", s.Path(), errAway) // a crash left it half moved
	}
	if s.known().image != nil && !s.known().cold {
		if err := s.needsRewrite(ctx); err != nil {
			return Moved{}, err
		}
	}
	dir, cwd, err := s.manager.placeFor(cwd)
	if err != nil {
		return Moved{}, fmt.Errorf("moving %s: %w", s.Path(), err)
	}
	if !utf8.ValidString(cwd) {
		return Moved{}, fmt.Errorf("moving %s: the directory %q is no UTF-8 and cannot stand in a header; rename it", s.Path(), cwd)
	}
	from, to := s.Path(), filepath.Join(dir, filepath.Base(s.Path()))
	st := s.known()
	moved := Moved{ID: st.header.ID, Path: to, From: from, CWD: cwd}
	if to == from && st.header.CWD == cwd {
		moved.Unchanged = true
		return moved, nil
	}
	if to != from {
		if err := v.occupy(ctx, to); err != nil {
			return Moved{}, fmt.Errorf("moving %s to %s: %w", from, to, err)
		}
	}
	if dir, _ := catalog.ArtifactsDir(from); !s.manager.holds(from) {
		if err := s.manager.admitSession(st.size, dir, false); err != nil {
			return Moved{}, fmt.Errorf("moving %s to %s: %w", from, to, err)
		}
	}
	err = v.attempt(ctx, st, from, to, cwd)
	if errors.Is(err, unix.EXDEV) && !v.j.Cross && !v.stuck {
		v.copying = true // mounts of one device
		err = v.attempt(ctx, st, from, to, cwd)
	}
	if err != nil {
		return Moved{}, fmt.Errorf("moving %s to %s: %w", from, to, err)
	}
	if v.lease != nil {
		v.driver.exchange(v.lease)
		v.lease = nil
	}
	if err := s.manager.cameHome(ctx, from); err != nil {
		v.report(Event{Kind: EventMove, Path: to, Err: err})
	}
	if st.cold {
		moved.Path, moved.From = catalog.ColdPath(to), catalog.ColdPath(from)
	}
	return moved, s.arrive(to)
}

// cameHome takes a log that was elsewhere out of the registry: it has moved into the
// home.
func (m *Manager) cameHome(ctx context.Context, from string) error {
	if m.holds(from) {
		return nil
	}
	return m.UpdateRegistry(ctx, func(all []Registered) []Registered {
		return slices.DeleteFunc(all, func(r Registered) bool { return r.Path == from })
	})
}

func (v *mover) attempt(ctx context.Context, st state, from, to, cwd string) error {
	done, err := v.prepare(ctx, st, from, to, cwd)
	if err != nil || done {
		return err
	}
	return v.carryOut(ctx)
}

// prepare writes the journal and makes the copies that are needed. On an error
// everything is as it was. done is set when there is no more to do.
func (v *mover) prepare(ctx context.Context, st state, from, to, cwd string) (done bool, err error) {
	header := st.header
	header.CWD = cwd
	if to != from {
		header.PreviousSessionFiles = append(slices.DeleteFunc(slices.Clone(header.PreviousSessionFiles),
			func(p string) bool { return p == from || p == to }), from)
	}
	if v.project != "" {
		header.Project = v.project
	}
	if err := v.session.keepTitle(ctx, st, &header); err != nil {
		return false, err
	}
	line, err := header.Rewrite(st.line)
	if err != nil {
		return false, err
	}
	host, _ := os.Hostname()
	v.j = journal.Journal{
		ID: st.header.ID, From: from, To: to, CWD: cwd,
		PID: os.Getpid(), Host: host, Begun: v.session.now().UTC(),
	}
	if to != from {
		if v.j.Cross, err = v.crosses(); err != nil {
			return false, err
		}
	}
	name := from
	if st.cold {
		name = catalog.ColdPath(from)
	}
	if id, err := v.fs.Identify(name); err == nil { // else it counts as worked on
		v.j.Modified, v.j.Size, v.before = id.ModTime, id.Size, id
	}
	switch v.j.Copied = v.j.Cross || st.cold || len(line) != len(st.line); {
	case !v.j.Copied:
		v.j.Header = &journal.Header{At: st.at, Old: st.line, New: line}
	case to == from:
		return true, v.replaceHeader(ctx, st, line)
	default:
		v.j.Size = st.size
	}
	if err := v.session.manager.mark(); err != nil {
		return false, err
	}
	if err := v.j.Write(v.fs, v.home); err != nil {
		return false, errors.Join(err, v.j.Remove(v.fs, v.home))
	}
	// From here on nobody takes a number or an id in the artifacts.
	err = v.holdArtifacts(ctx)
	if err == nil && v.j.Copied {
		err = v.stage(ctx, st, line)
	}
	if err == nil && !st.cold {
		// What an interrupted compression left; the plain file is complete.
		err = remove(v.fs, catalog.ColdPath(from))
	}
	if err != nil {
		return false, v.abandon(err)
	}
	return false, nil
}

// abandon takes back a move of which no step was made.
func (v *mover) abandon(err error) error {
	v.letArtifactsGo()
	if v.j.Copied {
		if rerr := durable.RemoveAll(v.fs, v.j.StagingDir()); rerr != nil {
			return errors.Join(err, rerr) // the journal stays, and with it who removes the rest
		}
	}
	return errors.Join(err, v.j.Remove(v.fs, v.home))
}

// occupy makes the new directory and takes the locks there.
func (v *mover) occupy(ctx context.Context, to string) error {
	dir := filepath.Dir(to)
	if _, err := v.fs.Identify(dir); errors.Is(err, fs.ErrNotExist) {
		if err := v.session.manager.makeDir(dir); err != nil {
			return err
		}
		if err := v.fs.SyncDir(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	lock, err := durable.OpenLock(v.fs, catalog.LockPath(to))
	if err != nil {
		return err
	}
	v.release = append(v.release, func() { lock.Close() })
	if err := lock.Lock(ctx, LockWait); err != nil {
		return err
	}
	for _, name := range []string{to, catalog.ColdPath(to)} {
		switch _, err := v.fs.Identify(name); {
		case err == nil:
			return fmt.Errorf("there is a log already, %s; rename one of the two: %w", name, fs.ErrExist)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	if err := setForward(lock, ""); err != nil { // it is coming back
		return err
	}
	v.lease, err = drive(v.fs, to, v.session.now())
	return err
}

// crosses reports whether the new directory is on another file system.
func (v *mover) crosses() (bool, error) {
	if v.copying {
		return true, nil
	}
	a, err := v.fs.Identify(filepath.Dir(v.j.From) + string(filepath.Separator) + ".")
	if err != nil {
		return false, err
	}
	b, err := v.fs.Identify(filepath.Dir(v.j.To) + string(filepath.Separator) + ".")
	if err != nil {
		return false, err
	}
	return a.Dev != b.Dev, nil
}

// letGo gives back the locks of the new place and of the artifacts.
func (v *mover) letGo() {
	v.letArtifactsGo()
	for _, release := range slices.Backward(v.release) {
		release()
	}
	v.release = nil
	if v.lease != nil {
		v.lease.Close()
		v.lease = nil
	}
}

func (v *mover) letArtifactsGo() {
	for _, release := range slices.Backward(v.held) {
		release()
	}
	v.held = nil
}
