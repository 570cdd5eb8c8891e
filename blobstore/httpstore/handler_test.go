package httpstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/httpstore"
	"github.com/agentrun/agentrun/blobstore/memory"
)

// failingStore fails with whatever it is told.
type failingStore struct{ err error }

func (s failingStore) Get(context.Context, blobref.Ref) ([]byte, error)    { return nil, s.err }
func (s failingStore) Set(context.Context, blobref.Ref, []byte) error      { return s.err }
func (s failingStore) SetLocal(context.Context, blobref.Ref, []byte) error { return s.err }
func (s failingStore) Flush(context.Context) error                         { return s.err }
func (s failingStore) Delete(context.Context, blobref.Ref) error           { return s.err }
func (s failingStore) Put(context.Context, io.Reader) (blobref.Ref, int64, error) {
	return blobref.Ref{}, 0, s.err
}

func TestAnErrorOfTheStoreIsTheSameOnTheOtherSide(t *testing.T) {
	for _, want := range []error{
		blobstore.ErrCorrupt, blobstore.ErrMismatch, blobstore.ErrTooLarge, blobstore.ErrReadOnly,
		blobstore.ErrMode, blobstore.ErrUnsupported, blobstore.ErrQueueFull, syscall.ENOSPC,
		&blobstore.UnavailableError{Err: errors.New("secret"), After: 3 * time.Second},
		errors.New("/secret/path"),
	} {
		var reported atomic.Int32
		s := serve(t, failingStore{fmt.Errorf("/secret/path: %w", want)}, httpstore.Options{}, httpstore.HandlerOptions{Report: func(error) { reported.Add(1) }})
		_, put := s.PutBytes(t.Context(), []byte("x"))
		_, _, stream := s.Put(t.Context(), strings.NewReader("x"))
		_, get := s.Get(t.Context(), blobref.Of([]byte("x")))
		for op, err := range map[string]error{
			"Get": get, "PutBytes": put, "Put": stream,
			"Set":    s.Set(t.Context(), blobref.Of([]byte("x")), []byte("x")),
			"Delete": s.Delete(t.Context(), blobref.Of([]byte("x"))),
		} {
			var unavailable *blobstore.UnavailableError
			known := errors.Is(err, want)
			if errors.As(want, &unavailable) {
				known = errors.Is(err, blobstore.ErrUnavailable) && blobstore.RetryAfter(err) == 3*time.Second
			} else if want.Error() == "/secret/path" {
				known = errors.Is(err, blobstore.ErrUnavailable)
			}
			if !known || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s of a store with %v = %v", op, want, err)
			}
			if errors.Is(err, blobstore.ErrCorrupt) && errors.Is(err, blobstore.ErrUnavailable) {
				t.Errorf("%s = %v: damage does not pass", op, err)
			}
		}
		if _, err := s.Stat(t.Context(), blobref.Of([]byte("x"))); err == nil {
			t.Errorf("Stat of a store with %v succeeded", want)
		}
		if strings.Contains(want.Error(), "/secret") && reported.Load() == 0 {
			t.Error("nobody was told")
		}
	}
}

func TestOfManyConditionalPutsOneWins(t *testing.T) {
	for _, mode := range []blobstore.Mode{blobstore.Verified, blobstore.Opaque} {
		s := serve(t, memory.New(mode), httpstore.Options{Mode: mode}, httpstore.HandlerOptions{})
		ref := blobref.Of(wanted)
		var won atomic.Int32
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				data := wanted
				if mode == blobstore.Opaque {
					data = []byte{byte(i)}
				}
				stored, err := s.SetIfAbsent(context.Background(), ref, data)
				if err != nil {
					t.Error(err)
				}
				if stored {
					won.Add(1)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Errorf("%v: %d puts won, want 1", mode, won.Load())
		}
	}
}

func TestTheHandlerAnswersOnlyWhoMayAsk(t *testing.T) {
	store := memory.New(blobstore.Verified)
	ref, err := store.PutBytes(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		options httpstore.HandlerOptions
		remote  string
		url     string
		header  [2]string
		want    int
	}{
		"this machine":                              {remote: "127.0.0.1:1", want: 200},
		"this machine over IPv6":                    {remote: "[::1]:1", url: "http://[::1]:80", want: 200},
		"another machine":                           {remote: "192.0.2.1:1", want: 403},
		"another machine where that is allowed":     {options: httpstore.HandlerOptions{AllowPlaintext: true}, remote: "192.0.2.1:1", url: "http://example.com", want: 200},
		"another machine over TLS":                  {remote: "192.0.2.1:1", url: "https://example.com", want: 200},
		"a page of the web":                         {remote: "127.0.0.1:1", header: [2]string{"Origin", "http://evil.example"}, want: 403},
		"a picture in a page":                       {remote: "127.0.0.1:1", header: [2]string{"Sec-Fetch-Site", "cross-site"}, want: 403},
		"a name that was made to mean this machine": {remote: "127.0.0.1:1", url: "http://evil.example", want: 403},
		"no token":                                  {options: httpstore.HandlerOptions{Token: "t"}, remote: "127.0.0.1:1", want: 401},
		"another token":                             {options: httpstore.HandlerOptions{Token: "t"}, remote: "127.0.0.1:1", header: [2]string{"Authorization", "Bearer u"}, want: 401},
		"another scheme":                            {options: httpstore.HandlerOptions{Token: "t"}, remote: "127.0.0.1:1", header: [2]string{"Authorization", "Basic t"}, want: 401},
		"the token":                                 {options: httpstore.HandlerOptions{Token: "t"}, remote: "127.0.0.1:1", header: [2]string{"Authorization", "Bearer t"}, want: 200},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.url == "" {
				tt.url = "http://127.0.0.1:80"
			}
			r := httptest.NewRequest(http.MethodGet, tt.url+"/blobs/"+ref.Hex(), nil)
			r.RemoteAddr = tt.remote
			if tt.header[0] != "" {
				r.Header.Set(tt.header[0], tt.header[1])
			}
			w := httptest.NewRecorder()
			httpstore.NewHandler(store, tt.options).ServeHTTP(w, r)
			if w.Code != tt.want || (w.Code == 200) != bytes.Equal(w.Body.Bytes(), wanted) {
				t.Errorf("answered %d %q, want %d", w.Code, w.Body, tt.want)
			}
		})
	}
}

func TestTheHandlerRefusesWhatIsNoRequest(t *testing.T) {
	ref, name := blobref.Of(wanted), "/blobs/"+blobref.Of(wanted).Hex()
	for title, tt := range map[string]struct {
		method, path, body string
		header             [2]string
		want               int
	}{
		"a way out of the directory":     {"GET", "/blobs/..%2f..%2fetc%2fpasswd", "", [2]string{}, 400},
		"upper-case digits":              {"GET", "/blobs/" + strings.ToUpper(ref.Hex()), "", [2]string{}, 400},
		"another blob":                   {"PUT", name, "another", [2]string{}, 422},
		"the zero name":                  {"PUT", "/blobs/" + strings.Repeat("0", 64), "x", [2]string{}, 400},
		"a body that changed":            {"POST", "/blobs/", "x", [2]string{"Content-Digest", "sha-256=:AAAA:"}, 408},
		"a named body that changed":      {"PUT", name, string(wanted), [2]string{"Content-Digest", "sha-256=:AAAA:"}, 408},
		"a digest by another algorithm":  {"PUT", name, string(wanted), [2]string{"Content-Digest", "sha-512=:AAAA:"}, 201},
		"a condition that nobody knows":  {"PUT", name, string(wanted), [2]string{"If-Match", `"x"`}, 400},
		"a condition on one version":     {"PUT", name, string(wanted), [2]string{"If-None-Match", `"x"`}, 400},
		"a long body":                    {"PUT", name, strings.Repeat("x", 2000), [2]string{}, 413},
		"a long stream":                  {"POST", "/blobs/", strings.Repeat("x", 5000), [2]string{}, 413},
		"no such method":                 {"PATCH", name, "", [2]string{}, 405},
		"no such place":                  {"GET", "/", "", [2]string{}, 404},
		"a list of a strange length":     {"GET", "/blobs/?limit=-1", "", [2]string{}, 400},
		"a list from a strange place on": {"GET", "/blobs/?after=x", "", [2]string{}, 400},
	} {
		t.Run(title, func(t *testing.T) {
			store := memory.New(blobstore.Verified)
			h := httpstore.NewHandler(store, httpstore.HandlerOptions{MaxBodyBytes: 1000, MaxStreamBytes: 4000})
			for _, chunked := range []bool{false, true} {
				r := httptest.NewRequest(tt.method, "http://localhost"+tt.path, strings.NewReader(tt.body))
				if r.RemoteAddr = "127.0.0.1:1"; chunked {
					r.ContentLength = -1
				}
				if tt.header[0] != "" {
					r.Header.Set(tt.header[0], tt.header[1])
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if want := tt.want; w.Code != want && (!chunked || want != 413 && want != 201) {
					t.Errorf("answered %d %q, want %d", w.Code, w.Body, want)
				}
			}
			for info := range store.Walk(t.Context()) {
				if tt.want >= 300 {
					t.Errorf("%v was stored", info)
				}
			}
		})
	}
}

func TestAClientThatStallsIsLeft(t *testing.T) {
	store := memory.New(blobstore.Verified)
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpstore.NewServer(httpstore.NewHandler(store, httpstore.HandlerOptions{Grace: 100 * time.Millisecond}))
	server.Start()
	defer server.Close()
	for name, begin := range map[string]string{
		"in its header": "PUT /blobs/ HTTP/1.1\r\nHost: localh",
		"in its body":   "PUT /blobs/" + blobref.Of(wanted).Hex() + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\nwhat",
		"in its stream": "POST /blobs/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhat ",
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, begin); err != nil {
			t.Fatal(err)
		}
		// It ends, whenever that is.
		if answer, err := io.ReadAll(conn); err != nil || bytes.Contains(answer, []byte("HTTP/1.1 2")) {
			t.Errorf("%s: %q, %v", name, answer, err)
		}
		conn.Close()
	}
	for info := range store.Walk(t.Context()) {
		t.Errorf("%v was stored", info)
	}
}

func TestLargeBodiesWaitForMemory(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	// A store that takes no streams.
	store := struct {
		blobstore.Store
		blobstore.Moder
	}{below, below}
	s := serve(t, store, httpstore.Options{Mode: blobstore.Opaque}, httpstore.HandlerOptions{MaxBodyBytes: 100 << 10, Memory: 100 << 10})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			data := bytes.Repeat([]byte{byte(i + 1)}, 90<<10)
			if err := s.Set(context.Background(), blobref.Of(data), data); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := s.Set(t.Context(), blobref.Of(wanted), make([]byte, 101<<10)); !errors.Is(err, blobstore.ErrTooLarge) {
		t.Errorf("a body over the limit: %v, want ErrTooLarge", err)
	}
	if err := s.Set(t.Context(), blobref.Of(wanted), make([]byte, 8<<20)); !errors.Is(err, blobstore.ErrTooLarge) {
		t.Errorf("a body far over the limit: %v, want ErrTooLarge", err)
	}
}

func TestARequestThatEndsBeforeItsAnswerIsNotAnsweredAsDone(t *testing.T) {
	h := httpstore.NewHandler(memory.New(blobstore.Verified), httpstore.HandlerOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPut, "http://localhost/blobs/"+blobref.Of(wanted).Hex(), bytes.NewReader(wanted))
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Errorf("answered %d %q; the connection has to be broken off", w.Code, w.Body)
		}
	}()
	h.ServeHTTP(w, r)
}
