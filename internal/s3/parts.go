package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// How long bodies are sent. S3 takes 10,000 parts of 5 MiB to 5 GiB.
const (
	partSize = 16 << 20 // what is no longer goes whole
	maxParts = 10_000
	atOnce   = 4 // parts
)

// abortTime is how long is tried to give up an upload, whose parts would else be kept, and paid for.
const abortTime = 10 * time.Second

// sizeOfParts is how long each part of a body is but the last.
func sizeOfParts(size int64) int64 {
	return max(partSize, (size+maxParts-1)/maxParts)
}

// completed lists the parts of an upload.
type completed struct {
	XMLName xml.Name `xml:"CompleteMultipartUpload"`
	Part    []part
}

type part struct {
	PartNumber int
	ETag       string
}

// putParts stores a body in parts, several at once. The object appears when all are there.
func (c *Client) putParts(ctx context.Context, bucket, key string, body io.ReaderAt, size int64, p Put) (etag string, err error) {
	upload, err := c.beginUpload(ctx, bucket, key)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			c.abort(ctx, bucket, key, upload)
		}
	}()
	done, err := c.sendParts(ctx, bucket, key, upload, body, size)
	if err != nil {
		return "", err
	}
	list, err := xml.Marshal(completed{Part: done})
	if err != nil {
		return "", fmt.Errorf("listing the parts of an upload: %w", err)
	}
	h := p.header()
	h.Set("Content-Type", "application/xml")
	status, answer, err := c.ask(ctx, request{
		method: http.MethodPost, bucket: bucket, key: key, query: url.Values{"uploadId": {upload}}, header: h,
		body: io.NewSectionReader(bytes.NewReader(list), 0, int64(len(list))), sum: sha256.Sum256(list),
	})
	if err != nil {
		return "", err
	}
	return parseCompleted(status, answer)
}

func (c *Client) beginUpload(ctx context.Context, bucket, key string) (id string, err error) {
	_, answer, err := c.ask(ctx, request{
		method: http.MethodPost, bucket: bucket, key: key, query: url.Values{"uploads": {""}},
		header: (&Put{}).header(), body: io.NewSectionReader(bytes.NewReader(nil), 0, 0), sum: noSum,
	})
	if err != nil {
		return "", err
	}
	return parseUpload(answer)
}

// sendParts sends the parts of a body. The first error ends it.
func (c *Client) sendParts(ctx context.Context, bucket, key, upload string, body io.ReaderAt, size int64) ([]part, error) {
	each := sizeOfParts(size)
	parts := make([]part, (size+each-1)/each)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int)
	var senders sync.WaitGroup
	for range min(atOnce, len(parts)) {
		senders.Go(func() {
			for i := range numbers {
				off := int64(i) * each
				etag, err := c.put(ctx, request{
					bucket: bucket, key: key, body: io.NewSectionReader(body, off, min(each, size-off)),
					query: url.Values{"partNumber": {strconv.Itoa(i + 1)}, "uploadId": {upload}},
				})
				if err == nil && etag == "" {
					err = fmt.Errorf("%w: a part has no ETag", ErrAnswer)
				}
				if err != nil {
					cancel(err)
					return
				}
				parts[i] = part{i + 1, `"` + etag + `"`}
			}
		})
	}
	for i := 0; i < len(parts) && ctx.Err() == nil; i++ {
		select {
		case numbers <- i:
		case <-ctx.Done():
		}
	}
	close(numbers)
	senders.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return parts, nil
}

// abort gives an upload up.
func (c *Client) abort(ctx context.Context, bucket, key, upload string) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), abortTime, errors.New("giving up an upload took too long"))
	defer cancel()
	resp, err := c.do(ctx, request{method: http.MethodDelete, bucket: bucket, key: key, query: url.Values{"uploadId": {upload}}})
	if err == nil {
		_ = discard(resp)
	}
}
