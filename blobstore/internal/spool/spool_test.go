package spool_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"testing/iotest"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/internal/spool"
)

func TestAStreamIsHeldWholeAndItsFileHasNoName(t *testing.T) {
	for _, size := range []int{0, 1, spool.MaxMemory - 1, spool.MaxMemory, spool.MaxMemory + 1, 3<<20 + 7} {
		dir, data := t.TempDir(), bytes.Repeat([]byte("0123456789abcdef7"), size/17+1)[:size]
		s, err := spool.Read(t.Context(), iotest.HalfReader(bytes.NewReader(data)), dir, int64(size))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		if s.Size() != int64(size) || s.Ref() != blobref.Of(data) {
			t.Errorf("%d bytes became %d, %v", size, s.Size(), s.Ref())
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
			t.Errorf("the directory holds %v, %v", names, err)
		}
		if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if size > 1 && size != spool.MaxMemory+1 {
			continue
		}
		if _, err := s.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if err := iotest.TestReader(s, data); err != nil {
			t.Error(err)
		}
	}
}

func TestAStreamOverItsLimitOrCutOffIsRefused(t *testing.T) {
	data := make([]byte, 2<<20)
	if _, err := spool.Read(t.Context(), bytes.NewReader(data), t.TempDir(), int64(len(data))-1); !errors.Is(err, blobstore.ErrTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
	broken := io.MultiReader(bytes.NewReader(data), iotest.ErrReader(io.ErrUnexpectedEOF))
	if _, err := spool.Read(t.Context(), broken, t.TempDir(), 1<<30); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut off: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := spool.Read(ctx, bytes.NewReader(data), t.TempDir(), 1<<30); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := spool.Read(t.Context(), bytes.NewReader(data), t.TempDir()+"/none", 1<<30); err == nil {
		t.Error("a directory that is not there was written to")
	}
}
