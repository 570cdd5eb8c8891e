package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/session"
)

// needed is an artifact that a log tells of.
type needed struct {
	session.ArtifactCitation
	file string
}

// artifacts examines the directory of a session that logs cite.
func (d *Doctor) artifacts(ctx context.Context, dir *artifacts.Dir, logs []logged) error {
	cited := map[int64]needed{}
	var order []int64
	for _, l := range logs {
		if l.found == nil {
			continue
		}
		own := map[int64]bool{} // of a nested session with a folder that has the number
		if place := session.ArtifactsPath(l.path); place != "" && place != dir.Path() {
			if used, err := artifacts.Open(place, artifacts.Options{FS: d.opt.FS}).Used(); err == nil {
				own = used
			}
		}
		for _, a := range l.found.Artifacts {
			if own[a.ID] {
				continue
			}
			old, known := cited[a.ID]
			if !known {
				order = append(order, a.ID)
				old = needed{a, l.found.Path}
			}
			if a.Ended != nil {
				old.Ended = a.Ended
			}
			cited[a.ID] = old
		}
	}
	list, err := dir.List(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d.report(unreadable(dir.Path(), err))
		return nil
	}
	there := map[int64]bool{}
	for _, info := range list {
		there[info.ID] = true
		d.sum.Artifacts++
		if err := d.artifactFile(ctx, dir, info, cited[info.ID]); err != nil {
			return err
		}
	}
	for _, id := range order {
		if !there[id] {
			if err := d.absent(ctx, dir, cited[id], fmt.Sprintf("artifact %d is cited by entry %s and not there: the log has only the view of its output", id, cited[id].First.Entry)); err != nil {
				return err
			}
		}
	}
	return nil
}

// absent reports an artifact that is not there, and brings it back from elsewhere.
func (d *Doctor) absent(ctx context.Context, dir *artifacts.Dir, n needed, what string) error {
	f := Finding{Kind: KindArtifactMissing, File: n.file, What: what}.at(n.First.Line, n.First.Offset, n.First.Bytes)
	name, path, from := fmt.Sprintf("%d.bash.log", n.ID), "", ""
	if n.Ended != nil { // otherwise nothing tells which bytes are right
		path, from = d.artifact(dir.Path(), name, func(path string) bool { return sumIs(ctx, path, n.Ended.Bytes, n.Ended.CRC32C) })
	}
	d.report(d.bringBack(ctx, f, path, from, filepath.Join(dir.Path(), name)))
	return ctx.Err()
}

// bringBack is the end of a finding of what is not there: that path, which is in the place called from, has it, or,
// for "", that nothing has. A doctor that repairs copies it to where it should be.
func (d *Doctor) bringBack(ctx context.Context, f Finding, path, from, to string) Finding {
	switch {
	case from == "":
		f.Unmendable = true
		return f.remedy("name a home that has the session with --from", "")
	case !d.opt.Repair:
		return f.remedy("takes it from "+from, "")
	default:
		if err := d.copyIn(ctx, path, to); err != nil {
			f.Unmendable = true
			f.What += fmt.Sprintf("; taking it from %s failed: %v", from, err)
			return f
		}
		f.Repaired = true
		return f.remedy("", "it is back from "+from)
	}
}

// artifactFile examines one artifact.
func (d *Doctor) artifactFile(ctx context.Context, dir *artifacts.Dir, info artifacts.Info, n needed) error {
	switch info.State {
	case artifacts.Missing:
		if n.file == "" {
			n.ID, n.file = info.ID, filepath.Join(dir.Path(), fmt.Sprintf("%d.missing", info.ID))
		}
		return d.absent(ctx, dir, n, fmt.Sprintf("artifact %d is not here: %s", info.ID, info.Note))
	case artifacts.Writing:
		return nil // it has no end yet that could be checked
	}
	ix, err := sumOf(ctx, info.Path)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		d.report(unreadable(info.Path, err))
		return nil
	}
	d.read(ix.Size)
	whole := true
	logged := n.Ended != nil && n.Ended.Bytes == ix.Size && n.Ended.CRC32C == ix.CRC32C
	noted := info.HasCRC && info.CRC32C == ix.CRC32C && info.State != artifacts.Changed
	switch {
	case info.Unsettled && (n.Ended == nil || logged):
		err = d.settle(ctx, dir, info, n, ix)
	case logged && !noted:
		err = d.provenance(ctx, dir, info, n, ix)
	case !logged && !noted && (n.Ended != nil || info.HasCRC || info.State == artifacts.Changed):
		whole, err = d.changed(ctx, dir, info, n, ix)
		if whole && err == nil {
			ix, err = sumOf(ctx, info.Path)
		}
	case !logged && !noted:
		d.sum.Unsummed++
	}
	if err != nil {
		return err
	}
	// The index of other bytes than those that were kept may well be right.
	if whole && dir.CheckIndex(info.ID, ix) == artifacts.IndexWrong {
		f := Finding{Kind: KindLineIndex, File: filepath.Join(dir.Path(), ".index", fmt.Sprintf("%d.idx", info.ID))}
		f.What = fmt.Sprintf("the line index of artifact %d is damaged; the artifact is whole, and the index is made from it", info.ID)
		if d.opt.Repair {
			f.Repaired = dir.DropIndex(info.ID) == nil
		}
		d.report(f.remedy("removes it", "it is removed, and made anew when needed"))
	}
	return ctx.Err()
}

// settle reports an artifact without an end, and records it.
func (d *Doctor) settle(ctx context.Context, dir *artifacts.Dir, info artifacts.Info, n needed, ix lineindex.Index) error {
	f := Finding{Kind: KindArtifactOpen, File: info.Path}.at(0, 0, ix.Size)
	f.What = fmt.Sprintf("nothing records how artifact %d ended: %s; it holds the %d bytes that were written", info.ID, info.Note, ix.Size)
	state, note, run := artifacts.Interrupted, info.Note, info.Run
	if n.Ended != nil {
		state, note, run = stateOf(n.Ended), "", n.Ended.Run
		f.Kind = KindProvenance
		f.What += ", all of them as the log says"
	}
	return d.record(ctx, dir, info, run, state, note, ix, f)
}

func stateOf(e *session.ArtifactEnd) artifacts.State {
	if e.State == "" {
		return artifacts.Complete
	}
	return artifacts.State(e.State)
}

// provenance reports an artifact whose record contradicts it, while the log agrees
// with it.
func (d *Doctor) provenance(ctx context.Context, dir *artifacts.Dir, info artifacts.Info, n needed, ix lineindex.Index) error {
	if !info.HasCRC && info.State != artifacts.Changed && info.Run == "" && !info.Unsettled {
		return nil // by a program that keeps no provenance; the log is enough
	}
	f := Finding{Kind: KindProvenance, File: info.Path}.at(0, 0, ix.Size)
	f.What = fmt.Sprintf("the provenance of artifact %d does not fit it, while the log does: the bytes are right", info.ID)
	return d.record(ctx, dir, info, n.Ended.Run, stateOf(n.Ended), "", ix, f)
}

// record writes the provenance and reports f.
func (d *Doctor) record(ctx context.Context, dir *artifacts.Dir, info artifacts.Info, run string, state artifacts.State, note string, ix lineindex.Index, f Finding) error {
	if d.opt.Repair {
		err := dir.Settle(ctx, info.ID, artifacts.Provenance{Run: run}, state, note, ix)
		switch {
		case errors.Is(err, artifacts.ErrWriting):
			return nil // somebody goes on with it
		case err != nil:
			f.Unmendable = true
			f.What += fmt.Sprintf("; recording it failed: %v", err)
			d.report(f)
			return ctx.Err()
		}
		f.Repaired = true
	}
	d.report(f.remedy("records it, with the checksum of the bytes", "it is recorded, with the checksum of the bytes"))
	return nil
}

// changed reports an artifact whose bytes are not those that were kept. back is set when
// they are again.
func (d *Doctor) changed(ctx context.Context, dir *artifacts.Dir, info artifacts.Info, n needed, ix lineindex.Index) (back bool, err error) {
	f := Finding{Kind: KindArtifactCorrupt, File: info.Path}.at(0, 0, ix.Size)
	was := "the log says"
	bytes, sum := int64(-1), uint32(0)
	if n.Ended != nil {
		bytes, sum = n.Ended.Bytes, n.Ended.CRC32C
	} else if was = "its provenance says"; info.HasCRC {
		bytes, sum = info.Bytes, info.CRC32C
	}
	switch {
	case bytes < 0:
		f.What = fmt.Sprintf("artifact %d is not what was kept: %s", info.ID, info.Note)
	case bytes != ix.Size:
		f.What = fmt.Sprintf("artifact %d has %d bytes and had %d when it was finished, %s", info.ID, ix.Size, bytes, was)
	default:
		f.What = fmt.Sprintf("the bytes of artifact %d are not those that were kept: their checksum is %08x and was %08x when it was finished, %s", info.ID, ix.CRC32C, sum, was)
	}
	if !info.Created.IsZero() {
		f.What += fmt.Sprintf(" (written %s, changed %s)", info.Created.UTC().Format("2006-01-02T15:04:05Z"), info.ModTime.UTC().Format("2006-01-02T15:04:05Z"))
	}
	f.What += "; which bytes changed is not known, and the view in the log is as it was"
	path, from := "", ""
	if bytes >= 0 {
		path, from = d.artifact(dir.Path(), filepath.Base(info.Path), func(path string) bool { return sumIs(ctx, path, bytes, sum) })
	}
	switch {
	case from == "":
		f.Unmendable = true
		f = f.remedy("name a home that has the session with --from", "")
	case !d.opt.Repair:
		f = f.remedy("takes it from "+from+" and keeps these bytes beside it", "")
	default:
		err = d.keepAside(ctx, info.Path)
		if err == nil {
			err = d.copyIn(ctx, path, info.Path)
		}
		if err != nil {
			f.Unmendable = true
			f.What += fmt.Sprintf("; taking it from %s failed: %v", from, err)
			break
		}
		f.Repaired = true
		f = f.remedy("", "it is back from "+from+", and these bytes are in "+info.Path+".damaged")
	}
	d.report(f)
	return f.Repaired, ctx.Err()
}

// keepAside copies the damaged bytes of an artifact to <name>.damaged.
func (d *Doctor) keepAside(ctx context.Context, path string) error {
	return d.copyIn(ctx, path, path+".damaged")
}

// copyIn copies a file into the home, atomically and durably.
func (d *Doctor) copyIn(ctx context.Context, from, to string) error {
	in, err := d.opt.FS.OpenFile(from, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := durable.MkdirAll(d.opt.FS, filepath.Dir(to)); err != nil {
		return err
	}
	return durable.WriteFileFunc(d.opt.FS, to, true, func(w io.Writer) error {
		_, err := io.Copy(w, contextReader{ctx, in})
		return err
	})
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context // of the one copy this value lives for
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// sumOf reads a file and returns the index of its lines, with its checksum.
func sumOf(ctx context.Context, path string) (lineindex.Index, error) {
	f, err := durable.OS.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return lineindex.Index{}, err
	}
	defer f.Close()
	return lineindex.Build(ctx, f)
}

// sumIs reports whether a file has that size and checksum.
func sumIs(ctx context.Context, path string, size int64, sum uint32) bool {
	if info, err := os.Lstat(path); err != nil || info.Size() != size || info.Mode()&fs.ModeType != 0 {
		return false
	}
	ix, err := sumOf(ctx, path)
	return err == nil && ix.Size == size && ix.CRC32C == sum
}
