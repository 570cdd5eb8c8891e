package conversation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// Subagent is a subagent of a state.
type Subagent struct {
	ID    string
	State *State
	// Message is what the state says of it, without its own state.
	Message *agentv1.SubagentPersistedState
}

// Subagents returns the subagents of the state, by id: those inline, and those by
// reference. One that cannot be read is a hole.
func (s *State) Subagents(ctx context.Context) (list []Subagent, holes []*Hole, err error) {
	raw := map[string][]byte{}
	for _, f := range s.fields {
		if f.number != fieldSubagent {
			continue
		}
		key, value, ok := mapEntry(f.value)
		if ok {
			raw[key] = value
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.Message.SubagentStateRefs)) {
		if _, inline := raw[id]; inline {
			continue
		}
		data, err := s.get(ctx, s.Message.SubagentStateRefs[id], kindSubagent.String())
		if h := holeOf(err); h != nil {
			holes = append(holes, h)
			continue
		} else if err != nil {
			return nil, nil, err
		}
		raw[id] = data
	}
	for _, id := range slices.Sorted(maps.Keys(raw)) {
		sub, err := s.subagent(id, raw[id])
		if err != nil {
			holes = append(holes, &Hole{blobref.Of(raw[id]), kindSubagent.String(), err})
			continue
		}
		list = append(list, sub)
	}
	return list, holes, nil
}

// subagent takes a SubagentPersistedState apart. Its state stays as it stands there, to
// the byte: another program may have parts of one message in several fields.
func (s *State) subagent(id string, data []byte) (Subagent, error) {
	list, err := split(data)
	if err != nil {
		return Subagent{}, err
	}
	var state, rest []byte
	for _, f := range list {
		if f.number == 1 && f.value != nil {
			state = append(state, f.value...)
		} else {
			rest = append(rest, f.raw...)
		}
	}
	m := &agentv1.SubagentPersistedState{}
	if err := proto.Unmarshal(rest, m); err != nil {
		return Subagent{}, fmt.Errorf("%w: %w", ErrNotState, err)
	}
	own, err := New(state, s.store, s.limits)
	return Subagent{id, own, m}, err
}

// mapEntry takes an entry of a map with strings as keys apart.
func mapEntry(b []byte) (key string, value []byte, ok bool) {
	list, err := split(b)
	for _, f := range list {
		switch f.number {
		case 1:
			key = string(f.value)
		case 2:
			value, ok = f.value, true
		}
	}
	return key, value, ok && err == nil
}

// subagentBytes is a SubagentPersistedState around the bytes of a state.
func subagentBytes(state []byte, m *agentv1.SubagentPersistedState) ([]byte, error) {
	rest, err := marshal.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("writing the state of a subagent: %w", err)
	}
	b := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), state)
	return append(b, rest...), nil
}

// Files returns the files beside the log that the sidecar has. A name is hostile.
func (s *State) Files(ctx context.Context) ([]File, error) {
	side, ok, err := s.sidecar(ctx)
	if err != nil || !ok || side.Files.IsZero() {
		return nil, err
	}
	data, err := s.rawRef(ctx, side.Files, kindFiles.String())
	if err != nil {
		return nil, err
	}
	list, err := parseFiles(data)
	if err != nil {
		return nil, &Hole{side.Files, kindFiles.String(), err}
	}
	return list, nil
}

// Reader reads a file of the state. An error while reading may be a *Hole.
func (s *State) Reader(ctx context.Context, f File) *FileReader {
	return &FileReader{ctx: ctx, s: s, left: f.Pieces, want: f.Bytes}
}

// FileReader reads the pieces of a file one after the other.
type FileReader struct {
	ctx  context.Context
	s    *State
	left []blobref.Ref
	data []byte
	want int64
	err  error
}

var errFileLength = errors.New("the file has another length than the state says")

func (r *FileReader) next() {
	if len(r.left) == 0 {
		if r.err = errEnd; r.want != 0 {
			r.err = &Hole{What: "file", Err: errFileLength}
		}
		return
	}
	r.data, r.err = r.s.rawRef(r.ctx, r.left[0], "piece of a file")
	r.left = r.left[1:]
	if r.want -= int64(len(r.data)); r.want < 0 && r.err == nil {
		r.data, r.err = nil, &Hole{What: "file", Err: errFileLength}
	}
}

// nameOf is the id of a subagent below another one, as sessions name them: with a dot
// between.
func nameOf(parent, id string) string {
	if parent == "" || strings.HasPrefix(id, parent+".") {
		return id
	}
	return parent + "." + id
}

// copyTo copies blobs from one store to another that may have them.
func copyTo(ctx context.Context, from, to blobstore.Store, refs []blobref.Ref, parallelism int) (holes []*Hole, err error) {
	errs := make([]error, len(refs))
	parallel(parallelism, len(refs), func(i int) {
		if _, err := blobstore.Stat(ctx, to, refs[i]); err == nil {
			return
		}
		data, err := from.Get(ctx, refs[i])
		if err == nil {
			if err = to.Set(ctx, refs[i], data); err != nil && !errors.Is(err, blobstore.ErrMismatch) {
				errs[i] = err
				return
			}
		}
		if err != nil {
			errs[i] = &Hole{refs[i], kindLeaf.String(), err}
		}
	})
	for _, err := range errs {
		if h := holeOf(err); h != nil && ctx.Err() == nil {
			holes = append(holes, h)
		} else if err != nil {
			return holes, err
		}
	}
	return holes, nil
}
