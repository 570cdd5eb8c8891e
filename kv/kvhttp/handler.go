package kvhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/agentrun/agentrun/internal/bearer"
	"github.com/agentrun/agentrun/kv"
)

// ServicePath is where the service is, behind the address of the server.
const ServicePath = "/agentrun.kv.v1.KvService/Serve"

// AgentPath is where a server of agent.v1 runs conversations: see kv.InAgentClient and
// kv.InAgentServer.
const AgentPath = "/agent.v1.AgentService/Run"

// Handler serves streams of HTTP/2 to clients of gRPC and Connect.
type Handler struct {
	serve      func(context.Context, kv.Stream) error
	maxMessage int
	token      string
}

// NewHandler returns a handler that calls serve for each stream. Its context ends with
// the stream, or at the deadline that the client gave; what serve returns becomes the
// status of the stream. Messages of more than maxMessage bytes are passed by. token,
// where it is not empty, is what clients must bring.
func NewHandler(serve func(context.Context, kv.Stream) error, maxMessage int, token string) *Handler {
	return &Handler{serve: serve, maxMessage: maxMessage, token: token}
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "only POST", http.StatusMethodNotAllowed)
		return
	}
	if r.ProtoMajor < 2 {
		http.Error(w, "streams both ways need HTTP/2", http.StatusHTTPVersionNotSupported)
		return
	}
	contentType := r.Header.Get("Content-Type")
	protocol, known := protocolOf(contentType)
	if !known {
		w.Header().Set("Accept-Post", typeConnect+", "+typeGRPC+", "+typeGRPCProto)
		w.WriteHeader(http.StatusUnsupportedMediaType)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set(protocol.headers().acceptEncoding, "gzip")
	stream, timeout, err := h.accept(protocol, w, r)
	if err != nil {
		refuse(w, protocol, statusOf(err))
		return
	}
	ctx := r.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	// The client learns at once that it is let in.
	if err := stream.control.Flush(); err != nil {
		return
	}
	stream.finish(statusOf(h.serve(ctx, stream)))
}

// accept looks at everything that is said before the first message.
func (h *Handler) accept(protocol Protocol, w http.ResponseWriter, r *http.Request) (*serverStream, time.Duration, error) {
	if h.token != "" && !bearer.In(r.Header.Get("Authorization"), h.token) {
		return nil, 0, &status{code: unauthenticated, message: "the header Authorization brings no bearer token, or another one"}
	}
	encoding := r.Header.Get(protocol.headers().encoding)
	switch encoding {
	case "", "identity", "gzip":
	default:
		return nil, 0, &status{code: unimplemented, message: fmt.Sprintf("messages are compressed with %.20q; known is gzip", encoding)}
	}
	timeout, err := protocol.timeout(r.Header)
	if err != nil {
		return nil, 0, err
	}
	return &serverStream{
		protocol: protocol,
		in:       newInbound(protocol, r.Body, encoding == "gzip", h.maxMessage),
		body:     r.Body,
		w:        w,
		control:  http.NewResponseController(w),
	}, timeout, nil
}

// refuse ends a stream before it began.
func refuse(w http.ResponseWriter, protocol Protocol, s *status) {
	if protocol == Connect {
		w.Write(appendEnd(nil, s)) //nolint:errcheck // nobody is left to be told
		return
	}
	w.Header().Set("Grpc-Status", fmt.Sprint(int(s.code)))
	w.Header().Set("Grpc-Message", percentEncode(s.message))
}

// serverStream is a stream of one request.
type serverStream struct {
	protocol Protocol
	in       *inbound
	body     io.Closer
	w        http.ResponseWriter
	control  *http.ResponseController

	mu      sync.Mutex
	sending bool // guarded by mu
	closed  bool // guarded by mu
	broken  bool // guarded by mu: a Send failed
}

func (s *serverStream) Recv() ([]byte, error) {
	message, end, err := s.in.next()
	if err == nil && end {
		return nil, fmt.Errorf("receiving a message: %w: only a server ends a stream by a message", kv.ErrProtocol)
	}
	return message, err
}

var errStreamClosed = errors.New("the stream is closed")

func (s *serverStream) Send(batch []byte) error {
	if !s.begin() {
		return errStreamClosed
	}
	_, err := s.w.Write(batch)
	if err == nil {
		err = s.control.Flush()
	}
	s.end(err)
	return err
}

func (s *serverStream) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending = !s.closed
	return s.sending
}

func (s *serverStream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending = false
	s.broken = s.broken || err != nil
	if s.closed && !s.broken {
		s.control.SetWriteDeadline(time.Time{}) //nolint:errcheck // the status may take its time
	}
}

// sendGrace is how long a Send that is under way may take when the stream is closed.
const sendGrace = time.Second

// Close makes Recv return at once, and Send when the client takes what is sent or,
// where it does not, soon. The status can be sent unless that Send failed.
func (s *serverStream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.sending {
		s.control.SetWriteDeadline(time.Now().Add(sendGrace)) //nolint:errcheck // resets the stream
	}
	return s.body.Close()
}

// finish tells the client how the stream ended.
func (s *serverStream) finish(end *status) {
	s.mu.Lock()
	broken := s.broken
	s.mu.Unlock()
	if broken {
		return
	}
	if s.protocol == Connect {
		s.w.Write(appendEnd(nil, end)) //nolint:errcheck // nobody is left to be told
		return
	}
	s.w.Header().Set(http.TrailerPrefix+"Grpc-Status", fmt.Sprint(int(end.code)))
	s.w.Header().Set(http.TrailerPrefix+"Grpc-Message", percentEncode(end.message))
}
