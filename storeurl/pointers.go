package storeurl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/diskkv"
	"github.com/agentrun/agentrun/blobstore/s3store"
	"github.com/agentrun/agentrun/conversation/pointers"
	"github.com/agentrun/agentrun/conversation/pointers/diskkvpointers"
	"github.com/agentrun/agentrun/conversation/pointers/s3pointers"
)

const (
	// checkpointsName is where a directory or a bucket has its pointers: beside its blobs, and no blob.
	checkpointsName = ".checkpoints"
	// homeMark is a file that a home of agentrun has.
	homeMark = "agentrun.home"
)

// Pointers are the pointers of conversations that are beside the blobs of a store.
type Pointers struct {
	// Local are those of the store itself, nil where a store of its kind has none.
	Local pointers.Pointers
	// Remote are those beside the blobs of its remote, nil without one that has any.
	Remote pointers.Pointers
}

// Pointers returns the pointers that are beside the blobs of a store. They are where agents look for them in a diskkv
// file, in a folder of their own in a dir and an s3 bucket, in the home where a dir is that of the blobs of one; a mem has
// those that were set since it was opened. Servers of blobs have none: the error matches blobstore.ErrUnsupported. They
// are open as long as the store.
func (s *Stack) Pointers() (p Pointers, err error) {
	if p.Local, err = s.pointersOf(s.url, s.Base); err != nil {
		return p, err
	}
	if s.url.Remote != nil {
		p.Remote, err = s.pointersOf(*s.url.Remote, s.remoteBase)
		if errors.Is(err, blobstore.ErrUnsupported) {
			err = nil
		}
	}
	return p, err
}

// isOfHome reports whether a directory is that of the blobs of a home.
func isOfHome(place string) bool {
	_, err := os.Lstat(filepath.Join(filepath.Dir(filepath.Clean(place)), homeMark))
	return err == nil && filepath.Base(place) == "blobs"
}

func (s *Stack) pointersOf(u URL, base blobstore.Store) (pointers.Pointers, error) {
	switch u.Kind {
	case Dir:
		if isOfHome(u.Place) {
			return pointers.OpenDir(pointers.DirOf(filepath.Dir(filepath.Clean(u.Place))), pointers.DirOptions{}), nil // where gc looks for them
		}
		return pointers.OpenDir(filepath.Join(u.Place, checkpointsName), pointers.DirOptions{}), nil
	case DiskKV:
		if file, ok := base.(*diskkv.Store); ok {
			return diskkvpointers.New(file), nil
		}
	case S3:
		bucket, prefix, _ := strings.Cut(u.Place, "/")
		objects, err := s3store.OpenObjects(s3store.Options{
			Endpoint: u.Endpoint, Region: u.Region, Bucket: bucket, Prefix: strings.TrimPrefix(prefix+"/"+checkpointsName, "/"),
			TLS: s.opts.TLS, Credentials: s.opts.credentials(),
		})
		if err != nil {
			return nil, fmt.Errorf("opening the checkpoints of %s: %w", u, err)
		}
		s.close = append(s.close, objects.Close)
		return s3pointers.New(objects), nil
	case Memory:
		return &s.memory, nil
	}
	return nil, fmt.Errorf("opening the checkpoints of %s: %w: it has blobs alone; dir:, diskkv: and s3: have them", u, blobstore.ErrUnsupported)
}

// Get returns a pointer: that of the store, else that of its remote.
func (p Pointers) Get(ctx context.Context, conversation, bubble string) (pointers.Pointer, error) {
	found, err := p.Local.Get(ctx, conversation, bubble)
	if p.Remote != nil && errors.Is(err, pointers.ErrNotFound) {
		return p.Remote.Get(ctx, conversation, bubble)
	}
	return found, err
}

// List yields the pointers of the store, and those that only its remote has.
func (p Pointers) List(ctx context.Context) iter.Seq2[pointers.Pointer, error] {
	return func(yield func(pointers.Pointer, error) bool) {
		type name struct{ conversation, bubble string }
		seen := map[name]bool{}
		for one, err := range p.Local.List(ctx) {
			seen[name{one.Conversation, one.Bubble}] = true
			if !yield(one, err) {
				return
			}
		}
		if p.Remote == nil {
			return
		}
		for one, err := range p.Remote.List(ctx) {
			if err == nil && seen[name{one.Conversation, one.Bubble}] {
				continue
			}
			if !yield(one, err) {
				return
			}
		}
	}
}

// Push makes the pointers of a conversation beside the remote what they are beside the store. The blobs have to be there:
// see Flush. Where the remote's latest state is one that was never set here, somebody else has set it, and the error
// matches pointers.ErrConflict.
func (p Pointers) Push(ctx context.Context, conversation string) error {
	if p.Remote == nil {
		return nil
	}
	was := map[blobref.Ref]bool{{}: true}
	for one, err := range p.Local.History(ctx, conversation) {
		if errors.Is(err, pointers.ErrDamaged) {
			continue // what can be read may be enough
		}
		if err != nil {
			return err
		}
		was[one.Ref] = true
	}
	for one, err := range p.Local.List(ctx) {
		if err != nil || one.Conversation != conversation {
			continue // of others
		}
		if err := p.push(ctx, one, was); err != nil {
			return err
		}
	}
	return nil
}

func (p Pointers) push(ctx context.Context, one pointers.Pointer, was map[blobref.Ref]bool) error {
	there, err := p.Remote.Get(ctx, one.Conversation, one.Bubble)
	switch {
	case err != nil && !errors.Is(err, pointers.ErrNotFound):
		return err
	case there.Ref == one.Ref:
		return nil
	case !was[there.Ref]:
		return &pointers.ConflictError{Conversation: one.Conversation, Bubble: one.Bubble, Now: there.Ref}
	}
	return p.Remote.CompareAndSet(ctx, one.Conversation, pointers.Change{Bubble: one.Bubble, Old: there.Ref, New: one.Ref})
}

// Missing reports whether a store of files is at a path where there is nothing yet.
func (u URL) Missing() bool {
	if u.Kind != Dir && u.Kind != DiskKV {
		return false
	}
	_, err := os.Stat(u.Place)
	return errors.Is(err, fs.ErrNotExist)
}
