package handler

import (
	"context"
	"errors"
	"sync"
)

// Handlers are the handlers of conversations, one for each. It is safe for concurrent use.
type Handlers struct {
	opts Options

	mu     sync.Mutex
	byID   map[string]*opening
	closed bool
}

// opening is a handler that somebody opens, or has opened.
type opening struct {
	done    chan struct{}
	handler *Handler
	err     error
}

// NewHandlers returns handlers that work with opts.
func NewHandlers(opts Options) *Handlers {
	return &Handlers{opts: opts, byID: map[string]*opening{}}
}

// Open returns the handler of a conversation. All who ask for one conversation get the same one, until it is closed
// through Close; one that could not be opened is tried again by the next who asks.
func (h *Handlers) Open(ctx context.Context, conversation string) (*Handler, error) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, ErrClosed
	}
	o, there := h.byID[conversation]
	if !there {
		o = &opening{done: make(chan struct{})}
		h.byID[conversation] = o
		h.mu.Unlock()
		h.open(ctx, conversation, o)
		return o.handler, o.err
	}
	h.mu.Unlock()
	select {
	case <-o.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if ctx.Err() == nil && (errors.Is(o.err, context.Canceled) || errors.Is(o.err, context.DeadlineExceeded)) {
		return h.Open(ctx, conversation) // that was the context of another
	}
	return o.handler, o.err
}

func (h *Handlers) open(ctx context.Context, conversation string, o *opening) {
	handler, err := Open(ctx, conversation, h.opts)
	h.mu.Lock()
	defer h.mu.Unlock()
	o.handler, o.err = handler, err
	if o.err == nil && h.closed {
		o.err = errors.Join(ErrClosed, o.handler.Close())
		o.handler = nil
	}
	if o.err != nil {
		delete(h.byID, conversation)
	}
	close(o.done)
}

// Find returns the handler of a conversation that is open, nil where there is none.
func (h *Handlers) Find(conversation string) *Handler {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o := h.byID[conversation]; o != nil {
		select {
		case <-o.done:
			return o.handler
		default: // it is being opened
		}
	}
	return nil
}

// Close closes all handlers, and those that are being opened.
func (h *Handlers) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	var errs []error
	for _, o := range h.byID {
		if o.handler != nil {
			errs = append(errs, o.handler.Close())
		}
	}
	clear(h.byID)
	return errors.Join(errs...)
}
