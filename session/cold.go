package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	seekable "github.com/SaveTheRbtz/zstd-seekable-format-go/pkg"
	"github.com/klauspost/compress/zstd"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// A cold session is <stem>.jsonl.zst: the log in frames of coldFrame bytes in the
// seekable zstd format, so that any zstd reads it and the end of a large one is
// read without the rest. What it repeats may be folded: see fold.go and folds.go.
// While a plain file stands beside it the plain one counts: that is how a crash
// between two steps leaves it.
const coldFrame = 256 << 10

// maxColdFrame bounds the memory that a frame of a hostile file may ask for.
const maxColdFrame = 64 << 20

// openCold reads a compressed log as it was before it was compressed. What is damaged
// in it gives errors that say who mends it.
func openCold(f durable.File, size int64, b blobs) (source, error) {
	src, err := openFrames(f, size, b)
	return src, mendable(f.Name(), err)
}

// mendable adds to the error of reading a compressed log who mends that, unless the
// disk failed.
func mendable(path string, err error) error {
	var disk *fs.PathError
	if err == nil || err == io.EOF || errors.As(err, &disk) {
		return err
	}
	return fmt.Errorf("%w; agentrun doctor --repair %s mends it", err, path)
}

// frames are the decompressed frames of a file.
type frames struct {
	r    io.ReaderAt
	path string
}

func (f frames) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.r.ReadAt(p, off)
	return n, mendable(f.path, err)
}

func openFrames(f durable.File, size int64, b blobs) (source, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxColdFrame))
	if err != nil {
		return source{}, err
	}
	r, err := seekable.NewReader(io.NewSectionReader(f, 0, size), dec)
	if err != nil {
		return source{}, fmt.Errorf("it is no complete seekable zstd file: %w", err)
	}
	end, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return source{}, fmt.Errorf("reading its frame index: %w", err)
	}
	table, err := r.SeekTable()
	if err != nil {
		return source{}, fmt.Errorf("reading its frame index: %w", err)
	}
	dataEnd := uint64(0)
	if n := table.NumFrames(); n > 0 {
		last, _ := table.EntryByID(n - 1)
		dataEnd = last.CompressedOffset + uint64(last.CompressedSize)
	}
	stream := source{frames{r, f.Name()}, end}
	t, err := readFolds(source{f, size}, int64(dataEnd))
	if err != nil || t == nil {
		return stream, err
	}
	return unfold(stream, t, b)
}

// Compress replaces a session's plain file by a compressed one. Every reader goes
// on to open it; the next append restores the plain file. The compressed file is
// read back and compared before the plain one is removed. A session that is
// compressed already is left alone.
func (m *Manager) Compress(ctx context.Context, path string) error {
	s, err := m.Open(ctx, path)
	if err != nil {
		return err
	}
	defer s.Close()
	if st := s.known(); st.cold || st.file == nil || st.none {
		return nil
	}
	if err := s.compressible(); err != nil {
		return err
	}
	g := &group{wake: make(chan wake, 1), asIs: true, do: func() error { return s.compress(ctx) }}
	return s.submit(ctx, g)
}

// ErrRecent is returned by CompressIdle for a session that was written to lately.
var ErrRecent = errors.New("session was written to lately")

// CompressIdle is Compress for a session that nobody works on: it must not have been
// written to for the time idle, else the error matches ErrRecent, and no agent loop may
// drive it, else it is a *LockedError. Both are looked at while nobody else can write.
func (m *Manager) CompressIdle(ctx context.Context, path string, idle time.Duration) error {
	s, err := m.Open(ctx, path)
	if err != nil {
		return err
	}
	defer s.Close()
	if st := s.known(); st.cold || st.file == nil || st.none {
		return nil
	}
	if err := s.compressible(); err != nil {
		return err
	}
	driver, err := s.Drive()
	if err != nil {
		return err
	}
	defer driver.Close()
	g := &group{wake: make(chan wake, 1), asIs: true, do: func() error {
		st := s.known()
		id, err := st.file.Identify()
		if err != nil {
			return fmt.Errorf("compressing %s: %w", s.Path(), err)
		}
		if since := m.opts.Now().Sub(time.Unix(0, id.ModTime)); since < idle {
			return fmt.Errorf("compressing %s: %w, %v ago", s.Path(), ErrRecent, since.Round(time.Second))
		}
		return s.compress(ctx)
	}}
	return s.submit(ctx, g)
}

// compressible says why a log cannot be compressed, if so.
func (s *Session) compressible() error {
	if catalog.ColdPath(s.Path()) == s.Path() {
		return fmt.Errorf("compressing %s: only a log that is called *.jsonl can be, and found again; rename it", s.Path())
	}
	return nil
}

// compress does the work of Compress under the lock.
func (s *Session) compress(ctx context.Context) error {
	st := s.known()
	if st.cold {
		return nil // another process was faster
	}
	if err := s.manager.keepBlobs(ctx, s); err != nil {
		return err
	}
	name := catalog.ColdPath(s.Path())
	file, modified := source{st.file, st.size}, int64(0)
	var table *folds
	var err error
	if st.image == nil && s.manager.holds(s.Path()) { // a log elsewhere may go its own way, without the blobs
		if table, err = planFolds(ctx, file, s.fold(ctx)); err != nil {
			return fmt.Errorf("compressing %s: %w; the plain file stays", s.Path(), err)
		}
	}
	err = durable.WriteFileFunc(s.fs, name, true, func(w io.Writer) error {
		if was, err := st.file.Identify(); err == nil {
			keepMode(w, was)
		}
		return writeCold(w, withContext(ctx, io.NewSectionReader(file, 0, file.size)), table)
	})
	if err == nil {
		err = s.checkCold(ctx, name, file)
	}
	if err == nil {
		// A program that takes no lock may have appended meanwhile.
		now, ierr := s.fs.Identify(s.Path())
		modified = now.ModTime
		if ierr != nil || !now.SameFile(st.id) || now.Size != st.size {
			err = errors.Join(errors.New("it changed meanwhile, try again when nobody writes to it; the plain file stays"), ierr, s.fs.Remove(name))
		}
	}
	if err != nil {
		return fmt.Errorf("compressing %s: %w", s.Path(), err)
	}
	if err := s.keepTime(name, modified); err != nil {
		return errors.Join(fmt.Errorf("compressing %s: keeping its time: %w; the plain file stays", s.Path(), err), s.fs.Remove(name))
	}
	if err := s.fs.Remove(s.Path()); err != nil {
		return fmt.Errorf("compressing %s: removing the plain file: %w", s.Path(), err)
	}
	return s.fs.SyncDir(filepath.Dir(s.Path()))
}

// fold stores what a log repeats. It goes to the kept blobs, durably: no other program
// that shares the home knows that a compressed log needs it.
func (s *Session) fold(ctx context.Context) func([]byte) (blobref.Ref, error) {
	var kept *localdir.Store
	return func(data []byte) (ref blobref.Ref, err error) {
		if kept == nil {
			if err := s.prepareHome(); err != nil {
				return ref, err
			}
			if err := s.pin(); err != nil {
				return ref, err
			}
			if kept, err = localdir.Open(catalog.KeptBlobsDir(s.manager.home), localdir.Options{Sync: true, FS: s.fs}); err != nil {
				return ref, err
			}
		}
		return blobstore.Put(ctx, kept, data)
	}
}

// writeCold writes the log that r yields as a compressed one.
func writeCold(w io.Writer, r io.Reader, t *folds) error {
	r = t.streamReader(r)
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	defer enc.Close()
	sw, err := seekable.NewWriter(w, enc)
	if err != nil {
		return err
	}
	buf := make([]byte, coldFrame)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if _, err := sw.Write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			if t != nil {
				frame, err := t.frame()
				if err != nil {
					return err
				}
				if _, err := w.Write(frame); err != nil {
					return err
				}
			}
			return sw.Close()
		case err != nil:
			return err
		}
	}
}

// checkCold compares a compressed log with the plain one.
func (s *Session) checkCold(ctx context.Context, name string, plain source) error {
	f, err := s.fs.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	id, err := f.Identify()
	if err != nil {
		return err
	}
	cold, err := openCold(f, id.Size, s.blobs)
	if err == nil && cold.size != plain.size {
		err = fmt.Errorf("it holds %d bytes of %d", cold.size, plain.size)
	}
	var a, b []byte
	for at := int64(0); err == nil && at < plain.size; at += blockSize {
		to := min(at+blockSize, plain.size)
		if a, err = readSpan(plain, at, to, a); err == nil {
			b, err = readSpan(cold, at, to, b)
		}
		if err == nil && string(a) != string(b) {
			err = fmt.Errorf("it differs within bytes %d to %d", at, to)
		}
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("reading %s back: %w; the plain file stays", name, err), s.fs.Remove(name))
	}
	return nil
}

// restoreCold makes the plain file of a compressed session. The lock is held.
func (s *Session) restoreCold(ctx context.Context) error {
	st := s.known()
	src, name := wholeSource(st.src), st.name(s.Path())
	was, aerr := st.file.Identify()
	err := durable.WriteFileFunc(s.fs, s.Path(), true, func(out io.Writer) error {
		if aerr == nil {
			keepMode(out, was)
		}
		w := bufio.NewWriterSize(out, 1<<20)
		var buf []byte
		var err error
		for at := int64(0); err == nil && at < src.size; at += blockSize {
			if buf, err = readSpan(src, at, min(at+blockSize, src.size), buf); err == nil {
				_, err = w.Write(buf)
			}
			err = errors.Join(err, ctx.Err())
		}
		return errors.Join(err, w.Flush())
	})
	if err == nil {
		if aerr == nil {
			_ = s.keepTime(s.Path(), was.ModTime) // else it counts as worked on
		}
		if err = s.fs.Remove(name); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("restoring %s from its compressed form: %w", s.Path(), err)
	}
	return s.reopen()
}
