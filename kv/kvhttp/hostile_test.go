package kvhttp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/kv"
	"github.com/agentrun/agentrun/kv/internal/envelope"
)

// The HTTP of a client that does what it likes.

func serveRaw(t *testing.T, maxBlob int) (address string, client *http.Client) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, ln, memory.New(blobstore.Verified), ServeOptions{Controlled: kv.ControlledOptions{MaxBlob: maxBlob}})
	}()
	transport := newTransport(false, DialOptions{})
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		<-served
	})
	return "http://" + ln.Addr().String(), &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// ended is how the server ended a stream: its code, or its HTTP status.
func ended(t *testing.T, client *http.Client, req *http.Request) string {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.Status
	}
	protocol, known := protocolOf(resp.Header.Get("Content-Type"))
	if !known {
		return "content type " + resp.Header.Get("Content-Type")
	}
	in := newInbound(protocol, resp.Body, false, 1<<20)
	for {
		message, end, err := in.next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err.Error()
		}
		if err == nil && !end {
			continue
		}
		if protocol == Connect {
			err = parseEnd(message)
		} else if err = trailerStatus(resp.Trailer); resp.Header.Get("Grpc-Status") != "" {
			err = trailerStatus(resp.Header)
		}
		var s *status
		if errors.As(err, &s) {
			return s.code.String()
		}
		return err.Error()
	}
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func enveloped(flags byte, message []byte) []byte {
	return append(envelope.AppendHeader(nil, flags, len(message)), message...)
}

func TestHowAStreamEndsForAClientThatDoesWhatItLikes(t *testing.T) {
	bomb := gzipped(t, make([]byte, 100<<20))
	tests := []struct {
		name   string
		method string
		header map[string]string
		body   []byte
		want   map[Protocol]string
	}{
		{"nothing is asked", "POST", nil, nil, map[Protocol]string{Connect: "EOF", GRPC: "EOF"}},
		{"GET", "GET", nil, nil, map[Protocol]string{Connect: "405 Method Not Allowed", GRPC: "405 Method Not Allowed"}},
		{"JSON", "POST", map[string]string{"Content-Type": "application/connect+json"}, nil, map[Protocol]string{Connect: "415 Unsupported Media Type"}},
		{"a unary call", "POST", map[string]string{"Content-Type": "application/proto"}, nil, map[Protocol]string{Connect: "415 Unsupported Media Type"}},
		{"gRPC-Web", "POST", map[string]string{"Content-Type": "application/grpc-web+proto"}, nil, map[Protocol]string{GRPC: "415 Unsupported Media Type"}},
		{"no content type", "POST", map[string]string{"Content-Type": ""}, nil, map[Protocol]string{GRPC: "415 Unsupported Media Type"}},
		{"a content type with parameters", "POST", map[string]string{"Content-Type": "application/grpc; x=y"}, nil, map[Protocol]string{GRPC: "EOF"}},
		{"an unknown compression", "POST", map[string]string{"Grpc-Encoding": "zstd", "Connect-Content-Encoding": "zstd"}, nil, map[Protocol]string{Connect: "unimplemented", GRPC: "unimplemented"}},
		{"identity", "POST", map[string]string{"Grpc-Encoding": "identity", "Connect-Content-Encoding": "identity"}, enveloped(0, nil), map[Protocol]string{Connect: "EOF", GRPC: "EOF"}},
		{"compressed without saying so", "POST", nil, enveloped(1, gzipped(t, nil)), map[Protocol]string{Connect: "internal", GRPC: "internal"}},
		{"gzip that is none", "POST", map[string]string{"Grpc-Encoding": "gzip", "Connect-Content-Encoding": "gzip"}, enveloped(1, []byte("zip")), map[Protocol]string{Connect: "invalid_argument", GRPC: "invalid_argument"}},
		{"a gzip bomb is passed by", "POST", map[string]string{"Grpc-Encoding": "gzip", "Connect-Content-Encoding": "gzip"}, enveloped(1, bomb), map[Protocol]string{Connect: "EOF", GRPC: "EOF"}},
		{"the end of a stream by a client", "POST", nil, enveloped(2, []byte("{}")), map[Protocol]string{Connect: "invalid_argument", GRPC: "invalid_argument"}},
		{"unknown flags", "POST", nil, enveloped(0x80, nil), map[Protocol]string{Connect: "invalid_argument", GRPC: "invalid_argument"}},
		{"half a message", "POST", nil, enveloped(0, make([]byte, 100))[:50], map[Protocol]string{Connect: "invalid_argument", GRPC: "invalid_argument"}},
		{"half a header", "POST", nil, []byte{0, 0}, map[Protocol]string{Connect: "invalid_argument", GRPC: "invalid_argument"}},
		{"2 GB announced", "POST", nil, []byte{0, 0x7f, 0xff, 0xff, 0xff, 0x08}, map[Protocol]string{Connect: "invalid_argument", GRPC: "invalid_argument"}},
		{"garbage in envelopes is passed by", "POST", nil, enveloped(0, []byte{0xff, 0xff}), map[Protocol]string{Connect: "EOF", GRPC: "EOF"}},
		{"a timeout that is none", "POST", map[string]string{"Grpc-Timeout": "1x", "Connect-Timeout-Ms": "-1"}, nil, map[Protocol]string{Connect: "invalid_argument", GRPC: "invalid_argument"}},
	}
	address, client := serveRaw(t, 1<<20)
	for _, tt := range tests {
		for protocol, want := range tt.want {
			t.Run(tt.name+", "+protocol.String(), func(t *testing.T) {
				req, err := http.NewRequestWithContext(t.Context(), tt.method, address+ServicePath, bytes.NewReader(tt.body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", map[Protocol]string{Connect: typeConnect, GRPC: typeGRPC}[protocol])
				for name, value := range tt.header {
					req.Header.Set(name, value)
				}
				if got := ended(t, client, req); got != want {
					t.Errorf("the stream ended with %q, want %q", got, want)
				}
			})
		}
	}
}

func TestHTTP1IsAnsweredWithASentence(t *testing.T) {
	address, _ := serveRaw(t, 0)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Post(address+ServicePath, typeConnect, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusHTTPVersionNotSupported || !strings.Contains(string(text), "HTTP/2") {
		t.Errorf("answered %s %q, %v", resp.Status, text, err)
	}
}

func TestAClientThatStallsHoldsNobodyUp(t *testing.T) {
	address, client := serveRaw(t, 0)
	// One client sends half a message and nothing more; one asks and reads nothing.
	for _, begin := range [][]byte{{0, 0, 0}, bytes.Repeat(enveloped(0, []byte{0x12, 0x00}), 1000)} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		body, write := io.Pipe()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+ServicePath, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", typeConnect)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := client.Do(req); err == nil {
				<-ctx.Done()
				resp.Body.Close()
			}
		}()
		if _, err := write.Write(begin); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			write.Close()
			<-done
		})
	}
	r, err := Dial(t.Context(), address, DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Get(t.Context(), blobref.Of(nil)); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Get = %v", err)
	}
}

// The HTTP of a server that does what it likes.

func TestWhatAServerSaysIsNotBelieved(t *testing.T) {
	header := func(pairs ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			for i := 0; i < len(pairs); i += 2 {
				w.Header().Set(pairs[i], pairs[i+1])
			}
		}
	}
	tests := []struct {
		name     string
		protocol Protocol
		begin    func(http.ResponseWriter)
		body     []byte
		want     error
		says     string
	}{
		{"a page", Connect, header("Content-Type", "text/html"), []byte("<html>"), kv.ErrRefused, "text/html"},
		{"the other protocol", Connect, header("Content-Type", typeGRPC), nil, kv.ErrRefused, typeGRPC},
		{"403", GRPC, func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }, nil, kv.ErrRefused, "403"},
		{"503", GRPC, func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, nil, blobstore.ErrUnavailable, "503"},
		{"no end", Connect, header("Content-Type", typeConnect), nil, blobstore.ErrUnavailable, "unexpected EOF"},
		{"an end without trailers", GRPC, header("Content-Type", typeGRPC), nil, blobstore.ErrUnavailable, "unexpected EOF"},
		{"an end that is no JSON", Connect, header("Content-Type", typeConnect), enveloped(2, []byte("{")), blobstore.ErrUnavailable, "last message"},
		{"an end of 1 MB", Connect, header("Content-Type", typeConnect), enveloped(2, make([]byte, 1<<20)), blobstore.ErrUnavailable, "last message"},
		{"an end with an unknown code", Connect, header("Content-Type", typeConnect), enveloped(2, []byte(`{"error":{"code":"what","message":"m"}}`)), blobstore.ErrUnavailable, "unknown: m"},
		{"an end with trailers that are no number", GRPC, header("Content-Type", typeGRPC, "Grpc-Status", "x", "Grpc-Message", "m%zz%C3%A4"), nil, blobstore.ErrUnavailable, "unknown: m%zzä"},
		{"a refusal in the headers", GRPC, header("Content-Type", typeGRPC, "Grpc-Status", "16", "Grpc-Message", "who%20are you?"), nil, kv.ErrRefused, "unauthenticated: who are you?"},
		{"2 GB announced", Connect, header("Content-Type", typeConnect), []byte{0, 0x7f, 0xff, 0xff, 0xff}, blobstore.ErrUnavailable, "unexpected EOF"},
		{"compressed", Connect, header("Content-Type", typeConnect), enveloped(1, gzipped(t, nil)), blobstore.ErrUnavailable, "compressed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := r.Body.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
				tt.begin(w)
				w.Write(tt.body) //nolint:errcheck // seen by the client
			}), ServeOptions{})
			go server.Serve(ln) //nolint:errcheck // ends with Close
			defer server.Close()
			r, err := Dial(t.Context(), "http://"+ln.Addr().String(), DialOptions{Protocol: tt.protocol, Remote: kv.RemoteOptions{Attempts: 1}})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, err := r.Get(t.Context(), blobref.Of(nil)); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Get = %v, want %v with %q", err, tt.want, tt.says)
			}
		})
	}
}

func FuzzTimeout(f *testing.F) {
	for _, text := range []string{"", "1", "10S", "99999999H", "1x", "-1", "+1", "9999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, protocol := range []Protocol{Connect, GRPC} {
			h := http.Header{protocol.headers().timeout: {text}}
			if got, err := protocol.timeout(h); got < 0 || err != nil && got != 0 {
				t.Errorf("%q: %v, %v", text, got, err)
			}
		}
	})
}

func FuzzEnd(f *testing.F) {
	f.Add([]byte(`{"error":{"code":"internal","message":"m"}}`), "a%20b%")
	f.Fuzz(func(t *testing.T, end []byte, text string) {
		if parseEnd(end) == nil {
			t.Error("a stream that ended has no error")
		}
		if got := percentDecode(percentEncode(text)); got != strings.ToValidUTF8(text, "\ufffd") {
			t.Errorf("%q came back as %q", text, got)
		}
		percentDecode(text)
		in := newInbound(Connect, bytes.NewReader(enveloped(1, end)), true, 1000)
		if message, _, err := in.next(); err == nil && len(message) > 1000 {
			t.Errorf("%d bytes of a compressed message", len(message))
		}
	})
}
