package lifetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/bundle"
	"github.com/agentrun/agentrun/checkpoint"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/doctor"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/gc"
)

// job is one operation with everything that it needs, so that another process can do
// it.
type job struct {
	Do     string
	ID     string `json:",omitempty"` // of the session
	Path   string `json:",omitempty"` // of its log
	CWD    string `json:",omitempty"`
	Entry  string `json:",omitempty"`
	Text   string `json:",omitempty"`
	Bodies []body `json:",omitempty"`
	File   string `json:",omitempty"` // of a bundle
	Option bool   `json:",omitempty"` // the other way to do it
}

type body struct {
	Type   string
	Fields json.RawMessage
}

// result is what a job acknowledged.
type result struct {
	IDs      []string // of entries
	Session  string
	Path     string
	Artifact int64
	Findings []string
	Missing  []string // what a bundle was without
}

// worker is a process of the home: it keeps sessions open from job to job.
type worker struct {
	m    *session.Manager
	fsys durable.FS
	open map[string]*session.Session // by id
}

func newWorker(home string, fsys durable.FS) (*worker, error) {
	m, err := session.OpenManager(home, session.Options{Durability: session.Flush, FS: fsys})
	return &worker{m: m, fsys: fsys, open: map[string]*session.Session{}}, err
}

func (w *worker) session(ctx context.Context, j job) (*session.Session, error) {
	if s := w.open[j.ID]; s != nil {
		return s, nil
	}
	s, err := w.m.Open(ctx, j.Path)
	if err == nil {
		w.open[j.ID] = s
	}
	return s, err
}

func (w *worker) close() error {
	var err error
	for id := range w.open {
		err = errors.Join(err, w.reopen(id))
	}
	return err
}

func (w *worker) reopen(id string) error {
	s := w.open[id]
	if s == nil {
		return nil
	}
	delete(w.open, id)
	return s.Close()
}

// do does a job.
func (w *worker) do(ctx context.Context, j job) (r result, err error) {
	switch j.Do {
	case "create":
		return w.create(ctx, j)
	case "append", "under", "artifact", "branch", "label", "rename", "compact", "checkpoint":
		s, err := w.session(ctx, j)
		if err != nil {
			return r, err
		}
		return w.write(ctx, s, j)
	case "fork":
		f, err := w.m.Fork(ctx, j.Path, session.ForkOptions{At: j.Entry, PathOnly: j.Option})
		if err == nil && len(f.Artifacts.Failed) > 0 {
			err = fmt.Errorf("artifacts stayed behind: %v", f.Artifacts.Failed)
		}
		return result{Session: f.ID, Path: f.Path}, err
	case "move":
		m, err := w.m.Move(ctx, j.Path, j.CWD, session.MoveOptions{})
		return result{Session: m.ID, Path: m.Path}, err
	case "compress":
		return r, w.m.Compress(ctx, j.Path)
	case "rm":
		_, err := w.m.Trash(ctx, j.Path)
		return r, err
	case "restore":
		t, err := w.m.FindTrash(ctx, j.ID)
		if err == nil {
			r.Path, err = w.m.RestoreTrashed(ctx, t)
		}
		return r, err
	case "gc":
		if err := w.age(); err != nil {
			return r, err
		}
		return r, w.collect(ctx, j)
	case "collect":
		return r, w.collect(ctx, j)
	case "travel":
		return w.travel(ctx, j)
	case "export":
		return r, w.export(ctx, j)
	case "import":
		return w.bring(ctx, j)
	case "doctor":
		return w.examine(ctx, j.Option)
	case "reopen":
		return r, w.reopen(j.ID)
	}
	return r, fmt.Errorf("what is %q?", j.Do)
}

func bodies(bs []body) []entry.Body {
	var all []entry.Body
	for _, b := range bs {
		all = append(all, entry.Raw{Type: b.Type, Fields: b.Fields})
	}
	return all
}

func (w *worker) create(ctx context.Context, j job) (r result, err error) {
	s, err := w.m.Create(ctx, j.CWD, session.CreateOptions{})
	if err != nil {
		return r, err
	}
	w.open[s.ID()] = s
	r.Session, r.Path = s.ID(), s.Path()
	r.IDs, err = s.AppendAll(ctx, bodies(j.Bodies)...)
	return r, err
}

func (w *worker) write(ctx context.Context, s *session.Session, j job) (r result, err error) {
	one := func(id string, err error) (result, error) {
		return result{IDs: []string{id}}, err
	}
	switch j.Do {
	case "append":
		r.IDs, err = s.AppendAll(ctx, bodies(j.Bodies)...)
	case "under":
		return one(s.AppendUnder(ctx, j.Entry, bodies(j.Bodies)[0]))
	case "artifact":
		return w.keep(ctx, s, j.Text)
	case "branch":
		return one(s.Branch(ctx, j.Entry, session.BranchOptions{Summary: j.Text}))
	case "label":
		return one(s.Label(ctx, j.Entry, j.Text))
	case "checkpoint":
		c, err := checkpoint.New(w.m, s, checkpoint.Options{FS: w.fsys}).Checkpoint(ctx, j.Text, j.File)
		return one(c.Entry, err)
	case "rename":
		err = s.Rename(ctx, j.Text, session.TitleUser)
	case "compact":
		kept := ""
		if j.Option {
			c, err := s.Context(ctx)
			if err != nil {
				return r, err
			}
			for _, m := range c.Messages {
				if m.Role == entry.RoleUser && m.EntryID != c.Compaction {
					kept = m.EntryID
				}
			}
		}
		return one(s.Compact(ctx, session.CompactOptions{Summary: j.Text, FirstKept: kept}))
	}
	return r, err
}

// keep has a sink spill into an artifact, and cites it.
func (w *worker) keep(ctx context.Context, s *session.Session, text string) (r result, err error) {
	d := artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID, Where: s, FS: w.fsys})
	o := outputsink.DefaultOptions()
	o.MaxBytes, o.HeadBytes = 100, 50
	var f *artifacts.File
	o.Open = func() (outputsink.File, error) {
		var err error
		f, err = d.Create(ctx, "bash", artifacts.Provenance{})
		return f, err
	}
	sink := outputsink.New(o)
	if _, err := io.WriteString(sink.Stdout(), text); err != nil {
		return r, err
	}
	said, err := sink.Close()
	if err != nil {
		return r, err
	}
	r.Artifact = f.ID()
	b := message(map[string]any{"role": "toolResult", "toolCallId": "c", "toolName": "bash", "content": said.View, "details": map[string]any{"artifact": said.Artifact}})
	id, err := s.Append(ctx, entry.Raw(b))
	r.IDs = []string{id}
	return r, err
}

// age makes everything that is stored old, for nobody writes.
func (w *worker) age() error {
	old := time.Now().Add(-48 * time.Hour)
	return filepath.WalkDir(filepath.Join(w.m.Home(), "blobs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		return os.Chtimes(path, old, old)
	})
}

func (w *worker) collect(ctx context.Context, j job) error {
	o := gc.Options{Apply: true, FS: w.fsys}
	if j.Option {
		o.TrashAge = time.Nanosecond
	}
	_, err := gc.Run(ctx, w.m, o)
	return err
}

// travel exports a session and imports it beside itself.
func (w *worker) travel(ctx context.Context, j job) (r result, err error) {
	if err := w.export(ctx, j); err != nil {
		return r, err
	}
	return w.bring(ctx, j)
}

func (w *worker) export(ctx context.Context, j job) error {
	s, err := w.m.View(ctx, j.Path)
	if err != nil {
		return err
	}
	defer s.Close()
	f, err := os.Create(j.File)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = bundle.Export(ctx, f, w.m, s, bundle.ExportOptions{FS: w.fsys})
	return err
}

// bring imports a session.
func (w *worker) bring(ctx context.Context, j job) (r result, err error) {
	f, err := os.Open(j.File)
	if err != nil {
		return r, err
	}
	defer f.Close()
	in, err := bundle.Import(ctx, w.m, f, bundle.ImportOptions{})
	r = result{Session: in.ID, Path: in.Path}
	for _, m := range in.Missing {
		r.Missing = append(r.Missing, m.Name)
	}
	return r, err
}

func (w *worker) examine(ctx context.Context, repair bool) (r result, err error) {
	d, err := doctor.New(ctx, w.m, doctor.Options{Repair: repair, FS: w.fsys, Report: func(f doctor.Finding) {
		r.Findings = append(r.Findings, fmt.Sprintf("%s: %s: %s", f.Kind, f.File, f.What))
	}})
	if err != nil {
		return r, err
	}
	defer d.Close()
	return r, d.Home(ctx)
}

func message(m map[string]any) body {
	b, err := json.Marshal(map[string]any{"message": m})
	if err != nil {
		panic(err)
	}
	return body{Type: entry.TypeMessage, Fields: b}
}
