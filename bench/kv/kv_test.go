// Package kv_test measures blobs over a stream against the same stream of grpc-go with
// nothing behind it.
//
//	go test -run '^$' -bench . ./bench/kv
//
// Both speak over a TCP connection of this machine and share one process, and each
// round runs both. "x-grpc" is the rate of ours by that of grpc-go: 0.7 is wanted.
package kv_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/kv"
	"github.com/agentrun/agentrun/kv/kvhttp"
)

const (
	blobSize = 1 << 10
	blobs    = 1000
	inFlight = 64
	perRound = 50_000
)

// BenchmarkGet gets blobs of 1 KiB with 64 callers at once.
func BenchmarkGet(b *testing.B) {
	for _, protocol := range []kvhttp.Protocol{kvhttp.Connect, kvhttp.GRPC} {
		b.Run(protocol.String(), func(b *testing.B) {
			store := memory.New(blobstore.Verified)
			refs := make([]blobref.Ref, blobs)
			for i := range refs {
				data := make([]byte, blobSize)
				rand.Read(data)
				var err error
				if refs[i], err = store.PutBytes(b.Context(), data); err != nil {
					b.Fatal(err)
				}
			}
			remote := serveOurs(b, store, protocol)
			bare := serveGRPC(b, make([]byte, blobSize))

			var ours, theirs, p99 []float64
			for b.Loop() {
				took := make([]time.Duration, perRound)
				start := time.Now()
				getAll(b, remote, refs, took)
				ours = append(ours, perRound/time.Since(start).Seconds())
				slices.Sort(took)
				p99 = append(p99, float64(took[perRound*99/100].Microseconds())/1000)

				start = time.Now()
				bare(b)
				theirs = append(theirs, perRound/time.Since(start).Seconds())
			}
			b.ReportMetric(0, "ns/op") // both together mean nothing
			b.ReportMetric(median(ours), "gets/s")
			b.ReportMetric(median(theirs), "grpc-gets/s")
			b.ReportMetric(median(ours)/median(theirs), "x-grpc")
			b.ReportMetric(median(p99), "p99-ms")
		})
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func getAll(b *testing.B, remote *kv.Remote, refs []blobref.Ref, took []time.Duration) {
	b.Helper()
	var next atomic.Int64
	var callers sync.WaitGroup
	for range inFlight {
		callers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(took) {
					return
				}
				start := time.Now()
				data, err := remote.Get(b.Context(), refs[i%len(refs)])
				took[i] = time.Since(start)
				if err != nil || len(data) != blobSize {
					b.Errorf("Get = %d bytes, %v", len(data), err)
					return
				}
			}
		})
	}
	callers.Wait()
}

func listen(b *testing.B) net.Listener {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	return ln
}

func serveOurs(b *testing.B, store blobstore.Store, protocol kvhttp.Protocol) *kv.Remote {
	b.Helper()
	ln := listen(b)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- kvhttp.Serve(ctx, ln, store, kvhttp.ServeOptions{}) }()
	remote, err := kvhttp.Dial(b.Context(), "http://"+ln.Addr().String(), kvhttp.DialOptions{Protocol: protocol})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		remote.Close()
		cancel()
		<-served
	})
	return remote
}

// serveGRPC returns a round of bare grpc-go: a stream whose server answers each request
// with the same bytes, and whose client keeps as many requests in flight as our callers
// do, without callers to give the answers to.
func serveGRPC(b *testing.B, data []byte) (round func(*testing.B)) {
	b.Helper()
	const method = "/agentrun.kv.v1.KvService/Serve"
	stream := grpc.StreamDesc{StreamName: "Serve", ClientStreams: true, ServerStreams: true}
	handled := stream
	handled.Handler = func(_ any, s grpc.ServerStream) error {
		for {
			var req agentv1.KvServerMessage
			if err := s.RecvMsg(&req); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			if err := s.SendMsg(&agentv1.KvClientMessage{
				Id:      req.GetId(),
				Message: &agentv1.KvClientMessage_GetBlobResult{GetBlobResult: &agentv1.GetBlobResult{BlobData: data}},
			}); err != nil {
				return err
			}
		}
	}
	ln := listen(b)
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "agentrun.kv.v1.KvService", Streams: []grpc.StreamDesc{handled}}, nil)
	go server.Serve(ln) //nolint:errcheck // ends with Stop
	b.Cleanup(server.Stop)
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	client, err := conn.NewStream(b.Context(), &stream, method)
	if err != nil {
		b.Fatal(err)
	}
	id := make([]byte, 32)
	return func(b *testing.B) {
		window := make(chan struct{}, inFlight)
		go func() {
			for i := range perRound {
				window <- struct{}{}
				if err := client.SendMsg(&agentv1.KvServerMessage{
					Id:      uint32(i),
					Message: &agentv1.KvServerMessage_GetBlobArgs{GetBlobArgs: &agentv1.GetBlobArgs{BlobId: id}},
				}); err != nil {
					return // the receiver sees it too
				}
			}
		}()
		for range perRound {
			var answer agentv1.KvClientMessage
			if err := client.RecvMsg(&answer); err != nil {
				b.Fatal(err)
			}
			<-window
		}
	}
}
