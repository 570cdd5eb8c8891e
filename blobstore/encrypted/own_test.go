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

// job is what testdata/own.py is asked for.
type job struct {
	vector
	ChunkLog int `json:"chunk_log"`
	Passes   int `json:"passes"`
	Lanes    int `json:"lanes"`
	KiB      int `json:"kib"`
}

// python runs the other implementation of our form.
func python(t *testing.T, verb string, jobs any) []vector {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "python3", "-c", "from cryptography.hazmat.primitives.kdf.argon2 import Argon2id").Run(); err != nil {
		t.Skip("there is no Python with cryptography 44 or later here: only the blobs that are checked in were read")
	}
	stdin, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", "testdata/own.py", verb)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("own.py: %v\n%s", err, stderr.Bytes())
	}
	var vectors []vector
	if err := json.Unmarshal(out, &vectors); err != nil {
		t.Fatal(err)
	}
	return vectors
}

func read(t *testing.T, vectors []vector) {
	t.Helper()
	for _, v := range vectors {
		ref, err := blobref.ParseHex(v.ID)
		if err != nil {
			t.Fatal(err)
		}
		below := memory.New(blobstore.Opaque)
		if err := below.Set(t.Context(), ref, unhex(t, v.Blob)); err != nil {
			t.Fatal(err)
		}
		s := open(t, below, ring(t, v.Passphrase), encrypted.Options{})
		readEveryWay(t, s, ref, unhex(t, v.Plain), "a blob of another implementation")
	}
}

// Version 1 is read for ever: these blobs were made by testdata/own.py.
func TestBlobsOfVersion1AreRead(t *testing.T) {
	text, err := os.ReadFile("testdata/own.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) < 4 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	read(t, vectors)
}

func jobs() []job {
	var all []job
	for i, size := range []int{0, 1, 4095, 4096, 4097, 9000} {
		plain := hex.EncodeToString(random(size, 7))
		all = append(all, job{vector{Passphrase: "Zürich 東京 🔑", Plain: plain}, 12, 1 + i%2, 1 + i%3, 32 + i})
	}
	return all
}

func TestAnotherImplementationWritesWhatIsRead(t *testing.T) {
	read(t, python(t, "make", jobs()))
}

func TestAnotherImplementationReadsWhatIsWritten(t *testing.T) {
	var written []vector
	for _, size := range []int{0, 1, 4095, 4096, 4097, 9000} {
		s := open(t, memory.New(blobstore.Opaque), ring(t, "pass"), encrypted.Options{ChunkBytes: 4 << 10, KDF: encrypted.KDF{Time: 2, Threads: 2, MemoryKiB: 64}})
		data := random(size, 8)
		ref := put(t, s, data)
		written = append(written, vector{"pass", ref.Hex(), hex.EncodeToString(data), hex.EncodeToString(ciphertext(t, s, ref))})
	}
	for i, v := range python(t, "open", written) {
		if v != written[i] {
			t.Errorf("blob %d of %d bytes is read as another", i, len(written[i].Plain)/2)
		}
	}
}
