// Package s3 speaks with a service that understands Amazon's S3: objects are put (whole, in parts, under a condition), got
// (whole or a range), described, deleted and listed. It is the part of S3 that the stores of this module need, and no more:
// what a general client makes ready for the rest takes a millisecond of every start of the program.
//
// Every request is signed with AWS Signature Version 4, its body by its SHA-256, so that a service stores nothing but what was
// sent, with or without TLS. A request is made once and redirects are not followed. An answer that is an error is an [*Error];
// every other error comes from the transport.
//
// What a service sends is bounded: lists and errors by what is read of them, objects by who reads them.
//
// A Client may be used concurrently.
package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client asks one service.
type Client struct {
	// Endpoint is the scheme and the host of the service.
	Endpoint *url.URL
	Region   string

	// Credentials say who asks. Nil, or the zero Credentials, is anybody: requests are not signed then.
	Credentials func(context.Context) (Credentials, error)

	// Transport makes the requests.
	Transport http.RoundTripper
}

// Credentials are who asks.
type Credentials struct {
	AccessKeyID, SecretAccessKey string
	SessionToken                 string // of keys that are lent for a while, else ""
}

// IsZero reports whether they are of nobody.
func (c Credentials) IsZero() bool { return c.AccessKeyID == "" || c.SecretAccessKey == "" }

// String does not tell the secret.
func (c Credentials) String() string { return "credentials of " + c.AccessKeyID }

// GoString does not tell it either.
func (c Credentials) GoString() string { return c.String() }

// Info is what a service says of an object.
type Info struct {
	Key     string
	Size    int64     // -1 when it does not say
	ModTime time.Time // zero when it does not say
	// ETag changes with the object. It is without quotes.
	ETag string
}

// maxAnswer bounds what is read of an answer that is no object: a list of 1,000 keys of 1,024 bytes fits in it many times over.
const maxAnswer = 8 << 20

// request is a request before it is signed.
type request struct {
	method, bucket, key string
	query               url.Values
	header              http.Header
	body                *io.SectionReader // nil is none
	sum                 [sha256.Size]byte // of the body
}

// noSum is the SHA-256 of nothing.
var noSum = sha256.Sum256(nil)

// do makes a request. The caller closes the body of the answer, whose status is of the 200s.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	req, err := c.build(ctx, r)
	if err != nil {
		return nil, err
	}
	resp, err := c.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, failed(resp)
	}
	return resp, nil
}

// build makes a signed request.
func (c *Client) build(ctx context.Context, r request) (*http.Request, error) {
	host, path := c.place(r.bucket, r.key)
	u := &url.URL{Scheme: c.Endpoint.Scheme, Host: host, Path: path, RawPath: escape(path, true), RawQuery: canonicalQuery(r.query)}
	req := (&http.Request{
		Method: r.method, URL: u, Host: host, Header: r.header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("User-Agent", "agentrun")
	sum := noSum
	if r.body != nil {
		req.Body, req.ContentLength, sum = http.NoBody, r.body.Size(), r.sum
		if r.body.Size() > 0 {
			req.Body = io.NopCloser(r.body)
		}
	}
	if c.Credentials == nil {
		return req, nil
	}
	who, err := c.Credentials(ctx)
	if err != nil {
		return nil, &CredentialsError{err}
	}
	if !who.IsZero() {
		sign(req, who, c.Region, hex.EncodeToString(sum[:]), time.Now())
	}
	return req, nil
}

// place is where an object is: at Amazon in a host of its bucket's name where a certificate can be for it, else in a path of
// that name. Amazon's endpoint without a region stands for that of the region.
func (c *Client) place(bucket, key string) (host, path string) {
	host = c.Endpoint.Host
	name := strings.ToLower(c.Endpoint.Hostname())
	if name == "s3.amazonaws.com" && c.Region != "" {
		name = "s3." + c.Region + ".amazonaws.com"
		host = strings.Replace(strings.ToLower(host), "s3.amazonaws.com", name, 1)
	}
	wantsHosts := strings.HasSuffix(name, ".amazonaws.com") || strings.HasSuffix(name, ".amazonaws.com.cn") || strings.HasSuffix(name, ".aliyuncs.com")
	if wantsHosts && (c.Endpoint.Scheme != "https" || !strings.Contains(bucket, ".")) {
		return bucket + "." + host, "/" + key
	}
	return host, "/" + bucket + "/" + key
}

// Error is the answer of a service that did not do what it was asked for. Code and Message are its words, and may hold
// anything.
type Error struct {
	Status        int // of HTTP; 200 when it began to answer and failed then
	Code, Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("the service answered %d %q: %q", e.Status, e.Code, e.Message)
}

// CredentialsError means that there is no saying who asks.
type CredentialsError struct{ Err error }

func (e *CredentialsError) Error() string { return e.Err.Error() }
func (e *CredentialsError) Unwrap() error { return e.Err }

// ErrAnswer is matched by errors about answers that make no sense.
var ErrAnswer = errors.New("the service's answer is not as it should be")

// failed is the error of an answer.
func failed(resp *http.Response) error {
	e := &Error{Status: resp.StatusCode}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	e.Code, e.Message, _ = parseError(body)
	if e.Code == "" { // an answer to HEAD has no body, and one of a proxy is a page
		e.Message = http.StatusText(resp.StatusCode)
	}
	if region := resp.Header.Get("X-Amz-Bucket-Region"); region != "" && (resp.StatusCode/100 == 3 || resp.StatusCode == http.StatusBadRequest) {
		e.Message += "; the bucket is in region " + region
	}
	return e
}

// discard ends an answer of which nothing is wanted, so that its connection can be used again.
func discard(resp *http.Response) error {
	_, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	return errors.Join(err, resp.Body.Close())
}
