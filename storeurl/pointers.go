package storeurl

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/diskkv"
	"github.com/agentrun/agentrun/blobstore/s3store"
	"github.com/agentrun/agentrun/conversation/pointers"
	"github.com/agentrun/agentrun/conversation/pointers/diskkvpointers"
	"github.com/agentrun/agentrun/conversation/pointers/s3pointers"
)

// checkpointsName is where a directory or a bucket has its pointers: beside its blobs, and no blob.
const checkpointsName = ".checkpoints"

// Pointers returns the pointers of conversations that are beside the blobs of a store that Open opened. They are where
// agents look for them in a diskkv file, and in a folder of their own in a dir and an s3 bucket; a mem has those that
// were set since it was opened. Servers of blobs have none: the error matches blobstore.ErrUnsupported. They are open as
// long as the store.
func (s *Stack) Pointers() (pointers.Pointers, error) {
	switch s.url.Kind {
	case Dir:
		return pointers.OpenDir(filepath.Join(s.url.Place, checkpointsName), pointers.DirOptions{}), nil
	case DiskKV:
		if file, ok := s.Base.(*diskkv.Store); ok {
			return diskkvpointers.New(file), nil
		}
	case S3:
		bucket, prefix, _ := strings.Cut(s.url.Place, "/")
		objects, err := s3store.OpenObjects(s3store.Options{
			Endpoint: s.url.Endpoint, Region: s.url.Region, Bucket: bucket, Prefix: strings.TrimPrefix(prefix+"/"+checkpointsName, "/"),
			TLS: s.opts.TLS, Credentials: s.opts.credentials(),
		})
		if err != nil {
			return nil, fmt.Errorf("opening the checkpoints of %s: %w", s.url, err)
		}
		s.close = append(s.close, objects.Close)
		return s3pointers.New(objects), nil
	case Memory:
		return &s.memory, nil
	}
	return nil, fmt.Errorf("opening the checkpoints of %s: %w: it has blobs alone; dir:, diskkv: and s3: have them", s.url, blobstore.ErrUnsupported)
}
