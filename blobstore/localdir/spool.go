package localdir

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/agentrun/agentrun/blobref"
)

// Put stores what r yields and returns its reference and length, in bounded
// memory. A blob below 256 KiB that is there already costs no write; a larger one is
// spooled to a temporary, which is removed again when the blob exists.
func (s *Store) Put(ctx context.Context, r io.Reader) (blobref.Ref, int64, error) {
	if err := ctx.Err(); err != nil {
		return blobref.Ref{}, 0, fmt.Errorf("storing a stream: %w", err)
	}
	buf := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(buf)
	n, err := fill(buf, r)
	if err != nil {
		return blobref.Ref{}, 0, fmt.Errorf("storing a stream: %w", err)
	}
	if n < len(buf) {
		ref, err := s.PutBytes(ctx, buf[:n])
		if err != nil {
			n = 0
		}
		return ref, int64(n), err
	}
	in, err := s.spool(ctx, buf, r)
	if err != nil {
		return blobref.Ref{}, 0, fmt.Errorf("storing a stream: %w", err)
	}
	if err := s.settle(ctx, in); err != nil {
		return blobref.Ref{}, 0, err
	}
	return in.ref, in.size, nil
}

// spool writes a full chunk and then the rest of r to a temporary and hashes them
// on the way. The fsync is left to settle: a blob that is there already needs
// none.
func (s *Store) spool(ctx context.Context, chunk *[chunkSize]byte, r io.Reader) (_ *incoming, err error) {
	f, err := s.createTemp()
	if err != nil {
		return nil, err
	}
	in := &incoming{temp: f.Name()}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			_ = s.fsys.Remove(in.temp)
		}
	}()
	hash := sha256.New()
	for n := len(chunk); n > 0; {
		hash.Write(chunk[:n])
		if _, err := f.Write(chunk[:n]); err != nil {
			return nil, err
		}
		in.size += int64(n)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if n, err = fill(chunk, r); err != nil {
			return nil, err
		}
	}
	var sum [sha256.Size]byte
	hash.Sum(sum[:0])
	in.ref = blobref.FromSum(sum)
	return in, nil
}

// fill reads r until chunk is full or r ends, which is no error. io.ReadFull would
// not do: it gives a stream that was cut off (io.ErrUnexpectedEOF, from a
// decompressor or a connection) for one that ended.
func fill(chunk *[chunkSize]byte, r io.Reader) (int, error) {
	n := 0
	for n < len(chunk) {
		m, err := r.Read(chunk[n:])
		n += m
		if err == io.EOF {
			break
		}
		if err != nil {
			return n, fmt.Errorf("reading it: %w", err)
		}
	}
	return n, nil
}
