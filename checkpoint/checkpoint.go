package checkpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// DefaultMaxFile is the largest file that is recorded, in bytes.
const DefaultMaxFile = 100 << 20

// maxFiles is how many files one entry holds: about half a megabyte of log.
const maxFiles = 1000

// Options of a Recorder. The zero value is right for programs.
type Options struct {
	// MaxFile is the largest file that is recorded, in bytes; 0 means DefaultMaxFile.
	MaxFile int64
	// Durability is that of the files which a rewind writes: Sync, the zero value, has
	// them survive power loss when Apply returns.
	Durability session.Durability
	// Progress is told, from one goroutine at a time, how many files of how many are
	// done; nil means that nobody is.
	Progress func(done, total int)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// FS is the file system; nil means the real one. Tests inject faults here.
	FS durable.FS
}

// Recorder records files into a session and brings them back. It keeps what the log
// says in memory, and is meant to live as long as a tool or agent loop does.
type Recorder struct {
	m    *session.Manager
	s    *session.Session
	opts Options

	mu      sync.Mutex // held for one operation; guards history
	history *history

	kept keeps
}

// New returns a Recorder for a session of a manager. The caller closes the session.
func New(m *session.Manager, s *session.Session, o Options) *Recorder {
	o.MaxFile = cmp.Or(o.MaxFile, DefaultMaxFile)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FS == nil {
		o.FS = durable.OS
	}
	if o.Progress == nil {
		o.Progress = func(int, int) {}
	}
	return &Recorder{m: m, s: s, opts: o}
}

// ErrNothing is returned by Checkpoint when there is no file to record, nor a directory
// in which one may come to be. Nothing was written.
var ErrNothing = errors.New("there is no file to record; name files or directories, as in: agentrun checkpoint src")

// Checkpoint describes what was recorded.
type Checkpoint struct {
	Entry string // id
	// Files is how many files were looked at and can be brought back to this point,
	// the deleted ones among them that were recorded as such here.
	Files int
	// Changed is how many of them were not as they had been recorded before.
	Changed int
	// Skipped are files and directories that were left out.
	Skipped []Skipped
}

// Checkpoint records how files are now, under a name or "": the paths that are given,
// the regular files of each directory among them, and without any everything that was
// recorded in this session before, and what has come to be in directories that were. A
// path that is not there is an error, unless it was recorded before. ErrNothing comes
// with what was left out.
func (r *Recorder) Checkpoint(ctx context.Context, name string, paths ...string) (Checkpoint, error) {
	if name != session.CleanTitle(name) || len(name) > maxName || !plain(name) {
		return Checkpoint{}, fmt.Errorf("naming a checkpoint: a name is one line of plain text of at most %d bytes; %.40q is none", maxName, name)
	}
	if by := r.s.Redactor(); by != nil {
		left, _ := by.Text([]byte(name))
		name = string(left)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.update(ctx); err != nil {
		return Checkpoint{}, err
	}
	o := observation{Recorder: r, Record: Record{Cause: CauseCheckpoint, Name: name}}
	if err := o.collect(paths); err != nil {
		return Checkpoint{}, err
	}
	return o.record(ctx, true)
}

// Before records how a file is that a tool is about to change, or make, or delete. Once
// it returns nil the file can be brought back, whatever becomes of the tool, this
// process or, with session.Sync, the machine; after an error the tool should leave the
// file alone, for the change could not be undone. Where nothing is new it writes nothing
// and costs a stat.
//
// A path is absolute, or relative to the working directory of this process; directories
// and links, what belongs to git or to the home, and files above Options.MaxFile are
// errors.
func (r *Recorder) Before(ctx context.Context, path string) error {
	return r.observe(ctx, path)
}

// After records how a tool has left a file that Before was told of, so that a change
// which someone else makes later is told from the tool's. It is of use after a tool that
// failed, too.
func (r *Recorder) After(ctx context.Context, path string) error {
	return r.observe(ctx, path)
}

func (r *Recorder) observe(ctx context.Context, path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.update(ctx); err != nil {
		return err
	}
	o := observation{Recorder: r, Record: Record{Cause: CauseTool}}
	at, err := r.history.locate(path)
	if err != nil {
		return err
	}
	if why := r.history.forbidden(at.Path); why != "" {
		return fmt.Errorf("recording %s: %s", path, why)
	}
	o.paths = []Place{at}
	c, err := o.record(ctx, false)
	if err == nil && len(c.Skipped) > 0 {
		err = fmt.Errorf("recording %s: %s", c.Skipped[0].Path, c.Skipped[0].Reason)
	}
	return err
}

// update brings the history up to date. r.mu is held.
func (r *Recorder) update(ctx context.Context) error {
	p := places{fs: r.opts.FS}
	var err error
	if p.root, err = filepath.EvalSymlinks(r.s.CWD()); err != nil {
		p.root = ""
	}
	if p.home, err = realDir(r.m.Home()); err != nil {
		return fmt.Errorf("looking for the home: %w", err)
	}
	if r.history == nil || r.history.places != p {
		r.history = newHistory(p)
	}
	h, err := r.history.update(ctx, r.m, r.s.Path())
	if err != nil {
		return fmt.Errorf("reading what was recorded: %w", err)
	}
	r.history = h
	return nil
}

// atOnce is how many files are looked at, or written, at once: they are fsynced one by
// one, and a disk does several for the price of one.
var atOnce = max(8, runtime.GOMAXPROCS(0))

// observation is a record in the making.
type observation struct {
	*Recorder
	Record
	paths []Place // of files, each once after record began
	ways  *ways
}

// skip notes that something is left out.
func (o *observation) skip(at Place, reason string) {
	o.Skipped = append(o.Skipped, Skipped{at, reason})
}

// collect finds the files to look at.
func (o *observation) collect(paths []string) error {
	if len(paths) == 0 {
		return o.everything()
	}
	for _, path := range paths {
		at, err := o.history.locate(path)
		if err != nil {
			return err
		}
		info, err := o.opts.FS.Lstat(at.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if known := o.known(at.Path); known == 0 {
				return fmt.Errorf("recording %s: it is not there, and was never recorded; name files and directories that are", path)
			}
		case err != nil:
			return fmt.Errorf("recording %s: %w", path, err)
		case o.history.forbidden(at.Path) != "":
			o.skip(at, o.history.forbidden(at.Path))
		case info.IsDir():
			o.Dirs = append(o.Dirs, at)
			o.known(at.Path)
			o.walk(at.Path)
		default:
			o.paths = append(o.paths, at)
		}
	}
	return nil
}

// known adds the files at or below a path that have records.
func (o *observation) known(path string) (n int) {
	if t := o.history.files[path]; t != nil {
		o.paths = append(o.paths, o.history.at(path))
		n++
	}
	for name := range o.history.files {
		if name != path && within(path, name) {
			o.paths = append(o.paths, o.history.at(name))
			n++
		}
	}
	return n
}

// everything collects all files with records, and the directories that were looked
// through.
func (o *observation) everything() error {
	for path := range o.history.files {
		if o.history.forbidden(path) == "" {
			o.paths = append(o.paths, o.history.at(path))
		}
	}
	for _, dir := range o.history.dirs() {
		if o.history.forbidden(dir) != "" {
			continue
		}
		if info, err := o.opts.FS.Lstat(dir); err == nil && info.IsDir() {
			o.Dirs = append(o.Dirs, o.history.at(dir))
			o.walk(dir)
		}
	}
	return nil
}

// walk collects the regular files of a directory.
func (o *observation) walk(dir string) {
	entries, err := o.opts.FS.ReadDir(dir)
	if err != nil {
		o.skip(o.history.at(dir), "it cannot be read: "+cause(err))
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		at := o.history.at(path)
		switch why := o.history.forbidden(path); {
		case !plain(e.Name()) || at.check() != nil:
			at.Path = strings.ToValidUTF8(at.Path, "\uFFFD")
			at.Rel = strings.ToValidUTF8(at.Rel, "\uFFFD")
			o.skip(at, "its name is no plain UTF-8")
		case why != "":
			o.skip(at, why)
		case e.IsDir():
			o.walk(path)
		case e.Type().IsRegular():
			o.paths = append(o.paths, at)
		default:
			o.skip(at, "it is "+kind(e.Type()))
		}
	}
}

// cause is what the system says, without the path that stands before it.
func cause(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return err.Error()
}

// seen is what became of one file.
type seen struct {
	file    File
	record  bool // it has to be recorded
	changed bool
	skipped string
	known   bool // its state is known from here on
}

// record looks at the files and appends what is new. Without always it appends nothing
// when nothing is.
func (o *observation) record(ctx context.Context, always bool) (Checkpoint, error) {
	slices.SortFunc(o.paths, func(a, b Place) int { return strings.Compare(a.Path, b.Path) })
	o.paths = slices.CompactFunc(o.paths, func(a, b Place) bool { return a.Path == b.Path })
	all := make([]seen, len(o.paths))
	o.ways = &ways{places: o.history.places}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	var done int
	var mu sync.Mutex
	for i, at := range o.paths {
		g.Go(func() (err error) {
			if err := gctx.Err(); err != nil {
				return err
			}
			if all[i], err = o.look(gctx, at); err != nil {
				return fmt.Errorf("recording %s: %w", at.Path, err)
			}
			mu.Lock()
			defer mu.Unlock()
			done++
			o.opts.Progress(done, len(all))
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return Checkpoint{}, err
	}
	var c Checkpoint
	for _, s := range all {
		switch {
		case s.skipped != "":
			o.skip(s.file.Place, s.skipped)
			continue
		case s.record:
			o.Files = append(o.Files, s.file)
		}
		if s.known {
			c.Files++
		}
		if s.changed {
			c.Changed++
		}
	}
	c.Skipped = o.Skipped
	switch {
	case len(o.Files) > 0:
	case !always:
		return c, nil
	case c.Files == 0 && len(o.Dirs) == 0:
		return c, ErrNothing
	}
	var err error
	c.Entry, err = o.append(ctx, o.Record)
	return c, err
}

// look finds out how a file is, and stores its content if that is new.
func (o *observation) look(ctx context.Context, at Place) (seen, error) {
	t := o.history.files[at.Path]
	var last *State
	if t != nil {
		last = t.last().after
	}
	s := seen{file: File{Place: at, Before: last}}
	info, obstacle, err := o.ways.inTheWay(at.Path)
	switch {
	case err != nil:
		s.skipped = "it cannot be looked at: " + cause(err)
		return s, nil
	case obstacle != "" && last == nil:
		s.skipped = obstacle
		return s, nil
	case info == nil: // absent, or something else stands there: the file is gone
		s.changed = last != nil
		s.record = t == nil || s.changed
		s.known = s.record
		return s, nil
	case last.unchanged(info, o.opts.Now()):
		s.known = true
		return s, nil
	case info.Size() > o.opts.MaxFile:
		s.skipped = fmt.Sprintf("it has %d bytes, and files of at most %d are recorded", info.Size(), o.opts.MaxFile)
		return s, nil
	}
	now, err := observe(o.opts.FS, at.Path, o.opts.Now, func(f io.ReadSeeker) (blobref.Ref, int64, error) {
		if ref, n, ok, err := o.kept.find(ctx, f); ok || err != nil {
			return ref, n, err
		}
		ref, n, err := o.s.PutBlob(ctx, f) // from its beginning
		if err != nil {
			err = &storeError{err}
		}
		return ref, n, err
	})
	var store *storeError
	switch {
	case errors.As(err, &store):
		return s, store.err
	case err != nil:
		s.skipped = "it cannot be read: " + cause(err)
		return s, nil
	}
	s.file.After, s.known = now, true
	switch {
	case t == nil && !o.history.isNew(at.Path):
		s.file.Before, s.record, s.changed = now, true, true
	default:
		s.changed = !same(last, now)
		// A stamp that can be believed now spares the next look its reading.
		s.record = s.changed || now.Stamp != "" && now.Stamp != last.Stamp
	}
	return s, nil
}

// storeError is a failure of the blob store, not of the file.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// append writes a record, as several entries when it is long, with one write. It
// returns the id of the last one.
func (r *Recorder) append(ctx context.Context, all Record) (string, error) {
	if all.Files == nil {
		all.Files = []File{}
	}
	var bodies []entry.Body
	files := all.Files
	if len(files) > maxFiles {
		all.Group = uuid.NewString()
	}
	for {
		part := all
		part.Files = files[:min(len(files), maxFiles)]
		files = files[len(part.Files):]
		if len(files) > 0 { // what holds for all of it stands in the last one
			part.Name, part.Dirs, part.Skipped = "", nil, nil
		}
		data, err := json.Marshal(part)
		if err != nil {
			return "", fmt.Errorf("recording files: %w", err)
		}
		bodies = append(bodies, entry.Custom{CustomType: entry.CustomTypeCheckpoint, Data: data})
		if len(files) == 0 {
			break
		}
	}
	ids, err := r.s.AppendAll(ctx, bodies...)
	if err != nil {
		return "", fmt.Errorf("recording files: %w", err)
	}
	return ids[len(ids)-1], nil
}
