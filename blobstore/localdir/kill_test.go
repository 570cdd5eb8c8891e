package localdir_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
)

// numbered is blob i of the kill test; some are streamed, all differ.
func numbered(i int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "blob %d. ", i), 1+i%7*6000)
}

// TestKilledWritersLeaveNoWrongBlob kills two processes that write the same blobs,
// each time after some number of acknowledgements.
func TestKilledWritersLeaveNoWrongBlob(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	dir := filepath.Join(t.TempDir(), "blobs")
	acked := make(map[blobref.Ref]bool)
	for range rounds {
		first := startWriter(t, dir)
		second := startWriter(t, dir)
		for range 1 + rand.IntN(40) {
			for _, w := range []*bufio.Scanner{first.acks, second.acks} {
				if !w.Scan() {
					t.Fatalf("a writer ended by itself: %v", w.Err())
				}
				ref, err := blobref.Parse(w.Text())
				if err != nil {
					t.Fatal(err)
				}
				acked[ref] = true
			}
		}
		for _, w := range []writer{first, second} {
			if err := w.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := w.cmd.Wait(); !errors.As(err, &exit) || exit.Exited() {
				t.Fatalf("the writer was not killed: %v", err)
			}
		}

		s := open(t, dir, localdir.Options{})
		for info, err := range s.Walk(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if data, err := os.ReadFile(filepath.Join(dir, info.Ref.Hex())); err != nil || !info.Ref.Verify(data) {
				t.Fatalf("%v holds %d wrong bytes, %v", info.Ref, len(data), err)
			}
		}
		for ref := range acked {
			if _, err := s.Get(t.Context(), ref); err != nil {
				t.Fatalf("an acknowledged blob is gone: %v", err)
			}
		}
	}
}

type writer struct {
	cmd  *exec.Cmd
	acks *bufio.Scanner
}

func startWriter(t *testing.T, dir string) writer {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWriteUntilKilled$")
	cmd.Env = append(os.Environ(), "LOCALDIR_WRITE_UNTIL_KILLED="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return writer{cmd, bufio.NewScanner(out)}
}

func TestWriteUntilKilled(t *testing.T) {
	dir := os.Getenv("LOCALDIR_WRITE_UNTIL_KILLED")
	if dir == "" {
		t.Skip("runs only as a child of TestKilledWritersLeaveNoWrongBlob")
	}
	s := open(t, dir, localdir.Options{})
	for i := 0; ; i++ {
		var ref blobref.Ref
		var err error
		if data := numbered(i); i%2 == 0 {
			ref, err = blobstore.Put(t.Context(), s, data)
		} else {
			ref, _, err = s.Put(t.Context(), bytes.NewReader(data))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Println(ref); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoDescriptorIsLeft(t *testing.T) {
	descriptors := func() int {
		t.Helper()
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skipf("descriptors cannot be counted here: %v", err)
		}
		return len(entries)
	}
	ctx := t.Context()
	s := open(t, filepath.Join(t.TempDir(), "blobs"), localdir.Options{MaxGetBytes: 4096})
	round := func() {
		t.Helper()
		plant(t, s, blobName, damage)
		_, corrupt := s.Get(ctx, blobName)
		_, absent := s.Get(ctx, blobName)
		plant(t, s, blobName, damage)
		healed := s.Set(ctx, blobName, blobData)
		_, _, streamed := s.Put(ctx, bytes.NewReader(bigData))
		_, large := s.Get(ctx, bigName)
		_, negative := s.GetRange(ctx, bigName, -1, 1)
		_, part := s.GetRange(ctx, bigName, 1, 1)
		b, opened := s.Open(ctx, bigName)
		if err := errors.Join(healed, streamed, part, opened); err != nil {
			t.Fatal(err)
		}
		if corrupt == nil || absent == nil || large == nil || negative == nil {
			t.Fatalf("no error: %v, %v, %v, %v", corrupt, absent, large, negative)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	round()
	before := descriptors()
	for range 20 {
		round()
	}
	if after := descriptors(); after > before {
		t.Errorf("%d descriptors were open, now %d", before, after)
	}
}
