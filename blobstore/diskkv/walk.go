package diskkv

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Stat describes the blob by the size of its value, which is that of the blob unless
// it is stored as text: then it is read. When it was stored is not known.
func (s *Store) Stat(ctx context.Context, ref blobref.Ref) (blobstore.Info, error) {
	info := blobstore.Info{Ref: ref, Size: -1}
	err := s.read(ctx, func(src *source, c *conn) error {
		text := "SELECT octet_length(value), typeof(value) = 'blob' FROM cursorDiskKV WHERE key = ?"
		if src.chat {
			text = "SELECT octet_length(data), typeof(data) = 'blob' FROM blobs WHERE id = ?"
		}
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
		}, text, src.blobKeys(ref)[0])
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

// rows yields columns of the keys that begin with prefix, in the order of the keys; the
// first column is the key. Keys that are longer than any of ours are passed over.
func (s *Store) rows(ctx context.Context, prefix, columns string) iter.Seq2[[]driver.Value, error] {
	text := "SELECT key" + columns + " FROM cursorDiskKV WHERE key > ? AND key < ? AND octet_length(key) <= 1024 ORDER BY key LIMIT ?"
	return func(yield func([]driver.Value, error) bool) {
		last := prefix
		for {
			var list [][]driver.Value
			err := s.read(ctx, func(src *source, c *conn) error {
				list = list[:0]
				text := text
				if src.chat {
					if prefix != blobPrefix {
						return nil
					}
					text = listChatBlobs
				}
				return c.query(ctx, func(v []driver.Value) error {
					list = append(list, slices.Clone(v))
					return nil
				}, text, last, prefixEnd(prefix), int64(page))
			})
			if errors.Is(err, errAbsent) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, r := range list {
				key := textOf(r[0])
				// In the order of a damaged index it might go on for ever.
				if key <= last {
					yield(nil, fmt.Errorf("%w: keys are not in their order", errDamaged))
					return
				}
				if err := ctx.Err(); err != nil {
					yield(nil, err)
					return
				}
				last = key
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

// Walk yields the blobs in the order of their ids, behind those of a file of another
// program that are in upper case. Keys that are no ids of blobs are passed over.
func (s *Store) Walk(ctx context.Context) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		for r, err := range s.rows(ctx, blobPrefix, ", octet_length(value)") {
			if err != nil {
				yield(blobstore.Info{}, fmt.Errorf("listing the blobs of %s: %w", s.path, err))
				return
			}
			ref, ok := s.walked(ctx, textOf(r[0])[len(blobPrefix):])
			size, known := r[1].(int64)
			if !ok || !known {
				continue
			}
			if ref == emptyRef && s.opts.Mode == blobstore.Verified {
				size = 0
			}
			if !yield(blobstore.Info{Ref: ref, Size: size}, nil) {
				return
			}
		}
	}
}

// walked reads the id of a key. One in upper case counts where the file is another
// program's, and has not the same in lower case, which is listed too.
func (s *Store) walked(ctx context.Context, id string) (blobref.Ref, bool) {
	ref, err := blobref.ParseHex(id)
	if err == nil || s.made() || id != strings.ToUpper(id) {
		return ref, err == nil && !ref.IsZero()
	}
	if ref, err = blobref.ParseHex(strings.ToLower(id)); err != nil {
		return ref, false
	}
	twice := false
	err = s.read(ctx, func(src *source, c *conn) error {
		_, err := valueOf(src.patience(ctx), c, src.selectBlob(), src.blobKeys(ref)[0], 0)
		twice = err == nil || errors.Is(err, blobstore.ErrTooLarge)
		return nil
	})
	return ref, err == nil && !twice
}
