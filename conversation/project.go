package conversation

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"maps"
	"reflect"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/conversation/internal/sidecar"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/session/entry"
)

// SidecarField is the field of a ConversationStateStructure that holds the id of its
// sidecar, 32 bytes. agent.v1 does not know it, and so keeps it.
const SidecarField protowire.Number = 100001

// Fields of a ConversationStateStructure that a projection writes by hand.
const (
	fieldPending  protowire.Number = 4
	fieldTurns    protowire.Number = 8
	fieldTimings  protowire.Number = 14
	fieldSubagent protowire.Number = 16
)

// ProjectorOptions say how a session is projected.
type ProjectorOptions struct {
	// Blobs is where the session has its images, its long strings and the content of
	// files. What the session cites of them is copied to the store; nil, or the store
	// itself, copies nothing.
	Blobs blobstore.Store
	// Progress is told how many bytes of a long log were read, of how many, from the
	// goroutine that projects; nil: nobody.
	Progress func(done, total int64)
}

// Projector turns one session into states. It keeps what it knows of the session, so
// that the state after one more turn costs that turn: its own blobs, the end of two
// trees, and the state itself, which has an id for each turn.
//
// A session that was rewritten, or that goes on from another branch, is read anew; what is
// still in the store is not stored again. Whoever collects what nothing names keeps a
// pointer to the last state, which names all that the projector builds on. That a log was rewritten is told by
// what stands before its first entry and by its last line. A store that puts work off is
// flushed by the caller. A Projector is not safe for concurrent use.
type Projector struct {
	o ProjectorOptions
	w *writer

	log *log
	b   *builder
	at  int32 // the entry that b was built to, -1 for none
	off bool  // the leaf is on another branch
	// again is set when the last line had no newline and was used all the same.
	again bool

	done     int // of b.turns that are in the two below
	turns    []byte
	timings  []byte
	holes    map[blobref.Ref]*Hole
	extra    Beside
	subField []byte
}

// Beside is what belongs to a session and is not in its log.
type Beside struct {
	// Subagents are the states of subagents by their ids, each the bytes of a
	// SubagentPersistedState.
	Subagents map[string][]byte
	// Files are the files of the artifact directory.
	Files []File
}

// File is a file beside the log, in pieces that are in the store.
type File struct {
	Name   string // relative to the artifact directory, with slashes
	Bytes  int64
	Pieces []blobref.Ref
}

// Projection is one state of a session, stored.
type Projection struct {
	Root  blobref.Ref // of the state
	State []byte      // a ConversationStateStructure, as it was stored
	Turns int
	// Holes are blobs that the session cites and that could not be copied.
	Holes []*Hole
	// Blobs and Bytes are how much was stored for this state.
	Blobs int
	Bytes int64
}

// NewProjector returns a projector of one session into store.
func NewProjector(store blobstore.Store, o ProjectorOptions) *Projector {
	if o.Blobs != nil && reflect.TypeOf(o.Blobs).Comparable() && o.Blobs == store {
		o.Blobs = nil
	}
	return &Projector{o: o, w: newWriter(store), holes: map[blobref.Ref]*Hole{}}
}

// SetBeside says what belongs to the session besides its log, from the next state on.
func (p *Projector) SetBeside(b Beside) {
	p.subField = nil
	for _, id := range slices.Sorted(maps.Keys(b.Subagents)) {
		one := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), valid(id))
		one = protowire.AppendBytes(protowire.AppendTag(one, 2, protowire.BytesType), b.Subagents[id])
		p.subField = protowire.AppendBytes(protowire.AppendTag(p.subField, fieldSubagent, protowire.BytesType), one)
	}
	p.extra = b
}

// Project reads what is new in the log f of the session and stores the state at its
// leaf. When it returns an error nothing names what was stored.
func (p *Projector) Project(ctx context.Context, f Log) (_ Projection, err error) {
	defer func() {
		p.w.state++
		if err != nil {
			// What is under way is waited for: nobody else does.
			_ = p.w.wait()
			p.w.forget(p.w.batch)
			p.w.batch, p.w.bytes = nil, 0
			p.log = nil // begin anew the next time: half of something was taken
			err = fmt.Errorf("projecting a session: %w", err)
		}
	}()
	blobs, bytes := p.w.count, p.w.total
	if err := p.advance(ctx, f); err != nil {
		return Projection{}, err
	}
	if err := p.copyCited(ctx); err != nil {
		return Projection{}, err
	}
	root, state, err := p.state(ctx)
	if err != nil {
		return Projection{}, err
	}
	// The state last: whoever finds it finds all that it names.
	if err := p.w.sync(ctx); err != nil {
		return Projection{}, err
	}
	if !p.w.has(root) {
		if _, err := p.w.put(ctx, state); err != nil {
			return Projection{}, err
		}
		if err := p.w.sync(ctx); err != nil {
			return Projection{}, err
		}
	}
	n := len(p.b.turns)
	if p.b.last != nil {
		n++
	}
	return Projection{
		Root: root, State: state, Turns: n, Blobs: p.w.count - blobs, Bytes: p.w.total - bytes,
		Holes: slices.SortedFunc(maps.Values(p.holes), func(a, b *Hole) int { return cmp.Compare(a.ID.Hex(), b.ID.Hex()) }),
	}, nil
}

// advance brings the builder to the leaf of the log.
func (p *Projector) advance(ctx context.Context, f Log) error {
	if p.log != nil && (!p.again || f.Size != p.log.read) {
		stale, err := p.log.stale(f)
		if err != nil {
			return err
		}
		if stale || p.again {
			p.log = nil
		}
	}
	if p.log == nil {
		p.log, p.off, p.again = newLog(), false, false
		p.log.progress = p.o.Progress
		p.log.ids = make(map[string]int32, min(f.Size/1024, 1<<20))
		p.begin(f)
	}
	p.b.again = func(i int32) (entry.Entry, error) { return p.log.entry(f, i) }
	each := func(i int32, e entry.Entry) error {
		if p.off = p.off || p.log.entries[i].parent != p.at; p.off {
			return nil
		}
		if p.at < 0 {
			p.b.start(p.log.header)
		}
		p.at = i
		return p.b.add(ctx, i, e, p.log.entries[i].span)
	}
	if err := p.log.advance(ctx, f, p.w.put, each); err != nil {
		return err
	}
	if rest := p.log.rest; p.log.whole(rest) {
		// A last line without a newline that is an entry all the same.
		p.log.rest, p.again = nil, true
		if err := p.log.line(ctx, p.w.put, rest, each); err != nil {
			return err
		}
	}
	if p.at < 0 {
		p.b.start(p.log.header)
	}
	if !p.off {
		return nil
	}
	p.begin(f)
	p.b.start(p.log.header)
	for _, i := range p.log.path() {
		e, err := p.log.entry(f, i)
		if err == nil {
			err = p.b.add(ctx, i, e, p.log.entries[i].span)
		}
		if err != nil {
			return err
		}
		p.at = i
	}
	p.off = false
	return nil
}

// begin begins a new path.
func (p *Projector) begin(f Log) {
	p.b, p.at = newBuilder(p.w), -1
	p.b.again = func(i int32) (entry.Entry, error) { return p.log.entry(f, i) }
	p.b.get = p.w.store.Get
	if p.o.Blobs != nil {
		p.b.get = p.o.Blobs.Get
	}
	p.done, p.turns, p.timings = 0, nil, nil
}

// state stores all that the state names and returns it.
func (p *Projector) state(ctx context.Context) (root blobref.Ref, state []byte, err error) {
	for _, t := range p.b.turns[p.done:] {
		p.turns, p.timings = appendTurn(p.turns, p.timings, t)
	}
	p.done = len(p.b.turns)
	turns, timings := p.turns[:len(p.turns):len(p.turns)], p.timings[:len(p.timings):len(p.timings)]
	var last []sidecar.Record
	var pending []byte
	if p.b.last != nil {
		id, timing, record, err := p.b.turn(ctx, p.b.last)
		if err != nil {
			return root, nil, err
		}
		last = append(last, record)
		turns, timings = appendTurn(turns, timings, builtTurn{id, timing})
		pending = p.b.last.pending()
	}
	side, err := p.sidecar(ctx, last)
	if err != nil {
		return root, nil, err
	}
	said, err := marshal.Marshal(p.withoutInline(p.b.state))
	if err != nil {
		return root, nil, fmt.Errorf("writing the state: %w", err)
	}
	state = make([]byte, 0, len(said)+len(turns)+len(timings)+len(pending)+len(p.subField)+64)
	state, err = inOrder(state, said, map[protowire.Number][]byte{
		fieldPending: pending, fieldTurns: turns, fieldTimings: timings, fieldSubagent: p.subField,
	})
	if err != nil {
		return root, nil, err
	}
	// The digest is of what is before the sidecar, and the state begins with that.
	h := sha256.New()
	h.Write(state)
	sum, ok := h.(hash.Cloner)
	if !ok {
		return root, nil, fmt.Errorf("writing the state: this SHA-256 cannot be cloned")
	}
	soFar, err := sum.Clone()
	if err != nil {
		return root, nil, fmt.Errorf("writing the state: %w", err)
	}
	h.Sum(side.Digest[:0])
	id, err := p.w.put(ctx, side.Append(nil))
	if err != nil {
		return root, nil, err
	}
	before := len(state)
	state = protowire.AppendTag(state, SidecarField, protowire.BytesType)
	state = protowire.AppendBytes(state, idOf(id))
	soFar.Write(state[before:])
	return blobref.FromSum([32]byte(soFar.Sum(nil))), state, nil
}

// withoutInline is the state without references of subagents that it has inline.
func (p *Projector) withoutInline(m *agentv1.ConversationStateStructure) *agentv1.ConversationStateStructure {
	if len(m.SubagentStateRefs) == 0 || len(p.extra.Subagents) == 0 {
		return m
	}
	m = proto.CloneOf(m)
	for id := range p.extra.Subagents {
		delete(m.SubagentStateRefs, valid(id))
	}
	return m
}

func appendTurn(turns, timings []byte, t builtTurn) ([]byte, []byte) {
	turns = protowire.AppendTag(turns, fieldTurns, protowire.BytesType)
	turns = protowire.AppendBytes(turns, idOf(t.id))
	one := make([]byte, 0, 24)
	if t.timing.DurationMs > 0 {
		one = protowire.AppendVarint(protowire.AppendTag(one, 1, protowire.VarintType), t.timing.DurationMs)
	}
	if t.timing.TimestampMs > 0 {
		one = protowire.AppendVarint(protowire.AppendTag(one, 2, protowire.VarintType), t.timing.TimestampMs)
	}
	timings = protowire.AppendTag(timings, fieldTimings, protowire.BytesType)
	return turns, protowire.AppendBytes(timings, one)
}

// sidecar stores the trees, but not the root.
func (p *Projector) sidecar(ctx context.Context, last []sidecar.Record) (r sidecar.Root, err error) {
	var head chunks
	if err := head.add(ctx, p.w.put, p.log.head, false, nil); err != nil {
		return r, err
	}
	if r.Head, err = head.root(ctx, p.w.put, nil, false, nil); err != nil {
		return r, err
	}
	if r.Body, err = p.log.body.root(ctx, p.w.put, p.log.rest, false, nil); err != nil {
		return r, err
	}
	if r.Turns, err = p.b.records.Tree(ctx, p.w.put, last...); err != nil {
		return r, err
	}
	r.Open = uint64(len(p.log.rest))
	if len(p.extra.Files) > 0 {
		list := make([]sidecar.File, len(p.extra.Files))
		for i, f := range p.extra.Files {
			list[i] = sidecar.File{Name: f.Name, Bytes: uint64(max(0, f.Bytes)), Pieces: f.Pieces}
		}
		r.Files, err = p.w.put(ctx, sidecar.AppendFiles(nil, list))
	}
	return r, err
}

// copyCited copies what the session cites to the store.
func (p *Projector) copyCited(ctx context.Context) error {
	cited := append(p.log.cited, p.b.named...)
	p.log.cited, p.b.named = nil, nil
	if p.o.Blobs == nil {
		return nil
	}
	for _, ref := range cited {
		if p.w.has(ref) {
			continue
		}
		data, err := p.o.Blobs.Get(ctx, ref)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			p.holes[ref] = &Hole{ref, "blob that the session cites", err}
			continue
		}
		delete(p.holes, ref)
		if _, err := p.w.put(ctx, data); err != nil {
			return err
		}
	}
	return nil
}
