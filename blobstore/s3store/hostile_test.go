package s3store_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/s3store"
)

var wanted = []byte("what is wanted")

// against returns a store in a service that does as it likes.
func against(t *testing.T, serve http.HandlerFunc) *s3store.Store {
	t.Helper()
	return againstMode(t, blobstore.Verified, serve)
}

func againstMode(t *testing.T, mode blobstore.Mode, serve http.HandlerFunc) *s3store.Store {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"0"`)
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		serve(w, r)
	}))
	t.Cleanup(server.Close)
	return open(t, s3store.Options{
		Endpoint: server.URL, Bucket: "bucket", Mode: mode, MaxBytes: 1 << 20, MaxStreamBytes: 2 << 20, Grace: 300 * time.Millisecond,
		Credentials: &s3store.Credentials{AccessKeyID: "test", SecretAccessKey: "test-secret"},
	})
}

// reads are all ways to the bytes of a blob.
func reads(ctx context.Context, s *s3store.Store) map[string]error {
	ref := blobref.Of(wanted)
	_, get := s.Get(ctx, ref)
	b, open := s.Open(ctx, ref)
	if open == nil {
		open = b.Close()
	}
	_, part := s.GetRange(ctx, ref, 1, 3)
	return map[string]error{"Get": get, "Open": open, "GetRange": part}
}

func TestAServiceThatCannotBeTrustedIsNot(t *testing.T) {
	var small bytes.Buffer
	z := gzip.NewWriter(&small)
	_, _ = z.Write(make([]byte, 8<<20))
	_ = z.Close()
	bomb := small.Bytes()
	stall := func(r *http.Request) { <-r.Context().Done() }
	for name, tt := range map[string]struct {
		serve http.HandlerFunc
		want  error
	}{
		"sends without end": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9223372036854775807")
			for {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		}, blobstore.ErrTooLarge},
		"sends another blob": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "what is wented")
		}, blobstore.ErrCorrupt},
		"sends less than it claims": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "14")
			_, _ = w.Write(wanted[:5])
		}, blobstore.ErrUnavailable},
		"never answers": {func(_ http.ResponseWriter, r *http.Request) { stall(r) }, blobstore.ErrUnavailable},
		"stalls in the middle": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "14")
			_, _ = w.Write(wanted[:5])
			w.(http.Flusher).Flush()
			stall(r)
		}, blobstore.ErrUnavailable},
		"sends a small body that becomes a large one": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb)
		}, nil},
		"is overloaded": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "<Error><Code>SlowDown</Code><Message>\x1b[31m</Message></Error>")
		}, blobstore.ErrUnavailable},
		"has no such key": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>")
		}, blobstore.ErrNotFound},
		"has no such bucket": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "<Error><Code>NoSuchBucket</Code></Error>")
		}, nil},
		"does not know one": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<Error><Code>InvalidAccessKeyId</Code></Error>")
		}, nil},
		"sends elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		}, nil},
		"hangs up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, blobstore.ErrUnavailable},
		"is a page of the web": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "<html>")
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := against(t, tt.serve)
			for op, err := range reads(t.Context(), s) {
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) || strings.ContainsAny(err.Error(), "\x1b\n") {
					t.Errorf("%s = %q, want %v", op, err, tt.want)
				}
				if tt.want == nil && errors.Is(err, blobstore.ErrNotFound) {
					t.Errorf("%s = %v, which is taken for an absent blob", op, err)
				}
			}
		})
	}
}

func TestAListWithoutEndIsLeft(t *testing.T) {
	ref := blobref.Of(wanted).Hex()
	s := against(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>`+
			`<Contents><Key>%s</Key><Size>1</Size><LastModified>2006-01-02T15:04:05Z</LastModified></Contents></ListBucketResult>`, ref)
	})
	n := 0
	var last error
	for _, err := range s.Walk(t.Context()) {
		last = err
		if n++; n > 10 {
			break
		}
	}
	if n != 2 || last == nil {
		t.Errorf("%d blobs were listed, the last with %v", n, last)
	}
}

func TestAnEndpointThatIsNotSafeIsRefused(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://user:secret@example.com": "AWS_ACCESS_KEY_ID",
		"http://example.com":              "use https",
		"ftp://127.0.0.1":                 "want https",
		"example.com":                     "want https",
		"https://example.com/path":        "want https",
		"https://example.com?q":           "want https",
		"https://exa mple:secret@":        "no URL",
	} {
		_, err := s3store.Open(s3store.Options{Endpoint: endpoint, Bucket: "bucket"})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("an endpoint %q: %v, want a sentence with %q", endpoint, err, want)
		}
	}
	for _, o := range []s3store.Options{{}, {Bucket: "../x"}, {Bucket: "b"}, {Bucket: "bucket", Prefix: "/a"}, {Bucket: "bucket", Prefix: "a/../b"}, {Bucket: "bucket", Mode: 9}} {
		if _, err := s3store.Open(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
