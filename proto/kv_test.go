package proto_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/gen/agentrun/kv/v1/kvv1connect"
)

// shelf is a store that is just enough to see the generated code at work.
type shelf struct {
	mu    sync.Mutex
	blobs map[string][]byte // guarded by mu
}

// Serve answers one request after the other.
func (s *shelf) Serve(_ context.Context, stream *connect.BidiStream[agentv1.KvServerMessage, agentv1.KvClientMessage]) error {
	for {
		in, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(s.answer(in)); err != nil {
			return err
		}
	}
}

func (s *shelf) answer(in *agentv1.KvServerMessage) *agentv1.KvClientMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &agentv1.KvClientMessage{Id: in.GetId()}
	if set := in.GetSetBlobArgs(); set != nil {
		s.blobs[string(set.GetBlobId())] = set.GetBlobData()
		out.Message = &agentv1.KvClientMessage_SetBlobResult{SetBlobResult: &agentv1.SetBlobResult{}}
		return out
	}
	result := &agentv1.GetBlobResult{}
	// Present and empty is not absent.
	if data, ok := s.blobs[string(in.GetGetBlobArgs().GetBlobId())]; ok {
		result.BlobData = append([]byte{}, data...)
	}
	out.Message = &agentv1.KvClientMessage_GetBlobResult{GetBlobResult: result}
	return out
}

// nodeKv runs node/kv.mjs, or skips the test.
func nodeKv(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	dir := os.Getenv(nodeEnv)
	if dir == "" {
		t.Skipf("%s is not set: proto/node/prepare makes such a folder", nodeEnv)
	}
	script, err := filepath.Abs("node/kv.mjs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", append([]string{script}, args...)...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	return cmd
}

func TestNodeAsksAStoreServedHere(t *testing.T) {
	id := sha256.Sum256([]byte("hello"))
	empty := sha256.Sum256(nil)
	lines := fmt.Sprintf(`{"id":0,"set":"%x","data":"%x"}`+"\n", id, "hello") +
		fmt.Sprintf(`{"id":1,"get":"%x"}`+"\n", id) +
		fmt.Sprintf(`{"id":2,"get":"%x"}`+"\n", empty) +
		fmt.Sprintf(`{"id":3,"set":"%x","data":""}`+"\n", empty) +
		fmt.Sprintf(`{"id":4294967295,"get":"%x"}`+"\n", empty)
	want := `{"id":0,"set":true}
{"id":1,"data":"68656c6c6f"}
{"id":2,"absent":true}
{"id":3,"set":true}
{"id":4294967295,"data":""}
`
	for _, protocol := range []string{"connect", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			_, handler := kvv1connect.NewKvServiceHandler(&shelf{blobs: map[string][]byte{}})
			server := httptest.NewUnstartedServer(handler)
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Start()
			defer server.Close()
			cmd := nodeKv(t, "ask", protocol, server.URL)
			cmd.Stdin = strings.NewReader(lines)
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, string(out)); diff != "" {
				t.Errorf("node was answered (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAStoreServedByNodeIsAskedFromHere(t *testing.T) {
	cmd := nodeKv(t, "serve")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	id := sha256.Sum256([]byte("hello"))
	for name, options := range map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}} {
		t.Run(name, func(t *testing.T) {
			client := kvv1connect.NewKvServiceClient(&http.Client{Transport: transport}, "http://"+strings.TrimSpace(address), options...)
			stream := client.Serve(t.Context())
			ask := func(question *agentv1.KvServerMessage) *agentv1.KvClientMessage {
				t.Helper()
				if err := stream.Send(question); err != nil {
					t.Fatal(err)
				}
				answer, err := stream.Receive()
				if err != nil {
					t.Fatal(err)
				}
				return answer
			}
			set := ask(&agentv1.KvServerMessage{Message: &agentv1.KvServerMessage_SetBlobArgs{SetBlobArgs: &agentv1.SetBlobArgs{BlobId: id[:], BlobData: []byte("hello")}}})
			if want := (&agentv1.KvClientMessage{Message: &agentv1.KvClientMessage_SetBlobResult{SetBlobResult: &agentv1.SetBlobResult{}}}); !proto.Equal(set, want) {
				t.Errorf("a set was answered with %v", set)
			}
			got := ask(&agentv1.KvServerMessage{Id: 7, Message: &agentv1.KvServerMessage_GetBlobArgs{GetBlobArgs: &agentv1.GetBlobArgs{BlobId: id[:]}}})
			if got.GetId() != 7 || string(got.GetGetBlobResult().GetBlobData()) != "hello" {
				t.Errorf("a get was answered with %v", got)
			}
			absent := ask(&agentv1.KvServerMessage{Id: 8, Message: &agentv1.KvServerMessage_GetBlobArgs{GetBlobArgs: &agentv1.GetBlobArgs{BlobId: make([]byte, 32)}}})
			if absent.GetGetBlobResult() == nil || absent.GetGetBlobResult().BlobData != nil {
				t.Errorf("a get of what is not there was answered with %v", absent)
			}
			wrong := ask(&agentv1.KvServerMessage{Id: 9, Message: &agentv1.KvServerMessage_SetBlobArgs{SetBlobArgs: &agentv1.SetBlobArgs{BlobId: id[:], BlobData: []byte("other")}}})
			if wrong.GetSetBlobResult().GetError().GetMessage() == "" {
				t.Errorf("a set under a wrong id (%s) was answered with %v", hex.EncodeToString(id[:4]), wrong)
			}
			if err := stream.CloseRequest(); err != nil {
				t.Error(err)
			}
			if err := stream.CloseResponse(); err != nil {
				t.Error(err)
			}
		})
	}
}
