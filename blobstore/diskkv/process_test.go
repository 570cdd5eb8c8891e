package diskkv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/diskkv"
)

// counts is how often each of those who count moves the pointer on.
const counts = 100

func isConflict(err error) bool { return errors.Is(err, diskkv.ErrConflict) }

// countOne stores the number behind the one that the pointer leads to, and moves it.
func countOne(ctx context.Context, s *diskkv.Store) error {
	n := 0
	p, err := s.Checkpoint(ctx, "count")
	if err == nil {
		var data []byte
		if data, err = s.Get(ctx, p.Ref); err == nil {
			n, err = strconv.Atoi(string(data))
		}
	} else if errors.Is(err, diskkv.ErrNoRecord) {
		err = nil
	}
	if err != nil {
		return err
	}
	data := strconv.AppendInt(nil, int64(n+1), 10)
	ref := blobref.Of(data)
	if err := s.Set(ctx, ref, data); err != nil {
		return err
	}
	return s.SetCheckpoint(ctx, "count", p.Ref, ref)
}

func TestTwoProcessesLoseNoneOfTheOthersCheckpoints(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.vscdb")
	first, _, _ := other(t, "counter", path)
	second, _, _ := other(t, "counter", path)
	s := open(t, path, diskkv.Options{})
	for n := 0; n < counts; {
		if err := countOne(t.Context(), s); err == nil {
			n++
		} else if !isConflict(err) {
			t.Fatal(err)
		}
	}
	for _, err := range []error{first.Wait(), second.Wait()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p, err := s.Checkpoint(t.Context(), "count")
	if err != nil {
		t.Fatal(err)
	}
	if data, err := s.Get(t.Context(), p.Ref); err != nil || string(data) != fmt.Sprint(3*counts) {
		t.Errorf("three who count to %d each came to %q, %v", counts, data, err)
	}
	n := 0
	for _, err := range s.History(t.Context(), "count") {
		if n++; err != nil {
			t.Error(err)
		}
	}
	if n != 3*counts {
		t.Errorf("the history has %d lines, want %d", n, 3*counts)
	}
	wantSound(t, s)
}

// wantSound fails when Verify finds something.
func wantSound(t *testing.T, s *diskkv.Store) {
	t.Helper()
	for f, err := range s.Verify(t.Context()) {
		t.Errorf("Verify found %q: %v; %v", f.Key, f.Err, err)
	}
}

func TestKilledWritersLoseNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	path := filepath.Join(t.TempDir(), "state.vscdb")
	acked, last := make(map[string]string), make(map[string]string)
	for round := range rounds {
		first, firstAcks, _ := other(t, "writer", path)
		second, secondAcks, _ := other(t, "writer", path)
		for range 1 + round*9 {
			for _, acks := range []interface {
				Scan() bool
				Text() string
			}{firstAcks, secondAcks} {
				if !acks.Scan() {
					t.Fatal("a writer ended by itself")
				}
				var name, ref string
				if _, err := fmt.Sscan(acks.Text(), &name, &ref); err != nil {
					t.Fatal(err)
				}
				acked[ref], last[name] = name, ref
			}
		}
		for _, cmd := range []interface{ Wait() error }{kill(t, first), kill(t, second)} {
			if err := cmd.Wait(); err == nil {
				t.Fatal("a writer ended by itself")
			}
		}
		s := open(t, path, diskkv.Options{})
		for text := range acked {
			ref, err := blobref.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get(t.Context(), ref); err != nil {
				t.Fatalf("an acknowledged blob is gone: %v", err)
			}
		}
		for name, text := range last {
			// What was not acknowledged any more may be there, too.
			seen := false
			for p, err := range s.History(t.Context(), name) {
				if err != nil {
					t.Fatal(err)
				}
				seen = seen || p.Ref.String() == text
			}
			if p, err := s.Checkpoint(t.Context(), name); err != nil || !seen {
				t.Fatalf("an acknowledged checkpoint is gone: %+v, %v", p, err)
			}
		}
		wantSound(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func kill(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestClosingOneStoreOfAFileLeavesTheLocksOfTheOther(t *testing.T) {
	path := temp(t)
	s := open(t, path, diskkv.Options{})
	ref, err := s.PutBytes(t.Context(), inLog)
	if err != nil {
		t.Fatal(err)
	}
	locked := func() string {
		t.Helper()
		cmd, out, _ := other(t, "locks", path)
		if !out.Scan() {
			t.Fatal("no answer")
		}
		text := out.Text()
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		return text
	}
	if locked() != "true" {
		t.Fatal("an open store holds no lock")
	}
	for _, opts := range []diskkv.Options{{}, {ReadOnly: true}} {
		second := open(t, path, opts)
		if _, err := second.Get(t.Context(), ref); err != nil {
			t.Error(err)
		}
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := diskkv.Open(t.Context(), path, diskkv.Options{Mode: blobstore.Opaque}); !errors.Is(err, blobstore.ErrMode) {
			t.Errorf("Open in the other mode = %v", err)
		}
		if locked() != "true" {
			t.Fatalf("%+v: the locks are gone", opts)
		}
	}
}

func TestATransactionThatItsProgramDidNotEndIsNotRead(t *testing.T) {
	path := temp(t)
	foreign(t, path, []foreignRow{{ref: blobref.Of(inLog), value: inLog}})
	cmd, _, _ := other(t, "interrupted", path)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path + "-journal"); err != nil || info.Size() == 0 {
		t.Fatalf("no transaction was left: %v", err)
	}
	before := snapshot(t, filepath.Dir(path))
	s, _, err := diskkv.Open(t.Context(), path, diskkv.Options{})
	if err == nil {
		_, err = s.Get(t.Context(), blobref.Of(inLog))
		t.Logf("Get = %v, Close = %v", err, s.Close())
	}
	t.Log(err)
	if !errors.Is(err, diskkv.ErrUnfinished) {
		t.Errorf("it was read: %v", err)
	}
	if after := snapshot(t, filepath.Dir(path)); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
	// Its own program, or SQLite's, takes the transaction back.
	if err := execute(t, path, "DELETE FROM cursorDiskKV WHERE key = '1'"); err != nil {
		t.Fatal(err)
	}
	if got, err := open(t, path, diskkv.Options{}).Get(t.Context(), blobref.Of(inLog)); err != nil || !bytes.Equal(got, inLog) {
		t.Errorf("Get = %q, %v", got, err)
	}
}
