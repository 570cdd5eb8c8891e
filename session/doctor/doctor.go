package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// Options of a Doctor. The zero value only looks.
type Options struct {
	// Repair mends what can be mended.
	Repair bool
	// From are homes, directories and bundles where lost blobs and artifacts are looked
	// for.
	From []string
	// Passphrase opens the bundles of From that are encrypted.
	Passphrase string
	// Report is told each finding, in the order in which they are found.
	Report func(Finding)
	// Progress is told now and then how much was read, in bytes; nil means that nobody
	// is.
	Progress func(bytes int64)
	// Checkpoints yields what is wrong with the checkpoints of conversations in a home, in findings of the kinds
	// KindCheckpointDamaged and KindCheckpointMissing: what they refer to is not known here. None can be mended. It is
	// asked by Home and Directory; nil means that nobody looks at them.
	Checkpoints func(ctx context.Context, home string) iter.Seq[Finding]
	// FS is the file system; nil means the real one. Tests inject faults here.
	FS durable.FS
}

// Summary counts what was looked at.
type Summary struct {
	Logs, Entries, Artifacts, Blobs int
	Bytes                           int64 // read of all these

	Findings, Repaired, Unmendable int
	// Unsealed counts entries, Unsummed artifacts, that bear no checksum: only some
	// changes to them can be found.
	Unsealed, Unsummed int

	// Absent are session files elsewhere that the home knows and that are not there.
	Absent []string
}

// Doctor examines one home. It belongs to one goroutine.
type Doctor struct {
	m    *session.Manager
	opt  Options
	from []source
	sum  Summary

	stores []*localdir.Store // where the blobs of the home are
	cited  map[blobref.Ref]*citation
	order  []blobref.Ref
	gone   *[]string // names of logs that are not where they were listed; nil: that is a finding
}

// citation is a blob that sessions need.
type citation struct {
	file  string // the log that cites it first
	place session.Place
	logs  []string // all that cite it, up to maxCiting
	more  int
	told  bool // as corrupt
	// folded is set for what a compressed log repeats.
	folded bool
}

// maxCiting bounds how many sessions are named with a missing blob.
const maxCiting = 20

// New returns a doctor of the home of m. The error is about a place of Options.From.
// Close it.
func New(ctx context.Context, m *session.Manager, opt Options) (*Doctor, error) {
	if opt.FS == nil {
		opt.FS = durable.OS
	}
	if opt.Report == nil {
		opt.Report = func(Finding) {}
	}
	if opt.Progress == nil {
		opt.Progress = func(int64) {}
	}
	d := &Doctor{m: m, opt: opt, cited: map[blobref.Ref]*citation{}}
	for _, dir := range []string{catalog.BlobsDir(m.Home()), catalog.KeptBlobsDir(m.Home())} {
		s, err := localdir.Open(dir, localdir.Options{Sync: true, FS: opt.FS})
		if err != nil {
			return nil, err
		}
		d.stores = append(d.stores, s)
	}
	for _, place := range opt.From {
		s, err := openSource(ctx, place, opt.Passphrase)
		if err != nil {
			return nil, errors.Join(err, d.Close())
		}
		d.from = append(d.from, s)
	}
	return d, nil
}

// Close removes what bundles were unpacked to.
func (d *Doctor) Close() error {
	var errs []error
	for _, s := range d.from {
		if s.temp {
			errs = append(errs, os.RemoveAll(s.dir))
		}
	}
	d.from = nil
	return errors.Join(errs...)
}

// Summary counts what was looked at until now.
func (d *Doctor) Summary() Summary { return d.sum }

func (d *Doctor) report(f Finding) {
	d.sum.Findings++
	switch {
	case f.Repaired:
		d.sum.Repaired++
	case f.Unmendable:
		d.sum.Unmendable++
	}
	d.opt.Report(f)
}

func (d *Doctor) read(bytes int64) {
	d.sum.Bytes += bytes
	d.opt.Progress(d.sum.Bytes)
}

// Home examines every session of the home, those in the trash and those that were
// opened elsewhere too, and every blob.
func (d *Doctor) Home(ctx context.Context) error {
	paths, err := d.logs(ctx, "")
	if err != nil {
		return err
	}
	trashed, err := d.trashed()
	if err != nil {
		return err
	}
	elsewhere, err := d.elsewhere()
	if err != nil {
		return err
	}
	if err := d.listed(ctx, slices.Concat(paths, trashed, elsewhere)); err != nil {
		return err
	}
	if err := d.withoutLogs(ctx, ""); err != nil {
		return err
	}
	d.listCache()
	if err := d.allBlobs(ctx); err != nil {
		return err
	}
	if err := d.missing(ctx); err != nil {
		return err
	}
	return d.checkpoints(ctx)
}

// listed examines logs of the home. One that was moved or compressed since it was
// listed is looked for again, and one that was removed for good is none.
func (d *Doctor) listed(ctx context.Context, paths []string) error {
	for try := 0; ; try++ {
		var gone []string
		d.gone = &gone
		if try == maxTries {
			d.gone = nil // it is listed and cannot be opened: that is a finding
		}
		for _, path := range paths {
			if err := d.session(ctx, path); err != nil {
				return err
			}
		}
		if d.gone = nil; len(gone) == 0 {
			return nil
		}
		now, err := d.m.List(ctx, "")
		if err != nil {
			return err
		}
		if paths, err = d.trashed(); err != nil {
			return err
		}
		for _, s := range now.Sessions {
			paths = append(paths, s.Path)
		}
		for _, u := range now.Unreadable {
			paths = append(paths, u.Path)
		}
		paths = slices.DeleteFunc(paths, func(path string) bool {
			stem, ok := catalog.Stem(path)
			return !ok || !slices.Contains(gone, filepath.Base(stem))
		})
	}
}

// maxTries bounds how often a log is looked for that others move.
const maxTries = 3

// Directory examines the sessions of the working directory cwd and the blobs that
// they cite.
func (d *Doctor) Directory(ctx context.Context, cwd string) error {
	paths, err := d.logs(ctx, cwd)
	if err != nil {
		return err
	}
	if err := d.withoutLogs(ctx, cwd); err != nil {
		return err
	}
	if err := d.Sessions(ctx, paths...); err != nil {
		return err
	}
	return d.checkpoints(ctx)
}

// checkpoints reports what is wrong with the checkpoints of the home, after what repair has brought back.
func (d *Doctor) checkpoints(ctx context.Context) error {
	if d.opt.Checkpoints == nil {
		return nil
	}
	for f := range d.opt.Checkpoints(ctx, d.m.Home()) {
		if ctx.Err() != nil {
			break
		}
		f.Unmendable = true
		d.report(f)
	}
	return ctx.Err()
}

// Sessions examines the logs at paths with all that belongs to them.
func (d *Doctor) Sessions(ctx context.Context, paths ...string) error {
	for _, path := range paths {
		if err := d.session(ctx, path); err != nil {
			return err
		}
	}
	if err := d.citedBlobs(ctx); err != nil {
		return err
	}
	return d.missing(ctx)
}

// logs lists the logs of cwd, or of all directories, in the order of their paths:
// those that do not open as well.
func (d *Doctor) logs(ctx context.Context, cwd string) ([]string, error) {
	listing, err := d.m.List(ctx, cwd)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, s := range listing.Sessions {
		paths = append(paths, s.Path)
	}
	for _, u := range listing.Unreadable {
		if _, ok := catalog.Stem(u.Path); ok {
			paths = append(paths, u.Path)
		} else {
			d.report(unreadable(u.Path, errors.New(u.Reason)))
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// elsewhere lists the logs outside of the home that were opened with it. One that is not
// there may be on a drive that is not, and is no finding.
func (d *Doctor) elsewhere() (paths []string, err error) {
	all, err := d.m.Registry()
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if r.Home {
			continue
		}
		there := slices.IndexFunc([]string{catalog.PlainPath(r.Path), catalog.ColdPath(r.Path)}, func(path string) bool {
			_, err := d.opt.FS.Lstat(path)
			if err == nil {
				paths = append(paths, path)
			}
			return err == nil
		})
		if there < 0 {
			d.sum.Absent = append(d.sum.Absent, r.Path)
		}
	}
	return paths, nil
}

// trashed lists the logs in the trash.
func (d *Doctor) trashed() ([]string, error) {
	var paths []string
	trash := catalog.TrashDir(d.m.Home())
	dirs, err := d.opt.FS.ReadDir(trash)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the trash: %w", err)
	}
	for _, e := range dirs {
		if e.IsDir() {
			found, err := d.logsIn(filepath.Join(trash, e.Name()))
			if err != nil {
				return nil, err
			}
			paths = append(paths, found...)
		}
	}
	return paths, nil
}

// logsIn lists the logs in a directory, by name.
func (d *Doctor) logsIn(dir string) (paths []string, err error) {
	entries, err := d.opt.FS.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir, err)
	}
	for _, e := range entries {
		if _, ok := catalog.Stem(e.Name()); ok && e.Type().IsRegular() && e.Name()[0] != '.' {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// session examines a log, its artifacts, and the sessions of its subagents.
func (d *Doctor) session(ctx context.Context, path string) error {
	dir, _ := catalog.ArtifactsDir(path)
	found, err := d.log(ctx, path, d.gone)
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return err
	}
	all := []logged{{path, found}}
	nested, err := d.nested(ctx, dir, 0)
	if err != nil {
		return err
	}
	for _, path := range nested {
		found, err := d.log(ctx, path, nil)
		if err != nil {
			return err
		}
		all = append(all, logged{path, found})
	}
	if dir == "" {
		return nil
	}
	beside := artifacts.Open(dir, artifacts.Options{Sync: true, FS: d.opt.FS})
	if err := d.artifacts(ctx, beside, all); err != nil {
		return err
	}
	if err := d.absentAgents(ctx, beside, all); err != nil {
		return err
	}
	return d.agents(ctx, beside)
}

// logged is a log and what was found in it, nil when it could not be read.
type logged struct {
	path  string
	found *session.Checkup
}

// maxNesting is how deep agents within agents are looked for.
const maxNesting = 16

// nested lists the sessions of subagents, which lie among the artifacts.
func (d *Doctor) nested(ctx context.Context, dir string, depth int) (paths []string, err error) {
	if dir == "" || depth == maxNesting {
		return nil, ctx.Err()
	}
	entries, err := d.opt.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir, err)
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch _, ok := catalog.Stem(name); {
		case strings.HasPrefix(e.Name(), "."):
		case ok && e.Type().IsRegular():
			paths = append(paths, name)
		case e.IsDir():
			below, err := d.nested(ctx, name, depth+1)
			if err != nil {
				return nil, err
			}
			paths = append(paths, below...)
		}
	}
	return paths, nil
}

// errGone is the error of a log that is not where it was listed.
var errGone = errors.New("the log is not there any more")

// log examines one log. When it is not there, its name goes to gone, unless that is nil.
func (d *Doctor) log(ctx context.Context, path string, gone *[]string) (*session.Checkup, error) {
	found, err := d.m.Check(ctx, path)
	if err == nil && unfinished(found) {
		// Somebody may have been in the middle of writing that line.
		found, err = d.m.Check(ctx, path)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if stem, ok := catalog.Stem(path); ok && gone != nil && errors.Is(err, fs.ErrNotExist) {
		*gone = append(*gone, filepath.Base(stem))
		return nil, errGone
	}
	d.sum.Logs++
	if errors.Is(err, session.ErrForeign) {
		if format, serr := Sniff(ctx, path); serr == nil && format != FormatSession {
			return nil, d.transcript(ctx, path, format)
		}
	}
	if err != nil {
		d.report(unreadable(path, err))
		return nil, d.emptied(path)
	}
	d.read(found.Bytes)
	d.sum.Entries += found.Entries
	d.sum.Unsealed += found.Unsealed
	d.cite(found)
	kept := catalog.DamagedPath(found.Path)
	repaired, why := false, ""
	switch {
	case len(found.Damage) == 0:
	case !found.Writable:
		why = "the file is of a newer version of the format, which this program never changes"
	case d.opt.Repair:
		back, err := d.fetchFolded(ctx, found)
		if err == nil && back {
			if found, err = d.m.Check(ctx, path); err == nil && len(found.Damage) == 0 {
				break
			}
		}
		var mended *session.Checkup
		if err == nil {
			mended, err = d.m.Repair(ctx, path)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if repaired = err == nil; repaired {
			mended.Path = found.Path
			found = mended
		} else {
			why = fmt.Sprintf("repair failed: %v", err)
		}
	}
	for _, s := range found.Damage {
		f := ofStretch(found.Path, s, kept, repaired)
		if why != "" {
			f.What, f.Unmendable = f.What+"; "+why, true
		}
		d.report(f)
	}
	if found.Index {
		d.report(d.dropIndex(found.Path))
	}
	return found, d.emptied(found.Path)
}

// fetchFolded brings back what was folded out of a compressed log and is lost: its
// entries are whole again, and nothing need be left out.
func (d *Doctor) fetchFolded(ctx context.Context, found *session.Checkup) (back bool, err error) {
	for _, b := range found.Blobs {
		if !b.Folded || d.holds(ctx, b.Ref) {
			continue
		}
		kept := d.stores[len(d.stores)-1]
		place, err := d.fetch(ctx, kept, b.Ref)
		if err != nil {
			return back, fmt.Errorf("bringing back %s, which it repeats: %w", b.Ref, err)
		}
		if place == "" {
			continue
		}
		back = true
		f := Finding{Kind: KindBlobMissing, File: found.Path, Repaired: true}.at(b.First.Line, b.First.Offset, b.First.Bytes)
		f.What = fmt.Sprintf("%s was not in the home; the compressed log repeats it %d times", b.Ref, b.Count)
		d.report(f.remedy("", "it is back from "+place))
	}
	return back, nil
}

// holds reports whether the home has a blob, and it is whole.
func (d *Doctor) holds(ctx context.Context, ref blobref.Ref) bool {
	for _, s := range d.stores {
		if _, err := s.Check(ctx, ref); err == nil {
			return true
		}
	}
	return false
}

// unfinished reports whether a log ends within a record.
func unfinished(found *session.Checkup) bool {
	n := len(found.Damage)
	return n > 0 && found.Damage[n-1].Kind == session.KindTorn && found.Damage[n-1].Offset+found.Damage[n-1].Bytes >= found.Bytes
}

// dropIndex removes the index of a log that does not hold its own checksum.
func (d *Doctor) dropIndex(path string) Finding {
	f := Finding{
		Kind: KindLogIndex, File: catalog.IndexPath(path),
		What: "the rebuildable index of a log is damaged; it is not used, nothing is lost",
	}
	if d.opt.Repair {
		err := d.opt.FS.Remove(f.File)
		f.Repaired = err == nil || errors.Is(err, fs.ErrNotExist)
	}
	return f.remedy("removes it", "it is removed, and made anew when needed")
}

// cite notes what a log needs.
func (d *Doctor) cite(found *session.Checkup) {
	for _, b := range found.Blobs {
		c := d.cited[b.Ref]
		if c == nil {
			c = &citation{file: found.Path, place: b.First, folded: b.Folded}
			d.cited[b.Ref] = c
			d.order = append(d.order, b.Ref)
		}
		if len(c.logs) < maxCiting {
			c.logs = append(c.logs, nameOf(found))
		} else {
			c.more++
		}
	}
}

// nameOf is how a session is called in a sentence.
func nameOf(c *session.Checkup) string {
	if c.ID != "" {
		return c.ID
	}
	return c.Path
}

func unreadable(path string, err error) Finding {
	return Finding{Kind: KindUnreadable, File: path, Unmendable: true, What: fmt.Sprintf("it cannot be read: %v", err)}
}
