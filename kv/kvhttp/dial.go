package kvhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentrun/agentrun/internal/bearer"
	"github.com/agentrun/agentrun/kv"
)

// DialOptions say how a server is spoken to. The zero value speaks Connect.
type DialOptions struct {
	Remote kv.RemoteOptions

	// Protocol is how messages are wrapped; servers of agentrun speak both.
	Protocol Protocol

	// Token is what the server asks for. See TokenFromFile and TokenFromEnv.
	Token string

	// TLS is for https addresses: authorities to trust, a client certificate. nil
	// trusts those of the system.
	TLS *tls.Config

	// Ping is how long the connection may be silent before the server is asked
	// whether it is still there, and how long its answer may take; 15 seconds by
	// default.
	Ping time.Duration
}

// Dial returns the store that the server at an address such as http://127.0.0.1:4711
// serves. It has connected once when it returns; it connects again when it must.
func Dial(ctx context.Context, address string, opts DialOptions) (*kv.Remote, error) {
	d, err := NewDialer(address, ServicePath, kv.MaxMessage(opts.Remote.MaxBlob), opts)
	if err != nil {
		return nil, err
	}
	return kv.Connect(ctx, d.Open, opts.Remote)
}

// Dialer opens streams to one server.
type Dialer struct {
	url        string
	host       string
	maxMessage int
	opts       DialOptions
	transport  *http.Transport
}

// NewDialer returns a Dialer of the stream at path, which is added to the address.
// Messages of more than maxMessage bytes are passed by. Errors match ErrPlaintext for
// an http address beyond this machine.
func NewDialer(address, path string, maxMessage int, opts DialOptions) (*Dialer, error) {
	u, err := url.Parse(address)
	if err != nil {
		// The error of the parser quotes the URL, and there may be a password in it.
		return nil, errors.New("dialling: what was given is no URL: want http://HOST:PORT or https://HOST:PORT")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("dialling %s: want http://HOST:PORT or https://HOST:PORT", u.Redacted())
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return nil, fmt.Errorf("dialling %s: %w: use https", u.Redacted(), ErrPlaintext)
	}
	if opts.Token != "" {
		if err := bearer.Check(opts.Token); err != nil {
			return nil, fmt.Errorf("dialling %s: the token: %w", u.Redacted(), err)
		}
	}
	return &Dialer{
		url: u.JoinPath(path).String(), host: u.Host, maxMessage: maxMessage, opts: opts,
		transport: newTransport(u.Scheme == "https", opts),
	}, nil
}

func newTransport(secure bool, opts DialOptions) *http.Transport {
	ping := opts.Ping
	if ping <= 0 {
		ping = 15 * time.Second
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(secure)
	protocols.SetUnencryptedHTTP2(!secure)
	config := opts.TLS
	if config != nil {
		config = config.Clone()
	}
	return &http.Transport{
		// No proxy of the environment: a loopback address has none, and beyond it a
		// stream has one end.
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    10 * time.Second,
		Protocols:              protocols,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		HTTP2: &http.HTTP2Config{
			MaxReadFrameSize:              maxFrame,
			MaxReceiveBufferPerStream:     buffered,
			MaxReceiveBufferPerConnection: 2 * buffered,
			SendPingTimeout:               ping,
			PingTimeout:                   ping,
			WriteByteTimeout:              2 * ping,
		},
	}
}

// Open connects and opens a stream. It returns when the server can be reached; whether
// it lets us in is known when something is received. It is a kv.DialFunc. A stream ends
// with Close, not with the context.
func (d *Dialer) Open(ctx context.Context) (kv.Stream, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	read, write := io.Pipe()
	s := &clientStream{
		dialer: d, body: write, cancel: cancel,
		answered: make(chan struct{}),
	}
	reached := make(chan struct{})
	trace := &httptrace.ClientTrace{WroteHeaders: sync.OnceFunc(func() { close(reached) })}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(life, trace), http.MethodPost, d.url, read)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("dialling %s: %w", d.host, err)
	}
	d.setHeaders(req.Header)
	go func() {
		defer close(s.answered)
		s.resp, s.err = d.transport.RoundTrip(req)
	}()
	select {
	case <-reached:
		return s, nil
	case <-s.answered:
		if s.err == nil {
			return s, nil
		}
		err = s.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.Close() //nolint:errcheck // it did not begin
	return nil, fmt.Errorf("dialling %s: %w", d.host, err)
}

func (d *Dialer) setHeaders(h http.Header) {
	h.Set("User-Agent", "agentrun-kv")
	if d.opts.Protocol == GRPC {
		h.Set("Content-Type", typeGRPCProto)
		h.Set("Te", "trailers")
	} else {
		h.Set("Content-Type", typeConnect)
		h.Set("Connect-Protocol-Version", "1")
	}
	if d.opts.Token != "" {
		h.Set("Authorization", "Bearer "+d.opts.Token)
	}
}

// clientStream is a stream that was dialled.
type clientStream struct {
	dialer *Dialer
	body   *io.PipeWriter
	cancel context.CancelFunc

	answered chan struct{}  // closed when the headers of the response are there
	resp     *http.Response // once answered
	err      error          // once answered

	in *inbound // of Recv alone
}

func (s *clientStream) Send(batch []byte) error {
	_, err := s.body.Write(batch)
	return err
}

func (s *clientStream) Recv() ([]byte, error) {
	if s.in == nil {
		if err := s.begin(); err != nil {
			return nil, err
		}
	}
	message, end, err := s.in.next()
	switch {
	case err == io.EOF: //nolint:errorlint // it is that of the reader itself
		return nil, s.ended()
	case err != nil:
		return nil, err
	case end:
		return nil, s.explain(parseEnd(message))
	}
	return message, nil
}

// begin waits for the headers of the response.
func (s *clientStream) begin() error {
	<-s.answered
	if s.err != nil {
		return fmt.Errorf("opening a stream to %s: %w", s.dialer.host, s.err)
	}
	protocol := s.dialer.opts.Protocol
	if s.resp.StatusCode != http.StatusOK {
		return fmt.Errorf("opening a stream to %s: %w", s.dialer.host, s.explain(httpStatus(s.resp)))
	}
	if got, known := protocolOf(s.resp.Header.Get("Content-Type")); !known || got != protocol {
		return fmt.Errorf("opening a stream to %s: %w: it answers with %.60q, which is not %s: %w",
			s.dialer.host, kv.ErrProtocol, s.resp.Header.Get("Content-Type"), protocol, kv.ErrRefused)
	}
	if s.resp.Header.Get("Grpc-Status") != "" { // there is nothing but the end
		return s.explain(trailerStatus(s.resp.Header))
	}
	s.in = newInbound(protocol, s.resp.Body, false, s.dialer.maxMessage)
	return nil
}

// ended says how a stream ended whose bytes are over.
func (s *clientStream) ended() error {
	if s.dialer.opts.Protocol == Connect {
		return io.ErrUnexpectedEOF // the last message did not come
	}
	return s.explain(trailerStatus(s.resp.Trailer))
}

// explain says what to do about a token that is refused.
func (s *clientStream) explain(err error) error {
	var end *status
	if !errors.As(err, &end) || end.code != unauthenticated {
		return err
	}
	if s.dialer.opts.Token == "" {
		return fmt.Errorf("%w (no token was sent; the variable %s is for the one of that server)", err, TokenEnv)
	}
	return fmt.Errorf("%w (the token that was sent is not the one of that server; see the variable %s)", err, TokenEnv)
}

// trailerStatus returns io.EOF for a gRPC stream that ended well.
func trailerStatus(h http.Header) error {
	text := h.Get("Grpc-Status")
	if text == "0" {
		return io.EOF
	}
	if text == "" {
		return io.ErrUnexpectedEOF
	}
	number, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		number = uint64(unknown)
	}
	return &status{code: code(number), message: strings.TrimSpace(percentDecode(h.Get("Grpc-Message")))}
}

func (s *clientStream) Close() error {
	s.body.CloseWithError(io.EOF) //nolint:errcheck // always nil
	s.cancel()
	<-s.answered // at once: its context has ended
	if s.resp != nil {
		s.resp.Body.Close() //nolint:errcheck // what was cancelled may say so
	}
	s.dialer.transport.CloseIdleConnections()
	return nil
}
