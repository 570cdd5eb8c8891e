package conversation

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/conversation/internal/sidecar"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// visit is a blob to be visited.
type visit struct {
	ref  blobref.Ref
	kind kind
	tree sidecar.Tree // of kindChunks: what the parent says of it
}

// walker visits what can be reached from a state.
type walker struct {
	store  blobstore.Store
	limits Limits
	seen   map[blobref.Ref]uint16 // kinds that it was seen as
	queue  []visit
	leaves []blobref.Ref // that were found and not yielded
	maybe  []blobref.Ref
	told   map[blobref.Ref]bool // those of maybe that were yielded
}

func newWalker(store blobstore.Store, l Limits) *walker {
	return &walker{store: store, limits: l.filled(), seen: map[blobref.Ref]uint16{}, told: map[blobref.Ref]bool{}}
}

// Walk yields every blob that can be reached from the state root, root included, each
// once and before those that it names: turns, user messages and the states and texts they
// name, steps, summaries with the messages they stand for, things to do, contents of
// files, subagents inline and by reference, and the sidecar with what its lines cite.
//
// Blobs that have no ids in them are yielded unread: an absent one is only found by who
// reads it. For another one that cannot be read the error is a *Hole, and the walk goes on
// without what it names. Ids in fields that nobody here knows are yielded if the store
// has the blob, and are a *Hole if it cannot tell. Any other error ends the walk; it matches ErrTooMuch when there are more
// blobs than Limits.Blobs.
func Walk(ctx context.Context, store blobstore.Store, root blobref.Ref, l Limits) iter.Seq2[blobref.Ref, error] {
	return func(yield func(blobref.Ref, error) bool) {
		w := newWalker(store, l)
		w.add(visit{ref: root, kind: kindState})
		w.run(ctx, yield)
	}
}

// Walker walks the states of one store, and yields what several of them name once: states of one conversation have most
// of their blobs in common. It remembers some 50 bytes a blob, and is not safe for concurrent use.
type Walker struct {
	store  blobstore.Store
	limits Limits
	w      *walker // nil before the first walk, and behind one that did not end
}

// NewWalker returns a walker of states in store. Limits.Blobs holds for each walk.
func NewWalker(store blobstore.Store, l Limits) *Walker { return &Walker{store: store, limits: l} }

// Walk is [Walk] for what no walk before has yielded. What an earlier one could not read is not tried again, and no error
// any more. A walk that is broken off, or ends with an error that is no *Hole, lets all be forgotten.
func (w *Walker) Walk(ctx context.Context, root blobref.Ref) iter.Seq2[blobref.Ref, error] {
	return func(yield func(blobref.Ref, error) bool) {
		one := w.w
		if w.w = nil; one == nil {
			one = newWalker(w.store, w.limits)
		}
		one.add(visit{ref: root, kind: kindState})
		if one.run(ctx, yield) {
			w.w = one
		}
	}
}

// walkState is Walk for a state that is in no blob.
func walkState(ctx context.Context, store blobstore.Store, m *agentv1.ConversationStateStructure, l Limits) iter.Seq2[blobref.Ref, error] {
	return func(yield func(blobref.Ref, error) bool) {
		w := newWalker(store, l)
		idsIn(m.ProtoReflect(), w.found)
		w.run(ctx, yield)
	}
}

// add queues a blob, unless it was seen as that.
func (w *walker) add(v visit) {
	before := w.seen[v.ref]
	if before&(1<<v.kind) != 0 {
		return
	}
	if v.kind == kindMaybe {
		if before == 0 {
			w.seen[v.ref] = 1 << kindMaybe
			w.maybe = append(w.maybe, v.ref)
		}
		return
	}
	w.seen[v.ref] = before | 1<<v.kind
	if before&^(1<<kindMaybe) == 0 {
		w.leaves = append(w.leaves, v.ref)
	}
	if v.kind != kindLeaf {
		w.queue = append(w.queue, v)
	}
}

// found is add for an id as it stands in a message.
func (w *walker) found(k kind, id []byte) {
	if len(id) == 32 {
		w.add(visit{ref: blobref.FromSum([32]byte(id)), kind: k})
	}
}

// run visits what is queued, and reports whether that came to its end.
func (w *walker) run(ctx context.Context, yield func(blobref.Ref, error) bool) bool {
	yielded := w.told
	count := 0
	for {
		for _, ref := range w.leaves {
			if yielded[ref] {
				continue
			}
			if count++; count > w.limits.Blobs {
				yield(blobref.Ref{}, fmt.Errorf("walking a conversation state: more than %d blobs: %w", w.limits.Blobs, ErrTooMuch))
				return false
			}
			if !yield(ref, nil) {
				return false
			}
		}
		w.leaves = w.leaves[:0]
		if err := ctx.Err(); err != nil {
			yield(blobref.Ref{}, err)
			return false
		}
		switch {
		case len(w.queue) > 0:
			if !w.batch(ctx, yield) {
				return false
			}
		case len(w.maybe) > 0:
			ref := w.maybe[len(w.maybe)-1]
			w.maybe = w.maybe[:len(w.maybe)-1]
			if w.seen[ref] != 1<<kindMaybe || yielded[ref] {
				continue
			}
			has, err := w.has(ctx, ref)
			switch {
			case err != nil && ctx.Err() != nil: // told above
			case err != nil:
				if !yield(ref, &Hole{ref, kindMaybe.String(), err}) {
					return false
				}
				yielded[ref] = true
			case has:
				// Should it be found again, as something that is known, it is not yielded again.
				if count++; !yield(ref, nil) {
					return false
				}
				yielded[ref] = true
			}
		default:
			return true
		}
	}
}

// has reports whether the store has a blob. An error means that nobody can tell.
func (w *walker) has(ctx context.Context, ref blobref.Ref) (bool, error) {
	_, err := blobstore.Stat(ctx, w.store, ref)
	if errors.Is(err, blobstore.ErrUnsupported) {
		_, err = w.store.Get(ctx, ref)
	}
	if errors.Is(err, blobstore.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// batch reads some blobs at once and queues what they name.
func (w *walker) batch(ctx context.Context, yield func(blobref.Ref, error) bool) bool {
	n := min(len(w.queue), w.limits.Parallel)
	list := append([]visit(nil), w.queue[len(w.queue)-n:]...)
	w.queue = w.queue[:len(w.queue)-n]
	found, errs := make([][]visit, n), make([]error, n)
	parallel(n, n, func(i int) { found[i], errs[i] = w.read(ctx, list[i]) })
	for i, v := range list {
		for _, next := range found[i] {
			w.add(next)
		}
		switch {
		case errs[i] == nil:
		case ctx.Err() != nil:
			yield(blobref.Ref{}, ctx.Err())
			return false
		default:
			if !yield(v.ref, &Hole{v.ref, v.kind.String(), errs[i]}) {
				return false
			}
		}
	}
	return true
}

// read reads a blob and returns what it names.
func (w *walker) read(ctx context.Context, v visit) (list []visit, err error) {
	data, err := w.store.Get(ctx, v.ref)
	if err != nil {
		return nil, err
	}
	var m proto.Message
	switch v.kind {
	case kindState:
		m = &agentv1.ConversationStateStructure{}
	case kindTurn:
		m = &agentv1.ConversationTurnStructure{}
	case kindUser:
		m = &agentv1.UserMessage{}
	case kindStep:
		m = &agentv1.ConversationStep{}
	case kindArchive:
		m = &agentv1.ConversationSummaryArchive{}
	case kindSubagent:
		m = &agentv1.SubagentPersistedState{}
	case kindSidecar:
		return readSidecar(data)
	case kindChunks, kindTurnNodes:
		return readNode(data, v.kind, v.tree)
	case kindFiles:
		return readFiles(data)
	default:
		return nil, nil
	}
	if err := (proto.UnmarshalOptions{RecursionLimit: 200}).Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotState, err)
	}
	idsIn(m.ProtoReflect(), func(k kind, id []byte) {
		if len(id) == 32 {
			list = append(list, visit{ref: blobref.FromSum([32]byte(id)), kind: k})
		}
	})
	return list, nil
}

func readSidecar(data []byte) (list []visit, err error) {
	r, err := sidecar.ParseRoot(data)
	if err != nil {
		return nil, err
	}
	for _, t := range []sidecar.Tree{r.Head, r.Body} {
		if !t.Empty() {
			list = append(list, visit{t.ID, kindChunks, t})
		}
	}
	if !r.Turns.Empty() {
		list = append(list, visit{r.Turns.ID, kindTurnNodes, r.Turns})
	}
	if !r.Files.IsZero() {
		list = append(list, visit{ref: r.Files, kind: kindFiles})
	}
	return list, nil
}

func readFiles(data []byte) (list []visit, err error) {
	files, err := sidecar.ParseFiles(data)
	for _, f := range files {
		for _, id := range f.Pieces {
			list = append(list, visit{ref: id})
		}
	}
	return list, err
}

// readNode reads a node. Chunks, and the blobs that their lines cite, have no ids in
// them. Of turns a sidecar has the lines; they themselves are the state's, or nobody's any
// more.
func readNode(data []byte, k kind, t sidecar.Tree) (list []visit, err error) {
	records, err := t.Parse(data)
	for _, r := range records {
		switch {
		case t.Level > 0:
			child := t.Child(r)
			list = append(list, visit{child.ID, k, child})
		case k == kindChunks:
			list = append(list, visit{ref: r.ID})
			for _, id := range r.Cites {
				list = append(list, visit{ref: id})
			}
		}
	}
	return list, err
}
