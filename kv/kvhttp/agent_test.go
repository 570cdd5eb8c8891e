package kvhttp_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/gen/agent/v1/service/agentservicev1connect"
	"github.com/agentrun/agentrun/kv"
	"github.com/agentrun/agentrun/kv/kvhttp"
)

// In AgentService.Run the side that was dialled asks for blobs, beside everything
// else that an agent's stream is about.

func TestAStoreWithinTheStreamOfAnAgent(t *testing.T) {
	// The server of a model, ours: it asks whoever dials for blobs.
	remotes := make(chan *kv.Remote)
	var updates atomic.Int64
	handler := kvhttp.NewHandler(func(ctx context.Context, run kv.Stream) error {
		inner := kv.InAgentServer(run, func(message []byte) error {
			var m agentv1.AgentClientMessage
			if err := proto.Unmarshal(message, &m); err != nil || m.GetClientHeartbeat() == nil {
				t.Errorf("the client said %v, %v; want a heartbeat", &m, err)
			}
			updates.Add(1)
			return nil
		})
		r := kv.NewRemote(kv.Once(inner), kv.RemoteOptions{})
		select {
		case remotes <- r:
			<-ctx.Done()
		case <-ctx.Done():
		}
		return r.Close()
	}, kv.MaxMessage(0), "")
	mux := http.NewServeMux()
	mux.Handle(kvhttp.AgentPath, handler)
	address := serveHTTP(t, mux, nil)

	t.Run("ours dials", func(t *testing.T) {
		dialer, err := kvhttp.NewDialer(address, kvhttp.AgentPath, kv.MaxMessage(0), kvhttp.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		storetest.Run(t, func() blobstore.Store {
			run, err := dialer.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			inner := kv.InAgentClient(run, func([]byte) error { return errors.New("nothing else was sent") })
			served := make(chan error, 1)
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				served <- kv.NewControlled(memory.New(blobstore.Verified), kv.ControlledOptions{}).Serve(ctx, inner)
			}()
			heartbeat, err := proto.Marshal(&agentv1.AgentClientMessage{Message: &agentv1.AgentClientMessage_ClientHeartbeat{ClientHeartbeat: &agentv1.ClientHeartbeat{}}})
			if err == nil {
				err = inner.SendOther(heartbeat)
			}
			if err != nil {
				t.Error(err)
			}
			t.Cleanup(func() {
				cancel()
				<-served
			})
			return <-remotes
		}, storetest.NotLocal())
		if updates.Load() == 0 {
			t.Error("no heartbeat came")
		}
	})

	t.Run("another client dials", func(t *testing.T) {
		for name, opts := range map[string][]connect.ClientOption{"Connect": nil, "gRPC": {connect.WithGRPC()}} {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stream := agentservicev1connect.NewAgentServiceClient(h2cClient(t), address, opts...).Run(ctx)
				if err := stream.Send(&agentv1.AgentClientMessage{Message: &agentv1.AgentClientMessage_ClientHeartbeat{ClientHeartbeat: &agentv1.ClientHeartbeat{}}}); err != nil {
					t.Fatal(err)
				}
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					answer := mapAnswerer()
					for {
						m, err := stream.Receive()
						if err != nil {
							return
						}
						asked := m.GetKvServerMessage()
						if err := stream.Send(&agentv1.AgentClientMessage{Message: &agentv1.AgentClientMessage_KvClientMessage{KvClientMessage: answer(asked)}}); err != nil {
							return
						}
					}
				}()
				checkStore(t, <-remotes)
				// The standard library notices a cancelled context when nothing more is to be
				// sent.
				if err := stream.CloseRequest(); err != nil {
					t.Error(err)
				}
				cancel()
				<-answered
			})
		}
	})
}

// checkStore stores a blob and gets it back.
func checkStore(t *testing.T, store blobstore.Store) {
	t.Helper()
	data := []byte("blob")
	if _, err := store.Get(t.Context(), blobref.Of(data)); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Get of what is not there = %v", err)
	}
	if err := store.Set(t.Context(), blobref.Of(data), data); err != nil {
		t.Errorf("Set = %v", err)
	}
	if got, err := store.Get(t.Context(), blobref.Of(data)); err != nil || string(got) != "blob" {
		t.Errorf("Get = %q, %v", got, err)
	}
}

// otherAgent is a server of agent.v1 that others made: it asks for a blob, and says
// other things before and after.
type otherAgent struct {
	agentservicev1connect.UnimplementedAgentServiceHandler
	ask      []*agentv1.AgentServerMessage
	answered chan *agentv1.AgentClientMessage
}

func (s otherAgent) Run(_ context.Context, stream *connect.BidiStream[agentv1.AgentClientMessage, agentv1.AgentServerMessage]) error {
	if _, err := stream.Receive(); err != nil { // the heartbeat with which the client begins
		return err
	}
	for _, m := range s.ask {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	for {
		m, err := stream.Receive()
		if err != nil {
			return nil //nolint:nilerr // the client has ended
		}
		s.answered <- m
	}
}

func TestAnotherAgentServerAsksOurs(t *testing.T) {
	store := memory.New(blobstore.Verified)
	ref, err := store.PutBytes(t.Context(), []byte("blob"))
	if err != nil {
		t.Fatal(err)
	}
	update := &agentv1.AgentServerMessage{Message: &agentv1.AgentServerMessage_InteractionUpdate{InteractionUpdate: &agentv1.InteractionUpdate{}}}
	server := otherAgent{
		ask: []*agentv1.AgentServerMessage{
			update,
			{},
			{Message: &agentv1.AgentServerMessage_KvServerMessage{KvServerMessage: askGet(0, ref)}},
			update,
		},
		answered: make(chan *agentv1.AgentClientMessage, 1),
	}
	mux := http.NewServeMux()
	mux.Handle(agentservicev1connect.NewAgentServiceHandler(server))
	address := serveHTTP(t, mux, nil)
	for _, protocol := range protocols {
		t.Run(protocol.String(), func(t *testing.T) {
			dialer, err := kvhttp.NewDialer(address, kvhttp.AgentPath, kv.MaxMessage(0), kvhttp.DialOptions{Protocol: protocol})
			if err != nil {
				t.Fatal(err)
			}
			run, err := dialer.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			others := make(chan []byte, 10)
			inner := kv.InAgentClient(run, func(message []byte) error {
				others <- append([]byte(nil), message...)
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- kv.NewControlled(store, kv.ControlledOptions{}).Serve(ctx, inner) }()
			heartbeat, err := proto.Marshal(&agentv1.AgentClientMessage{Message: &agentv1.AgentClientMessage_ClientHeartbeat{ClientHeartbeat: &agentv1.ClientHeartbeat{}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := inner.SendOther(heartbeat); err != nil {
				t.Fatal(err)
			}
			answer := <-server.answered
			if got := answer.GetKvClientMessage(); got == nil || got.GetId() != 0 || string(got.GetGetBlobResult().BlobData) != "blob" {
				t.Errorf("answered %v", answer)
			}
			for i, want := range []bool{true, false, true} {
				var m agentv1.AgentServerMessage
				if err := proto.Unmarshal(<-others, &m); err != nil || (m.GetInteractionUpdate() != nil) != want {
					t.Errorf("message %d beside the blobs: %v, %v", i, &m, err)
				}
			}
			cancel()
			<-served
		})
	}
}
