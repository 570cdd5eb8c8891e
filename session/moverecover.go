package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/journal"
)

// settle finishes or undoes the moves that a crash has interrupted. For those that wait
// says it also waits while they are under way, which to another file system may take
// long: who waits is told every LockWait. Where there is none it costs a stat.
//
// What cannot be settled is reported, not returned: the log stands at one of the two
// places all the same. The caller holds no lock.
func (m *Manager) settle(ctx context.Context, wait moveFilter) {
	if !journal.Any(m.opts.FS, m.home) {
		return
	}
	all, bad := journal.All(m.opts.FS, m.home)
	for _, err := range bad {
		m.opts.Report(Event{Kind: EventMove, Path: journal.Dir(m.home), Err: err})
	}
	for _, j := range all {
		if err := m.recover(ctx, j, wait(j)); err != nil && ctx.Err() == nil {
			m.opts.Report(Event{Kind: EventMove, Path: j.From, Err: err})
		}
	}
}

// moveFilter says for which moves in progress somebody waits.
type moveFilter func(journal.Journal) bool

func noMove(journal.Journal) bool { return false }

// movesOf are the moves of the log at path: it keeps its name wherever it goes.
func movesOf(path string) moveFilter {
	name := filepath.Base(catalog.PlainPath(path))
	return func(j journal.Journal) bool { return filepath.Base(j.From) == name }
}

// movesLike are the moves of logs that part of an id may name.
func movesLike(arg string) moveFilter {
	return func(j journal.Journal) bool {
		return strings.Contains(strings.ToLower(filepath.Base(j.From)), strings.ToLower(arg))
	}
}

// lockBehindMove takes the lock of the log at path. While somebody moves the log it
// waits as long as that takes, and tells every LockWait what for; for everything else it
// waits LockWait.
func (m *Manager) lockBehindMove(ctx context.Context, lock *durable.Lock, path string) error {
	for {
		err := lock.Lock(ctx, LockWait)
		if !errors.Is(err, durable.ErrLockTimeout) {
			return err
		}
		j, ok := m.moveOf(path)
		if !ok {
			return err
		}
		m.opts.Report(Event{Kind: EventWaiting, Path: path, Err: fmt.Errorf("process %d on %s is moving it to %s since %s",
			j.PID, j.Host, j.CWD, j.Begun.Local().Format("15:04:05"))})
	}
}

// moveOf is the move of the log at path, from there or to there.
func (m *Manager) moveOf(path string) (journal.Journal, bool) {
	if !journal.Any(m.opts.FS, m.home) {
		return journal.Journal{}, false
	}
	all, _ := journal.All(m.opts.FS, m.home)
	for _, j := range all {
		if j.From == path || j.To == path {
			return j, true
		}
	}
	return journal.Journal{}, false
}

// moves describes the moves of sessions: it changes when one begins, ends, or brings a
// log to its new place. A journal is made in a directory that is made for it, which
// shows in the home, and what goes to the trash or back shows there. What else changes
// there does no harm.
func (m *Manager) moves() string {
	id, err := m.opts.FS.Identify(m.home)
	if err != nil {
		return ""
	}
	what := strconv.FormatInt(id.ModTime, 36)
	if trash, err := m.opts.FS.Identify(catalog.TrashDir(m.home)); err == nil {
		what += " " + strconv.FormatInt(trash.ModTime, 36)
	}
	if !journal.Any(m.opts.FS, m.home) {
		return what
	}
	all, _ := journal.All(m.opts.FS, m.home)
	for _, j := range all {
		what += fmt.Sprintf(" %q %t %t", j.From, there(m.opts.FS, j.From), there(m.opts.FS, j.To))
	}
	return what
}

// moving reports whether the log at path is being moved, from there or to there.
func (m *Manager) moving(path string) bool {
	if !journal.Any(m.opts.FS, m.home) {
		return false
	}
	all, bad := journal.All(m.opts.FS, m.home)
	for _, j := range all {
		if j.From == path || j.To == path {
			return true
		}
	}
	return len(bad) > 0 // it may be of this one
}

// recover settles one move.
func (m *Manager) recover(ctx context.Context, j journal.Journal, wait bool) error {
	v := &mover{fs: m.opts.FS, home: m.home, j: j, report: m.opts.Report}
	defer v.letGo()
	locked, err := v.lockBoth(ctx, m, wait)
	if err != nil || !locked {
		return err
	}
	// Whoever had the locks may have ended it.
	if v.j, err = j.Again(v.fs, v.home); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = v.resume(ctx)
	}
	if err == nil && !there(v.fs, j.From) && !there(v.fs, catalog.ColdPath(j.From)) {
		err = m.cameHome(ctx, j.From)
	}
	if err != nil {
		return fmt.Errorf("settling the interrupted move of %s to %s: %w", j.From, j.To, err)
	}
	return nil
}

// lockBoth takes the locks that the process had which made the journal. locked is
// false when another process works on the session and wait is not set.
func (v *mover) lockBoth(ctx context.Context, m *Manager, wait bool) (locked bool, err error) {
	paths := []string{v.j.From, v.j.To}
	if v.j.From == v.j.To {
		paths = paths[:1]
	}
	for _, path := range paths {
		lock, err := durable.OpenLock(v.fs, catalog.LockPath(path))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the directory is gone, and nobody can lock what was in it
		}
		if err != nil {
			return false, err
		}
		v.release = append(v.release, func() { lock.Close() })
		if len(v.release) > 1 {
			// Whoever moves the session back meanwhile has the other lock, and wants
			// this one.
			if _, err := v.j.Again(v.fs, v.home); err != nil {
				return errors.Is(err, fs.ErrNotExist), nil
			}
		}
		if locked, err = lock.TryLock(); err == nil && !locked {
			if !wait {
				return false, nil
			}
			err = m.lockBehindMove(ctx, lock, path)
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// resume goes on where the journal and the files say that the move has come to.
func (v *mover) resume(ctx context.Context) error {
	j := &v.j
	cold := there(v.fs, catalog.ColdPath(j.From))
	atFrom, atTo := there(v.fs, j.From) || cold, there(v.fs, j.To) || there(v.fs, catalog.ColdPath(j.To))
	staged := there(v.fs, v.stagedLog(false)) || there(v.fs, v.stagedLog(true))
	switch {
	case j.Copied && !j.Staged:
		return v.abandon(nil) // it had not happened
	case j.Copied && staged:
		// It has happened.
	case j.Copied && atTo && !atFrom:
		// Only the old files are left to be removed.
	case !j.Copied && j.From == j.To && atFrom:
	case !j.Copied && atTo && !atFrom:
	default:
		// It had not happened, or was finished and the session went elsewhere since.
		return v.abandon(nil)
	}
	if err := v.holdForRecovery(ctx); err != nil {
		return err
	}
	err := v.forward(ctx)
	if err == nil {
		return v.clearOld(ctx)
	}
	crosses := errors.Is(err, unix.EXDEV)
	err = errors.Join(err, v.takeBack())
	if crosses {
		// Found out too late that it has to be copied: it never works.
		return v.goBack()
	}
	// The journal stays. Until it works, the session must be somewhere.
	if j.Copied && there(v.fs, j.WithdrawnPath()) && !there(v.fs, j.From) && !there(v.fs, j.To) &&
		!there(v.fs, catalog.ColdPath(j.From)) && !there(v.fs, catalog.ColdPath(j.To)) {
		name := j.From
		if there(v.fs, v.stagedLog(true)) {
			name = catalog.ColdPath(name)
		}
		err = errors.Join(err, v.fs.RenameNoReplace(j.WithdrawnPath(), name))
	}
	return err
}

// goBack undoes a move whose artifacts turned out to be on another file system.
func (v *mover) goBack() error {
	j := &v.j
	if !j.Copied && there(v.fs, j.To) && !there(v.fs, j.From) {
		if err := v.overwriteHeader(j.Header.Old); err != nil {
			return err
		}
		if err := v.rename(j.To, j.From); err != nil {
			return err
		}
	}
	if err := v.fs.SyncDir(filepath.Dir(j.From)); err != nil {
		return err
	}
	return v.abandon(nil)
}

// holdForRecovery takes the locks of the artifacts. What clashes has come since; the
// step that meets it says so.
func (v *mover) holdForRecovery(ctx context.Context) error {
	err := v.holdArtifacts(ctx)
	if isClash(err) || isBusy(err) {
		return nil
	}
	return err
}
