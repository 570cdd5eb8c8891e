package httpstore_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/httpstore"
)

// against returns a client of a server that does as it likes.
func against(t *testing.T, o httpstore.Options, serve http.HandlerFunc) *httpstore.Store {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	client, err := httpstore.Open(server.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

var wanted = []byte("what is wanted")

// reads are all ways to the bytes of a blob.
func reads(ctx context.Context, s *httpstore.Store) map[string]error {
	ref := blobref.Of(wanted)
	_, get := s.Get(ctx, ref)
	b, open := s.Open(ctx, ref)
	if open == nil {
		open = b.Close()
	}
	_, part := s.GetRange(ctx, ref, 1, 3)
	return map[string]error{"Get": get, "Open": open, "GetRange": part}
}

func TestAServerThatCannotBeTrustedIsNot(t *testing.T) {
	var small bytes.Buffer
	z := gzip.NewWriter(&small)
	_, _ = z.Write(make([]byte, 8<<20))
	_ = z.Close()
	bomb := small.Bytes()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wanted) }))
	t.Cleanup(other.Close)
	stall := func(r *http.Request) { <-r.Context().Done() }
	for name, tt := range map[string]struct {
		serve http.HandlerFunc
		want  error
	}{
		"sends without end": {func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		}, blobstore.ErrTooLarge},
		"claims two gigabytes": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "2147483648")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			stall(r)
		}, blobstore.ErrTooLarge},
		"sends another blob": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "another blob")
		}, blobstore.ErrCorrupt},
		"sends another blob and says which": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", `"`+blobref.Of(wanted).Hex()+`"`)
			_, _ = io.WriteString(w, "what is wented")
		}, blobstore.ErrCorrupt},
		"sends less than it claims": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "14")
			_, _ = w.Write(wanted[:5])
		}, blobstore.ErrUnavailable},
		"sends a part": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 0-4/14")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(wanted[:5])
		}, nil},
		"sends nothing and calls it success": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}, nil},
		"never answers": {func(_ http.ResponseWriter, r *http.Request) { stall(r) }, blobstore.ErrUnavailable},
		"stalls in the middle": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(wanted[:5])
			w.(http.Flusher).Flush()
			stall(r)
		}, blobstore.ErrUnavailable},
		"sends a byte at a time": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte("x"))
				w.(http.Flusher).Flush()
				time.Sleep(5 * time.Millisecond) // it is slow: that is the test
			}
		}, blobstore.ErrUnavailable},
		"sends a small body that becomes a large one": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb)
		}, nil},
		"sends elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}, nil},
		"sends to itself for ever": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}, nil},
		"is of another mode": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Agentrun-Blob-Mode", "opaque")
			_, _ = w.Write(wanted)
		}, blobstore.ErrMode},
		"hangs up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, blobstore.ErrUnavailable},
		"sends headers without end": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}, blobstore.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := against(t, httpstore.Options{MaxBytes: 1 << 20, MaxStreamBytes: 2 << 20, Grace: 300 * time.Millisecond}, tt.serve)
			for op, err := range reads(t.Context(), s) {
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
					t.Errorf("%s = %v, want %v", op, err, tt.want)
				}
				if tt.want == nil && errors.Is(err, blobstore.ErrUnavailable) {
					t.Errorf("%s = %v, which would be asked again", op, err)
				}
			}
		})
	}
}

func TestAListThatIsNoneIsAnError(t *testing.T) {
	a, b := blobref.Of([]byte("a")), blobref.Of([]byte("b"))
	if a.Hex() > b.Hex() {
		a, b = b, a
	}
	entry := func(ref blobref.Ref) string { return fmt.Sprintf("{\"ref\":%q,\"size\":1}\n", ref.Hex()) }
	for name, body := range map[string]string{
		"nothing":                       "",
		"cut off":                       entry(a),
		"cut off in a line":             entry(a)[:20],
		"in no order":                   entry(b) + entry(a) + `{"end":true}`,
		"the same twice":                entry(a) + entry(a) + `{"end":true}`,
		"for ever":                      entry(a) + `{"next":"` + a.Hex() + `"}`,
		"going on from elsewhere":       entry(a) + `{"next":"` + b.Hex() + `"}`,
		"no name":                       `{"ref":"../../etc/passwd","size":1}` + "\n" + `{"end":true}`,
		"a negative size":               `{"ref":"` + a.Hex() + `","size":-1}` + "\n" + `{"end":true}`,
		"a long line":                   `{"ref":"` + strings.Repeat("a", 1<<16) + `"}`,
		"a page of the web":             "<html>",
		"going on from nothing at once": `{"next":"` + a.Hex() + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := against(t, httpstore.Options{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
			var last error
			n := 0
			for _, err := range s.Walk(t.Context()) {
				last = err
				if n++; n > 10 {
					break
				}
			}
			if last == nil {
				t.Errorf("%d blobs were listed without an error", n)
			}
		})
	}
}

func TestWhatAServerSaysOfOneBlobDoesNotEndAList(t *testing.T) {
	a, b := blobref.Of([]byte("a")), blobref.Of([]byte("b"))
	if a.Hex() > b.Hex() {
		a, b = b, a
	}
	s := against(t, httpstore.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "{\"ref\":%q,\"error\":\"it is \\u001b[31ma directory\"}\n{\"ref\":%q,\"size\":7}\n{\"end\":true}\n", a.Hex(), b.Hex())
	})
	var said error
	sizes := map[blobref.Ref]int64{}
	for info, err := range s.Walk(t.Context()) {
		if err != nil {
			if said = err; info.Ref != a {
				t.Errorf("the error is of %v, want %v", info.Ref, a)
			}
			continue
		}
		sizes[info.Ref] = info.Size
	}
	if said == nil || strings.Contains(said.Error(), "\x1b") || len(sizes) != 1 || sizes[b] != 7 {
		t.Errorf("got %v, %v", said, sizes)
	}
}

func TestAServerThatStoresSomethingElseIsNotBelieved(t *testing.T) {
	for name, answer := range map[string]string{
		"another blob": fmt.Sprintf(`{"ref":%q,"size":14}`, blobref.Of([]byte("another")).Hex()),
		"a part":       fmt.Sprintf(`{"ref":%q,"size":13}`, blobref.Of(wanted).Hex()),
		"nothing":      `{}`,
		"no JSON":      `thanks`,
	} {
		s := against(t, httpstore.Options{}, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, answer)
		})
		if ref, _, err := s.Put(t.Context(), strings.NewReader(string(wanted))); err == nil || !ref.IsZero() {
			t.Errorf("%s: Put = %v, %v", name, ref, err)
		}
	}
}

func TestAStatusIsTheErrorThatItStandsFor(t *testing.T) {
	for status, want := range map[int]error{
		http.StatusNotFound:              blobstore.ErrNotFound,
		http.StatusRequestEntityTooLarge: blobstore.ErrTooLarge,
		http.StatusUnprocessableEntity:   blobstore.ErrMismatch,
		http.StatusMethodNotAllowed:      blobstore.ErrUnsupported,
		http.StatusTooManyRequests:       blobstore.ErrUnavailable,
		http.StatusRequestTimeout:        blobstore.ErrUnavailable,
		http.StatusInternalServerError:   blobstore.ErrUnavailable,
		http.StatusBadGateway:            blobstore.ErrUnavailable,
		http.StatusInsufficientStorage:   blobstore.ErrUnavailable,
		http.StatusUnauthorized:          nil,
		http.StatusForbidden:             nil,
		http.StatusTeapot:                nil,
	} {
		s := against(t, httpstore.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"message":"it is \u001b[31mred"}`)
		})
		for op, err := range reads(t.Context(), s) {
			if err == nil || want != nil && !errors.Is(err, want) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%s with %d = %q, want %v", op, status, err, want)
			}
			wait := blobstore.RetryAfter(err)
			if unavailable := errors.Is(err, blobstore.ErrUnavailable); unavailable != (want == blobstore.ErrUnavailable) || unavailable != (wait == 7*time.Second) {
				t.Errorf("%s with %d = %v, to be asked again after %v", op, status, err, wait)
			}
		}
		if err := s.Set(t.Context(), blobref.Of(wanted), wanted); err == nil || status == http.StatusNotFound && errors.Is(err, blobstore.ErrNotFound) {
			t.Errorf("Set with %d = %v", status, err)
		}
	}
}

func TestAServerThatIsNotThereIsUnavailable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s, err := httpstore.Open("http://"+address, httpstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for op, err := range reads(t.Context(), s) {
		if !errors.Is(err, blobstore.ErrUnavailable) {
			t.Errorf("%s = %v, want ErrUnavailable", op, err)
		}
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	for op, err := range reads(ctx, s) {
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, blobstore.ErrUnavailable) {
			t.Errorf("%s after its deadline = %v, want DeadlineExceeded alone", op, err)
		}
	}
}

func TestAURLThatIsNotSafeIsRefused(t *testing.T) {
	for base, want := range map[string]string{
		"http://user:secret@127.0.0.1:1": "bearer token",
		"https://user@example.com":       "bearer token",
		"http://example.com":             "use https",
		"http://192.0.2.1:80":            "use https",
		"http://localhost.example.com":   "use https",
		"ftp://127.0.0.1":                "want http",
		"https://":                       "want http",
		"https://:80":                    "want http",
		"/a/path":                        "want http",
		"https://example.com/?q":         "without ?",
		"https://example.com/#f":         "without ?",
		"https://exa mple.com:secret@":   "no URL",
	} {
		_, err := httpstore.Open(base, httpstore.Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Open(%q) = %v, want a sentence with %q", base, err, want)
		}
	}
	for _, base := range []string{"http://127.0.0.1:8080", "http://[::1]:1/a/", "http://localhost", "https://example.com/store"} {
		if _, err := httpstore.Open(base, httpstore.Options{}); err != nil {
			t.Errorf("Open(%q): %v", base, err)
		}
	}
	if _, err := httpstore.Open("http://example.com", httpstore.Options{AllowPlaintext: true}); err != nil {
		t.Error(err)
	}
	if _, err := httpstore.Open("http://localhost", httpstore.Options{Token: "sec\nret"}); err == nil || strings.Contains(err.Error(), "sec") {
		t.Errorf("a token with a line end: %v", err)
	}
}
