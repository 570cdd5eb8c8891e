package task

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/task/isolation"
)

// Patch is what a subagent with files of its own has changed in them.
type Patch struct {
	Artifact string   `json:"artifact,omitempty"` // the URL of a git patch; "" when nothing was changed
	Bytes    int64    `json:"bytes"`
	Added    int      `json:"added"` // files
	Changed  int      `json:"changed"`
	Deleted  int      `json:"deleted"`
	Left     []string `json:"left,omitempty"` // sentences about what is not in it
}

// patchTool is what the artifact of a patch is called after.
const patchTool = "patch"

// kindOf is the isolation of a subagent: its call may add it to its type, and not take it away.
func (j *job) kindOf() isolation.Kind {
	if k := isolation.Kind(j.Isolation); j.Isolation != "" && k != isolation.None {
		return k
	}
	if j.typ.Isolation == "" {
		return isolation.None
	}
	return j.typ.Isolation
}

// checkIsolation says why a subagent cannot have files of its own.
func (t *Tree) checkIsolation(ctx context.Context, p *Parent, j *job) error {
	if _, err := isolation.ParseKind(j.Isolation); err != nil {
		return err
	}
	kind := j.kindOf()
	if kind == isolation.None {
		return nil
	}
	if t.o.Spaces == "" {
		return errors.New("it wants files of its own, and nothing may be written here")
	}
	return isolation.Check(ctx, kind, p.dir, t.o.Spaces)
}

// place is where the space of a subagent is.
func (t *Tree) place(id string) string {
	return filepath.Join(t.o.Spaces, t.o.Root.ID(), filepath.Base(id))
}

// errNotHere is why a subagent whose files are lost cannot go on.
var errNotHere = errors.New("the files that it worked in are not here: they were removed, or its session was copied from elsewhere")

// isolate gives a subagent files of its own, or finds those that it has; nil for one that works in those of its parent. said is
// what it is told of them. begun says that it has worked before.
func (t *Tree) isolate(ctx context.Context, p *Parent, j *job, begun bool) (s *isolation.Space, said string, err error) {
	kind := j.kindOf()
	if kind == isolation.None {
		return nil, "", nil
	}
	end, err := p.kin.lastEnd(ctx, j.id)
	if err != nil {
		return nil, "", err
	}
	s, made, err := isolation.Open(ctx, isolation.Options{Kind: kind, Place: t.place(j.id.String()), Source: p.dir, Agent: j.id.String(), Sync: t.o.Sync, FS: t.o.FS})
	if err != nil {
		return nil, "", err
	}
	if made && begun && end.Status == "" {
		return nil, "", errors.Join(errNotHere, s.Remove(context.WithoutCancel(ctx)))
	}
	said = fmt.Sprintf("You work in %s, which is a copy of %s for you alone. Nothing that you change there is seen by others: when you have ended, "+
		"it is handed over as a patch. Change nothing elsewhere, and do not commit.", s.Dir(), p.dir)
	if made && end.Patch != nil && end.Patch.Artifact != "" {
		again, err := t.patchAgain(ctx, p, end, s)
		if err != nil {
			return nil, "", errors.Join(err, s.Remove(context.WithoutCancel(ctx)))
		}
		said += again
	}
	for _, left := range s.Left() {
		said += "\n- " + left
	}
	return s, said, nil
}

// patchAgain brings what a subagent changed before into the files that it gets now.
func (t *Tree) patchAgain(ctx context.Context, p *Parent, end End, s *isolation.Space) (said string, err error) {
	merged, err := p.kin.wasMerged(ctx, end.Patch.Artifact)
	if err != nil {
		return "", err
	}
	if merged {
		return " What you changed before has been merged into the files.", nil
	}
	f, size, err := openPatch(ctx, t.o.Artifacts, end.Patch.Artifact)
	if err != nil {
		return "", err
	}
	defer f.Close()
	m, err := isolation.Apply(ctx, isolation.MergeOptions{Dir: s.Tree(), Patch: f, Size: size, Scratch: t.place(end.ID) + "/again", FS: t.o.FS})
	if err != nil {
		return "", err
	}
	if conflicts := m.Conflicts(); len(conflicts) > 0 {
		return fmt.Sprintf(" What you changed before is not in it, because %s was changed since: it is %s.", conflicts[0].Path, end.Patch.Artifact), nil
	}
	return " What you changed before is in it.", nil
}

// openPatch opens the artifact of a patch.
func openPatch(ctx context.Context, dir *artifacts.Dir, url string) (*artifacts.Reader, int64, error) {
	var n int64
	if _, err := fmt.Sscanf(url, "artifact://%d", &n); err != nil {
		return nil, 0, fmt.Errorf("reading a patch: %.60q is no artifact", url)
	}
	f, err := dir.Open(ctx, n)
	if err != nil {
		return nil, 0, fmt.Errorf("reading a patch: %w", err)
	}
	size, err := f.Size()
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("reading a patch: %w", err), f.Close())
	}
	return f, size, nil
}

// handIn keeps what a subagent has changed, whatever became of it.
func (t *Tree) handIn(ctx context.Context, s *isolation.Space, r *report) error {
	patch, err := t.keepPatch(ctx, s, r.id, r.end.Run)
	r.end.Patch = patch
	switch {
	case passes(err):
		return err
	case errors.Is(err, isolation.ErrGone):
		r.end.Status, r.end.Reason = Failed, err.Error()
	case err != nil:
		r.end.Status, r.end.Reason = Failed, fmt.Sprintf("what it changed could not be kept, and is still in %s: %v", s.Dir(), err)
		r.keepSpace = true
	}
	return nil
}

// keepPatch makes an artifact of what was changed in a space. One that a crash left of the same run is used again.
func (t *Tree) keepPatch(ctx context.Context, s *isolation.Space, id artifacts.AgentID, run string) (*Patch, error) {
	by := patchTool + ":" + id.String() + ":" + run
	w := &patchWriter{ctx: ctx, dir: t.o.Artifacts, by: by}
	change, err := s.Patch(ctx, w)
	p := &Patch{Added: change.Added, Changed: change.Changed, Deleted: change.Deleted, Left: change.Left}
	if err == nil {
		err = w.finish()
	}
	if w.file != nil {
		if err != nil {
			err = errors.Join(err, w.file.Discard())
		} else {
			p.Artifact, p.Bytes = w.file.URL(), w.index.Size()
		}
		err = errors.Join(err, w.file.Close())
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// patchWriter makes an artifact when there is something to keep.
type patchWriter struct {
	ctx   context.Context
	dir   *artifacts.Dir
	by    string
	file  *artifacts.File
	out   *bufio.Writer
	index lineindex.Builder
}

func (w *patchWriter) Write(b []byte) (int, error) {
	if w.file == nil {
		f, err := w.dir.Create(w.ctx, patchTool, artifacts.Provenance{Run: w.by})
		if err != nil {
			return 0, err
		}
		w.file = f
		w.out = bufio.NewWriterSize(io.MultiWriter(f, &w.index), 256<<10)
	}
	return w.out.Write(b)
}

func (w *patchWriter) finish() error {
	if w.file == nil {
		return nil
	}
	if err := w.out.Flush(); err != nil {
		return err
	}
	return w.file.Finish(w.index.Index())
}

// vacate removes the space of a subagent that has come to its end, if there is one.
func (t *Tree) vacate(ctx context.Context, id string) error {
	if t.o.Spaces == "" {
		return nil
	}
	return isolation.Remove(ctx, t.o.FS, t.place(id))
}

// clearLeft removes the space of a subagent whose end is in the log, if a crash has left it, and if nobody has spoken to the
// subagent since: it goes on in there.
func (t *Tree) clearLeft(ctx context.Context, p *Parent, end End) error {
	if t.o.Spaces == "" || end.Patch == nil {
		return nil
	}
	if _, err := os.Lstat(t.place(end.ID)); err != nil {
		return nil
	}
	if more, err := moreToDo(ctx, t.o.Manager, p.kin.log(end.ID), end, 0); more || err != nil {
		return err
	}
	return t.vacate(ctx, end.ID)
}

// say tells of the patch as a model is told of it.
func (p *Patch) say(b *strings.Builder, id string) {
	if p.Artifact == "" {
		b.WriteString("<patch files=\"0\">It changed no file.")
	} else {
		fmt.Fprintf(b, "<patch url=%q added=\"%d\" changed=\"%d\" deleted=\"%d\" bytes=\"%d\">It worked in a copy: call merge with the id %s to bring this into your files.",
			p.Artifact, p.Added, p.Changed, p.Deleted, p.Bytes, id)
	}
	for _, left := range p.Left {
		b.WriteString("\nNot in it: " + left)
	}
	b.WriteString("</patch>\n")
}
