package usage

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/durable"
)

// Report says where the bytes of a home are. All numbers are sizes of files in
// bytes, not blocks of the disk.
type Report struct {
	Home     string    `json:"home"`
	Bytes    int64     `json:"bytes"` // of all classes
	Classes  Classes   `json:"classes"`
	Tools    []Tool    `json:"tools"`    // largest first
	Sessions []Session `json:"sessions"` // largest first
	// Unreadable are logs and checkpoints that could not be read, each with the reason. The
	// blobs that they cite look unreferenced.
	Unreadable []string `json:"unreadable"`
}

// Classes are the bytes of a home by class. A file with several names, as forks make
// them, counts once.
type Classes struct {
	Log       int64     `json:"log"`
	Artifacts int64     `json:"artifacts"`
	Blobs     BlobBytes `json:"blobs"`
	Indexes   int64     `json:"indexes"`
	Trash     int64     `json:"trash"`
	Other     int64     `json:"other"`
}

// BlobBytes are blobs by who needs them.
type BlobBytes struct {
	Unique       int64 `json:"unique"`       // cited by one session
	Shared       int64 `json:"shared"`       // cited by several; each once
	Checkpoints  int64 `json:"checkpoints"`  // cited by none, and needed by checkpoints
	Unreferenced int64 `json:"unreferenced"` // needed by none that is here: maybe by one in the trash or elsewhere
}

// Bytes are those of all of them.
func (b BlobBytes) Bytes() int64 { return b.Unique + b.Shared + b.Checkpoints + b.Unreferenced }

// Tool is what one tool made others keep. The name is in parentheses for what no
// tool wrote.
type Tool struct {
	Name      string `json:"tool"`
	Log       int64  `json:"log"` // bytes of entries, before compression
	Artifacts int64  `json:"artifacts"`
}

// Session is what one session keeps.
type Session struct {
	Stem      string `json:"-"`     // path of the log without its ending
	Bytes     int64  `json:"bytes"` // without the blobs that others cite too
	Log       int64  `json:"log"`
	Artifacts int64  `json:"artifacts"`
	// ArtifactsShared are those of Artifacts that another name stands for as well, as
	// after a fork.
	ArtifactsShared int64        `json:"artifactsShared"`
	Blobs           SessionBlobs `json:"blobs"`
	Indexes         int64        `json:"indexes"`
	Other           int64        `json:"other"`
	Tools           []Tool       `json:"tools"` // largest first

	logs  []string
	tools tools
}

// SessionBlobs are the blobs that a session cites.
type SessionBlobs struct {
	Unique int64 `json:"unique"`
	Shared int64 `json:"shared"`
}

// MeasureOptions of Measure; the zero value is right for programs.
type MeasureOptions struct {
	FS       durable.FS            // nil means durable.OS
	Progress func(done, total int) // logs looked into; may be nil; called from one goroutine at a time
	// Cited yields the blobs that the checkpoints in a home need; nil: none. What it yields as an error, but for the end
	// of ctx, is told in Report.Unreadable.
	Cited func(ctx context.Context, home string) iter.Seq2[blobref.Ref, error]
}

// Measure reads a home: every directory, and every log for the blobs that it cites.
// It changes nothing. What changes meanwhile is counted as it was found. The error
// is about the whole: a directory that cannot be listed, the end of ctx.
func Measure(ctx context.Context, home string, o MeasureOptions) (*Report, error) {
	if o.FS == nil {
		o.FS = durable.OS
	}
	m := measurement{
		o: o, report: &Report{Home: home, Sessions: []Session{}, Unreadable: []string{}},
		sessions: map[string]*Session{}, tools: tools{}, blobs: map[blobref.Ref]int64{},
	}
	w := walker{fs: o.FS, seen: map[inode]bool{}}
	if err := w.home(home, m.file); err != nil {
		return nil, err
	}
	if err := m.scanLogs(ctx); err != nil {
		return nil, err
	}
	if err := m.readCheckpoints(ctx); err != nil {
		return nil, err
	}
	m.conclude()
	return m.report, nil
}

// measurement is a Report on its way.
type measurement struct {
	o        MeasureOptions
	report   *Report
	sessions map[string]*Session
	tools    tools
	blobs    map[blobref.Ref]int64 // bytes of those that are there
	citing   []cited
	kept     map[blobref.Ref]bool // by checkpoints
	loose    int64                // bytes among the blobs that are no blob
}

// cited are the blobs of one session.
type cited struct {
	by   *Session
	refs map[blobref.Ref]bool
}

func (m *measurement) session(stem string) *Session {
	s := m.sessions[stem]
	if s == nil {
		s = &Session{Stem: stem, tools: tools{}}
		m.sessions[stem] = s
	}
	return s
}

// tools are the bytes of tools by name.
type tools map[string]*Tool

func (t tools) at(name string) *Tool {
	x := t[name]
	if x == nil {
		x = &Tool{Name: name}
		t[name] = x
	}
	return x
}

func (t tools) sorted() []Tool {
	list := make([]Tool, 0, len(t))
	for _, x := range t {
		list = append(list, *x)
	}
	slices.SortFunc(list, func(a, b Tool) int {
		return cmp.Or(cmp.Compare(b.Log+b.Artifacts, a.Log+a.Artifacts), strings.Compare(a.Name, b.Name))
	})
	return list
}

// file takes one file of the home.
func (m *measurement) file(f file) {
	c := &m.report.Classes
	switch f.class {
	case Log:
		c.Log += f.fresh
	case Artifacts:
		c.Artifacts += f.fresh
	case Indexes:
		c.Indexes += f.fresh
	case Trash:
		c.Trash += f.fresh
	case Other:
		c.Other += f.fresh
	case Blobs:
		m.blob(f)
	}
	if f.session == "" {
		return
	}
	s := m.session(f.session)
	switch f.class {
	case Log:
		s.Log += f.id.Size
	case Artifacts:
		s.Artifacts += f.id.Size
		if f.id.Links > 1 {
			s.ArtifactsShared += f.id.Size
		}
		if f.what != "" {
			m.tools.at(f.what).Artifacts += f.fresh
			s.tools.at(f.what).Artifacts += f.id.Size
		}
	case Indexes:
		s.Indexes += f.id.Size
	case Other:
		s.Other += f.id.Size
	}
	if f.class == Log || strings.HasSuffix(f.path, ".jsonl") || strings.HasSuffix(f.path, ".jsonl.zst") {
		s.logs = append(s.logs, f.path)
	}
}

// blob takes one file from among the blobs. What lies in both directories of blobs
// takes its space twice.
func (m *measurement) blob(f file) {
	ref, err := blobref.ParseHex(filepath.Base(f.path))
	if dir := filepath.Base(filepath.Dir(f.path)); err != nil || dir != blobsDir && dir != keptBlobsDir {
		m.loose += f.fresh
		return
	}
	m.blobs[ref] += f.fresh
}

// scanLogs looks into every log.
func (m *measurement) scanLogs(ctx context.Context) error {
	type job struct {
		by   *Session
		path string
	}
	var jobs []job
	for _, s := range m.sessions {
		for _, path := range s.logs {
			jobs = append(jobs, job{s, path})
		}
	}
	slices.SortFunc(jobs, func(a, b job) int { return strings.Compare(a.path, b.path) })
	var (
		mu   sync.Mutex
		done int
	)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, j := range jobs {
		g.Go(func() error {
			found, err := scanLog(ctx, m.o.FS, j.path)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				m.report.Unreadable = append(m.report.Unreadable, err.Error())
			}
			// What was read before an error counts.
			m.citing = append(m.citing, cited{j.by, found.refs})
			if filepath.Dir(j.path) == filepath.Dir(j.by.Stem) { // else it is an artifact
				for name, n := range found.tools {
					m.tools.at(name).Log += n
					j.by.tools.at(name).Log += n
				}
			}
			if done++; m.o.Progress != nil {
				m.o.Progress(done, len(jobs))
			}
			return nil
		})
	}
	return g.Wait()
}

// readCheckpoints looks for the blobs that checkpoints need.
func (m *measurement) readCheckpoints(ctx context.Context) error {
	m.kept = map[blobref.Ref]bool{}
	if m.o.Cited == nil {
		return nil
	}
	for ref, err := range m.o.Cited(ctx, m.report.Home) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			m.report.Unreadable = append(m.report.Unreadable, err.Error())
			continue
		}
		m.kept[ref] = true
	}
	return nil
}

// conclude adds up.
func (m *measurement) conclude() {
	users := map[blobref.Ref]map[*Session]bool{}
	for _, c := range m.citing {
		for ref := range c.refs {
			if users[ref] == nil {
				users[ref] = map[*Session]bool{}
			}
			users[ref][c.by] = true
		}
	}
	b := &m.report.Classes.Blobs
	b.Unreferenced = m.loose
	for ref, size := range m.blobs {
		by := users[ref]
		switch {
		case len(by) == 0 && m.kept[ref]:
			b.Checkpoints += size
		case len(by) == 0:
			b.Unreferenced += size
		case len(by) == 1:
			b.Unique += size
		default:
			b.Shared += size
		}
		for s := range by {
			if len(by) == 1 {
				s.Blobs.Unique += size
			} else {
				s.Blobs.Shared += size
			}
		}
	}
	for _, s := range m.sessions {
		s.Bytes = s.Log + s.Artifacts + s.Blobs.Unique + s.Indexes + s.Other
		if s.Bytes+s.Blobs.Shared == s.Other {
			continue // locks that nobody removes
		}
		s.Tools = s.tools.sorted()
		m.report.Sessions = append(m.report.Sessions, *s)
	}
	slices.SortFunc(m.report.Sessions, func(a, b Session) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Stem, b.Stem))
	})
	m.report.Tools = m.tools.sorted()
	slices.Sort(m.report.Unreadable)
	c := &m.report.Classes
	m.report.Bytes = c.Log + c.Artifacts + b.Bytes() + c.Indexes + c.Trash + c.Other
}
