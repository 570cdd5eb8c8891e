package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Put says how an object is stored.
type Put struct {
	// Sum is the SHA-256 of all of the body, where it is known; zero has it computed, as parts have theirs.
	Sum [sha256.Size]byte

	// IfAbsent stores the object where there is none, IfMatch where it is the one with that ETag. A service that finds it
	// otherwise answers with status 412, or 409 where another change is under way, or 404 where it is gone.
	IfAbsent bool
	IfMatch  string

	// Whole sends no parts, as services want it of a body under a condition. Longer ones than 5 GiB are refused.
	Whole bool
}

func (p *Put) header() http.Header {
	h := http.Header{"Content-Type": {"application/octet-stream"}}
	if p.IfAbsent {
		h.Set("If-None-Match", "*")
	}
	if p.IfMatch != "" {
		h.Set("If-Match", `"`+p.IfMatch+`"`)
	}
	return h
}

// Put stores the size bytes of body under a key, and returns the ETag.
func (c *Client) Put(ctx context.Context, bucket, key string, body io.ReaderAt, size int64, p Put) (etag string, err error) {
	if size > partSize && !p.Whole {
		return c.putParts(ctx, bucket, key, body, size, p)
	}
	return c.put(ctx, request{bucket: bucket, key: key, header: p.header(), body: io.NewSectionReader(body, 0, size), sum: p.Sum})
}

// put stores a body whole: an object, or a part of one.
func (c *Client) put(ctx context.Context, r request) (etag string, err error) {
	if r.sum == ([sha256.Size]byte{}) {
		if r.sum, err = sumOf(ctx, r.body); err != nil {
			return "", err
		}
	}
	r.method = http.MethodPut
	resp, err := c.do(ctx, r)
	if err != nil {
		return "", err
	}
	return trimETag(resp.Header.Get("Etag")), discard(resp)
}

// sumOf reads a body to its end, and puts it back.
func sumOf(ctx context.Context, body *io.SectionReader) (sum [sha256.Size]byte, err error) {
	hash := sha256.New()
	if _, err := io.Copy(hash, &untilDone{ctx, body}); err != nil {
		return sum, fmt.Errorf("reading what is to be sent: %w", err)
	}
	_, err = body.Seek(0, io.SeekStart)
	return [sha256.Size]byte(hash.Sum(nil)), err
}

// untilDone is a reader that ends with its context.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// Range is a part of an object. The zero Range is all of it.
type Range struct {
	First, Last int64 // Last is the offset of the last byte
	Given       bool
}

// Get asks for an object. Its body, which the caller closes, may be of any length, whatever Info says.
func (c *Client) Get(ctx context.Context, bucket, key string, part Range) (io.ReadCloser, Info, error) {
	h := http.Header{}
	if part.Given {
		h.Set("Range", "bytes="+strconv.FormatInt(part.First, 10)+"-"+strconv.FormatInt(part.Last, 10))
	}
	resp, err := c.do(ctx, request{method: http.MethodGet, bucket: bucket, key: key, header: h})
	if err != nil {
		return nil, Info{}, err
	}
	if part.Given && part.First > 0 && resp.StatusCode != http.StatusPartialContent {
		resp.Body.Close()
		return nil, Info{}, fmt.Errorf("%w: it has status %d, and 206 is that of a part", ErrAnswer, resp.StatusCode)
	}
	if resp.StatusCode == http.StatusPartialContent && !(part.Given && part.begins(resp.Header.Get("Content-Range"))) {
		resp.Body.Close()
		return nil, Info{}, fmt.Errorf("%w: it is another part of the object than was asked for", ErrAnswer)
	}
	return resp.Body, describe(key, resp), nil
}

// begins reports whether an answer has a part that begins where this one does.
func (p Range) begins(contentRange string) bool {
	text, ok := strings.CutPrefix(contentRange, "bytes ")
	first, _, _ := strings.Cut(text, "-")
	at, err := strconv.ParseInt(first, 10, 64)
	return ok && err == nil && at == p.First
}

// Stat describes an object.
func (c *Client) Stat(ctx context.Context, bucket, key string) (Info, error) {
	resp, err := c.do(ctx, request{method: http.MethodHead, bucket: bucket, key: key})
	if err != nil {
		return Info{}, err
	}
	info := describe(key, resp)
	if err := discard(resp); err != nil {
		return Info{}, err
	}
	if info.Size < 0 {
		return Info{}, fmt.Errorf("%w: it does not say how long the object is", ErrAnswer)
	}
	return info, nil
}

func describe(key string, resp *http.Response) Info {
	info := Info{Key: key, Size: resp.ContentLength, ETag: trimETag(resp.Header.Get("Etag"))}
	if t, err := http.ParseTime(resp.Header.Get("Last-Modified")); err == nil {
		info.ModTime = t
	}
	return info
}

func trimETag(s string) string { return strings.Trim(s, `"`) }

// Delete removes an object. One that is not there is no error.
func (c *Client) Delete(ctx context.Context, bucket, key string) error {
	resp, err := c.do(ctx, request{method: http.MethodDelete, bucket: bucket, key: key})
	if err != nil {
		return err
	}
	return discard(resp)
}

// MakeBucket makes a bucket.
func (c *Client) MakeBucket(ctx context.Context, bucket string) error {
	resp, err := c.do(ctx, request{method: http.MethodPut, bucket: bucket, body: io.NewSectionReader(bytes.NewReader(nil), 0, 0), sum: noSum})
	if err != nil {
		return err
	}
	return discard(resp)
}

// List yields the objects whose keys begin with prefix, as the service lists them. An error ends it.
func (c *Client) List(ctx context.Context, bucket, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for token := ""; ; {
			page, err := c.page(ctx, bucket, prefix, token)
			if err != nil {
				yield(Info{}, err)
				return
			}
			for _, o := range page.Contents {
				info, err := page.info(o)
				if !yield(info, err) || err != nil {
					return
				}
			}
			if !page.IsTruncated {
				return
			}
			if page.NextContinuationToken == "" || page.NextContinuationToken == token {
				yield(Info{}, fmt.Errorf("%w: the list goes on, and it does not say where", ErrAnswer))
				return
			}
			token = page.NextContinuationToken
		}
	}
}

// page asks for a part of a list.
func (c *Client) page(ctx context.Context, bucket, prefix, token string) (*listing, error) {
	q := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "max-keys": {"1000"}, "prefix": {prefix}}
	if token != "" {
		q.Set("continuation-token", token)
	}
	_, body, err := c.ask(ctx, request{method: http.MethodGet, bucket: bucket, query: q})
	if err != nil {
		return nil, err
	}
	return parseList(body)
}

// info is an object of a list.
func (l *listing) info(o object) (Info, error) {
	info := Info{Key: o.Key, Size: o.Size, ETag: trimETag(o.ETag)}
	if strings.EqualFold(l.EncodingType, "url") {
		var err error
		if info.Key, err = url.QueryUnescape(o.Key); err != nil {
			return Info{}, fmt.Errorf("%w: a key of the list is not as it should be", ErrAnswer)
		}
	}
	if t, err := time.Parse(time.RFC3339Nano, o.LastModified); err == nil {
		info.ModTime = t
	}
	return info, nil
}
