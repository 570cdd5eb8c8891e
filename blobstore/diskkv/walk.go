package diskkv

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"iter"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Stat describes the blob by the size of its value, which is that of the blob unless
// it is stored as text: then it is read. When it was stored is not known.
func (s *Store) Stat(ctx context.Context, ref blobref.Ref) (blobstore.Info, error) {
	info := blobstore.Info{Ref: ref, Size: -1}
	err := s.read(ctx, func(src *source, c *conn) error {
		return c.query(src.patience(ctx), func(v []driver.Value) error {
			size, ok := v[0].(int64)
			switch {
			case !ok:
				return errNoValue
			case ref == emptyRef && s.opts.Mode == blobstore.Verified:
				info.Size = 0
			case v[1] == int64(1) && size > 1 || src.made:
				info.Size = size
			}
			return nil
		}, "SELECT octet_length(value), typeof(value) = 'blob' FROM cursorDiskKV WHERE key = ?", blobKey(ref))
	})
	if err == nil && info.Size < 0 {
		var data []byte
		data, err = s.get(ctx, ref) // also when there is none
		info.Size = int64(len(data))
	}
	if errors.Is(err, errNoValue) || errors.Is(err, errAbsent) {
		err = blobstore.ErrNotFound
	}
	if err != nil {
		return blobstore.Info{}, fmt.Errorf("describing %s in %s: %w", ref, s.path, err)
	}
	return info, nil
}

// page is how many keys are listed at a time: no transaction stays open, and holds up
// others, while the caller works.
const page = 1000

// row is one key of a listing.
type row struct {
	key  string
	size int64 // of the value in bytes; -1 for null
}

// rows lists the keys from prefix on that begin with it, in their order.
func (s *Store) rows(ctx context.Context, prefix string) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		last := prefix
		for {
			var list []row
			err := s.read(ctx, func(_ *source, c *conn) error {
				list = list[:0]
				return c.query(ctx, func(v []driver.Value) error {
					r := row{key: textOf(v[0]), size: -1}
					if size, ok := v[1].(int64); ok {
						r.size = size
					}
					list = append(list, r)
					return nil
				}, "SELECT key, octet_length(value) FROM cursorDiskKV WHERE key > ? AND key < ? ORDER BY key LIMIT ?", last, prefixEnd(prefix), int64(page))
			})
			if errors.Is(err, errAbsent) {
				return
			}
			if err != nil {
				yield(row{}, err)
				return
			}
			for _, r := range list {
				// In the order of a damaged index it would go on for ever.
				if r.key <= last {
					yield(row{}, fmt.Errorf("%w: the keys are not in their order", errDamaged))
					return
				}
				last = r.key
				if !yield(r, nil) {
					return
				}
			}
			if len(list) < page {
				return
			}
		}
	}
}

// prefixEnd returns the least text that is greater than all that begin with prefix,
// whose last byte is below 0x7f.
func prefixEnd(prefix string) string {
	return prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)
}

// Walk yields the blobs in the order of their ids. Keys that are no ids of blobs are
// passed over.
func (s *Store) Walk(ctx context.Context) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		for r, err := range s.rows(ctx, blobPrefix) {
			if err != nil {
				yield(blobstore.Info{}, fmt.Errorf("listing the blobs of %s: %w", s.path, err))
				return
			}
			ref, err := blobref.ParseHex(r.key[len(blobPrefix):])
			if err != nil || ref.IsZero() || r.size < 0 {
				continue
			}
			if ref == emptyRef && s.opts.Mode == blobstore.Verified {
				r.size = 0
			}
			if cerr := ctx.Err(); cerr != nil {
				yield(blobstore.Info{}, fmt.Errorf("listing the blobs of %s: %w", s.path, cerr))
				return
			}
			if !yield(blobstore.Info{Ref: ref, Size: r.size}, nil) {
				return
			}
		}
	}
}
