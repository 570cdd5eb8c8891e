package encrypted_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/localdir"
)

// rounds is how often a rotation is killed: AGENTRUN_TEST_ROUNDS, else few enough for
// every day.
func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("AGENTRUN_TEST_ROUNDS")); err == nil {
		return n
	}
	return 6
}

// passphraseOf is the newest passphrase of a round; those of the two before go with it.
func passphraseOf(t *testing.T, round int) *encrypted.Keyring {
	return ring(t, fmt.Sprint("round ", round), fmt.Sprint("round ", round-1), fmt.Sprint("round ", round-2))
}

func openDir(t *testing.T, dir string, keys *encrypted.Keyring, opts encrypted.Options) *encrypted.Store {
	t.Helper()
	below, err := localdir.Open(dir, localdir.Options{Mode: blobstore.Opaque})
	if err != nil {
		t.Fatal(err)
	}
	return open(t, below, keys, opts)
}

func TestAKilledRotationLosesNothingAndGoesOn(t *testing.T) {
	if dir := os.Getenv("ENCRYPTED_ROTATE_UNTIL_KILLED"); dir != "" {
		rotateUntilKilled(t, dir)
		return
	}
	dir := t.TempDir() + "/store"
	blobs := make(map[blobref.Ref][]byte)
	first := openDir(t, dir, passphraseOf(t, 0), encrypted.Options{Form: encrypted.Seed})
	for i := range 60 {
		data := random(i*500, 30)
		blobs[put(t, first, data)] = data
	}
	for round := 1; round <= rounds(); round++ {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAKilledRotationLosesNothingAndGoesOn$")
		cmd.Env = append(os.Environ(), "ENCRYPTED_ROTATE_UNTIL_KILLED="+dir, "ENCRYPTED_ROUND="+strconv.Itoa(round))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// It says when each blob is done; the kill comes at one of them, or between two.
		lines := bufio.NewScanner(out)
		for n := rand.IntN(60); n >= 0 && lines.Scan(); n-- {
		}
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		_ = cmd.Wait()

		s := openDir(t, dir, passphraseOf(t, round), encrypted.Options{KeyedIDs: round > 2})
		holds(t, s, blobs)
		data := random(1000+round, 31)
		blobs[put(t, s, data)] = data
		if round%2 == 0 { // else the next one finds what was left half done
			if done, err := s.Rotate(t.Context(), nil); err != nil {
				t.Fatalf("Rotate after a kill = %+v, %v", done, err)
			}
			holds(t, openDir(t, dir, ring(t, fmt.Sprint("round ", round)), encrypted.Options{}), blobs)
		}
	}
}

func rotateUntilKilled(t *testing.T, dir string) {
	round, err := strconv.Atoi(os.Getenv("ENCRYPTED_ROUND"))
	if err != nil {
		t.Fatal(err)
	}
	s := openDir(t, dir, passphraseOf(t, round), encrypted.Options{KeyedIDs: round > 2})
	if _, err := s.Rotate(t.Context(), func(encrypted.Rotation) { fmt.Println("one") }); err != nil {
		t.Fatal(err)
	}
}

func TestAKeyringOfTheNextProcessOpensWhatWasStored(t *testing.T) {
	dir := t.TempDir() + "/store"
	for i := range 3 {
		s := openDir(t, dir, passphraseOf(t, i), encrypted.Options{})
		data := random(100, byte(i))
		ref := put(t, s, data)
		for j := i; j < i+3; j++ { // rotated keyrings, and no Rotate
			if got, err := openDir(t, dir, passphraseOf(t, j), encrypted.Options{}).Get(t.Context(), ref); err != nil || !bytes.Equal(got, data) {
				t.Errorf("Get with the keyring of %d of what %d stored = %v", j, i, err)
			}
		}
	}
}
