package kvhttp_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
	"github.com/agentrun/agentrun/kv/kvhttp"
)

// nodeEnv names a folder that proto/node/prepare made: Connect for node, and what
// protoc-gen-es makes of the messages.
const nodeEnv = "AGENTRUN_NODE_DIR"

// node runs proto/node/kv.mjs, or skips the test.
func node(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	dir := os.Getenv(nodeEnv)
	if dir == "" {
		t.Skipf("%s is not set: proto/node/prepare makes such a folder", nodeEnv)
	}
	script, err := filepath.Abs("../../proto/node/kv.mjs")
	if err != nil {
		t.Fatal(err)
	}
	// It outlives the context of the test, whose stores are closed before it is.
	cmd := exec.Command("node", append([]string{script}, args...)...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	return cmd
}

// TestAStoreServedByNodeIsAStore: Remote against the server of Connect for node.
func TestAStoreServedByNodeIsAStore(t *testing.T) {
	cmd := node(t, "serve")
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
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	stores := 0
	for _, protocol := range protocols {
		t.Run(fmt.Sprintf("protocol %d", protocol), func(t *testing.T) {
			storetest.Run(t, func() blobstore.Store {
				stores++
				return dial(t, fmt.Sprintf("http://%s/%d", strings.TrimSpace(address), stores), kvhttp.DialOptions{Protocol: protocol})
			}, storetest.NotLocal())
		})
	}
}

// TestNodeAsksForManyBlobsAtOnce: the client of Connect for node, over both protocols, and
// that of gRPC itself, with hundreds of requests on their way: sets, gets of what was set before, of what is not there,
// and ids that are none.
func TestNodeAsksForManyBlobsAtOnce(t *testing.T) {
	store := memory.New(blobstore.Verified)
	const blobs = 300
	var ids []string
	for i := range blobs {
		data := []byte(strings.Repeat("x", i*37))
		ref := blobref.Of(data)
		if err := store.Set(t.Context(), ref, data); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, ref.Hex())
	}
	address := serve(t, store, kvhttp.ServeOptions{})
	for _, protocol := range []string{"connect", "grpc", "grpc-js"} {
		t.Run(protocol, func(t *testing.T) {
			var requests strings.Builder
			for i, id := range ids {
				fmt.Fprintf(&requests, "{\"id\":%d,\"get\":%q}\n", i, id)
			}
			fmt.Fprintf(&requests, "{\"id\":%d,\"get\":%q}\n", blobs, strings.Repeat("00", 32))
			fmt.Fprintf(&requests, "{\"id\":%d,\"get\":\"abcd\"}\n", blobs+1)
			fresh := []byte("set over " + protocol)
			sum := sha256.Sum256(fresh)
			fmt.Fprintf(&requests, "{\"id\":%d,\"set\":\"%x\",\"data\":\"%x\"}\n", blobs+2, sum, fresh)
			fmt.Fprintf(&requests, "{\"id\":%d,\"set\":\"%x\",\"data\":\"00\"}\n", blobs+3, sum)
			cmd := node(t, "ask", protocol, address)
			cmd.Stdin = strings.NewReader(requests.String())
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			type answer struct {
				ID     int     `json:"id"`
				Data   *string `json:"data"`
				Absent bool    `json:"absent"`
				Set    bool    `json:"set"`
				Error  string  `json:"error"`
			}
			answers := map[int]answer{}
			for line := range strings.Lines(string(out)) {
				var a answer
				if err := json.Unmarshal([]byte(line), &a); err != nil {
					t.Fatal(err)
				}
				if _, twice := answers[a.ID]; twice {
					t.Errorf("%d was answered twice", a.ID)
				}
				answers[a.ID] = a
			}
			if len(answers) != blobs+4 {
				t.Errorf("%d answers to %d requests", len(answers), blobs+4)
			}
			for i := range blobs {
				want := hex.EncodeToString([]byte(strings.Repeat("x", i*37)))
				if got := answers[i].Data; got == nil || *got != want {
					t.Errorf("get %d was answered with %+v", i, answers[i])
				}
			}
			for _, i := range []int{blobs, blobs + 1} {
				if a := answers[i]; !a.Absent || a.Error != "" {
					t.Errorf("a get of nothing, %d, was answered with %+v", i, a)
				}
			}
			if a := answers[blobs+2]; !a.Set || a.Error != "" {
				t.Errorf("a set was answered with %+v", a)
			}
			if data, err := store.Get(t.Context(), blobref.Of(fresh)); err != nil || string(data) != string(fresh) {
				t.Errorf("what node set is %q, %v", data, err)
			}
			if a := answers[blobs+3]; !a.Set || a.Error == "" {
				t.Errorf("a set under another id was answered with %+v", a)
			}
		})
	}
}
