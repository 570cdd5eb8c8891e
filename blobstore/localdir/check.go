package localdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
)

// Check reads all of a blob and reports whether it is what ref names, and how many
// bytes it has. It moves and changes nothing: the error of a wrong blob is
// blobstore.ErrCorrupt, that of an absent one blobstore.ErrNotFound. In mode Opaque
// nothing can be verified, and the blob is only read.
func (s *Store) Check(ctx context.Context, ref blobref.Ref) (int64, error) {
	size, err := s.check(ctx, ref)
	if errors.Is(err, blobstore.ErrCorrupt) {
		// oh-my-pi may have been rewriting it in place.
		size, err = s.check(ctx, ref)
	}
	if err != nil {
		return size, fmt.Errorf("checking %s: %w", ref, err)
	}
	return size, nil
}

func (s *Store) check(ctx context.Context, ref blobref.Ref) (int64, error) {
	f, err := s.fsys.OpenFile(s.path(ref), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, blobstore.ErrNotFound
	}
	if err != nil {
		return 0, hint(err)
	}
	defer f.Close()
	var id durable.Identity
	if id, err = f.Identify(); err != nil {
		return 0, err
	}
	good, err := verify(ctx, f, id.Size, ref)
	if err == nil && !good && s.opts.Mode == blobstore.Verified {
		err = blobstore.ErrCorrupt
		if isEncrypted(f) {
			return id.Size, blobstore.ErrEncrypted
		}
		if ours, oerr := s.ours(); oerr == nil && !ours {
			err = s.strange(ref)
		}
	}
	return id.Size, err
}
