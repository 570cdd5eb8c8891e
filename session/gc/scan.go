package gc

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/durable"
)

// scanBlock is how much is read at a time.
const scanBlock = 256 << 10

// maxZstdWindow bounds the memory that a compressed file may ask for.
const maxZstdWindow = 128 << 20

var blocks = sync.Pool{New: func() any { return new([scanBlock]byte) }}

// mentionsIn returns what a file mentions, each digest once or more, and the file's
// identity before it was read. Compressed files are read as what they hold.
func mentionsIn(ctx context.Context, fsys durable.FS, path string) (refs []blobref.Ref, id durable.Identity, err error) {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, id, err
	}
	defer f.Close()
	if id, err = f.Identify(); err != nil {
		return nil, id, err
	}
	var r io.Reader = f
	switch {
	case strings.HasSuffix(path, ".zst"):
		dec, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, id, fmt.Errorf("reading %s: %w", path, err)
		}
		defer dec.Close()
		r = dec
	case strings.HasSuffix(path, ".gz"):
		if r, err = gzip.NewReader(f); err != nil {
			return nil, id, fmt.Errorf("reading %s: %w", path, err)
		}
	}
	refs, err = appendMentions(ctx, nil, r)
	refs = distinct(refs)
	if err != nil {
		err = fmt.Errorf("reading %s: %w", path, err)
	}
	return refs, id, err
}

// appendMentions reads r to its end. A run of digits that a block ends with is looked
// at together with the next block.
func appendMentions(ctx context.Context, dst []blobref.Ref, r io.Reader) ([]blobref.Ref, error) {
	buf := blocks.Get().(*[scanBlock]byte)
	defer blocks.Put(buf)
	kept := 0
	for {
		if err := ctx.Err(); err != nil {
			return dst, err
		}
		n, err := r.Read(buf[kept:])
		n += kept
		if err != nil {
			dst = blobref.AppendMentions(dst, buf[:n])
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return dst, err
		}
		whole := n
		for whole > 0 && isHex(buf[whole-1]) {
			whole--
		}
		if n-whole > scanBlock/2 {
			whole = n - blobref.HexLen // a dump of digits: its ends count, and this is none
			dst = blobref.AppendMentions(dst, buf[:n])
		} else {
			dst = blobref.AppendMentions(dst, buf[:whole])
		}
		kept = copy(buf[:], buf[whole:n])
	}
}

// distinct sorts references and leaves each in once.
func distinct(refs []blobref.Ref) []blobref.Ref {
	slices.SortFunc(refs, func(a, b blobref.Ref) int {
		x, y := a.Sum(), b.Sum()
		return bytes.Compare(x[:], y[:])
	})
	return slices.Compact(refs)
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }
