package kvhttp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/gen/agentrun/kv/v1/kvv1connect"
	"github.com/agentrun/agentrun/kv"
	"github.com/agentrun/agentrun/kv/kvhttp"
)

// asker is the stream of a client that others made.
type asker struct {
	send  func(*agentv1.KvServerMessage) error
	recv  func() (*agentv1.KvClientMessage, error)
	close func() error // ends the part of the client
	code  func(error) string
}

// clients are the clients that others made, each with and without compression.
var clients = []struct {
	name string
	open func(t *testing.T, ctx context.Context, address, token string) asker
}{
	{"connect-go", connectClient()},
	{"connect-go with gzip", connectClient(connect.WithSendGzip())},
	{"connect-go, gRPC", connectClient(connect.WithGRPC())},
	{"connect-go, gRPC with gzip", connectClient(connect.WithGRPC(), connect.WithSendGzip())},
	{"grpc-go", grpcClient()},
	{"grpc-go with gzip", grpcClient(grpc.UseCompressor(gzip.Name))},
}

func h2cClient(t *testing.T) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func connectClient(opts ...connect.ClientOption) func(*testing.T, context.Context, string, string) asker {
	return func(t *testing.T, ctx context.Context, address, token string) asker {
		stream := kvv1connect.NewKvServiceClient(h2cClient(t), address, opts...).Serve(ctx)
		if token != "" {
			stream.RequestHeader().Set("Authorization", "Bearer "+token)
		}
		t.Cleanup(func() {
			stream.CloseRequest()  //nolint:errcheck // whatever the test left of it
			stream.CloseResponse() //nolint:errcheck // whatever the test left of it
		})
		return asker{stream.Send, stream.Receive, stream.CloseRequest, func(err error) string { return connect.CodeOf(err).String() }}
	}
}

var serveStream = grpc.StreamDesc{StreamName: "Serve", ClientStreams: true, ServerStreams: true}

func grpcClient(opts ...grpc.CallOption) func(*testing.T, context.Context, string, string) asker {
	return func(t *testing.T, ctx context.Context, address, token string) asker {
		conn, err := grpc.NewClient(strings.TrimPrefix(address, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		}
		ctx, cancel := context.WithCancel(ctx)
		t.Cleanup(func() {
			cancel()
			conn.Close()
		})
		conn.Connect()
		for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
			conn.WaitForStateChange(t.Context(), state)
		}
		stream, err := conn.NewStream(ctx, &serveStream, kvhttp.ServicePath, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return asker{
			send: func(m *agentv1.KvServerMessage) error { return stream.SendMsg(m) },
			recv: func() (*agentv1.KvClientMessage, error) {
				m := new(agentv1.KvClientMessage)
				return m, stream.RecvMsg(m)
			},
			close: stream.CloseSend,
			code: func(err error) string {
				if status.Code(err) == codes.Canceled {
					return "canceled"
				}
				// gRPC's own names, in Connect's spelling.
				var spelled strings.Builder
				for i, c := range status.Code(err).String() {
					if i > 0 && c >= 'A' && c <= 'Z' {
						spelled.WriteByte('_')
					}
					spelled.WriteString(strings.ToLower(string(c)))
				}
				return spelled.String()
			},
		}
	}
}

func askGet(id uint32, ref blobref.Ref) *agentv1.KvServerMessage {
	sum := ref.Sum()
	return &agentv1.KvServerMessage{Id: id, Message: &agentv1.KvServerMessage_GetBlobArgs{GetBlobArgs: &agentv1.GetBlobArgs{BlobId: sum[:]}}}
}

func askSet(id uint32, ref blobref.Ref, data []byte) *agentv1.KvServerMessage {
	sum := ref.Sum()
	return &agentv1.KvServerMessage{Id: id, Message: &agentv1.KvServerMessage_SetBlobArgs{SetBlobArgs: &agentv1.SetBlobArgs{BlobId: sum[:], BlobData: data}}}
}

func TestOtherClientsAreServed(t *testing.T) {
	for _, client := range clients {
		t.Run(client.name, func(t *testing.T) {
			store := memory.New(blobstore.Verified)
			a := client.open(t, t.Context(), serve(t, store, kvhttp.ServeOptions{}), "")
			large := bytes.Repeat([]byte("large "), 200_000)
			ask := func(m *agentv1.KvServerMessage) *agentv1.KvClientMessage {
				t.Helper()
				if err := a.send(m); err != nil {
					t.Fatal(err)
				}
				got, err := a.recv()
				if err != nil || got.GetId() != m.GetId() {
					t.Fatalf("answered %v, %v to request %d", got, err, m.GetId())
				}
				return got
			}
			for id, data := range [][]byte{nil, {0}, []byte("small"), large} {
				ref := blobref.Of(data)
				if got := ask(askGet(uint32(id), ref)); got.GetGetBlobResult() == nil || got.GetGetBlobResult().BlobData != nil {
					t.Errorf("an absent blob: %v", got)
				}
				if got := ask(askSet(uint32(id), ref, data)); got.GetSetBlobResult() == nil || got.GetSetBlobResult().GetError() != nil {
					t.Errorf("a set: %v", got)
				}
				if got := ask(askGet(uint32(id), ref)).GetGetBlobResult().BlobData; got == nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes came back as %d", len(data), len(got))
				}
			}
			if got := ask(askSet(9, blobref.Of(nil), large)); !strings.Contains(got.GetSetBlobResult().GetError().GetMessage(), "do not match") {
				t.Errorf("a set of other bytes: %v", got.GetSetBlobResult().GetError())
			}
			// Many at once, and the end.
			go func() {
				for id := range uint32(1000) {
					if err := a.send(askGet(id, blobref.Of([]byte("small")))); err != nil {
						t.Error(err)
					}
				}
				if err := a.close(); err != nil {
					t.Error(err)
				}
			}()
			seen := make(map[uint32]bool)
			for range 1000 {
				got, err := a.recv()
				if err != nil || string(got.GetGetBlobResult().BlobData) != "small" || seen[got.GetId()] {
					t.Fatalf("after %d answers: %v, %v", len(seen), got, err)
				}
				seen[got.GetId()] = true
			}
			if got, err := a.recv(); !errors.Is(err, io.EOF) {
				t.Errorf("at the end: %v, %v", got, err)
			}
		})
	}
}

func TestOtherClientsAreToldWhyAStreamEnds(t *testing.T) {
	ends := map[string]func(t *testing.T, client func(context.Context, string, string) asker) error{
		"unauthenticated": func(t *testing.T, client func(context.Context, string, string) asker) error {
			a := client(t.Context(), serve(t, memory.New(blobstore.Verified), kvhttp.ServeOptions{Token: "right"}), "wrong")
			a.send(askGet(0, blobref.Of(nil))) //nolint:errcheck // Connect's client begins with it; the server may have ended
			_, err := a.recv()
			return errors.Join(err, wantCode(a, err, "unauthenticated"))
		},
		"deadline_exceeded": func(t *testing.T, client func(context.Context, string, string) asker) error {
			address := serve(t, memory.New(blobstore.Verified), kvhttp.ServeOptions{})
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			a := client(ctx, address, "")
			err := a.send(askGet(0, blobref.Of(nil)))
			for err == nil {
				_, err = a.recv()
			}
			return wantCode(a, err, "deadline_exceeded")
		},
		"unavailable": func(t *testing.T, client func(context.Context, string, string) asker) error {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(context.Background())
			served := make(chan error, 1)
			store := memory.New(blobstore.Verified)
			go func() { served <- kvhttp.Serve(ctx, ln, store, kvhttp.ServeOptions{}) }()
			a := client(t.Context(), "http://"+ln.Addr().String(), "")
			err = a.send(askGet(0, blobref.Of(nil)))
			if _, recvErr := a.recv(); err != nil || recvErr != nil {
				t.Errorf("before the end: %v, %v", err, recvErr)
			}
			cancel()
			_, err = a.recv()
			return errors.Join(wantCode(a, err, "unavailable"), <-served)
		},
	}
	for _, client := range clients {
		for name, end := range ends {
			t.Run(client.name+": "+name, func(t *testing.T) {
				err := end(t, func(ctx context.Context, address, token string) asker { return client.open(t, ctx, address, token) })
				if name == "unauthenticated" {
					if err == nil || strings.Contains(err.Error(), "right") || strings.Contains(err.Error(), "want code") {
						t.Errorf("the stream ended with %v", err)
					}
				} else if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func wantCode(a asker, err error, want string) error {
	if got := a.code(err); got != want {
		return fmt.Errorf("want code %s, got %s: %w", want, got, err)
	}
	return nil
}

// The other way round: our client at servers that others made, which know the
// messages and nothing of agentrun.

type otherServer struct {
	kvv1connect.UnimplementedKvServiceHandler
	answer func(*agentv1.KvServerMessage) *agentv1.KvClientMessage
}

func (s otherServer) Serve(_ context.Context, stream *connect.BidiStream[agentv1.KvServerMessage, agentv1.KvClientMessage]) error {
	for {
		m, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(s.answer(m)); err != nil {
			return err
		}
	}
}

// mapAnswerer answers from a map, as the peers of agent.v1 do.
func mapAnswerer() func(*agentv1.KvServerMessage) *agentv1.KvClientMessage {
	blobs := make(map[string][]byte)
	return func(m *agentv1.KvServerMessage) *agentv1.KvClientMessage {
		if args := m.GetSetBlobArgs(); args != nil {
			blobs[string(args.GetBlobId())] = append([]byte{}, args.GetBlobData()...)
			return &agentv1.KvClientMessage{Id: m.GetId(), Message: &agentv1.KvClientMessage_SetBlobResult{SetBlobResult: &agentv1.SetBlobResult{}}}
		}
		return &agentv1.KvClientMessage{Id: m.GetId(), Message: &agentv1.KvClientMessage_GetBlobResult{
			GetBlobResult: &agentv1.GetBlobResult{BlobData: blobs[string(m.GetGetBlobArgs().GetBlobId())]},
		}}
	}
}

func TestOtherServersAreAsked(t *testing.T) {
	servers := map[string]func(t *testing.T) string{
		"connect-go": func(t *testing.T) string {
			mux := http.NewServeMux()
			mux.Handle(kvv1connect.NewKvServiceHandler(otherServer{answer: mapAnswerer()}))
			return serveHTTP(t, mux, nil)
		},
		"grpc-go": func(t *testing.T) string {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			answer, handled := mapAnswerer(), serveStream
			handled.Handler = func(_ any, s grpc.ServerStream) error {
				for {
					m := new(agentv1.KvServerMessage)
					if err := s.RecvMsg(m); errors.Is(err, io.EOF) {
						return nil
					} else if err != nil {
						return err
					}
					if err := s.SendMsg(answer(m)); err != nil {
						return err
					}
				}
			}
			server := grpc.NewServer()
			server.RegisterService(&grpc.ServiceDesc{ServiceName: kvv1connect.KvServiceName, Streams: []grpc.StreamDesc{handled}}, nil)
			go server.Serve(ln) //nolint:errcheck // ends with Stop
			t.Cleanup(server.Stop)
			return "http://" + ln.Addr().String()
		},
	}
	for name, start := range servers {
		for _, protocol := range protocols {
			if name == "grpc-go" && protocol != kvhttp.GRPC {
				continue
			}
			t.Run(name+", "+protocol.String(), func(t *testing.T) {
				r := dial(t, start(t), kvhttp.DialOptions{Protocol: protocol})
				for _, data := range [][]byte{{}, {0}, []byte("small"), bytes.Repeat([]byte("large "), 200_000)} {
					ref := blobref.Of(data)
					if _, err := r.Get(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
						t.Errorf("Get of what is not there = %v", err)
					}
					if err := r.Set(t.Context(), ref, data); err != nil {
						t.Fatal(err)
					}
					if got, err := r.Get(t.Context(), ref); err != nil || !bytes.Equal(got, data) {
						t.Errorf("Get = %d bytes, %v; want %d", len(got), err, len(data))
					}
				}
			})
		}
	}
	t.Run("a server without the service", func(t *testing.T) {
		for _, protocol := range protocols {
			r := dial(t, serveHTTP(t, http.NewServeMux(), nil), kvhttp.DialOptions{Protocol: protocol})
			if _, err := r.Get(t.Context(), blobref.Of(nil)); !errors.Is(err, kv.ErrRefused) || !strings.Contains(err.Error(), "404") {
				t.Errorf("%v: Get = %v, want ErrRefused with 404", protocol, err)
			}
		}
	})
	t.Run("a server that refuses by the protocol", func(t *testing.T) {
		mux := http.NewServeMux()
		mux.Handle(kvv1connect.NewKvServiceHandler(kvv1connect.UnimplementedKvServiceHandler{}))
		address := serveHTTP(t, mux, nil)
		for _, protocol := range protocols {
			r := dial(t, address, kvhttp.DialOptions{Protocol: protocol})
			if _, err := r.Get(t.Context(), blobref.Of(nil)); !errors.Is(err, kv.ErrRefused) || !strings.Contains(err.Error(), "not implemented") {
				t.Errorf("%v: Get = %v, want ErrRefused", protocol, err)
			}
		}
	})
}

// serveHTTP serves a handler on a loopback address with the HTTP/2 of the standard
// library as it is.
func serveHTTP(t *testing.T, handler http.Handler, config *tls.Config) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: handler, Protocols: protocols, TLSConfig: config}
	go server.Serve(ln) //nolint:errcheck // ends with Close
	t.Cleanup(func() { server.Close() })
	return "http://" + ln.Addr().String()
}
