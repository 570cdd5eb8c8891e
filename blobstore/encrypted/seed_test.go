package encrypted_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/memory"
)

// vector is a blob in the seed's form, as testdata/seed.mjs writes it.
type vector struct {
	Passphrase string `json:"passphrase"`
	ID         string `json:"id"`
	Plain      string `json:"plain"`
	Blob       string `json:"blob"`
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBlobsOfWebCryptoAreRead(t *testing.T) {
	text, err := os.ReadFile("testdata/seed.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) < 20 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	for _, v := range vectors {
		below := memory.New(blobstore.Opaque)
		ref, err := blobref.ParseHex(v.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := below.Set(t.Context(), ref, unhex(t, v.Blob)); err != nil {
			t.Fatal(err)
		}
		// Whatever is written, and whichever of the passphrases it is.
		for _, s := range []*encrypted.Store{
			open(t, below, ring(t, v.Passphrase), encrypted.Options{}),
			open(t, below, ring(t, "a newer one", v.Passphrase), encrypted.Options{Form: encrypted.Seed}),
		} {
			if got, err := s.Get(t.Context(), ref); err != nil || !bytes.Equal(got, unhex(t, v.Plain)) {
				t.Errorf("Get of %s under %q = %d bytes, %v", v.ID, v.Passphrase, len(got), err)
			}
		}
	}
}

func node(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node here: only its vectors that are checked in were read")
	}
	cmd := exec.CommandContext(t.Context(), path, append([]string{"testdata/seed.mjs"}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, stderr.Bytes())
	}
	return out
}

func TestTheVectorsAreThoseOfNode(t *testing.T) {
	fresh := node(t, nil)
	kept, err := os.ReadFile("testdata/seed.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(fresh, kept) {
		t.Error("testdata/seed.json is not what testdata/seed.mjs prints")
	}
}

func TestWebCryptoReadsWhatIsWritten(t *testing.T) {
	const passphrase = "Zürich 東京 🔑"
	s := open(t, memory.New(blobstore.Opaque), ring(t, passphrase), encrypted.Options{Form: encrypted.Seed})
	var vectors []vector
	for _, size := range []int{0, 1, 16, 1000, 70_000} {
		data := random(size, 6)
		ref := put(t, s, data)
		vectors = append(vectors, vector{passphrase, ref.Hex(), hex.EncodeToString(data), hex.EncodeToString(ciphertext(t, s, ref))})
	}
	text, err := json.Marshal(vectors)
	if err != nil {
		t.Fatal(err)
	}
	node(t, text, "open")
}
