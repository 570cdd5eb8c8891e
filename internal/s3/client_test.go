package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// against returns a client of a service that does as it likes.
func against(t *testing.T, serve http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &Client{
		Endpoint: u, Region: "us-east-1", Transport: server.Client().Transport,
		Credentials: func(context.Context) (Credentials, error) { return example, nil },
	}
}

// uploads is a service that takes parts, and remembers what it was asked for.
type uploads struct {
	mu       sync.Mutex
	asked    []string
	parts    map[string][]byte
	complete http.HandlerFunc
	part     func(number string) int // its status
}

func (u *uploads) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	q := r.URL.Query()
	switch {
	case r.Method == "POST" && q.Has("uploads"):
		u.asked = append(u.asked, "begin")
		fmt.Fprint(w, `<InitiateMultipartUploadResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><UploadId>a&amp;b=c</UploadId></InitiateMultipartUploadResult>`)
	case q.Get("uploadId") != "a&b=c":
		w.WriteHeader(http.StatusNotFound)
	case r.Method == "PUT":
		number := q.Get("partNumber")
		if status := u.part(number); status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		u.parts[number] = body
		w.Header().Set("Etag", `"`+number+`"`)
	case r.Method == "POST":
		u.asked = append(u.asked, "complete "+string(body))
		u.complete(w, r)
	case r.Method == "DELETE":
		u.asked = append(u.asked, "abort")
		w.WriteHeader(http.StatusNoContent)
	}
}

func TestAnObjectInPartsIsThereWhenTheServiceSaysSo(t *testing.T) {
	const list = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&#34;1&#34;</ETag></Part>" +
		"<Part><PartNumber>2</PartNumber><ETag>&#34;2&#34;</ETag></Part></CompleteMultipartUpload>"
	fine := func(string) int { return http.StatusOK }
	answer := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
	}
	for name, tt := range map[string]struct {
		part     func(string) int
		complete http.HandlerFunc
		etag     string
		code     string // of the error
		bad      bool   // the answer makes no sense
		asked    string
	}{
		"and that it is":                      {fine, answer("<CompleteMultipartUploadResult><ETag>\"x-2\"</ETag></CompleteMultipartUploadResult>"), "x-2", "", false, "begin,complete " + list},
		"and not when it fails after its 200": {fine, answer("<?xml version=\"1.0\"?>\n  <Error><Code>InternalError</Code></Error>"), "", "InternalError", false, "begin,complete " + list + ",abort"},
		"and not when it says nothing":        {fine, answer(""), "", "", true, "begin,complete " + list + ",abort"},
		"and not when it refuses a part": {func(number string) int {
			if number == "2" {
				return http.StatusForbidden
			}
			return http.StatusOK
		}, answer(""), "", " ", false, "begin,abort"},
	} {
		t.Run(name, func(t *testing.T) {
			u := &uploads{parts: map[string][]byte{}, complete: tt.complete, part: tt.part}
			c := against(t, u.ServeHTTP)
			data := bytes.Repeat([]byte("0123456789abcdef"), partSize/16+1)
			etag, err := c.Put(t.Context(), "bucket", "key", bytes.NewReader(data), int64(len(data)), Put{})
			var e *Error
			switch {
			case tt.bad && !errors.Is(err, ErrAnswer), !tt.bad && tt.code != "" && !errors.As(err, &e), e != nil && e.Code != strings.TrimSpace(tt.code),
				tt.etag != "" && err != nil, etag != tt.etag:
				t.Errorf("Put = %q, %v", etag, err)
			}
			if got := strings.Join(u.asked, ","); got != tt.asked {
				t.Errorf("asked %s, want %s", got, tt.asked)
			}
			if tt.etag != "" && !bytes.Equal(append(u.parts["1"], u.parts["2"]...), data) {
				t.Error("other bytes were sent")
			}
		})
	}
}

func TestPartsAreAsLongAsTheirNumberWants(t *testing.T) {
	for _, size := range []int64{partSize + 1, maxParts * partSize, maxParts*partSize + 1, 1 << 40, 5 << 40} {
		each := sizeOfParts(size)
		if n := (size + each - 1) / each; n > maxParts || each < partSize {
			t.Errorf("%d bytes are %d parts of %d", size, n, each)
		}
	}
}

func TestAnAnswerThatMakesNoSenseIsAnError(t *testing.T) {
	page := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, text) }
	}
	for name, tt := range map[string]struct {
		serve http.HandlerFunc
		do    func(c *Client) error
	}{
		"a part that is the whole": {page("whole"), func(c *Client) error {
			_, _, err := c.Get(context.Background(), "bucket", "key", Range{1, 2, true})
			return err
		}},
		"an object of unknown length": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Transfer-Encoding", "chunked")
			w.(http.Flusher).Flush()
		}, func(c *Client) error {
			_, err := c.Stat(context.Background(), "bucket", "key")
			return err
		}},
		"a list that is a page of the web": {page("<html>"), list},
		"a list of something else":         {page("<Error><Code>x</Code></Error>"), list},
		"a list with a key that is none":   {page("<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%zz</Key></Contents></ListBucketResult>"), list},
		"a list that goes on nowhere":      {page("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"), list},
		"a list that turns on the spot":    {page("<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></ListBucketResult>"), list},
		"a list without end": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<ListBucketResult>")
			for {
				if _, err := w.Write(bytes.Repeat([]byte("<Contents></Contents>"), 1000)); err != nil {
					return
				}
			}
		}, list},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tt.do(against(t, tt.serve)); !errors.Is(err, ErrAnswer) {
				t.Errorf("%v, want ErrAnswer", err)
			}
		})
	}
}

func list(c *Client) error {
	for _, err := range c.List(context.Background(), "bucket", "") {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestARedirectTellsWhereTheBucketIs(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amz-Bucket-Region", "eu-west-1")
		w.Header().Set("Location", "http://127.0.0.1:1/")
		w.WriteHeader(http.StatusMovedPermanently)
		fmt.Fprint(w, "<Error><Code>PermanentRedirect</Code><Message>no</Message></Error>")
	})
	var e *Error
	if _, err := c.Stat(t.Context(), "bucket", "key"); !errors.As(err, &e) || e.Status != http.StatusMovedPermanently || !strings.Contains(e.Message, "eu-west-1") {
		t.Errorf("%v", err)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte("<ListBucketResult><Contents><Key>a</Key><Size>-5</Size></Contents></ListBucketResult>"))
	f.Add([]byte("<Error><Code>x</Code></Error>"))
	f.Add([]byte("<InitiateMultipartUploadResult><UploadId>x</UploadId></InitiateMultipartUploadResult>"))
	f.Add([]byte("<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if l, err := parseList(body); err == nil {
			for _, o := range l.Contents {
				if info, err := l.info(o); err == nil && info.Size < -1 {
					t.Errorf("an object has %d bytes", info.Size)
				}
			}
		} else if strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%q", err)
		}
		if id, err := parseUpload(body); (err == nil) == (id == "") {
			t.Errorf("%q, %v", id, err)
		}
		if _, err := parseCompleted(200, body); err == nil {
			if _, _, failed := parseError(body); failed {
				t.Error("an error is taken for an object")
			}
		}
		if _, err := xml.Marshal(completed{Part: []part{{1, string(body)}}}); err != nil {
			t.Error(err)
		}
	})
}
