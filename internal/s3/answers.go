package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
)

// listing is a page of ListObjectsV2.
type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	IsTruncated           bool
	NextContinuationToken string
	EncodingType          string
	Contents              []object
}

type object struct {
	Key          string
	Size         int64
	LastModified string
	ETag         string
}

// ask makes a request whose answer is no object, and reads that.
func (c *Client) ask(ctx context.Context, r request) (status int, body []byte, err error) {
	resp, err := c.do(ctx, r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1)); err != nil {
		return 0, nil, err
	}
	if len(body) > maxAnswer {
		return 0, nil, fmt.Errorf("%w: it has more than %d bytes", ErrAnswer, maxAnswer)
	}
	return resp.StatusCode, body, nil
}

// parse is the one way from XML of a service to a value. It must be one document, whose root is that of v.
func parse(body []byte, v any) error {
	d := xml.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %q", ErrAnswer, err.Error()[:min(len(err.Error()), 200)]) // it quotes the service
	}
	return nil
}

func parseList(body []byte) (*listing, error) {
	var l listing
	if err := parse(body, &l); err != nil {
		return nil, err
	}
	for i := range l.Contents {
		l.Contents[i].Size = max(l.Contents[i].Size, -1)
	}
	return &l, nil
}

// parseError is the error that a body tells, ok false when it tells none.
func parseError(body []byte) (code, message string, ok bool) {
	var e struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}
	if parse(body, &e) != nil {
		return "", "", false
	}
	return e.Code, e.Message, true
}

// parseUpload is the id of an upload that was begun.
func parseUpload(body []byte) (string, error) {
	var u struct {
		XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
		UploadID string   `xml:"UploadId"`
	}
	if err := parse(body, &u); err != nil {
		return "", err
	}
	if u.UploadID == "" {
		return "", fmt.Errorf("%w: the upload has no id", ErrAnswer)
	}
	return u.UploadID, nil
}

// parseCompleted is the ETag of an object whose parts were put together. A service that fails at it may have said 200 before.
func parseCompleted(status int, body []byte) (etag string, err error) {
	if code, message, ok := parseError(body); ok {
		return "", &Error{Status: status, Code: code, Message: message}
	}
	var done struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
		ETag    string
	}
	if err := parse(body, &done); err != nil {
		return "", err
	}
	return trimETag(done.ETag), nil
}
