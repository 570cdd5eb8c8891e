package httpstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/internal/exact"
	"github.com/agentrun/agentrun/blobstore/internal/pace"
	"github.com/agentrun/agentrun/blobstore/internal/tracecontext"
)

const (
	modeHeader   = "Agentrun-Blob-Mode"
	digestHeader = "Content-Digest"

	// expectContinue is the size from which on the server is asked before a body
	// is sent: a refusal is then cheap, and does not get lost in a broken pipe.
	expectContinue = 256 << 10
)

// request is what is asked of the server.
type request struct {
	method, path string // path below /blobs/
	header       http.Header
	body         io.Reader // nil for none
	length       int64     // of body; -1 when it is not known
}

// do asks the server and returns an answer of 2xx whose body the caller closes. Any
// other answer is an error.
func (s *Store) do(ctx context.Context, q request) (*http.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	paced, watch := pace.New(ctx, pace.Limits{Grace: s.opts.Grace, Rate: s.opts.MinRate})
	var up *pace.Upload
	var body io.Reader
	if q.body != nil && q.length != 0 {
		up = &pace.Upload{Reader: q.body, Watch: watch}
		body = up
	}
	target := *s.base
	target.Path += q.path
	if path, query, ok := strings.Cut(q.path, "?"); ok {
		target.Path, target.RawQuery = s.base.Path+path, query
	}
	r, err := http.NewRequestWithContext(paced, q.method, target.String(), body)
	if err != nil {
		watch.Stop()
		return nil, err
	}
	if q.header != nil {
		r.Header = q.header
	}
	tracecontext.Set(ctx, s.opts.Observer, r.Header)
	if body != nil {
		r.ContentLength = q.length
		r.Header.Set("Content-Type", "application/octet-stream")
		if q.length < 0 || q.length >= expectContinue {
			r.Header.Set("Expect", "100-continue")
		}
	}
	if s.opts.Token != "" {
		r.Header.Set("Authorization", "Bearer "+s.opts.Token)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		cause := context.Cause(paced)
		watch.Stop()
		if up != nil && up.Err() != nil {
			return nil, fmt.Errorf("reading it: %w", up.Err())
		}
		if ctx.Err() == nil && cause != nil {
			err = cause
		}
		return nil, unanswered(ctx, err)
	}
	resp.Body = &pace.Download{ReadCloser: resp.Body, Watch: watch, Ctx: paced}
	if err := s.accept(resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// accept refuses answers that are not what was asked for.
func (s *Store) accept(resp *http.Response) error {
	if mode := resp.Header.Get(modeHeader); mode != "" && mode != s.opts.Mode.String() {
		return fmt.Errorf("%w: the store at %s is %s, and was opened as %v", blobstore.ErrMode, s.URL(), printable(mode), s.opts.Mode)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return explain(resp)
	}
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return fmt.Errorf("the server sends the content coding %q, which was not asked for", printable(coding))
	}
	return nil
}

// check is what holds for every Set before anything is sent.
func (s *Store) check(ctx context.Context, ref blobref.Ref, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.opts.Mode == blobstore.Verified && !ref.Verify(data) {
		return fmt.Errorf("%w (they are %s)", blobstore.ErrMismatch, blobref.Of(data))
	}
	if ref.IsZero() {
		return fmt.Errorf("%w: the zero reference names no blob", blobref.ErrInvalid)
	}
	return nil
}

// Set stores data under ref.
func (s *Store) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	if err := s.check(ctx, ref, data); err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	if err := s.put(ctx, ref, data, false); err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	return nil
}

// SetIfAbsent stores data under ref unless the server has a blob there, and reports
// whether it did. Of many who try at once, one does. What is there is not compared: a
// corrupt blob is not healed.
func (s *Store) SetIfAbsent(ctx context.Context, ref blobref.Ref, data []byte) (stored bool, err error) {
	if err := s.check(ctx, ref, data); err != nil {
		return false, fmt.Errorf("storing %s: %w", ref, err)
	}
	switch err := s.put(ctx, ref, data, true); {
	case errors.Is(err, errExists):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("storing %s: %w", ref, err)
	}
	return true, nil
}

func (s *Store) put(ctx context.Context, ref blobref.Ref, data []byte, absent bool) (err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	header := http.Header{digestHeader: {digest(sha256.Sum256(data))}}
	if absent {
		header.Set("If-None-Match", "*")
	}
	resp, err := s.do(ctx, request{method: http.MethodPut, path: ref.Hex(), header: header, body: bytes.NewReader(data), length: int64(len(data))})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// PutBytes stores data under the reference of its content.
func (s *Store) PutBytes(ctx context.Context, data []byte) (blobref.Ref, error) {
	ref := blobref.Of(data)
	if err := s.put(ctx, ref, data, false); err != nil {
		return blobref.Ref{}, fmt.Errorf("storing %s: %w", ref, err)
	}
	return ref, nil
}

// SetStream stores the size bytes that r yields under ref, as they come.
func (s *Store) SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) (err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	want := ref
	switch {
	case ref.IsZero():
		err = fmt.Errorf("%w: the zero reference names no blob", blobref.ErrInvalid)
	case size < 0 || size > s.opts.MaxStreamBytes:
		err = fmt.Errorf("%w: it has %d bytes, the limit is %d", blobstore.ErrTooLarge, size, s.opts.MaxStreamBytes)
	case s.opts.Mode == blobstore.Opaque:
		want = blobref.Ref{}
	}
	if err == nil && size == 0 {
		var none [1]byte
		if n, rerr := io.ReadFull(r, none[:]); n > 0 || rerr != io.EOF {
			return fmt.Errorf("storing %s: %w", ref, cmp.Or(rerr, exact.ErrLonger))
		}
		return s.Set(ctx, ref, nil)
	}
	if err == nil {
		var resp *http.Response
		if resp, err = s.do(ctx, request{method: http.MethodPut, path: ref.Hex(), body: exact.New(r, size, want), length: size}); err == nil {
			err = resp.Body.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	return nil
}

// Put sends what r yields as it comes, hashed here and there. It is not asked for
// again after an error by any layer, since r has been read.
func (s *Store) Put(ctx context.Context, r io.Reader) (_ blobref.Ref, _ int64, err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	hash := sha256.New()
	sent := &counted{r: io.TeeReader(r, hash), left: s.opts.MaxStreamBytes}
	resp, err := s.do(ctx, request{method: http.MethodPost, body: sent, length: -1})
	if err != nil {
		return blobref.Ref{}, 0, fmt.Errorf("storing a stream: %w", err)
	}
	defer resp.Body.Close()
	var answer struct {
		Ref  string `json:"ref"`
		Size int64  `json:"size"`
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxFault))
	if err != nil {
		return blobref.Ref{}, 0, fmt.Errorf("storing a stream: %w", unanswered(ctx, err))
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return blobref.Ref{}, 0, fmt.Errorf("storing a stream: what the server answered is not what it stored: %w", err)
	}
	var sum [sha256.Size]byte
	hash.Sum(sum[:0])
	ref := blobref.FromSum(sum)
	if answer.Ref != ref.Hex() || answer.Size != sent.n || !sent.ended {
		return blobref.Ref{}, 0, fmt.Errorf("storing a stream: %w: %d bytes were read, which are %s; the server stored %d, which are %s",
			blobstore.ErrMismatch, sent.n, ref, answer.Size, printable(answer.Ref))
	}
	return ref, sent.n, nil
}

// counted counts what is read, up to a limit.
type counted struct {
	r       io.Reader
	n, left int64
	ended   bool
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	if c.n > c.left {
		return 0, fmt.Errorf("%w: it has more than %d bytes", blobstore.ErrTooLarge, c.left)
	}
	c.ended = c.ended || err == io.EOF
	return n, err
}

// Delete removes the blob.
func (s *Store) Delete(ctx context.Context, ref blobref.Ref) error {
	resp, err := s.do(ctx, request{method: http.MethodDelete, path: ref.Hex()})
	if err != nil {
		return fmt.Errorf("deleting %s: %w", ref, err)
	}
	return resp.Body.Close()
}

// Stat describes the blob.
func (s *Store) Stat(ctx context.Context, ref blobref.Ref) (blobstore.Info, error) {
	resp, err := s.do(ctx, request{method: http.MethodHead, path: ref.Hex()})
	if err != nil {
		return blobstore.Info{}, fmt.Errorf("describing %s: %w", ref, err)
	}
	defer resp.Body.Close()
	if resp.ContentLength < 0 {
		return blobstore.Info{}, fmt.Errorf("describing %s: the server does not say how long it is", ref)
	}
	info := blobstore.Info{Ref: ref, Size: resp.ContentLength}
	if at, err := http.ParseTime(resp.Header.Get("Last-Modified")); err == nil {
		info.ModTime = at
	}
	return info, nil
}

// digest is a Content-Digest.
func digest(sum [sha256.Size]byte) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// agrees reports whether a Content-Digest, where one is given, is of these bytes. One
// by another algorithm says nothing.
func agrees(header string, sum [sha256.Size]byte) bool {
	for field := range strings.SplitSeq(header, ",") {
		if field = strings.TrimSpace(field); strings.HasPrefix(field, "sha-256=") {
			return field == digest(sum)
		}
	}
	return true
}

// parseTime reads a time of a list; one that is none is not known.
func parseTime(text string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return at
}
