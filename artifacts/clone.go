package artifacts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
)

// CloneOptions say how Clone works. The zero value is ready for use.
type CloneOptions struct {
	// Sync makes the clone durable, except for its own name: whoever publishes
	// what refers to it syncs the directory above.
	Sync bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// FS is the file system; nil means durable.OS.
	FS durable.FS
	// Progress is told, from the calling goroutine, how many files of how many are
	// done so far; nil means that nobody is.
	Progress func(done, total int)
	// Only is what the clone has; nil means everything.
	Only *Selection
	// Cited returns the artifacts that the log of the clone cites and that are not
	// among the numbers of which the directory has something, and those that logs of
	// nested sessions in the clone cite and the clone does not have. It is called when
	// all else has come along; nil knows of none.
	Cited func(ctx context.Context, used map[int64]bool) ([]Untraced, error)
}

// Untraced is an artifact that a log cites and of which there is nothing.
type Untraced struct {
	// Dir is the folder of the nested session that it belongs to, within the directory;
	// "" for the directory itself.
	Dir string
	ID  int64
}

// Compare orders by folder, then by number.
func (u Untraced) Compare(v Untraced) int {
	return cmp.Or(strings.Compare(u.Dir, v.Dir), cmp.Compare(u.ID, v.ID))
}

// Cloned is what Clone did. The counts are of artifacts (<n>.<tool>.log), those in
// the folders of nested sessions included.
type Cloned struct {
	Reflinked int // shares the blocks of the original until one side is written to
	Linked    int // a hard link to the original
	Copied    int
	Bytes     int64          // of everything that came along
	Shared    int64          // bytes of those that are hard links
	Failed    []CloneFailure // what did not come along, artifacts by number first; everything else did
	// Vanished is set when something was not there any more, or not at all. Its writer
	// has discarded it, or the directory was moved while it was cloned: whoever moves
	// directories looks where it is now.
	Vanished bool
	Changed  []CloneFailure // artifacts that came along and have not the size they were finished with
}

// CloneFailure is a file that could not be brought along.
type CloneFailure struct {
	Name string // relative to the directory
	ID   int64  // of the artifact; -1 for another file, or one of a nested session
	Err  error
}

// AsIs says that an artifact of Cloned.Changed came along as it is.
func (f CloneFailure) AsIs() string {
	what := f.Name
	if f.ID >= 0 {
		what = fmt.Sprintf("artifact %d", f.ID)
	}
	return fmt.Sprintf("%s came along as it is, and is not what was kept: %v", what, f.Err)
}

func (f CloneFailure) String() string {
	if f.ID >= 0 {
		return fmt.Sprintf("artifact %d did not come along: %v", f.ID, f.Err)
	}
	return fmt.Sprintf("%s did not come along: %v", f.Name, f.Err)
}

// Clone makes the directory to, which must not exist, with everything that the
// artifact directory from holds, so that every number and every agent id means the
// same in both for ever, and each side goes on from its own maximum. Where there is
// no directory from, it makes none. The writers of from are not held up.
//
// An artifact comes along as a reflink, else as a hard link, else as a copy. A hard
// link is made only of a file that nobody has open for writing and nobody opens
// again: artifacts are written once, and provenance, notes and outputs of agents are
// replaced, never written to. An artifact that is still being written is copied to
// its present length and says so in its state. Logs of nested sessions, which go on
// growing, and files that are not known here are reflinked or copied, the logs up to
// the end of their last whole line. Locks, temporaries and what can be rebuilt stay
// behind.
//
// Symbolic links, FIFOs, sockets and devices are not followed. They, and whatever
// cannot be read or written, are listed in Failed; a file <n>.missing then says why
// artifact n is not there, and its number is not used again. After an error nothing
// is left of the clone, unless removing it failed too.
func Clone(ctx context.Context, from, to string, o CloneOptions) (Cloned, error) {
	c := cloner{fs: o.FS, opt: o}
	if c.fs == nil {
		c.fs = durable.OS
	}
	if c.opt.Now == nil {
		c.opt.Now = time.Now
	}
	err := c.root(ctx, from, to)
	if err != nil {
		return Cloned{}, fmt.Errorf("cloning the artifacts of %s: %w", from, err)
	}
	c.done.Failed, c.done.Changed = sorted(c.done.Failed), sorted(c.done.Changed)
	return c.done, nil
}

// compareFailures compares numbers as unsigned ones, in which -1 is the last.
func compareFailures(a, b CloneFailure) int {
	return cmp.Or(cmp.Compare(uint64(a.ID), uint64(b.ID)), strings.Compare(a.Name, b.Name))
}

// cloner is one run of Clone.
type cloner struct {
	fs         durable.FS
	opt        CloneOptions
	done       Cloned
	files      int  // done so far, for Progress
	total      int  // known so far
	noReflinks bool // the file system has none
	reflinks   int  // made so far
	only       *Selection
}

func (c *cloner) root(ctx context.Context, from, to string) error {
	at, err := c.fs.Identify(from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.done.Vanished = true
		return c.nothing(ctx, from, to)
	case err != nil:
		return err
	case !isDir(at):
		return errors.New("it is not a directory; move it away")
	}
	err = c.dir(ctx, from, to, "", true)
	if err == nil && c.opt.Sync && c.reflinks > syncedOneByOne {
		err = c.fs.SyncFS(to)
	}
	if err != nil {
		if !errors.Is(err, errTaken) {
			// The first error is the one to report; what cannot be removed belongs to no
			// session and is collected.
			_ = durable.RemoveAll(c.fs, to)
		}
		return err
	}
	return nil
}

// syncedOneByOne is how many reflinks are synced each by itself. When there are more,
// waiting for all that is on the file system takes less time.
const syncedOneByOne = 16

// errTaken says that the place of the clone is somebody else's.
var errTaken = errors.New("there is something under that name already")

// dir clones one directory. Hard links are made only within directories of sessions:
// who writes elsewhere, and how, is not known.
func (c *cloner) dir(ctx context.Context, from, to, rel string, ofSession bool) error {
	entries, err := c.fs.ReadDir(from)
	if err != nil {
		return err
	}
	listed := entries
	if rel == "" && c.opt.Only != nil {
		c.only = c.opt.Only.resolve(c.fs, from, entries)
	}
	var packs []string
	if c.only != nil && !c.only.whole(rel) {
		for _, e := range entries {
			if _, ok := parsePack(e.Name()); ok && e.Type().IsRegular() {
				packs = append(packs, e.Name())
			}
		}
		entries = slices.DeleteFunc(slices.Clone(entries), func(e fs.DirEntry) bool { return !c.only.has(rel, e) })
	}
	if err := c.fs.Mkdir(to, durable.DirPerm); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making %s: %w", to, errTaken)
	} else if err != nil {
		return err
	}
	d := cloneDir{
		cloner: c, from: from, to: to, rel: rel,
		entries: entries, names: make(map[string]fs.DirEntry, len(entries)), lost: map[int64]bool{}, packs: packs, source: Open(from, Options{FS: c.fs}),
	}
	for _, e := range entries {
		d.names[e.Name()] = e
	}
	c.total += len(entries)
	if c.only != nil && rel == "" {
		if err := d.useUp(ctx); err != nil {
			return err
		}
	}
	step := func() error {
		if c.files++; c.opt.Progress != nil {
			c.opt.Progress(c.files, c.total)
		}
		return ctx.Err()
	}
	var outputs []output
	for _, e := range entries {
		if id, _, ok := parseLog(e.Name()); ok && ofSession && !e.IsDir() {
			outputs = append(outputs, output{id: id, name: e.Name()})
			continue
		} else if ok && ofSession {
			if err := d.missing(output{id: id, name: e.Name()}, errDirectory); err != nil {
				return err
			}
			d.lost[id] = true
			continue
		}
		if ofSession && strings.HasPrefix(e.Name(), artifactSidecar) {
			continue // comes with its artifact, or behind all of them
		}
		if err := d.entry(ctx, e, ofSession); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	if ofSession {
		if err := d.outputs(outputs, step); err != nil {
			return err
		}
		if err := d.losses(ctx, listed); err != nil {
			return err
		}
		if rel == "" {
			if err := d.untraced(ctx, listed); err != nil {
				return err
			}
		}
	}
	if c.opt.Sync {
		return c.fs.SyncDir(to)
	}
	return nil
}

// cloneDir is one directory on its way.
type cloneDir struct {
	*cloner
	from, to, rel string
	entries       []fs.DirEntry          // of from, by name
	names         map[string]fs.DirEntry // the same
	lost          map[int64]bool         // numbers of which a file did not come along
	packs         []string               // of from that do not come along
	source        *Dir                   // from, with the packs it has read
}

// has reports whether from holds a regular file of that name.
func (d *cloneDir) has(name string) bool {
	e, ok := d.names[name]
	return ok && e.Type().IsRegular()
}

const (
	logExt  = ".jsonl"
	coldExt = ".jsonl.zst"
	// draftMark says in oh-my-pi that a session exists for the sake of a draft only.
	draftMark = ".draft-only-session"
	tempMark  = ".tmp-" // in the name of every temporary, of oh-my-pi too
)

// entry brings one directory entry along that is no artifact. The error ends the
// clone; a file that does not come along is noted.
func (d *cloneDir) entry(ctx context.Context, e fs.DirEntry, ofSession bool) error {
	name := e.Name()
	switch {
	case e.IsDir():
		return d.folder(ctx, name, ofSession)
	case !ofSession:
		return d.note(name, d.file(name, false))
	case strings.Contains(name, tempMark), name == draftMark, d.servesLog(name):
		return nil
	case strings.HasSuffix(name, logExt):
		return d.note(name, d.log(name))
	case isNote(name):
		return d.keep(name)
	}
	return d.note(name, d.file(name, isSealed(name)))
}

// servesLog reports whether a file only serves the log of a nested session at its
// place: a lock, or an index that is bound to the very file.
func (d *cloneDir) servesLog(name string) bool {
	ext := filepath.Ext(name)
	switch ext {
	case ".lock", ".driver", ".index":
		stem := strings.TrimSuffix(name, ext)
		return d.has(stem+logExt) || d.has(stem+coldExt)
	}
	return false
}

// isNote reports whether a file of ours says something of a number or an id.
func isNote(name string) bool {
	if _, ok := parsePack(name); ok {
		return true
	}
	if stem, ok := strings.CutSuffix(name, missingSuffix); ok {
		_, ok = ParseID(stem)
		return ok
	}
	_, _, kind, ok := parseAgentFile(name)
	return ok && kind == agentHold
}

// isSealed reports whether files of that name are replaced as a whole by all who
// write them.
func isSealed(name string) bool {
	_, _, kind, ok := parseAgentFile(name)
	return ok && kind != agentLog || strings.HasSuffix(name, coldExt)
}

// note lists a file that did not come along. One that is gone meanwhile was
// discarded by its writer.
func (d *cloneDir) note(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.done.Vanished = true
	case err != nil:
		d.done.Failed = append(d.done.Failed, CloneFailure{Name: filepath.Join(d.rel, name), ID: -1, Err: err})
	}
	return nil
}

// maxDepth bounds the folders in folders: agents nest up to maxAgentDepth.
const maxDepth = 2 * maxAgentDepth

// folder brings a directory along.
func (d *cloneDir) folder(ctx context.Context, name string, ofSession bool) error {
	from, to, rel := filepath.Join(d.from, name), filepath.Join(d.to, name), filepath.Join(d.rel, name)
	if ofSession && name == indexDir {
		return d.handedOut(from, to)
	}
	if strings.Count(rel, string(filepath.Separator)) >= maxDepth {
		return d.note(name, fmt.Errorf("folders are nested more than %d deep", maxDepth))
	}
	// A folder beside a log of its name is that session's.
	nested := ofSession && (d.has(name+logExt) || d.has(name+coldExt))
	err := d.dir(ctx, from, to, rel, nested)
	var unnoted *unnotedError
	if err == nil || ctx.Err() != nil || errors.As(err, &unnoted) {
		return err
	}
	if rerr := durable.RemoveAll(d.fs, to); rerr != nil {
		return rerr
	}
	return d.note(name, err)
}

// handedOut brings along which numbers were handed out: those of files that were
// removed since stay used up. Indexes of lines come with their artifacts.
func (d *cloneDir) handedOut(from, to string) error {
	if err := d.fs.Mkdir(to, durable.DirPerm); err != nil {
		return err
	}
	index := cloneDir{cloner: d.cloner, from: from, to: to}
	err := index.record(countersName)
	var irregular *durable.NotRegularError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &irregular) {
		if _, err := d.fs.Identify(from); err != nil {
			d.done.Vanished = true
		}
		return nil // numbers are known from names and the log
	}
	return err
}
