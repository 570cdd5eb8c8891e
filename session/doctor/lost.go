package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/journal"
)

// settledAge is how long artifacts have to be there without a log: a fork writes its
// log last.
const settledAge = 30 * time.Second

// emptied reports a log without entries that has artifacts or an index beside it. One in
// the trash was given up.
func (d *Doctor) emptied(path string) error {
	if strings.HasPrefix(path, catalog.TrashDir(d.m.Home())+string(filepath.Separator)) {
		return nil
	}
	l, err := catalog.LostAt(d.opt.FS, path)
	if err != nil {
		d.report(unreadable(path, err))
		return nil
	}
	if l == nil || l.Gone {
		return nil
	}
	f := Finding{Kind: KindLogEmpty, File: path, Unmendable: true}.at(0, 0, l.Size)
	beside := "its index is beside it"
	if l.Artifacts > 0 {
		beside = artifactsOf(l) + " beside it"
	}
	changed := ""
	if info, err := d.opt.FS.Lstat(path); err == nil {
		changed = fmt.Sprintf(" (changed %s)", info.ModTime().UTC().Format("2006-01-02T15:04:05Z"))
	}
	f.What = fmt.Sprintf("%v%s, and %s: the entries that it had are lost; the artifacts are not, and gc frees no blob of the home as long as they are there, since which ones it cited is not known", l, changed, beside)
	d.report(f.remedy("put the log back from a backup, or give the session up: agentrun sessions rm "+path, ""))
	return nil
}

// withoutLogs reports the artifacts of cwd, or of all directories, whose log is gone.
func (d *Doctor) withoutLogs(ctx context.Context, cwd string) error {
	home := d.m.Home()
	dirs, err := catalog.Open(home, catalog.Options{FS: d.opt.FS}).Directories(cwd)
	if err != nil {
		return err
	}
	foreign, err := catalog.Foreign(d.opt.FS, home)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		lost, err := catalog.FindLost(d.opt.FS, dir)
		if err != nil {
			d.report(unreadable(dir, err))
			continue
		}
		for _, l := range lost {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !l.Gone || d.isAway(&l, foreign) {
				continue
			}
			f := Finding{Kind: KindLogMissing, File: l.Log, Unmendable: true}
			f.What = fmt.Sprintf("%v, and %s in %s: its entries are lost if it was removed, none if a fork was killed; the artifacts are not lost, and until gc removes them it frees no blob, since which ones the log cited is not known", &l, artifactsOf(&l), l.Dir)
			d.report(f.remedy("put the log back from a backup, or remove that directory", ""))
		}
	}
	return nil
}

// isAway reports whether the log of artifacts is somewhere else, or about to come, or
// was another program's that leaves artifacts behind.
func (d *Doctor) isAway(l *catalog.Lost, foreign bool) bool {
	if journal.Any(d.opt.FS, d.m.Home()) {
		return true
	}
	if trashed, err := d.trashed(); err == nil {
		for _, path := range trashed {
			if stem, _ := catalog.Stem(path); filepath.Base(stem) == filepath.Base(l.Dir) {
				return true
			}
		}
	}
	if info, err := d.opt.FS.Lstat(l.Dir); err != nil || time.Since(info.ModTime()) < settledAge {
		return true
	}
	if again, err := catalog.LostAt(d.opt.FS, l.Log); err != nil || again == nil {
		return true
	}
	_, err := d.opt.FS.Identify(filepath.Join(l.Dir, ".index"))
	return foreign && err != nil
}

func artifactsOf(l *catalog.Lost) string {
	if l.Artifacts == 1 {
		return "1 artifact is"
	}
	return fmt.Sprintf("%d artifacts are", l.Artifacts)
}
