package conversation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// logExt is how the log of a session is called that is not compressed.
const logExt = ".jsonl"

// SessionProjector projects a session of a home with all that belongs to it: its
// subagents, whose states are in its state, and the files of its artifact directory,
// which are in the sidecar. It keeps what it knows, as a Projector does. It is not safe
// for concurrent use.
type SessionProjector struct {
	m     *session.Manager
	s     *session.Session
	store blobstore.Store
	own   *Projector
	seen  durable.Identity         // of the log
	subs  map[string]*subProjector // by the name of the log
	files map[string]knownFile
}

type subProjector struct {
	p *Projector
}

// stamp tells a file from what it was before.
type stamp struct {
	size int64
	time time.Time
}

type knownFile struct {
	stamp
	file File
}

// projectedSub is a subagent as it was projected.
type projectedSub struct {
	name, id, parent string // its name as a subagent; ids in headers
	began            time.Time
	agent, model     string
}

// NewSessionProjector returns a projector of s, a session of m, into store.
func NewSessionProjector(m *session.Manager, s *session.Session, store blobstore.Store) *SessionProjector {
	return &SessionProjector{
		m: m, s: s, store: store, own: NewProjector(store, ProjectorOptions{Blobs: m.Blobs()}),
		subs: map[string]*subProjector{}, files: map[string]knownFile{},
	}
}

// OnProgress lets f be told how many bytes of the log were read, of how many: see
// ProjectorOptions.
func (p *SessionProjector) OnProgress(f func(done, total int64)) { p.own.o.Progress = f }

// Project stores the state of the session as it is now. Others may be writing to it: the
// state is of a moment.
func (p *SessionProjector) Project(ctx context.Context) (_ Projection, err error) {
	defer func() {
		if err != nil {
			// What was read of files may not be stored.
			clear(p.files)
		}
	}()
	snap, err := p.s.Snapshot(ctx)
	if err != nil {
		return Projection{}, fmt.Errorf("projecting session %.100s: %w", p.s.ID(), err)
	}
	if l, err := p.m.OpenLog(p.s.Path()); err == nil {
		// Programs that rewrite a log put another file in its place.
		if now, err := l.Identify(); err == nil && !now.SameFile(p.seen) {
			p.own.log, p.seen = nil, now
		}
		l.Close()
	}
	holes, err := p.beside(ctx)
	if err != nil {
		return Projection{}, fmt.Errorf("projecting session %.100s: %w", p.s.ID(), err)
	}
	got, err := p.own.Project(ctx, Log{snap.ReaderAt, snap.Size})
	if err != nil {
		return Projection{}, fmt.Errorf("projecting session %.100s: %w", p.s.ID(), err)
	}
	got.Holes = append(got.Holes, holes...)
	return got, nil
}

// beside projects what belongs to the session and is not in its log.
func (p *SessionProjector) beside(ctx context.Context) (holes []*Hole, err error) {
	dir, _, err := p.s.LocateArtifacts(ctx, true)
	if err != nil || dir == "" {
		return nil, err
	}
	if strings.TrimSuffix(p.s.Path(), logExt) != dir && session.ArtifactsPath(p.s.Path()) != dir {
		return nil, nil // a subagent itself: the directory is that of its root
	}
	return p.besideIn(ctx, dir)
}

// besideIn projects what is in an artifact directory.
func (p *SessionProjector) besideIn(ctx context.Context, dir string) (holes []*Hole, err error) {
	pieces, left, err := artifacts.Open(dir, artifacts.Options{}).Pieces(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range left {
		holes = append(holes, &Hole{What: "file " + l.Name, Err: errors.New(l.Reason)})
	}
	var b Beside
	var subs []string
	for _, piece := range pieces {
		if strings.HasSuffix(piece.Name, logExt) && !strings.Contains(piece.Name, "/") && session.NestedLog(piece.Name) {
			subs = append(subs, piece.Name)
			continue
		}
		f, err := p.file(ctx, dir, piece)
		if errors.Is(err, fs.ErrNotExist) {
			continue // discarded since it was listed
		} else if err != nil {
			return nil, err
		}
		b.Files = append(b.Files, f)
	}
	more := subTree{p: p, dir: dir}
	b.Subagents, err = more.project(ctx, subs)
	for _, name := range more.odd { // a log that does not open is a file like others
		f, ferr := p.file(ctx, dir, artifacts.Piece{Name: name})
		if ferr == nil {
			b.Files = append(b.Files, f)
		}
	}
	slices.SortFunc(b.Files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	p.own.SetBeside(b)
	return append(holes, more.holes...), err
}

// file stores a file of the artifact directory in pieces.
func (p *SessionProjector) file(ctx context.Context, dir string, piece artifacts.Piece) (File, error) {
	path := filepath.Join(dir, filepath.FromSlash(piece.Name))
	out := File{Name: piece.Name}
	if piece.Data != nil {
		id, err := p.own.w.put(ctx, piece.Data)
		out.Bytes, out.Pieces = int64(len(piece.Data)), []blobref.Ref{id}
		return out, err
	}
	f, err := os.Open(path)
	if err != nil {
		return out, fmt.Errorf("reading %s: %w", path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return out, fmt.Errorf("reading %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return out, fmt.Errorf("reading %s: it is no regular file: %w", path, fs.ErrNotExist)
	}
	now := stamp{info.Size(), info.ModTime()}
	if known, ok := p.files[piece.Name]; ok && known.stamp == now {
		return known.file, nil
	}
	r := io.NewSectionReader(f, 0, info.Size())
	for {
		data := make([]byte, min(pieceBytes, info.Size()-out.Bytes))
		n, err := io.ReadFull(r, data)
		if n > 0 {
			id, perr := p.own.w.put(ctx, data[:n:n])
			if perr != nil {
				return out, perr
			}
			out.Bytes, out.Pieces = out.Bytes+int64(n), append(out.Pieces, id)
		}
		if n == 0 || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		} else if err != nil {
			return out, fmt.Errorf("reading %s: %w", path, err)
		}
	}
	p.files[piece.Name] = knownFile{now, out}
	return out, nil
}

// subTree projects the subagents of a session, those of subagents first.
type subTree struct {
	p     *SessionProjector
	dir   string
	odd   []string
	holes []*Hole
}

func (t *subTree) project(ctx context.Context, names []string) (map[string][]byte, error) {
	byID := map[string]*projectedSub{}
	var list []*projectedSub
	for _, name := range names {
		sub, err := t.look(name)
		if err != nil {
			t.odd = append(t.odd, name)
			continue
		}
		list = append(list, sub)
		byID[sub.id] = sub
	}
	below := map[*projectedSub][]*projectedSub{}
	for _, sub := range list {
		parent := byID[sub.parent]
		// One that leads back to itself belongs to the root, as one whose parent is
		// not there.
		for up, n := parent, 0; up != nil; up, n = byID[up.parent], n+1 {
			if up == sub || n > len(list) {
				parent = nil
				break
			}
		}
		below[parent] = append(below[parent], sub)
	}
	return t.states(ctx, below, nil)
}

func (t *subTree) states(ctx context.Context, below map[*projectedSub][]*projectedSub, parent *projectedSub) (map[string][]byte, error) {
	states := map[string][]byte{}
	for _, sub := range below[parent] {
		under, err := t.states(ctx, below, sub)
		if err != nil {
			return nil, err
		}
		data, err := t.one(ctx, sub, under)
		if err != nil {
			return nil, err
		}
		if data != nil {
			states[sub.name] = data
		}
	}
	return states, nil
}

// look reads the header of a log.
func (t *subTree) look(name string) (*projectedSub, error) {
	l, err := t.p.m.OpenLog(filepath.Join(t.dir, name))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	head := make([]byte, min(l.Size(), 64<<10))
	if err := readFull(l, head, 0); err != nil {
		return nil, err
	}
	sub := &projectedSub{name: strings.TrimSuffix(name, logExt), id: l.ID()}
	for line := range strings.Lines(string(head)) {
		m := gjson.Parse(line)
		switch m.Get("type").Str {
		case "session":
			sub.parent = m.Get("parentSession").Str
			sub.began, _ = time.Parse(time.RFC3339Nano, m.Get("timestamp").Str)
		case entry.TypeSessionInit:
			sub.agent, sub.model = m.Get("agent").Str, m.Get("resolvedModel").Str
		}
	}
	return sub, nil
}

// one projects one subagent. One that is gone meanwhile is nil.
func (t *subTree) one(ctx context.Context, sub *projectedSub, under map[string][]byte) ([]byte, error) {
	path := filepath.Join(t.dir, sub.name+logExt)
	s, err := t.p.m.View(ctx, path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	defer s.Close()
	snap, err := s.Snapshot(ctx)
	if err != nil {
		t.odd = append(t.odd, sub.name+logExt)
		return nil, nil
	}
	known := t.p.subs[sub.name]
	if known == nil {
		known = &subProjector{p: NewProjector(t.p.store, ProjectorOptions{Blobs: t.p.m.Blobs()})}
		t.p.subs[sub.name] = known
	}
	known.p.SetBeside(Beside{Subagents: under})
	got, err := known.p.Project(ctx, Log{snap.ReaderAt, snap.Size})
	if err != nil {
		return nil, err
	}
	t.holes = append(t.holes, got.Holes...)
	m := &agentv1.SubagentPersistedState{
		CreatedTimestampMs: msOf(sub.began), SubagentType: subagentType(valid(sub.agent)),
		Environment: agentv1.SubagentExecutionEnvironment_SUBAGENT_EXECUTION_ENVIRONMENT_LOCAL,
	}
	if k := known.p.kept(); k != nil {
		// What another program said of it, and nothing here does, stays.
		before := &agentv1.SubagentPersistedState{}
		if proto.Unmarshal(k.Message, before) == nil {
			m, sub.name = before, k.ID
		}
	}
	if info, err := os.Stat(path); err == nil {
		m.LastUsedTimestampMs = msOf(info.ModTime())
	}
	if last := known.p.lastTime(); last > 0 {
		m.LastUsedTimestampMs = uint64(last)
	}
	if sub.model != "" {
		m.ModelId = proto.String(valid(sub.model))
	}
	return subagentBytes(got.State, m)
}

func msOf(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(0, t.UnixMilli()))
}

// kept is what a restored state said of the session as a subagent, nil for nothing.
func (p *Projector) kept() *keptSubagent {
	var k keptSubagent
	if p.b == nil || len(p.b.subagent) == 0 || json.Unmarshal(p.b.subagent, &k) != nil || k.ID == "" {
		return nil
	}
	return &k
}

// lastTime is when the last turn ended, in milliseconds, 0 when that is not known.
func (p *Projector) lastTime() int64 {
	if p.b == nil || p.b.last == nil {
		return 0
	}
	return p.b.last.ended
}
