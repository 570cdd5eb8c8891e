package httpstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/internal/pace"
	"github.com/agentrun/agentrun/blobstore/internal/tracecontext"
	"github.com/agentrun/agentrun/internal/bearer"
)

// Limits where HandlerOptions name none.
const (
	DefaultMaxBodyBytes = 256 << 20 // of a blob that has to be held in memory
	DefaultMemory       = 512 << 20 // of all of them together
)

// small is the size up to which a blob is held in memory where it could be streamed.
const small = 1 << 20

// HandlerOptions say how a store is served.
type HandlerOptions struct {
	// Token is the bearer token that every request has to have; "" lets everyone
	// in who reaches the handler.
	Token string

	// AllowPlaintext answers other machines without TLS. A server behind a proxy
	// that ends TLS needs no such thing as long as the proxy is on this machine.
	AllowPlaintext bool

	// MaxBodyBytes is the largest blob that is taken or handed out through memory,
	// MaxStreamBytes the largest that is taken as a stream, which needs a store
	// that is a blobstore.Putter. Memory bounds the bodies in memory of all
	// requests together, but for the first 64 KiB of each: those that find none
	// wait. 0 is the default.
	MaxBodyBytes, MaxStreamBytes, Memory int64

	// Grace is how long a client may do nothing, MinRate how many bytes a second
	// it has to move after that. 0 is the default.
	Grace   time.Duration
	MinRate int64

	// Propagator, unless it is nil, lets the operations of the store be part of the span
	// that a request names, in the headers traceparent and tracestate.
	Propagator blobstore.Propagator

	// Report is told of errors that clients are not told: what a store says may
	// name paths of this machine. nil is nobody. It is called concurrently.
	Report func(error)
}

// Handler serves a store. It is safe for concurrent use.
type Handler struct {
	store  blobstore.Store
	mode   blobstore.Mode
	opts   HandlerOptions
	memory *semaphore.Weighted
	mux    *http.ServeMux

	// writing keeps conditional puts of one blob apart from others, by the first
	// byte of its id. Streams are not held up by it: an opaque blob of more than
	// 1 MiB and a conditional put of the same id at once end with either.
	writing [256]sync.Mutex
}

// NewHandler returns a handler that serves store under /blobs/.
func NewHandler(store blobstore.Store, o HandlerOptions) *Handler {
	if o.MaxBodyBytes <= 0 {
		o.MaxBodyBytes = DefaultMaxBodyBytes
	}
	if o.Memory <= 0 {
		o.Memory = DefaultMemory
	}
	o.Memory = max(o.Memory, o.MaxBodyBytes)
	client := Options{MaxStreamBytes: o.MaxStreamBytes, Grace: o.Grace, MinRate: o.MinRate}
	client.fill()
	o.MaxStreamBytes, o.Grace, o.MinRate = client.MaxStreamBytes, client.Grace, client.MinRate
	h := &Handler{
		store: store, mode: blobstore.ModeOf(store), opts: o,
		memory: semaphore.NewWeighted(o.Memory), mux: http.NewServeMux(),
	}
	h.mux.HandleFunc("GET /blobs/{$}", h.answer(h.list))
	h.mux.HandleFunc("POST /blobs/{$}", h.answer(h.post))
	h.mux.HandleFunc("GET /blobs/{hex}", h.answer(h.get)) // and HEAD
	h.mux.HandleFunc("PUT /blobs/{hex}", h.answer(h.put))
	h.mux.HandleFunc("DELETE /blobs/{hex}", h.answer(h.delete))
	return h
}

var (
	errGone    = errors.New("the client is gone") // nobody to tell
	errToken   = errors.New("a bearer token is wanted")
	errPlain   = errors.New("without TLS only this machine is answered")
	errBrowser = errors.New("pages of the web are not answered")
	errHost    = errors.New("only names of this machine are answered without a token")
	errBusy    = errors.New("too many large blobs at once")
	errDigest  = errors.New("the body is not what its Content-Digest says")
	errHeader  = errors.New("of conditions, only If-None-Match: * is understood here")
)

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(modeHeader, h.mode.String())
	w.Header().Set("X-Content-Type-Options", "nosniff")
	p := &paced{ResponseWriter: w, control: http.NewResponseController(w), limits: pace.Limits{Grace: h.opts.Grace, Rate: h.opts.MinRate}, began: time.Now()}
	p.moved(0)
	// A copy: the server wants to find its own body in the request, to know whether
	// the rest of it has to be read.
	r = r.WithContext(h.traced(r))
	r.Body = &pacedBody{r.Body, p}
	if err := h.admit(r); err != nil {
		h.refuse(p, r, err)
		return
	}
	h.mux.ServeHTTP(p, r)
}

// traced is the context of a request, below the span that it names.
func (h *Handler) traced(r *http.Request) context.Context {
	if h.opts.Propagator != nil {
		if span, ok := tracecontext.Get(r.Header); ok {
			return h.opts.Propagator.WithRemoteSpan(r.Context(), span)
		}
	}
	return r.Context()
}

// admit decides who is answered.
func (h *Handler) admit(r *http.Request) error {
	if r.TLS == nil && !h.opts.AllowPlaintext {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err == nil && !loopback(host) {
			return errPlain
		}
	}
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return errBrowser
	}
	if h.opts.Token == "" {
		// A page may have its own name resolve to this machine.
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if r.TLS == nil && !h.opts.AllowPlaintext && !loopback(host) && host != "[::1]" {
			return errHost
		}
		return nil
	}
	if !bearer.In(r.Header.Get("Authorization"), h.opts.Token) {
		return errToken
	}
	return nil
}

// answer makes a handler of a function whose error is the answer.
func (h *Handler) answer(do func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := do(w, r); err != nil {
			h.refuse(w, r, err)
		}
	}
}

// refuse answers with an error.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errGone) || r.Context().Err() != nil {
		// To return without an answer would be the answer 200.
		panic(http.ErrAbortHandler)
	}
	status, body := http.StatusInternalServerError, fault{Error: "internal", Message: "the store failed"}
	switch {
	case errors.Is(err, errToken):
		w.Header().Set("WWW-Authenticate", "Bearer")
		status, body = http.StatusUnauthorized, fault{"token", err.Error()}
	case errors.Is(err, errPlain), errors.Is(err, errBrowser), errors.Is(err, errHost):
		status, body = http.StatusForbidden, fault{"forbidden", err.Error()}
	case errors.Is(err, errBusy):
		w.Header().Set("Retry-After", "1")
		status, body = http.StatusServiceUnavailable, fault{"unavailable", err.Error()}
	case errors.Is(err, errDigest):
		// It changed on the way: the client may send it again.
		status, body = http.StatusRequestTimeout, fault{"digest", err.Error()}
	case errors.Is(err, errHeader):
		status, body = http.StatusBadRequest, fault{"invalid", err.Error()}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.ErrUnexpectedEOF):
		status, body = http.StatusRequestTimeout, fault{"slow", "the body did not come to its end"}
	case errors.Is(err, syscall.EDQUOT):
		status, body = http.StatusInsufficientStorage, fault{"no-space", "the quota of the disk is used up"}
	default:
		for _, f := range faults {
			if errors.Is(err, f.err) {
				status, body = f.status, fault{f.code, f.err.Error()}
				break
			}
		}
		if wait := blobstore.RetryAfter(err); wait > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
		}
	}
	if status >= 500 {
		h.report(fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err))
	}
	w.Header().Del("Etag")
	w.Header().Del(digestHeader)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (h *Handler) report(err error) {
	if h.opts.Report != nil {
		h.opts.Report(err)
	}
}

func (h *Handler) bodyTooLarge() error {
	return fmt.Errorf("%w: the limit is %d bytes", blobstore.ErrTooLarge, h.opts.MaxBodyBytes)
}

// reserve takes memory for a body of n bytes; free gives it back.
func (h *Handler) reserve(ctx context.Context, n int64) (free func(), err error) {
	if n > h.opts.MaxBodyBytes {
		return nil, h.bodyTooLarge()
	}
	n = max(n, 0)
	ctx, cancel := context.WithTimeoutCause(ctx, h.opts.Grace, errBusy)
	defer cancel()
	if err := h.memory.Acquire(ctx, n); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { h.memory.Release(n) }, nil
}

// blob is the blob that a request names.
func blob(r *http.Request) (blobref.Ref, error) {
	ref, err := blobref.ParseHex(r.PathValue("hex"))
	if err != nil {
		return blobref.Ref{}, err
	}
	if ref.IsZero() && r.Method == http.MethodPut {
		return blobref.Ref{}, fmt.Errorf("%w: the zero reference names no blob", blobref.ErrInvalid)
	}
	return ref, nil
}

// paced is an answer to a client that has to take it at a pace, and to send its body
// at one.
type paced struct {
	http.ResponseWriter
	limits  pace.Limits
	control *http.ResponseController
	began   time.Time
	bytes   int64
}

// moved moves the deadlines of the connection. A writer that has none, as those of
// tests, is not held to them.
func (p *paced) moved(n int) {
	p.bytes += int64(n)
	at := p.limits.Deadline(p.began, time.Now(), p.bytes)
	_ = p.control.SetReadDeadline(at)
	_ = p.control.SetWriteDeadline(at)
}

func (p *paced) Write(b []byte) (int, error) {
	n, err := p.ResponseWriter.Write(b)
	p.moved(n)
	return n, err
}

// Unwrap lets a ResponseController through.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

type pacedBody struct {
	io.ReadCloser
	pace *paced
}

func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil {
		b.pace.moved(n)
	}
	return n, err
}
