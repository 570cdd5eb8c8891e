package localdir

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
)

// chunkSize is what is read and compared at a time. Most blobs are screenshots
// that fit, so that they cost one read.
const chunkSize = 256 << 10

var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// maxTries bounds how often a call starts over when others keep changing the file
// under its name.
const maxTries = 8

// errChanged says that the file under a name is not the one that was judged, or
// has other bytes by now.
var errChanged = errors.New("the file changed while it was read")

// judge looks at the open file of a blob, size bytes long. good means that its
// bytes may be handed out.
type judge func(f durable.File, size int64) (good bool, err error)

// Get returns the bytes of the blob, verified in mode Verified.
func (s *Store) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	var data []byte
	f, _, err := s.open(ctx, ref, func(f durable.File, size int64) (bool, error) {
		if size > s.opts.MaxGetBytes {
			return false, s.tooLarge(size)
		}
		data = make([]byte, size)
		n, err := readFullAt(f, data, 0)
		if err != nil {
			return false, err
		}
		data = data[:n]
		if s.opts.Mode == blobstore.Opaque {
			return int64(n) == size, nil
		}
		return ref.Verify(data), nil
	})
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", ref, err)
	}
	f.Close()
	return data, nil
}

func (s *Store) tooLarge(size int64) error {
	return fmt.Errorf("%w (%d bytes, at most %d); stream it instead", blobstore.ErrTooLarge, size, s.opts.MaxGetBytes)
}

// Open opens the blob for reading. In mode Verified all of it has been read and
// verified before Open returns, through the descriptor that the caller reads.
func (s *Store) Open(ctx context.Context, ref blobref.Ref) (blobstore.Blob, error) {
	b, err := s.openVerified(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", ref, err)
	}
	return b, nil
}

func (s *Store) openVerified(ctx context.Context, ref blobref.Ref) (*blob, error) {
	f, size, err := s.open(ctx, ref, func(f durable.File, size int64) (bool, error) {
		if s.opts.Mode == blobstore.Opaque {
			return true, nil
		}
		return verify(ctx, f, size, ref)
	})
	if err != nil {
		return nil, err
	}
	return &blob{SectionReader: io.NewSectionReader(f, 0, size), file: f}, nil
}

// blob is an open file, cut to the length that was verified.
type blob struct {
	*io.SectionReader
	file durable.File
}

func (b *blob) Close() error { return b.file.Close() }

// GetRange returns a part of the blob. In mode Verified all of it is read and
// verified first: for many parts of one blob, Open it once.
func (s *Store) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) ([]byte, error) {
	part, err := s.getRange(ctx, ref, off, n)
	if err != nil {
		return nil, fmt.Errorf("getting %d bytes at %d of %s: %w", n, off, ref, err)
	}
	return part, nil
}

func (s *Store) getRange(ctx context.Context, ref blobref.Ref, off, n int64) ([]byte, error) {
	if off < 0 || n < 0 {
		return nil, errors.New("negative range")
	}
	b, err := s.openVerified(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	off = min(off, b.Size())
	n = min(n, b.Size()-off)
	if n > s.opts.MaxGetBytes {
		return nil, s.tooLarge(n)
	}
	part := make([]byte, n)
	if got, err := readFullAt(b, part, off); err != nil || int64(got) < n {
		return nil, cmp.Or(err, io.ErrUnexpectedEOF)
	}
	return part, nil
}

// Stat describes the blob without reading it.
func (s *Store) Stat(ctx context.Context, ref blobref.Ref) (blobstore.Info, error) {
	if err := ctx.Err(); err != nil {
		return blobstore.Info{}, fmt.Errorf("describing %s: %w", ref, err)
	}
	info, err := s.stat(ref)
	if errors.Is(err, blobstore.ErrNotFound) {
		if id, cerr := s.fsys.Identify(filepath.Join(s.dir, gcDir, ref.Hex())); cerr == nil && regular(id) {
			return infoOf(ref, id), nil
		}
		info, err = s.stat(ref) // put back between the two looks
	}
	if err != nil {
		return blobstore.Info{}, fmt.Errorf("describing %s: %w", ref, err)
	}
	return info, nil
}

func infoOf(ref blobref.Ref, id durable.Identity) blobstore.Info {
	return blobstore.Info{Ref: ref, Size: id.Size, ModTime: time.Unix(0, id.ModTime)}
}

func (s *Store) stat(ref blobref.Ref) (blobstore.Info, error) {
	path := s.path(ref)
	id, err := s.fsys.Identify(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return blobstore.Info{}, blobstore.ErrNotFound
	case err != nil:
		return blobstore.Info{}, err
	case !regular(id):
		// The open is refused, in words that say what stands there.
		f, err := s.fsys.OpenFile(path, os.O_RDONLY, 0)
		if err != nil {
			return blobstore.Info{}, hint(err)
		}
		f.Close()
		return blobstore.Info{}, fmt.Errorf("%s: %w", path, errChanged)
	}
	return infoOf(ref, id), nil
}

// open opens the file of ref for a caller that will close it, once judge finds
// it good. In mode Verified a file that is not good is moved aside, if the directory is ours.
func (s *Store) open(ctx context.Context, ref blobref.Ref, good judge) (durable.File, int64, error) {
	for try := 1; ; try++ {
		f, size, err := s.tryOpen(ctx, ref, good)
		if !errors.Is(err, errChanged) {
			return f, size, err
		}
		if try == maxTries {
			return nil, 0, fmt.Errorf("%w (%s keeps changing while it is read)", blobstore.ErrCorrupt, s.path(ref))
		}
	}
}

func (s *Store) tryOpen(ctx context.Context, ref blobref.Ref, good judge) (durable.File, int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	f, err := s.fsys.OpenFile(s.path(ref), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if f, size := s.openCondemned(ref, good); f != nil {
			return f, size, nil
		}
		return nil, 0, s.takeBack(ctx, ref)
	}
	if err != nil {
		return nil, 0, hint(err)
	}
	id, err := f.Identify()
	if err == nil {
		var ok bool
		if ok, err = good(f, id.Size); ok && err == nil {
			return f, id.Size, nil
		}
	}
	defer f.Close()
	switch {
	case err != nil:
		return nil, 0, err
	case s.opts.Mode == blobstore.Opaque:
		return nil, 0, errChanged
	case isEncrypted(f):
		return nil, 0, blobstore.ErrEncrypted
	}
	switch err := s.setAside(ctx, ref, f); {
	case errors.Is(err, errNotOurs):
		return nil, 0, s.strange(ref)
	case err != nil:
		return nil, 0, err
	}
	return nil, 0, fmt.Errorf("%w (moved to %s); store the same content again to heal it", blobstore.ErrCorrupt, s.corruptPath(ref))
}

// hint says what to do about a file that durable refuses to open.
func hint(err error) error {
	if special := (*durable.NotRegularError)(nil); errors.As(err, &special) {
		return fmt.Errorf("%w; somebody else put it there: remove it", err)
	}
	return err
}

// isEncrypted reports whether f, which is not what its name says, is ciphertext that got
// into the wrong directory: it is no damage, and stays where it is.
func isEncrypted(f io.ReaderAt) bool {
	begin := make([]byte, len(blobstore.EncryptedMagic))
	n, err := readFullAt(f, begin, 0)
	return err == nil && blobstore.IsEncrypted(begin[:n])
}

func regular(id durable.Identity) bool { return id.Mode&syscall.S_IFMT == syscall.S_IFREG }

// verify reports whether the first size bytes of f are those that ref names.
func verify(ctx context.Context, f io.ReaderAt, size int64, ref blobref.Ref) (bool, error) {
	buf := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(buf)
	hash := sha256.New()
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err := readFullAt(f, buf[:min(chunkSize, size-off)], off)
		if err != nil {
			return false, err
		}
		if n == 0 {
			return false, nil // it became shorter: not what ref names
		}
		hash.Write(buf[:n])
		off += int64(n)
	}
	var sum [sha256.Size]byte
	hash.Sum(sum[:0])
	return blobref.FromSum(sum) == ref, nil
}

// readFullAt fills p from offset off, less where the file ends before. The end
// of the file is no error.
func readFullAt(f io.ReaderAt, p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		m, err := f.ReadAt(p[n:], off+int64(n))
		n += m
		if err == io.EOF {
			break
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
