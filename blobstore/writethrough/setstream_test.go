package writethrough_test

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
	"github.com/agentrun/agentrun/blobstore/writethrough"
)

func TestAStreamReachesTheRemote(t *testing.T) {
	modes(t, func(t *testing.T, mode blobstore.Mode, _ []storetest.Option) {
		local, remote := memory.New(mode), memory.New(mode)
		s := open(t, local, remote, filepath.Join(t.TempDir(), "queue"), writethrough.Options{})
		data := bytes.Repeat([]byte("bytes"), 1000)
		ref := blobref.Of(data)
		if err := s.SetStream(t.Context(), ref, bytes.NewReader(data), int64(len(data))); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, store := range map[string]blobstore.Store{"local": local, "remote": remote} {
			if got, err := store.Get(t.Context(), ref); err != nil || !bytes.Equal(got, data) {
				t.Errorf("the %s store has %d bytes, %v", name, len(got), err)
			}
		}
	})
}

// storing is a local store that calls meanwhile before it stores.
type storing struct {
	*memory.Store
	meanwhile func()
}

func (s *storing) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	s.meanwhile()
	return s.Store.Set(ctx, ref, data)
}

func (s *storing) SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) error {
	s.meanwhile()
	return s.Store.SetStream(ctx, ref, r, size)
}

// fetched is a remote store that tells when a blob was got from it.
type fetched struct {
	*memory.Store
	got chan struct{}
}

func (s *fetched) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	defer func() { s.got <- struct{}{} }()
	return s.Store.Get(ctx, ref)
}

func TestWhatWasFetchedMeanwhileReplacesNothingThatWasStored(t *testing.T) {
	id := blobref.Of([]byte("id"))
	for name, store := range map[string]func(s *writethrough.Store) error{
		"Set": func(s *writethrough.Store) error { return s.Set(t.Context(), id, []byte("new")) },
		"SetStream": func(s *writethrough.Store) error {
			return s.SetStream(t.Context(), id, bytes.NewReader([]byte("new")), 3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			local := &storing{Store: memory.New(blobstore.Opaque)}
			remote := &fetched{Store: memory.New(blobstore.Opaque), got: make(chan struct{}, 10)}
			if err := remote.Set(t.Context(), id, []byte("old")); err != nil {
				t.Fatal(err)
			}
			s := open(t, local, remote, filepath.Join(t.TempDir(), "queue"), writethrough.Options{})
			early := make(chan struct{})
			local.meanwhile = func() {
				go func() {
					defer close(early)
					_, _ = s.Get(t.Context(), id)
				}()
				<-remote.got // the old bytes, which are to be kept here
			}
			if err := store(s); err != nil {
				t.Fatal(err)
			}
			<-early
			if got, err := s.Get(t.Context(), id); err != nil || string(got) != "new" {
				t.Errorf("Get = %q, %v after new was stored", got, err)
			}
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, err := remote.Get(t.Context(), id); err != nil || string(got) != "new" {
				t.Errorf("the remote has %q, %v after new was stored and flushed", got, err)
			}
		})
	}
}
