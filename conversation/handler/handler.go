// Package handler keeps the checkpoints of conversations while they go on. A [Handler] stores each state that it is given,
// makes it the latest one of its conversation, tells who wants to know, and has a transcript written in the background.
// [Handlers] has one of them for each conversation.
package handler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/conversation/pointers"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// Checkpoint is a state of a conversation.
type Checkpoint struct {
	// Ref names the bytes of the state. A zero Ref lets Handle store them; any other one is of bytes that are stored already.
	Ref blobref.Ref
	// State is what the bytes say. Nobody changes it any more.
	State *agentv1.ConversationStateStructure
	// Bubble is the message at which the state was this, whose pointer is set too; "" sets that of the latest state alone.
	Bubble string
}

// Options are what a Handler works with.
type Options struct {
	Blobs    blobstore.Store // where states are; the blobs that they refer to are put there before
	Pointers pointers.Pointers

	// OnCheckpoint is told of each checkpoint once it is noted, in their order, before Handle returns. It may be nil.
	OnCheckpoint func(ctx context.Context, c Checkpoint)
	// WriteTranscript writes what a conversation is down for others to read. It is called in the background, for one state
	// at a time, with a context that Close ends; states that were followed by another one meanwhile are left out. It may
	// be nil.
	WriteTranscript func(ctx context.Context, c Checkpoint) error
	// OnTranscriptWritten is told after each of those calls that succeeded. It may be nil.
	OnTranscriptWritten func(conversation string)
	// Report is told of each failure of WriteTranscript, which is called again, after Retry the first time and twice as
	// long each time, up to a minute. It may be nil, and Flush tells of the last failure then.
	Report func(conversation string, err error)
	// Retry is how long to wait after the first failure; 0 means a second.
	Retry time.Duration
}

const (
	defaultRetry = time.Second
	maxRetry     = time.Minute
)

// ErrClosed means that the handler was closed.
var ErrClosed = errors.New("the checkpoints of this conversation are closed")

// Handler keeps the checkpoints of one conversation. Its methods may be called concurrently.
type Handler struct {
	conversation string
	opts         Options

	handling sync.Mutex // one checkpoint after the other

	mu     sync.Mutex
	latest Checkpoint // guarded by mu; zero before the first one
	closed bool       // guarded by mu

	transcripts *transcripts
}

// New returns the handler of a conversation whose latest state is prior, as its pointer says (see Open); the zero
// Checkpoint is that of a conversation without one.
func New(conversation string, prior Checkpoint, opts Options) (*Handler, error) {
	if err := pointers.CheckID("conversation", conversation); err != nil {
		return nil, err
	}
	if opts.Retry <= 0 {
		opts.Retry = defaultRetry
	}
	h := &Handler{conversation: conversation, opts: opts, latest: prior}
	if opts.WriteTranscript != nil {
		h.transcripts = newTranscripts(conversation, opts)
	}
	return h, nil
}

// Open returns the handler of a conversation with the latest state that its pointer names, if there is one.
func Open(ctx context.Context, conversation string, opts Options) (*Handler, error) {
	p, err := opts.Pointers.Get(ctx, conversation, "")
	if errors.Is(err, pointers.ErrNotFound) {
		return New(conversation, Checkpoint{}, opts)
	}
	if err != nil {
		return nil, err
	}
	data, err := opts.Blobs.Get(ctx, p.Ref)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", pointers.Name(conversation, ""), err)
	}
	state := &agentv1.ConversationStateStructure{}
	if err := proto.Unmarshal(data, state); err != nil {
		return nil, fmt.Errorf("opening %s: %s is no state: %w", pointers.Name(conversation, ""), p.Ref, err)
	}
	return New(conversation, Checkpoint{Ref: p.Ref, State: state}, opts)
}

// Conversation is the id of the conversation.
func (h *Handler) Conversation() string { return h.conversation }

// Latest is the newest checkpoint, zero before the first one.
func (h *Handler) Latest() Checkpoint {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.latest
}

// Handle makes a state the latest one of the conversation. When it returns without an error the state is stored, flushed,
// and its pointers are set. Where somebody else has set one meanwhile the error is a *pointers.ConflictError: that
// checkpoint stays, and this state is stored but nobody's latest one.
func (h *Handler) Handle(ctx context.Context, c Checkpoint) (Checkpoint, error) {
	h.handling.Lock()
	defer h.handling.Unlock()
	if h.isClosed() {
		return Checkpoint{}, ErrClosed
	}
	c, err := h.store(ctx, c)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("storing a state of conversation %s: %w", h.conversation, err)
	}
	if err := h.note(ctx, c); err != nil {
		return Checkpoint{}, err
	}
	h.mu.Lock()
	h.latest = c
	h.mu.Unlock()
	if h.opts.OnCheckpoint != nil {
		h.opts.OnCheckpoint(ctx, c)
	}
	if h.transcripts != nil {
		h.transcripts.want(c)
	}
	return c, nil
}

func (h *Handler) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

func (h *Handler) store(ctx context.Context, c Checkpoint) (Checkpoint, error) {
	if c.State == nil {
		return c, errors.New("there is no state")
	}
	if c.Ref.IsZero() {
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(c.State)
		if err != nil {
			return c, err
		}
		if c.Ref, err = blobstore.Put(ctx, h.opts.Blobs, data); err != nil {
			return c, err
		}
	}
	return c, h.opts.Blobs.Flush(ctx) // a pointer to what is not there would be worse than none
}

func (h *Handler) note(ctx context.Context, c Checkpoint) error {
	changes := []pointers.Change{{Old: h.Latest().Ref, New: c.Ref}}
	if c.Bubble != "" {
		at, err := h.opts.Pointers.Get(ctx, h.conversation, c.Bubble)
		var damaged *pointers.DamagedError
		switch {
		case errors.As(err, &damaged):
			at = damaged.Last // which is what Old has to be
		case err != nil && !errors.Is(err, pointers.ErrNotFound):
			return err
		}
		changes = append(changes, pointers.Change{Bubble: c.Bubble, Old: at.Ref, New: c.Ref})
	}
	return h.opts.Pointers.CompareAndSet(ctx, h.conversation, changes...)
}

// Flush waits until the transcript of the latest checkpoint is written, and returns the last failure when ctx ends before.
func (h *Handler) Flush(ctx context.Context) error {
	if h.transcripts == nil {
		return nil
	}
	return h.transcripts.flush(ctx)
}

// Close ends what goes on in the background. A transcript that is not written yet stays unwritten, and the error says so;
// call Flush before.
func (h *Handler) Close() error {
	h.handling.Lock() // a checkpoint that is being handled is handled to its end
	defer h.handling.Unlock()
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	if h.transcripts == nil {
		return nil
	}
	return h.transcripts.close()
}
