// Package isolation gives an agent files of its own: a copy of those of another one, what it changed in them as a patch, and
// the way of that patch back.
//
// # Spaces
//
// A [Space] is a private directory with
//
//	space.json   what it is, and how far it has come
//	<agent>/     the files that the agent works in
//	base.git/    how these were at the beginning: a repository that no other program uses
//
// With [Worktree] the files are a work tree of the repository that they are from, detached at its HEAD, with all that is not
// committed: what is tracked, as it is, and what is not, unless git ignores it. With [Copy] they are everything in the
// directory, .git and what git ignores included, as clones that share their blocks where the file system has those.
//
// # Promises
//
//   - Nothing is written outside of the space, except that a Worktree is entered, locked, in .git/worktrees of its
//     repository, and leaves that with [Space.Remove].
//   - A space is there whole or is made anew: one that a kill has cut off is never worked in. [Open] finds one again.
//   - A patch ([Space.Patch]) is what `git diff --binary` says between the beginning and now: new files, deleted ones, modes,
//     links and bytes, also within repositories inside of the tree. What it can not hold is told, never passed over:
//     repositories made inside, commits, files that git ignores, empty directories, sockets and their like.
//   - [Merge] changes all files of a patch or none. A file is replaced that is what the patch was made from; of another text
//     the lines are, if they stand there as they did. Anything else is a conflict, told by file, and nothing is
//     changed. An error on the way brings back what was there; what a kill has cut off is completed by the same merge, made
//     again.
//   - Nothing of a repository is run: no hook, filter, monitor, or transport that its configuration names.
//
// Permissions other than that to execute, owners, times and attributes are not part of a patch.
//
// A Space belongs to one goroutine. Spaces of different places, and merges into one directory, may be used at the same time,
// also by several processes.
package isolation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/process"
)

// Kind is a way to give an agent files of its own.
type Kind string

// The kinds. An agent with None works in the files of its parent.
const (
	None     Kind = "none"
	Worktree Kind = "worktree"
	Copy     Kind = "copy"
)

// ParseKind reads a kind; "" is None.
func ParseKind(s string) (Kind, error) {
	switch k := Kind(s); k {
	case "":
		return None, nil
	case None, Worktree, Copy:
		return k, nil
	}
	return None, fmt.Errorf("%.40q is no isolation: none, worktree, copy", s)
}

// ErrGone is returned for a space whose files were removed.
var ErrGone = errors.New("its directory is gone: somebody removed it, and what it changed in there with it")

// Options of a space.
type Options struct {
	Kind Kind
	// Place is the directory of the space, which nothing else uses. It is made.
	Place string
	// Source is the directory that the agent would work in without isolation.
	Source string
	// Agent names the directory of the files, and tells a person in `git worktree list` whose it is.
	Agent string
	// Sync has the space survive a power cut when Open returns.
	Sync bool
	// FS is the file system; nil means the real one. Tests inject faults here.
	FS durable.FS
}

// state is space.json.
type state struct {
	Version int        `json:"version"`
	Phase   phase      `json:"phase"`
	Owner   process.ID `json:"owner"` // who made it, or works in it
	Kind    Kind       `json:"kind"`
	Agent   string     `json:"agent"`
	Top     string     `json:"top"`            // the directory whose files these are
	Sub     string     `json:"sub,omitempty"`  // from there to the directory of the agent
	Head    string     `json:"head,omitempty"` // of the repository, when it was made
	Left    []string   `json:"left,omitempty"`
	Empty   []string   `json:"empty,omitempty"` // directories without anything, at the beginning
}

type phase string

const (
	making phase = "making"
	ready  phase = "ready"
)

const stateVersion = 1

// Space is the files of an agent.
type Space struct {
	place string
	fs    durable.FS
	sync  bool
	state state
}

// Check says why a space of a kind cannot be made of source in a directory of home, nil if it can.
func Check(ctx context.Context, kind Kind, source, home string) error {
	_, err := locate(ctx, kind, source, home)
	return err
}

// located is what a space is made of.
type located struct {
	top, sub, head string
}

func locate(ctx context.Context, kind Kind, source, place string) (l located, err error) {
	if kind == None {
		return l, nil
	}
	real, err := filepath.EvalSymlinks(source)
	if err != nil {
		return l, fmt.Errorf("looking for what to isolate: %w", err)
	}
	if l.top = real; kind == Worktree {
		if l.top, l.head, err = repository(ctx, real); err != nil {
			return l, err
		}
	} else if err := found(); err != nil {
		return l, err
	} else if info, err := os.Lstat(filepath.Join(real, ".git")); err == nil && info.IsDir() {
		// It is told when the agent has committed. A repository without a commit has none.
		if l.head, err = (git{dir: real}).line(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err != nil {
			l.head = ""
		}
	}
	if l.sub, err = filepath.Rel(l.top, real); err != nil {
		return l, fmt.Errorf("looking for what to isolate: %w", err)
	}
	if place, err = filepath.Abs(place); err != nil {
		return l, fmt.Errorf("looking for a place to isolate in: %w", err)
	}
	if within(place, l.top) {
		return l, fmt.Errorf("%s has the home of agentrun in it, and would be copied into itself: choose a home elsewhere with --home or AGENTRUN_HOME", l.top)
	}
	return l, nil
}

// within reports whether path is dir or below it; what of path is there may be behind links.
func within(path, dir string) bool {
	for at := path; ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			rest, err := filepath.Rel(at, path)
			path = filepath.Join(real, rest)
			if err != nil {
				return false
			}
			break
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// Open makes a space, or finds the one that is at its place. made says which. The error of one whose files are gone is
// [ErrGone].
func Open(ctx context.Context, o Options) (s *Space, made bool, err error) {
	s = &Space{place: o.Place, fs: o.FS, sync: o.Sync}
	if s.fs == nil {
		s.fs = durable.OS
	}
	defer func() {
		if err != nil {
			s, err = nil, fmt.Errorf("isolating %s: %w", o.Agent, err)
		}
	}()
	if o.Kind != Worktree && o.Kind != Copy {
		return nil, false, fmt.Errorf("%q is no kind that has files of its own", o.Kind)
	}
	if filepath.Base(o.Agent) != o.Agent || strings.HasPrefix(o.Agent, ".") || o.Agent == "" {
		return nil, false, fmt.Errorf("%q is no name of a directory", o.Agent)
	}
	s.state, err = readState(s.fs, s.place)
	switch {
	case err == nil && s.state.Phase == ready:
		if info, err := s.fs.Lstat(s.Dir()); err != nil || !info.IsDir() {
			return nil, false, ErrGone
		}
		s.state.Owner = process.Self()
		return s, false, s.write()
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, false, err
	}
	// Cut off while it was made or removed.
	if err := s.Remove(ctx); err != nil {
		return nil, false, err
	}
	l, err := locate(ctx, o.Kind, o.Source, o.Place)
	if err != nil {
		return nil, false, err
	}
	s.state = state{
		Version: stateVersion, Phase: making, Owner: process.Self(), Kind: o.Kind, Agent: o.Agent, Top: l.top, Sub: l.sub, Head: l.head,
	}
	if err := s.make(ctx); err != nil {
		return nil, false, errors.Join(err, s.Remove(context.WithoutCancel(ctx)))
	}
	return s, true, nil
}

// make makes the files, and keeps how they are.
func (s *Space) make(ctx context.Context) error {
	if err := durable.MkdirAll(s.fs, s.place); err != nil {
		return err
	}
	if err := s.write(); err != nil {
		return err
	}
	if s.state.Kind == Worktree {
		if err := addWorktree(ctx, s.state.Top, s.tree(), "agentrun: "+s.state.Agent); err != nil {
			return err
		}
	} else if err := s.fs.Mkdir(s.tree(), durable.DirPerm); err != nil {
		return err
	}
	files, err := s.gather(ctx)
	if err != nil {
		return err
	}
	if err := s.keepBase(ctx, files); err != nil {
		return err
	}
	if err := mkdirs(s.fs, s.Dir()); err != nil { // one of which there is no file
		return err
	}
	// What a power cut took of the files would be a change of the agent.
	if s.sync {
		if err := s.fs.SyncFS(s.place); err != nil {
			return err
		}
	}
	s.state.Phase = ready
	return s.write()
}

// Dir is where the agent works.
func (s *Space) Dir() string { return filepath.Join(s.tree(), s.state.Sub) }

// Top is the directory whose files these are.
func (s *Space) Top() string { return s.state.Top }

// Repository is the directory of the repository that the files belong to, where it is not among them, so that git there can do no
// more than read it; "" without one.
func (s *Space) Repository(ctx context.Context) (string, error) {
	dir, err := git{dir: s.state.Top}.line(ctx, "rev-parse", "--path-format=absolute", "--git-common-dir")
	if err != nil {
		if s.state.Kind == Worktree || ctx.Err() != nil {
			return "", err
		}
		return "", nil
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", fmt.Errorf("looking for the repository of %s: %w", s.state.Top, err)
	}
	if s.state.Kind != Worktree && within(dir, s.state.Top) { // it was copied
		return "", nil
	}
	return dir, nil
}

// Left are sentences about what of the files the agent does not have.
func (s *Space) Left() []string { return s.state.Left }

// Tree is the directory of all the files, those of Top.
func (s *Space) Tree() string { return s.tree() }

func (s *Space) tree() string { return filepath.Join(s.place, s.state.Agent) }
func (s *Space) base() string { return filepath.Join(s.place, "base.git") }

// removeTree removes the files, also in directories that the agent has closed.
func (s *Space) removeTree() error {
	if s.state.Agent == "" {
		return nil
	}
	err := durable.RemoveAll(s.fs, s.tree())
	if errors.Is(err, fs.ErrPermission) {
		_ = filepath.WalkDir(s.tree(), func(name string, e fs.DirEntry, _ error) error {
			if e != nil && e.IsDir() {
				_ = os.Chmod(name, 0o700)
			}
			return nil
		})
		err = durable.RemoveAll(s.fs, s.tree())
	}
	return err
}

// Remove removes the space, and its entry in the repository.
func (s *Space) Remove(ctx context.Context) error {
	err := s.removeTree()
	if s.state.Kind == Worktree && s.state.Agent != "" {
		err = errors.Join(err, dropWorktree(ctx, s.state.Top, s.tree()))
	}
	if err != nil {
		return fmt.Errorf("removing the files of %s: %w", s.state.Agent, err)
	}
	return durable.RemoveAll(s.fs, s.place)
}

// Remove removes the space at a place, if there is one; nil is the real file system.
func Remove(ctx context.Context, fsys durable.FS, place string) error {
	if fsys == nil {
		fsys = durable.OS
	}
	if _, err := fsys.Lstat(place); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s := &Space{place: place, fs: fsys}
	// One whose state cannot be read is in no repository that could be found.
	s.state, _ = readState(fsys, place)
	if err := s.Remove(ctx); err != nil {
		return err
	}
	_ = fsys.Remove(filepath.Dir(place)) // with others in it, it is not empty
	return nil
}

// Top is the directory whose files a space of a kind has that is made of dir.
func Top(ctx context.Context, kind Kind, dir string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil && kind == Worktree {
		real, _, err = repository(ctx, real)
	}
	if err != nil {
		return "", fmt.Errorf("looking for what was isolated: %w", err)
	}
	return real, nil
}

// mergePrefix begins the names of scratch directories, which no session is called after.
const mergePrefix = ".merge-"

// MergeName is the name of the scratch directory of merges into dir.
func MergeName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return mergePrefix + hex.EncodeToString(sum[:8])
}

// stateName is the name of the file that says what a space is.
const stateName = "space.json"

func (s *Space) write() error {
	data, err := json.Marshal(s.state)
	if err != nil {
		return err
	}
	return durable.WriteFile(s.fs, filepath.Join(s.place, stateName), s.sync, data)
}

// maxState is the longest space.json, in bytes.
const maxState = 16 << 20

// readState reads what a space is. It was written by us, and may have been changed by anybody since.
func readState(fsys durable.FS, place string) (st state, err error) {
	data, err := durable.ReadFile(fsys, filepath.Join(place, stateName), maxState)
	if err != nil {
		return st, err
	}
	switch err := json.Unmarshal(data, &st); {
	case err != nil:
		return state{}, fmt.Errorf("reading %s: %w", filepath.Join(place, stateName), err)
	case st.Version != stateVersion:
		return state{}, fmt.Errorf("%s is of version %d, and this agentrun knows %d: use a newer one", filepath.Join(place, stateName), st.Version, stateVersion)
	case filepath.Base(st.Agent) != st.Agent || strings.HasPrefix(st.Agent, ".") || st.Agent == "",
		!filepath.IsAbs(st.Top), st.Sub != "" && !filepath.IsLocal(st.Sub):
		return state{}, fmt.Errorf("%s names no files of a space", filepath.Join(place, stateName))
	}
	return st, nil
}

// mkdirs makes a directory and those above it, as a person's programs do.
func mkdirs(fsys durable.FS, dir string) error {
	err := fsys.Mkdir(dir, 0o777)
	if errors.Is(err, fs.ErrNotExist) {
		if err = mkdirs(fsys, filepath.Dir(dir)); err == nil {
			err = fsys.Mkdir(dir, 0o777)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		info, lerr := os.Stat(dir)
		if lerr == nil && info.IsDir() {
			return nil
		}
	}
	return err
}

// InUse reports whether the process that made a space, or found it last, may still work in it.
func InUse(place string) bool {
	st, err := readState(durable.OS, place)
	return err == nil && st.Owner.Life() != process.Gone
}
