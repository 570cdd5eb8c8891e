// Package httpstore is a blob store on the other side of HTTP: Store is the
// client, Handler serves any other store to it.
//
// # On the wire
//
//	GET    /blobs/<hex>   200 and the bytes; ranges give 206; 404 where there is none
//	HEAD   /blobs/<hex>   the same without the bytes
//	PUT    /blobs/<hex>   stores the body: 201, or 204 where it may have been there.
//	                      With If-None-Match: * only where nothing is: else 412
//	POST   /blobs/        stores a body of any length under its own hash; the answer
//	                      is {"ref":"<hex>","size":n}
//	DELETE /blobs/<hex>   204, 404 where there was none
//	GET    /blobs/        a page of the list, one object a line, by rising <hex>:
//	                      {"ref":"<hex>","size":n,"time":"<RFC 3339>"}; the last line
//	                      is {"next":"<hex>"}, to be given back as ?after=<hex>, or
//	                      {"end":true}. ?limit=n bounds a page
//
// <hex> is 64 lower-case hexadecimal digits. Agentrun-Blob-Mode says of every answer
// whether the store is verified or opaque; a client of the other mode gets
// blobstore.ErrMode. Content-Digest (RFC 9530, sha-256) is sent with what is stored,
// and held against what arrives, on both sides. An error is a status and
// {"error":"<code>","message":"..."}; package sources list the codes. Content codings
// are neither asked for nor taken.
//
// # What a client may rely on
//
// In mode Verified nothing is handed out that was not verified here, whatever the
// server says: Open and GetRange fetch all of a blob for that, Open into a temporary
// without a name. In mode Opaque a range asks for no more than the range. Put sends a
// stream as it comes and compares what the server says it stored.
//
// A server is not trusted with time or memory either: bodies are bounded, whatever
// length they claim, and a connection that stalls, or is slower than
// Options.MinRate on the average, is given up. Redirects to another host or scheme
// are refused. What may pass (the network, 5xx, 429) is blobstore.ErrUnavailable, with
// the wait that the server asked for. The client asks once: see layer retry.
//
// # Who may ask
//
// Without TLS both sides talk to this machine only, unless they are told otherwise. A
// bearer token is never a part of a URL. Requests of web pages (they have an Origin)
// are refused, and so are, without a token, requests for a host name that is none of
// this machine's.
package httpstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/internal/pace"
	"github.com/agentrun/agentrun/internal/bearer"
)

// Limits where Options name none.
const (
	DefaultMaxBytes       = 1 << 30   // a blob in memory
	DefaultMaxStreamBytes = 256 << 30 // a blob that is streamed
	DefaultGrace          = pace.DefaultGrace
	DefaultMinRate        = pace.DefaultRate // bytes a second
)

// Options say how a server is talked to. The zero value is for a Verified store.
type Options struct {
	Mode blobstore.Mode

	// Token is sent as a bearer token, if it is not "".
	Token string

	// AllowPlaintext lets blobs and the token go to other machines without TLS.
	AllowPlaintext bool

	// TLS configures TLS: client certificates, authorities of one's own. nil is
	// the system's.
	TLS *tls.Config

	// MaxBytes is the largest blob that is loaded into memory, MaxStreamBytes the
	// largest that Open and Put stream. 0 is the default.
	MaxBytes, MaxStreamBytes int64

	// Observer is told of every get and set, as layer remote; nil: nobody. Where it is a
	// blobstore.Propagator, requests name the span that they are part of, in the headers
	// traceparent and tracestate.
	Observer blobstore.Observer

	// SpoolDir is where Open keeps what it fetched; "" is the system's directory
	// for temporaries.
	SpoolDir string

	// Grace is how long a server may do nothing, MinRate how many bytes a second
	// it has to move after that. 0 is the default.
	Grace   time.Duration
	MinRate int64
}

// Store is a client. It is safe for concurrent use.
type Store struct {
	base   *url.URL // ends with /blobs/
	opts   Options
	client *http.Client
	page   int // how many blobs are listed at once
}

var (
	_ blobstore.Store           = (*Store)(nil)
	_ blobstore.Stater          = (*Store)(nil)
	_ blobstore.Walker          = (*Store)(nil)
	_ blobstore.Deleter         = (*Store)(nil)
	_ blobstore.Opener          = (*Store)(nil)
	_ blobstore.RangeReader     = (*Store)(nil)
	_ blobstore.Putter          = (*Store)(nil)
	_ blobstore.BytesPutter     = (*Store)(nil)
	_ blobstore.ExclusiveSetter = (*Store)(nil)
	_ blobstore.StreamSetter    = (*Store)(nil)
	_ blobstore.Moder           = (*Store)(nil)
)

// Open returns the store whose blobs are at base, an http or https URL, under
// /blobs/. It asks the server nothing yet. Close frees the connections.
func Open(base string, o Options) (*Store, error) {
	u, err := parseBase(base, o.AllowPlaintext)
	if err != nil {
		return nil, err
	}
	if o.Mode != blobstore.Verified && o.Mode != blobstore.Opaque {
		return nil, fmt.Errorf("opening blob store %s: %w: %v", u, blobstore.ErrMode, o.Mode)
	}
	if o.Token != "" {
		if err := bearer.Check(o.Token); err != nil {
			return nil, fmt.Errorf("opening blob store %s: the token: %w", u, err)
		}
	}
	o.fill()
	dialer := &net.Dialer{Timeout: o.Grace}
	s := &Store{base: u.JoinPath("blobs/"), opts: o, page: pageSize}
	s.client = &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            dialer.DialContext,
			TLSClientConfig:        o.TLS.Clone(), // HTTP/2 changes it
			TLSHandshakeTimeout:    o.Grace,
			ExpectContinueTimeout:  5 * time.Second,
			IdleConnTimeout:        90 * time.Second,
			MaxIdleConnsPerHost:    64,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true, // a small body could become a large one
			ForceAttemptHTTP2:      true,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			first := via[0].URL
			switch {
			case r.URL.Scheme != first.Scheme || r.URL.Host != first.Host:
				return fmt.Errorf("%w: to %s://%s", errRedirect, r.URL.Scheme, r.URL.Host)
			case len(via) >= 5:
				return fmt.Errorf("%w: to itself, again and again", errRedirect)
			}
			return nil
		},
	}
	return s, nil
}

func (o *Options) fill() {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxStreamBytes <= 0 {
		o.MaxStreamBytes = DefaultMaxStreamBytes
	}
	if o.Grace <= 0 {
		o.Grace = DefaultGrace
	}
	if o.MinRate <= 0 {
		o.MinRate = DefaultMinRate
	}
}

var errRedirect = errors.New("the server sends elsewhere, which is not followed; give the URL of the place itself")

// parseBase is the one way from a text to a server.
func parseBase(base string, plaintext bool) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil {
		// The error of the parser quotes the URL, and there may be a password in it.
		return nil, errors.New("opening a blob store over HTTP: what was given is no URL: want https://HOST[:PORT][/PATH]")
	}
	switch {
	case u.User != nil:
		return nil, errors.New("opening a blob store over HTTP: the URL has a user or password in it, where logs and lists of processes show it; give a bearer token beside the URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.Hostname() == "":
		return nil, fmt.Errorf("opening blob store %q: want http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH]", base)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("opening blob store %q: want a URL without ? and #", base)
	case u.Scheme == "http" && !plaintext && !loopback(u.Hostname()):
		return nil, fmt.Errorf("opening blob store %s: http is for this machine only, since everyone on the way could read and change what is sent; use https", u)
	}
	return u, nil
}

// loopback reports whether a host is this machine by its name alone.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// begin tells the observer of an operation.
func (s *Store) begin(ctx context.Context, name string) (context.Context, blobstore.Span) {
	return blobstore.Begin(ctx, s.opts.Observer, blobstore.Op{Layer: "remote", Name: name})
}

// Mode returns the mode that the store was opened with.
func (s *Store) Mode() blobstore.Mode { return s.opts.Mode }

// URL returns where the server is.
func (s *Store) URL() string { return strings.TrimSuffix(s.base.String(), "blobs/") }

// Close frees idle connections.
func (s *Store) Close() error {
	s.client.CloseIdleConnections()
	return nil
}

// Flush has nothing to wait for: every call finishes its own work.
func (s *Store) Flush(ctx context.Context) error {
	_, span := s.begin(ctx, "flush")
	span.End(nil)
	return nil
}

// SetLocal stores nothing: there is no store on this machine.
func (s *Store) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) (err error) {
	ctx, span := s.begin(ctx, "set_blob_locally_only")
	defer func() { span.End(err) }()
	if err := s.check(ctx, ref, data); err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	return fmt.Errorf("storing %s: %w: it is at %s", ref, blobstore.ErrNotLocal, s.URL())
}
