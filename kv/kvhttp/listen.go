package kvhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/kv"
)

// ErrPlaintext means that bytes would go over a network unencrypted, or to whoever
// asks for them.
var ErrPlaintext = errors.New("beyond this machine a stream needs TLS, and a token or client certificates")

// errShutdown ends the streams of a server that ends.
var errShutdown = errors.New("the server is shutting down")

// ServeOptions say who is served and how. The zero value serves whoever can reach a
// loopback address.
type ServeOptions struct {
	Controlled kv.ControlledOptions

	// Token is what clients must bring; empty asks for none. See TokenFromFile and
	// TokenFromEnv.
	Token string

	// TLS, where it is not nil, has the certificate of the server, and with ClientCAs
	// and ClientAuth asks clients for theirs.
	TLS *tls.Config

	// Ping is how long a connection may be silent before it is asked whether it is
	// still there, and how long its answer may take; 15 seconds by default.
	Ping time.Duration

	// MaxStreams is how many streams one connection may have; 100 by default.
	MaxStreams int
}

const shutdownTime = 5 * time.Second

// Serve serves store to whoever connects to the listener, until the context ends, and
// returns nil then. It closes the listener. Errors match ErrPlaintext when the listener
// reaches beyond this machine and the options do not protect it.
func Serve(ctx context.Context, ln net.Listener, store blobstore.Store, opts ServeOptions) error {
	controlled := kv.NewControlled(store, opts.Controlled)
	mux := http.NewServeMux()
	mux.Handle(ServicePath, NewHandler(controlled.Serve, controlled.MaxMessage(), opts.Token))
	return ServeHandler(ctx, ln, mux, opts)
}

// ServeHandler serves any handler with the access, TLS and HTTP/2 settings of the
// options. Its Token is not asked for here: see NewHandler.
func ServeHandler(ctx context.Context, ln net.Listener, handler http.Handler, opts ServeOptions) error {
	if err := guarded(ln.Addr(), opts); err != nil {
		return errors.Join(err, ln.Close())
	}
	// What ends streams differs from what ends their connections: they are told why.
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	server := newServer(handler, opts)
	server.BaseContext = func(net.Listener) context.Context { return base }

	served := make(chan error, 1)
	go func() {
		if opts.TLS != nil {
			served <- server.ServeTLS(ln, "", "")
		} else {
			served <- server.Serve(ln)
		}
	}()
	select {
	case err := <-served:
		return fmt.Errorf("serving blobs on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	cancel(errShutdown)
	wait, stop := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer stop()
	err := server.Shutdown(wait)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-served
	return err
}

// guarded refuses to serve more people than the options say.
func guarded(addr net.Addr, opts ServeOptions) error {
	if loopbackAddr(addr) {
		return nil
	}
	switch {
	case opts.TLS == nil:
		return fmt.Errorf("listening on %s: %w: listen on 127.0.0.1, or give a certificate", addr, ErrPlaintext)
	case opts.Token == "" && (opts.TLS.ClientAuth != tls.RequireAndVerifyClientCert || opts.TLS.ClientCAs == nil):
		return fmt.Errorf("listening on %s: %w: give a token, or the authority that signs the certificates of clients", addr, ErrPlaintext)
	}
	return nil
}

// maxFrame is how much of a batch goes into one frame of HTTP/2, and buffered how much
// is on its way to a reader that does not keep up; bytes.
const (
	maxFrame = 256 << 10
	buffered = 4 << 20
)

func newServer(handler http.Handler, opts ServeOptions) *http.Server {
	ping := opts.Ping
	if ping <= 0 {
		ping = 15 * time.Second
	}
	streams := opts.MaxStreams
	if streams <= 0 {
		streams = 100
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // to be answered with a sentence
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(opts.TLS == nil)
	return &http.Server{
		Handler:           handler,
		Protocols:         protocols,
		TLSConfig:         opts.TLS,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute, // of connections without a stream
		MaxHeaderBytes:    64 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          streams,
			MaxReadFrameSize:              maxFrame,
			MaxReceiveBufferPerStream:     buffered,
			MaxReceiveBufferPerConnection: 2 * buffered,
			SendPingTimeout:               ping,
			PingTimeout:                   ping,
			WriteByteTimeout:              2 * ping,
		},
	}
}
