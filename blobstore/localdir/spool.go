package localdir

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"

	"github.com/agentrun/agentrun/blobref"
)

// Put stores what r yields and returns its reference and length, in bounded
// memory. What is there already costs no write, if r can seek (then it is read
// twice, and a third time when it is new) or has less than 256 KiB. Any other
// stream is spooled to a temporary while it is hashed, and the temporary is
// removed again when the blob exists.
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
	if seeker, ok := r.(io.ReadSeeker); ok {
		ref, size, err := s.present(ctx, buf, seeker)
		if err != nil {
			return blobref.Ref{}, 0, fmt.Errorf("storing a stream: %w", err)
		}
		if size > 0 {
			return ref, size, nil
		}
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

// present looks whether a stream, whose first chunk has been read, is there
// already, without writing anything. If so it returns its reference and length;
// otherwise the length is 0 and r is behind the chunk again. Only r fails it: what
// is wrong with the blob is for settle to find and to mend.
func (s *Store) present(ctx context.Context, chunk *[chunkSize]byte, r io.ReadSeeker) (blobref.Ref, int64, error) {
	behind, err := r.Seek(0, io.SeekCurrent)
	if err != nil || behind < chunkSize {
		return blobref.Ref{}, 0, nil // a pipe, which only has the method
	}
	buf := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(buf)
	hash := sha256.New()
	hash.Write(chunk[:])
	size := int64(chunkSize)
	for n := chunkSize; n == chunkSize; size += int64(n) {
		if err := ctx.Err(); err != nil {
			return blobref.Ref{}, 0, err
		}
		if n, err = fill(buf, r); err != nil {
			return blobref.Ref{}, 0, err
		}
		hash.Write(buf[:n])
	}
	var sum [sha256.Size]byte
	hash.Sum(sum[:0])
	ref := blobref.FromSum(sum)
	if f, err := s.fsys.OpenFile(s.path(ref), os.O_RDONLY, 0); err == nil {
		defer f.Close()
		if _, err := r.Seek(behind-chunkSize, io.SeekStart); err != nil {
			return blobref.Ref{}, 0, err
		}
		id, err := f.Identify()
		if err == nil && id.Size == size && yields(ctx, f, buf, r) && (!s.opts.Sync || s.ensureSynced(ref, f, id) == nil) {
			if found, err := s.claim(ref, f, id); err == nil && found == present {
				return ref, size, nil
			}
		}
	}
	_, err = r.Seek(behind, io.SeekStart)
	return blobref.Ref{}, 0, err
}

// yields reports whether r yields what is in f.
func yields(ctx context.Context, f io.ReaderAt, buf *[chunkSize]byte, r io.Reader) bool {
	for off, n := int64(0), chunkSize; n == chunkSize; off += int64(n) {
		var err error
		if n, err = fill(buf, r); err != nil || ctx.Err() != nil {
			return false
		}
		if same, err := holdsAt(f, buf[:n], off); !same || err != nil {
			return false
		}
	}
	return true
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
