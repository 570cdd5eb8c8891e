package conversation

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/conversation/internal/sidecar"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// Limits bound what is read of a state. What they are for are stores that answer
// anything, and states that name one large blob many times.
type Limits struct {
	Bytes    int64 // of a log, or of a file beside it; 0 is 16 GiB
	Blobs    int   // that a walk visits; 0 is 50 million
	Depth    int   // of subagents of subagents; 0 is 16
	Parallel int   // blobs that are read at once; 0 is 16
}

func (l Limits) filled() Limits {
	if l.Bytes <= 0 {
		l.Bytes = 16 << 30
	}
	if l.Blobs <= 0 {
		l.Blobs = 50_000_000
	}
	if l.Depth <= 0 {
		l.Depth = 16
	}
	if l.Parallel <= 0 {
		l.Parallel = 16
	}
	return l
}

// State is a conversation state and the store that its blobs are in. Nothing but the
// state itself has been read; turns are read when somebody asks. It is safe for
// concurrent use as long as nobody changes Message.
type State struct {
	// Message is the state. Fields that agent.v1 did not have are among its unknown ones.
	Message *agentv1.ConversationStateStructure

	store  blobstore.Store
	limits Limits
	fields []field
	side   []byte // id of the sidecar, nil for none
}

// Load reads the state root. An old form is upgraded in memory: see Parse.
func Load(ctx context.Context, store blobstore.Store, root blobref.Ref, l Limits) (*State, error) {
	data, err := store.Get(ctx, root)
	if err != nil {
		return nil, fmt.Errorf("reading a conversation state: %w", &Hole{root, "state", err})
	}
	return Parse(data, store, l)
}

// New returns the state in data, a ConversationStateStructure, over a store that has its
// blobs. It keeps data.
func New(data []byte, store blobstore.Store, l Limits) (*State, error) {
	s := &State{Message: &agentv1.ConversationStateStructure{}, store: store, limits: l.filled()}
	var err error
	if s.fields, err = split(data); err != nil {
		return nil, fmt.Errorf("reading a conversation state: %w", err)
	}
	if err := (proto.UnmarshalOptions{RecursionLimit: 200}).Unmarshal(data, s.Message); err != nil {
		return nil, fmt.Errorf("reading a conversation state: %w: %w", ErrNotState, err)
	}
	s.side = sidecarID(s.fields)
	return s, nil
}

// Bytes is the state as it was read.
func (s *State) Bytes() []byte {
	var b []byte
	for _, f := range s.fields {
		b = append(b, f.raw...)
	}
	return b
}

// Root is the id of the state as it was read.
func (s *State) Root() blobref.Ref { return blobref.Of(s.Bytes()) }

// Len is how many turns the state has.
func (s *State) Len() int { return len(s.Message.Turns) }

// get reads a blob by an id as it stands in a message.
func (s *State) get(ctx context.Context, id []byte, what string) ([]byte, error) {
	if len(id) != 32 {
		return nil, &Hole{What: what, Err: fmt.Errorf("%w: an id of %d bytes", ErrNotState, len(id))}
	}
	return s.getRef(ctx, blobref.FromSum([32]byte(id)), what)
}

func (s *State) getRef(ctx context.Context, ref blobref.Ref, what string) ([]byte, error) {
	data, err := s.store.Get(ctx, ref)
	switch {
	case err == nil:
		return data, nil
	case ctx.Err() != nil:
		return nil, err
	}
	return nil, &Hole{ref, what, err}
}

// message reads a message by its id.
func (s *State) message(ctx context.Context, id []byte, what string, m proto.Message) error {
	data, err := s.get(ctx, id, what)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(data, m); err != nil {
		return &Hole{blobref.FromSum([32]byte(id)), what, fmt.Errorf("%w: %w", ErrNotState, err)}
	}
	return nil
}

// sidecar reads the root of the sidecar; ok is false when the state has none.
func (s *State) sidecar(ctx context.Context) (r sidecar.Root, ok bool, err error) {
	if s.side == nil {
		return r, false, nil
	}
	data, err := s.rawRef(ctx, blobref.FromSum([32]byte(s.side)), "sidecar")
	if err != nil {
		return r, false, err
	}
	if r, err = sidecar.ParseRoot(data); err != nil {
		return r, false, &Hole{blobref.FromSum([32]byte(s.side)), "sidecar", err}
	}
	return r, true, nil
}

// raw reads a blob of the sidecar. These are always what their ids say, also in a store
// that does not look: what the log says is to be what it said.
func (s *State) raw(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	data, err := s.store.Get(ctx, ref)
	if err == nil && !ref.Verify(data) {
		return nil, blobstore.ErrCorrupt
	}
	return data, err
}

// rawRef is raw with a *Hole for what is not there.
func (s *State) rawRef(ctx context.Context, ref blobref.Ref, what string) ([]byte, error) {
	data, err := s.raw(ctx, ref)
	if err == nil || ctx.Err() != nil {
		return data, err
	}
	return nil, &Hole{ref, what, err}
}

// holeOf is the hole that an error tells of, nil for any other error.
func holeOf(err error) *Hole {
	var h *Hole
	if errors.As(err, &h) {
		return h
	}
	var side *sidecar.HoleError
	if errors.As(err, &side) {
		return &Hole{side.ID, "part of the sidecar", side.Err}
	}
	return nil
}
