package isolation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/walk"
)

// MergeOptions say what is merged, and where.
type MergeOptions struct {
	// Dir is the directory that the patch goes into: [Space.Top] of where it is from.
	Dir string
	// Patch is a patch that [Space.Patch] has written, of so many bytes.
	Patch io.ReaderAt
	Size  int64
	// Scratch is a directory that is made for the merge and removed behind it; its parent must be there. A lock of its name
	// with .lock keeps two merges apart.
	Scratch string
	// Check looks only.
	Check bool
	// Before is told of the files, as paths, before any is changed, and After behind it; nil is not. An error of Before ends the
	// merge with nothing done.
	Before, After func(ctx context.Context, paths []string) error
	// FS is the file system; nil means the real one. Tests inject faults here.
	FS durable.FS
}

// Action is what a merge does with a file.
type Action string

// The actions.
const (
	Added    Action = "added"
	Changed  Action = "changed"
	Deleted  Action = "deleted"
	Merged   Action = "merged"   // it had changed besides, and has both changes now
	Already  Action = "already"  // it is as the patch would make it
	Conflict Action = "conflict" // it cannot be changed without losing something
)

// Merge is what became of the files of a patch.
type Merge struct {
	Files []MergedFile `json:"files"`
	// Done is set when the files were changed: without a conflict, and not with Check.
	Done bool `json:"done"`
}

// MergedFile is one file of a patch.
type MergedFile struct {
	Path   string `json:"path"`
	Action Action `json:"action"`
	Reason string `json:"reason,omitempty"` // of a conflict
}

// Conflicts are the files that keep a patch from being merged.
func (m Merge) Conflicts() []MergedFile {
	return slices.DeleteFunc(slices.Clone(m.Files), func(f MergedFile) bool { return f.Action != Conflict })
}

// lockWait is how long a merge waits for another one.
const lockWait = 30 * time.Second

// Apply merges a patch. Conflicts are no error: nothing is changed then, and the [Merge] tells them.
func Apply(ctx context.Context, o MergeOptions) (m Merge, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("merging into %s: %w", o.Dir, err)
		}
	}()
	if o.FS == nil {
		o.FS = durable.OS
	}
	lock, err := durable.OpenLock(o.FS, o.Scratch+".lock")
	if err != nil {
		return m, err
	}
	defer lock.Close()
	if err := lock.Lock(ctx, lockWait); err != nil {
		return m, err
	}
	g := &merging{MergeOptions: o}
	if err := durable.RemoveAll(o.FS, o.Scratch); err != nil { // of one that was killed
		return m, err
	}
	defer func() { err = errors.Join(err, durable.RemoveAll(o.FS, o.Scratch)) }()
	if err := g.begin(ctx); err != nil {
		return m, err
	}
	defer g.root.Close()
	for _, f := range g.files {
		if err := g.judge(ctx, f); err != nil {
			return m, err
		}
	}
	if err := g.applyExact(ctx); err != nil {
		return m, err
	}
	if !o.Check && !g.conflicts() {
		if err := g.put(ctx); err != nil {
			return m, err
		}
		m.Done = !g.conflicts()
	}
	for _, f := range g.files {
		m.Files = append(m.Files, MergedFile{f.path, f.action, f.reason})
	}
	return m, nil
}

// merging is one merge.
type merging struct {
	MergeOptions
	root   *walk.Root // of Dir
	repo   string     // in which git applies
	files  []*merge
	mask   fs.FileMode
	undone []func() error // what takes back what was done, in order
}

// merge is one file of it.
type merge struct {
	*fileDiff
	current version
	id      durable.Identity // of what is there
	action  Action
	reason  string
	exact   bool
	temp    string
}

func (g *merging) conflicts() bool {
	return slices.ContainsFunc(g.files, func(f *merge) bool { return f.action == Conflict })
}

func (g *merging) begin(ctx context.Context) error {
	diffs, err := parsePatch(io.NewSectionReader(g.Patch, 0, g.Size))
	if err != nil {
		return err
	}
	for _, d := range diffs {
		g.files = append(g.files, &merge{fileDiff: d})
	}
	if err := g.FS.Mkdir(g.Scratch, durable.DirPerm); err != nil {
		return err
	}
	if err := g.FS.Mkdir(g.tree(), durable.DirPerm); err != nil {
		return err
	}
	if g.repo, err = initRepository(ctx, g.tree(), false); err != nil {
		return err
	}
	g.mask = umask()
	g.root, err = walk.Open(g.Dir)
	return err
}

func (g *merging) tree() string { return filepath.Join(g.Scratch, "tree") }

// judge says what becomes of a file, and makes its new content where that takes a merge.
func (g *merging) judge(ctx context.Context, f *merge) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	conflict := func(reason string) error {
		f.action, f.reason = Conflict, reason
		return nil
	}
	for dir := filepath.Dir(f.path); dir != "."; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(filepath.Join(g.Dir, dir)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return conflict(dir + " is a symbolic link here")
		}
	}
	id, err := g.FS.Identify(filepath.Join(g.Dir, f.path))
	if err == nil {
		f.id = id
	}
	now, other, err := look(g.root, g.Dir, f.path)
	if err != nil {
		return conflict("it cannot be read: " + err.Error())
	}
	old, to := f.old, f.new
	if old.id == "" && to.id == "" { // nothing but the mode
		old.id, to.id = now.id, now.id
	}
	f.current = now
	switch {
	case other != "":
		if old.id != "" || !g.givesWay(f.path) {
			return conflict("there is " + other + " here")
		}
		f.action, f.exact = Added, true
	case now == to:
		f.action = Already
	case now == old:
		f.exact = true
		switch {
		case old.id == "":
			f.action = Added
		case to.id == "":
			f.action = Deleted
		default:
			f.action = Changed
		}
	case old.id == "":
		return conflict("the patch makes it, and there is another one here")
	case now.id == "":
		return conflict("it is not here any more")
	case to.id == "":
		return conflict("the patch deletes it, and it was changed here")
	case f.binary, old.mode == modeLink, now.mode == modeLink, to.mode == modeLink:
		return conflict("it was changed here too, and is no text that could be merged")
	default:
		return g.mergeText(ctx, f)
	}
	if f.exact && now != (version{}) {
		return g.copyIn(f.path, now)
	}
	return nil
}

// givesWay reports whether all that a directory holds is deleted by the patch.
func (g *merging) givesWay(dir string) bool {
	gone := map[string]bool{}
	for _, f := range g.files {
		if f.new.id == "" && f.old.id != "" {
			gone[f.path] = true
		}
	}
	err := filepath.WalkDir(filepath.Join(g.Dir, dir), func(name string, e fs.DirEntry, err error) error {
		rel, rerr := filepath.Rel(g.Dir, name)
		if err != nil || rerr != nil || !e.IsDir() && !gone[rel] {
			return errUnsteady
		}
		return nil
	})
	return err == nil
}

// copyIn brings a file to where git can apply to it.
func (g *merging) copyIn(rel string, v version) error {
	return copyFile(g.FS, filepath.Join(g.Dir, rel), filepath.Join(g.tree(), rel), v.mode)
}

// copyFile copies a file or link to where nothing is.
func copyFile(fsys durable.FS, from, to, mode string) error {
	if err := mkdirs(fsys, filepath.Dir(to)); err != nil {
		return err
	}
	if mode == modeLink {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return fsys.Symlink(target, to)
	}
	src, err := fsys.OpenFile(from, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	perm := fs.FileMode(0o600)
	if mode == modeExec {
		perm = 0o700
	}
	return clone(fsys, src, to, perm)
}

// mergeText tries whether the lines that the patch changes stand in a text as they did.
func (g *merging) mergeText(ctx context.Context, f *merge) error {
	if err := g.copyIn(f.path, f.current); err != nil {
		return err
	}
	err := g.apply(ctx, f.sections)
	if no := (*failure)(nil); errors.As(err, &no) {
		f.action, f.reason = Conflict, "it was changed here too, in the same lines"
		return nil
	}
	f.action = Merged
	return err
}

// applyExact makes the new content of all files that are what the patch was made from, at once, and looks at what came of it.
func (g *merging) applyExact(ctx context.Context) error {
	var sections []section
	for _, f := range g.files {
		if f.exact && f.action != Conflict {
			sections = append(sections, f.sections...)
		}
	}
	if len(sections) == 0 {
		return nil
	}
	if err := g.apply(ctx, sections); err != nil {
		return fmt.Errorf("the patch is damaged: %w", err)
	}
	root, err := walk.Open(g.tree())
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range g.files {
		if !f.exact || f.action == Conflict {
			continue
		}
		want := f.new
		if f.new.id == "" && f.old.id == "" {
			want.id = f.current.id
		}
		if want.id == "" {
			want = version{}
		}
		got, _, err := look(root, g.tree(), f.path)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("the patch is damaged: of %s it does not make what it says", f.path)
		}
	}
	return nil
}

// apply has git apply parts of the patch in the scratch directory.
func (g *merging) apply(ctx context.Context, sections []section) error {
	var parts []io.Reader
	for _, s := range sections {
		parts = append(parts, io.NewSectionReader(g.Patch, s.from, s.to-s.from))
	}
	_, err := git{dir: g.tree(), own: g.repo, tree: g.tree(), stdin: io.MultiReader(parts...)}.run(ctx, "apply", "--whitespace=nowarn", "-")
	return err
}

// umask is what new files do not get.
func umask() fs.FileMode {
	status, err := os.ReadFile("/proc/self/status")
	_, rest, ok := strings.Cut(string(status), "\nUmask:")
	var mask uint32
	if _, serr := fmt.Sscanf(rest, "%o", &mask); err != nil || !ok || serr != nil {
		return 0o022
	}
	return fs.FileMode(mask) & 0o777
}
