// Package s3store keeps blobs in a bucket of any S3-compatible service, one object a
// blob, under <prefix>/<hex>: 64 lower-case hexadecimal digits, the raw bytes. Objects
// of other names are left alone.
//
// # What may be relied on
//
// An object appears whole or not at all, and replaces atomically what was there: that
// is what S3 promises. In mode Verified nothing is handed out that was not verified
// here; Open and GetRange fetch all of a blob for that, Open into a temporary without a
// name. In mode Opaque a range asks for no more than the range. Put reads its stream to
// the end first, since the name of an object is the hash of what is in it, and sends
// long ones in parts.
//
// Delete of an object that is not there is no error in S3. It is one here, found by
// looking first: of two who delete a blob at once both may be told that they did.
//
// Bodies are bounded whatever length they claim, and a connection that stalls or
// trickles is given up. What may pass (the network, 5xx, SlowDown) is
// blobstore.ErrUnavailable. Each request is made once: see layer retry.
//
// # Who one is
//
// Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (with
// AWS_SESSION_TOKEN), MINIO_ROOT_USER and MINIO_ROOT_PASSWORD, or ~/.aws/credentials
// and ~/.aws/config (AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE, AWS_PROFILE), in this
// order. They are in no argument and in no URL. Keys that are made anew from time to time
// (sso, roles, credential_process) are not fetched: `aws configure export-credentials
// --format env` prints variables for them. Where there are none, requests are not signed.
// Without TLS a service has to be on this machine, unless Options say otherwise.
//
// Who asks needs the right to list the bucket: without it S3 answers that access is
// denied where there is no object, which is then an error and no absent blob.
//
// Objects keeps small values under names, with compare-and-set, for pointers that
// several machines change.
package s3store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/internal/pace"
	"github.com/agentrun/agentrun/blobstore/internal/tracecontext"
	"github.com/agentrun/agentrun/internal/s3"
)

// Limits where Options name none.
const (
	DefaultMaxBytes       = 1 << 30 // a blob in memory
	DefaultMaxStreamBytes = 1 << 40 // a blob that is streamed

	// DefaultEndpoint and DefaultRegion are those of AWS.
	DefaultEndpoint = "https://s3.amazonaws.com"
	DefaultRegion   = "us-east-1"
)

// Options say which bucket, and how it is talked to. All but Bucket may be zero.
type Options struct {
	// Endpoint is where the service is: https://HOST[:PORT], or http:// for one on
	// this machine.
	Endpoint string
	Region   string

	Bucket string // there already; none is made
	Prefix string // before the names of objects, without slashes at its ends

	Mode blobstore.Mode

	// AllowPlaintext lets everything but the secret key go to other machines
	// without TLS.
	AllowPlaintext bool

	// TLS configures TLS; nil is the system's.
	TLS *tls.Config

	// Credentials are used in the place of those that the package comment lists.
	Credentials *Credentials

	// MaxBytes is the largest blob that is loaded into memory, MaxStreamBytes the
	// largest that Open and Put stream. 0 is the default.
	MaxBytes, MaxStreamBytes int64

	// Observer is told of every get and set of a Store, as layer remote; nil: nobody.
	// Where it is a blobstore.Propagator, requests name the span that they are part of,
	// in the headers traceparent and tracestate, which are not signed.
	Observer blobstore.Observer

	// SpoolDir is where streams are kept until their end is known; "" is the
	// system's directory for temporaries.
	SpoolDir string

	// Grace is how long a service may do nothing, MinRate how many bytes a second
	// it has to move after that. 0 is the default: 30 s, 16 KiB.
	Grace   time.Duration
	MinRate int64
}

// Credentials are who asks. SessionToken belongs to keys that are lent for a while.
type Credentials struct{ AccessKeyID, SecretAccessKey, SessionToken string }

// String does not tell the secret.
func (c Credentials) String() string { return s3.Credentials(c).String() }

// GoString does not tell it either.
func (c Credentials) GoString() string { return c.String() }

// bucket is a part of a bucket, and the way to it.
type bucket struct {
	opts      Options
	client    *s3.Client
	transport *http.Transport
	prefix    string // "" or with a slash at its end
}

// isBucketName reports whether S3 lets a bucket be called so.
func isBucketName(name string) bool {
	if len(name) < 3 || len(name) > 63 {
		return false
	}
	for i := range len(name) {
		c := name[i]
		inner := (c == '.' || c == '-') && i > 0 && i < len(name)-1
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && !inner {
			return false
		}
	}
	return true
}

// open checks the options and makes a client. It asks the service nothing.
func open(o Options) (*bucket, error) {
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint
	}
	if o.Region == "" {
		o.Region = DefaultRegion
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxStreamBytes <= 0 {
		o.MaxStreamBytes = DefaultMaxStreamBytes
	}
	if !isBucketName(o.Bucket) {
		return nil, fmt.Errorf("opening bucket %q: a bucket is called by 3 to 63 lower-case letters, digits, dots and hyphens", o.Bucket)
	}
	endpoint, err := parseEndpoint(o.Endpoint, o.AllowPlaintext)
	if err != nil {
		return nil, fmt.Errorf("opening bucket %s: %w", o.Bucket, err)
	}
	prefix := ""
	if o.Prefix != "" {
		if err := checkName(o.Prefix); err != nil {
			return nil, fmt.Errorf("opening bucket %s: the prefix: %w", o.Bucket, err)
		}
		prefix = o.Prefix + "/"
	}
	limits := pace.Limits{Grace: o.Grace, Rate: o.MinRate}
	limits.Fill()
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: limits.Grace}).DialContext,
		TLSClientConfig:        o.TLS,
		TLSHandshakeTimeout:    limits.Grace,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConnsPerHost:    64,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // a small body could become a large one
	}
	client := &s3.Client{Endpoint: endpoint, Region: o.Region, Credentials: o.Credentials.find, Transport: &paced{transport, limits, o.Observer}}
	if o.Credentials == nil {
		client.Credentials = new(usual).find
	}
	return &bucket{opts: o, client: client, transport: transport, prefix: prefix}, nil
}

func (c *Credentials) find(context.Context) (s3.Credentials, error) { return s3.Credentials(*c), nil }

// usual are the credentials that the package comment lists. They are looked for when they are needed, and once found they stay.
type usual struct {
	mu    sync.Mutex
	found s3.Credentials // guarded by mu
}

func (u *usual) find(context.Context) (_ s3.Credentials, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.found.IsZero() {
		u.found = s3.FromEnvironment(os.Getenv)
	}
	if u.found.IsZero() {
		u.found, err = s3.FromFiles(os.Getenv)
	}
	return u.found, err
}

// parseEndpoint is the one way from a text to a service.
func parseEndpoint(text string, plaintext bool) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		// The error of the parser quotes the URL, and there may be a password in it.
		return nil, errors.New("the endpoint is no URL: want https://HOST[:PORT]")
	}
	switch {
	case u.User != nil:
		return nil, errors.New("the endpoint has a user or password in it, where logs and lists of processes show it; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write a file ~/.aws/credentials")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", strings.Trim(u.Path, "/") != "", u.RawQuery != "", u.Fragment != "":
		return nil, fmt.Errorf("the endpoint %q: want https://HOST[:PORT]", text)
	case u.Scheme == "http" && !plaintext && !loopback(u.Hostname()):
		return nil, fmt.Errorf("the endpoint %s: http is for this machine only, since everyone on the way could read and change what is sent; use https", u)
	}
	return u, nil
}

// loopback reports whether a host is this machine by its name alone.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// maxName bounds names, so that they fit into keys of 1,024 bytes with all that is
// around them.
const maxName = 800

// checkName is what every name of an object, and every prefix, goes through.
func checkName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("a name has at most %d bytes", maxName)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("%q: a name consists of parts between slashes, none of them empty, and neither . nor .. alone", name)
		}
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r >= 0x7f || r == '\\' }) {
		return fmt.Errorf("%q: a name has printable ASCII characters and no backslash", name)
	}
	return nil
}

// Close frees idle connections.
func (b *bucket) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// String says where the bucket is.
func (b *bucket) String() string {
	return "s3://" + strings.TrimSuffix(b.opts.Bucket+"/"+b.prefix, "/") + " at " + b.opts.Endpoint
}

// paced gives up requests that stall.
type paced struct {
	http.RoundTripper
	limits   pace.Limits
	observer blobstore.Observer
}

func (p *paced) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, watch := pace.New(r.Context(), p.limits)
	header := r.Header.Clone() // a RoundTripper leaves the request as it is
	r = r.WithContext(ctx)
	r.Header = header
	tracecontext.Set(ctx, p.observer, header)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = struct {
			*pace.Upload
			closer
		}{&pace.Upload{Reader: r.Body, Watch: watch}, closer{r.Body.Close}}
	}
	resp, err := p.RoundTripper.RoundTrip(r)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		watch.Stop()
		return nil, err
	}
	resp.Body = &pace.Download{ReadCloser: resp.Body, Watch: watch, Ctx: ctx}
	return resp, nil
}

type closer struct{ close func() error }

func (c closer) Close() error { return c.close() }

// explain is the error that an error of the client stands for.
func explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cerr := ctx.Err(); cerr != nil {
		return fmt.Errorf("%w (%w)", cerr, context.Cause(ctx))
	}
	if errors.Is(err, blobstore.ErrTooLarge) || errors.Is(err, blobstore.ErrCorrupt) {
		return err
	}
	var answer *s3.Error
	if !errors.As(err, &answer) {
		var certificate *tls.CertificateVerificationError
		var credentials *s3.CredentialsError
		if errors.As(err, &certificate) || errors.As(err, &credentials) || errors.Is(err, s3.ErrAnswer) {
			return err
		}
		return &blobstore.UnavailableError{Err: err}
	}
	// Code and words come from the service: what is printed of them is quoted.
	answer = &s3.Error{Status: answer.Status, Code: bounded(answer.Code), Message: bounded(answer.Message)}
	err = answer
	switch {
	case answer.Code == "NoSuchBucket":
		return fmt.Errorf("%w: make the bucket, or name another one", err)
	case answer.Code == "NoSuchKey", answer.Status == http.StatusNotFound:
		return fmt.Errorf("%w: %w", blobstore.ErrNotFound, err)
	case answer.Code == "PreconditionFailed", answer.Status == http.StatusPreconditionFailed,
		answer.Status == http.StatusConflict:
		return fmt.Errorf("%w: %w", ErrConflict, err)
	case answer.Code == "InvalidRange", answer.Status == http.StatusRequestedRangeNotSatisfiable:
		return fmt.Errorf("%w: %w", errBeyond, err)
	case answer.Code == "EntityTooLarge", answer.Status == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: %w", blobstore.ErrTooLarge, err)
	case answer.Status == http.StatusForbidden, answer.Status == http.StatusUnauthorized:
		return fmt.Errorf("%w: see AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials, and what they may do", err)
	case answer.Status >= 500, answer.Status == http.StatusTooManyRequests, answer.Status == http.StatusRequestTimeout,
		answer.Code == "SlowDown", answer.Code == "RequestTimeout", answer.Code == "InternalError", answer.Code == "ServiceUnavailable":
		return &blobstore.UnavailableError{Err: err}
	}
	return err
}

// errBeyond is the answer to a range behind the end.
var errBeyond = errors.New("the range begins behind the end")

func bounded(text string) string { return text[:min(len(text), 300)] }

// blobKey is the one place where a reference becomes the name of an object.
func (b *bucket) blobKey(ref blobref.Ref) string { return b.prefix + ref.Hex() }
