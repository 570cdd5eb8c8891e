package s3store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/internal/badline"
	"github.com/agentrun/agentrun/blobstore/otelobserver"
	"github.com/agentrun/agentrun/blobstore/retry"
	"github.com/agentrun/agentrun/blobstore/s3store"
	"github.com/agentrun/agentrun/internal/s3test"
)

// overLine is a service, a line to it, and a client at the end of it.
func overLine(t *testing.T, mode blobstore.Mode, grace time.Duration) (s3test.Server, *badline.Line, *s3store.Store) {
	t.Helper()
	server := s3test.Start(t)
	p := badline.New(t, strings.TrimPrefix(server.Endpoint, "http://"))
	s := open(t, s3store.Options{Endpoint: "http://" + p.Addr().String(), Bucket: server.Bucket, Mode: mode, Grace: grace, MaxBytes: 1 << 20})
	return server, p, s
}

func again(s blobstore.Store) blobstore.Store {
	return retry.New(s, retry.Policy{Attempts: 100, Wait: time.Millisecond, MaxWait: 2 * time.Millisecond, Budget: -1, BreakAfter: -1})
}

func TestNothingIsLostOnALineThatIsCut(t *testing.T) {
	for _, mode := range []blobstore.Mode{blobstore.Verified, blobstore.Opaque} {
		server, p, client := overLine(t, mode, 5*time.Second)
		s := again(client)
		p.Cut.Store(100_000)
		ctx := context.Background()
		var all sync.WaitGroup
		for w := range 4 {
			all.Go(func() {
				for i := range 10 {
					data := bytes.Repeat([]byte{byte(w), byte(i)}, 1+rand.IntN(20_000))
					ref := blobref.Of(data)
					if err := s.Set(ctx, ref, data); err != nil {
						t.Errorf("Set: %v", err)
						return
					}
					if got, err := os.ReadFile(server.File(ref.Hex())); err != nil || !bytes.Equal(got, data) {
						t.Errorf("what was acknowledged is not there: %v", err)
					}
					if got, err := s.Get(ctx, ref); err != nil || !bytes.Equal(got, data) {
						t.Errorf("Get = %d bytes, %v", len(got), err)
					}
				}
			})
		}
		all.Wait()
		p.Cut.Store(0)
		n := 0
		for _, err := range blobstore.Walk(ctx, s) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 40 {
			t.Errorf("%v: %d blobs are listed, want 40", mode, n)
		}
	}
}

func TestNoWrongByteComesOffALineThatFlipsBits(t *testing.T) {
	server, p, s := overLine(t, blobstore.Verified, 200*time.Millisecond)
	data := bytes.Repeat([]byte("0123456789"), 3000)
	ref := blobref.Of(data)
	if err := os.WriteFile(server.File(ref.Hex()), data, 0o600); err != nil {
		t.Fatal(err)
	}
	p.Flip.Store(true)
	for range 50 {
		if got, err := s.Get(t.Context(), ref); err == nil && !bytes.Equal(got, data) {
			t.Fatal("Get handed out other bytes")
		}
		if got, err := s.GetRange(t.Context(), ref, 100, 100); err == nil && !bytes.Equal(got, data[100:200]) {
			t.Fatal("GetRange handed out other bytes")
		}
		b, err := s.Open(t.Context(), ref)
		if err != nil {
			continue
		}
		if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("Open handed out other bytes (%v)", err)
		}
		b.Close()
	}
}

func TestNothingElseIsStoredOverALineThatFlipsBits(t *testing.T) {
	for _, mode := range []blobstore.Mode{blobstore.Verified, blobstore.Opaque} {
		server, p, s := overLine(t, mode, 200*time.Millisecond)
		p.FlipSent.Store(true)
		for i := range 50 {
			data := bytes.Repeat([]byte{byte(i)}, 1+rand.IntN(10_000))
			ref := blobref.Of(data)
			if s.Set(t.Context(), ref, data) != nil {
				continue
			}
			// The bit may have been one that nothing depends on.
			if got, err := os.ReadFile(server.File(ref.Hex())); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%v: %d other bytes were acknowledged, %v", mode, len(got), err)
			}
		}
	}
}

func TestAPartitionIsToldAndPasses(t *testing.T) {
	_, p, client := overLine(t, blobstore.Verified, time.Second)
	s := again(client)
	p.Dead.Store(true)
	p.HangUp()
	if err := client.Set(t.Context(), blobref.Of(wanted), wanted); !errors.Is(err, blobstore.ErrUnavailable) {
		t.Errorf("Set over a dead line = %v, want ErrUnavailable", err)
	}
	for op, err := range reads(t.Context(), client) {
		if !errors.Is(err, blobstore.ErrUnavailable) || errors.Is(err, blobstore.ErrNotFound) {
			t.Errorf("%s over a dead line = %v, want ErrUnavailable", op, err)
		}
	}
	go p.Dead.Store(false)
	if err := s.Set(t.Context(), blobref.Of(wanted), wanted); err != nil {
		t.Errorf("Set while the line comes back: %v", err)
	}
	if got, err := client.Get(t.Context(), blobref.Of(wanted)); err != nil || !bytes.Equal(got, wanted) {
		t.Errorf("Get = %q, %v", got, err)
	}
}

func TestRequestsNameTheirSpanAndAServiceTakesThem(t *testing.T) {
	server := s3test.Start(t)
	to, err := url.Parse(server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var named atomic.Pointer[string]
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		parent := r.In.Header.Get("Traceparent")
		named.Store(&parent)
		r.SetURL(to)
		r.Out.Host = r.In.Host // which is signed
	}})
	t.Cleanup(proxy.Close)
	spans := tracetest.NewSpanRecorder()
	observer, err := otelobserver.New(nil, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, s3store.Options{Endpoint: proxy.URL, Bucket: server.Bucket, Observer: observer})
	if _, err := s.PutBytes(t.Context(), wanted); err != nil {
		t.Fatal(err)
	}
	span := spans.Ended()[0].SpanContext()
	if got, want := *named.Load(), "00-"+span.TraceID().String()+"-"+span.SpanID().String()+"-01"; got != want {
		t.Errorf("the request named %q, want %q", got, want)
	}
}

func TestAServiceThatSendsAnotherRangeIsNotBelieved(t *testing.T) {
	whole := []byte("0123456789")
	for name, serve := range map[string]http.HandlerFunc{
		"all of it": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(whole) },
		"another part": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 0-2/10")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(whole[:3])
		},
		"a part that is nowhere": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(whole[:3])
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := againstMode(t, blobstore.Opaque, serve)
			if got, err := s.GetRange(t.Context(), blobref.Of(wanted), 4, 3); err == nil && string(got) != "456" {
				t.Errorf("GetRange = %q", got)
			}
		})
	}
}
