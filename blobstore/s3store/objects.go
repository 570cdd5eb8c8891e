package s3store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/s3"
)

// MaxObjectBytes is the largest value that Objects keeps.
const MaxObjectBytes = 1 << 20

// ErrConflict means that an object is not what the caller took it to be: it was changed
// meanwhile, or it is there already. Nothing was stored.
var ErrConflict = errors.New("the object was changed by somebody else meanwhile")

// Objects keeps small values under names, each with a version by which of two writers
// one learns that it was not the first. It has a prefix of its own: a Store under the
// same one is not disturbed, but sees nothing of it.
//
// A compare-and-set whose answer got lost (blobstore.ErrUnavailable) may have been made:
// get the object to see. It is safe for concurrent use.
type Objects struct{ *bucket }

// Version is what a service calls a state of an object. It is equal for equal states.
type Version struct{ etag string }

// IsZero reports whether the version is of no object.
func (v Version) IsZero() bool { return v.etag == "" }

// OpenObjects returns the objects in a bucket. It asks the service nothing yet. Close
// frees the connections.
func OpenObjects(o Options) (*Objects, error) {
	b, err := open(o)
	if err != nil {
		return nil, err
	}
	return &Objects{b}, nil
}

// Get returns the value of a name, and its version. Errors match blobstore.ErrNotFound
// where there is none.
func (o *Objects) Get(ctx context.Context, name string) ([]byte, Version, error) {
	data, version, err := o.get(ctx, name)
	if err != nil {
		return nil, Version{}, fmt.Errorf("getting object %s: %w", name, err)
	}
	return data, version, nil
}

func (o *Objects) get(ctx context.Context, name string) ([]byte, Version, error) {
	if err := checkName(name); err != nil {
		return nil, Version{}, err
	}
	body, info, err := o.fetch(ctx, o.prefix+name, s3.Range{})
	if err != nil {
		return nil, Version{}, err
	}
	defer body.Close()
	data, err := read(ctx, body, info.Size, MaxObjectBytes)
	if err == nil && info.ETag == "" {
		err = errors.New("the service gives no version (ETag)")
	}
	return data, Version{info.ETag}, err
}

// PutIfAbsent stores the first value of a name and returns its version. Errors match
// ErrConflict where there is one already: of many who try at once, one does.
func (o *Objects) PutIfAbsent(ctx context.Context, name string, data []byte) (Version, error) {
	return o.put(ctx, name, data, s3.Put{IfAbsent: true})
}

// PutIfMatch replaces a value that is still of the given version, and returns the new
// version. Errors match ErrConflict where it is not, or where it is gone.
func (o *Objects) PutIfMatch(ctx context.Context, name string, data []byte, version Version) (Version, error) {
	if version.IsZero() {
		return Version{}, fmt.Errorf("storing object %s: %w: no version was given", name, ErrConflict)
	}
	return o.put(ctx, name, data, s3.Put{IfMatch: version.etag})
}

func (o *Objects) put(ctx context.Context, name string, data []byte, opts s3.Put) (Version, error) {
	err := checkName(name)
	switch {
	case err != nil:
	case len(data) > MaxObjectBytes:
		err = fmt.Errorf("it has %d bytes, the limit is %d", len(data), MaxObjectBytes)
	default:
		err = ctx.Err()
	}
	if err != nil {
		return Version{}, fmt.Errorf("storing object %s: %w", name, err)
	}
	opts.Whole = true
	etag, err := o.send(ctx, o.prefix+name, bytes.NewReader(data), int64(len(data)), opts)
	if errors.Is(err, blobstore.ErrNotFound) {
		err = fmt.Errorf("%w: it is gone", ErrConflict)
	}
	if err == nil && etag == "" {
		err = errors.New("the service gives no version (ETag)")
	}
	if err != nil {
		return Version{}, fmt.Errorf("storing object %s: %w", name, err)
	}
	return Version{etag}, nil
}

// Delete removes a name, whatever its version. One that is not there is no error.
func (o *Objects) Delete(ctx context.Context, name string) error {
	err := checkName(name)
	if err == nil {
		err = explain(ctx, o.client.Delete(ctx, o.opts.Bucket, o.prefix+name))
	}
	if err != nil {
		return fmt.Errorf("deleting object %s: %w", name, err)
	}
	return nil
}

// List yields the names that begin with a prefix, "" for all, by rising name. An error
// ends it.
func (o *Objects) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for info, err := range o.list(ctx, o.prefix+prefix) {
			if err != nil {
				yield("", fmt.Errorf("listing objects: %w", err))
				return
			}
			name := strings.TrimPrefix(info.Key, o.prefix)
			if checkName(name) != nil {
				continue // none of ours
			}
			if !yield(name, nil) {
				return
			}
		}
	}
}
