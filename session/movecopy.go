package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	hashes "hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// Names in the staging directory of a move.
const (
	moveLog       = "log"
	moveArtifacts = "artifacts"
	moveDamaged   = "damaged"
)

func (v *mover) stagedLog(cold bool) string {
	ext := catalog.PlainExt
	if cold {
		ext = catalog.ColdExt
	}
	return filepath.Join(v.j.StagingDir(), moveLog+ext)
}

// stage copies the log with its new header line, and to another file system all that
// belongs to it. When it returns without an error the copies are complete, verified
// and on the disk, and the journal says so: the move has happened.
func (v *mover) stage(ctx context.Context, st state, line []byte) error {
	dir := v.j.StagingDir()
	if err := durable.RemoveAll(v.fs, dir); err != nil { // of a move before this one
		return err
	}
	if err := durable.MkdirAll(v.fs, dir); err != nil {
		return err
	}
	var err error
	if v.j.Written, err = v.copyLog(ctx, st, line); err != nil {
		return fmt.Errorf("copying the log: %w", err)
	}
	if v.j.Cross {
		if old := artifactsOf(v.j.From); there(v.fs, old) {
			if err := v.copyTree(ctx, old, filepath.Join(dir, moveArtifacts), 0); err != nil {
				return fmt.Errorf("copying the artifacts: %w", err)
			}
		}
		if old := catalog.DamagedPath(v.j.From); there(v.fs, old) {
			if err := v.copyFile(ctx, old, filepath.Join(dir, moveDamaged)); err != nil {
				return fmt.Errorf("copying the damaged bytes: %w", err)
			}
		}
	}
	if err := errors.Join(v.fs.SyncDir(dir), v.fs.SyncDir(filepath.Dir(dir))); err != nil {
		return err
	}
	// A program that takes no lock may have replaced the log meanwhile.
	name := v.j.From
	if st.cold {
		name = catalog.ColdPath(name)
	}
	if now, err := v.fs.Identify(name); err != nil || !now.SameFile(st.id) || now.Size < st.size {
		return errors.Join(fmt.Errorf("%s changed meanwhile; try again when nobody writes to it", name), err)
	}
	v.j.Staged = true
	return v.j.Write(v.fs, v.home)
}

// relined is a log with another header line; every other byte stays.
func relined(st state, line []byte) (parts []io.Reader) {
	rest := st.at + int64(len(st.line))
	return []io.Reader{
		io.NewSectionReader(st.src, 0, st.at),
		bytes.NewReader(line),
		io.NewSectionReader(st.src, rest, st.src.size-rest),
	}
}

// relinedStep is how much of a log is copied between two looks at the context, in bytes.
const relinedStep = 64 << 20

// writeRelined writes a log that is not compressed with another header line. Where its
// bytes are those of a file the kernel copies them.
func (v *mover) writeRelined(ctx context.Context, w io.Writer, st state, line []byte) error {
	var from io.ReaderAt = st.src
	if f := st.plain(); f != nil {
		from = f
	}
	if err := durable.Copy(w, from, 0, st.at); err != nil {
		return err
	}
	if _, err := w.Write(line); err != nil {
		return err
	}
	for at := st.at + int64(len(st.line)); at < st.src.size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		next := min(at+relinedStep, st.src.size)
		if err := durable.Copy(w, from, at, next); err != nil {
			return err
		}
		v.count(next - at)
		at = next
	}
	return nil
}

// relinedFolds are the folded stretches of such a log. All of them are behind its
// header, and one that is lost stays so: the blob may come back.
func relinedFolds(st state, line []byte) *folds {
	return foldsOf(st.src).moved(int64(len(line) - len(st.line)))
}

// copyLog writes the log with its new header into the staging directory and reads it
// back. It returns the size of the file.
func (v *mover) copyLog(ctx context.Context, st state, line []byte) (int64, error) {
	name := v.stagedLog(st.cold)
	f, err := durable.CreateExclusive(v.fs, name)
	if err != nil {
		return 0, err
	}
	sum := sha256.New()
	checked := v.j.Cross || st.cold // else it is a rewrite like any other
	if !checked {
		err = v.writeRelined(ctx, f, st, line)
	} else if from := io.TeeReader(v.counted(withContext(ctx, io.MultiReader(relined(st, line)...))), sum); st.cold {
		err = writeCold(f, from, relinedFolds(st, line))
	} else {
		_, err = io.CopyBuffer(struct{ io.Writer }{f}, from, make([]byte, 1<<20))
	}
	if err == nil {
		v.copiedAge(f)
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	back, err := openState(v.fs, st.blobs, filepath.Join(filepath.Dir(name), moveLog+catalog.PlainExt))
	if err != nil {
		return 0, err
	}
	defer back.close()
	if !checked {
		if back.src.size != st.src.size-int64(len(st.line))+int64(len(line)) {
			err = fmt.Errorf("%s has %d bytes; the disk may be failing", name, back.src.size)
		}
		return back.size, err
	}
	return back.size, compare(ctx, io.NewSectionReader(back.src, 0, back.src.size), sum, name)
}

// counted tells how much is read of what is copied.
func (v *mover) counted(r io.Reader) io.Reader {
	if v.progress == nil {
		return r
	}
	return &countedReader{v, r}
}

type countedReader struct {
	v *mover
	r io.Reader
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.v.count(int64(n))
	return n, err
}

// count tells that n bytes more were copied.
func (v *mover) count(n int64) {
	if v.copied += n; v.progress != nil {
		v.progress(v.copied)
	}
}

// compare reads r to its end and checks that it has that sum.
func compare(ctx context.Context, r io.Reader, want hashes.Hash, name string) error {
	got := sha256.New()
	if _, err := io.Copy(got, withContext(ctx, r)); err != nil {
		return err
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		return fmt.Errorf("%s reads back otherwise than it was written; the disk may be failing", name)
	}
	return nil
}

// copyFile copies a regular file, syncs the copy and reads it back. The modification
// time goes along: line indexes go by it.
func (v *mover) copyFile(ctx context.Context, from, to string) error {
	src, err := v.fs.OpenFile(from, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	id, err := src.Identify()
	if err != nil {
		return err
	}
	dst, err := durable.CreateExclusive(v.fs, to)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.CopyBuffer(struct{ io.Writer }{dst}, io.TeeReader(v.counted(withContext(ctx, io.NewSectionReader(src, 0, id.Size))), sum), make([]byte, 1<<20))
	if err == nil {
		err = dst.Sync()
	}
	if err == nil {
		_, _ = dst.Seek(0, io.SeekStart) // the read says if that failed
		err = compare(ctx, dst, sum, to)
	}
	if err = errors.Join(err, dst.Close()); err != nil {
		return err
	}
	at := []unix.Timespec{unix.NsecToTimespec(id.ModTime), unix.NsecToTimespec(id.ModTime)}
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, to, at, unix.AT_SYMLINK_NOFOLLOW) // an index would be made anew
	return nil
}

// maxDepth bounds how deep directories of artifacts are nested; oh-my-pi nests one
// for each level of subagents.
const maxDepth = 64

// copyTree copies a directory with what is in it, temporaries aside.
func (v *mover) copyTree(ctx context.Context, from, to string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s is nested more than %d directories deep", from, maxDepth)
	}
	if err := v.fs.Mkdir(to, durable.DirPerm); err != nil {
		return err
	}
	entries, err := v.fs.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		a, b := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		switch {
		case passing(e.Name()):
		case e.IsDir():
			err = v.copyTree(ctx, a, b, depth+1)
		case e.Type().IsRegular():
			err = v.copyFile(ctx, a, b)
		default:
			err = fmt.Errorf("%s is neither a file nor a directory; move it away", a)
		}
		if err != nil {
			return err
		}
	}
	return v.fs.SyncDir(to)
}

// passing tells temporaries, which nobody misses.
func passing(name string) bool { return strings.HasPrefix(name, ".tmp-") }

// removeCopied removes the files of the directory from that are in the directory to.
// What came there after the copy, by a program that takes no lock, is copied first.
func (v *mover) removeCopied(ctx context.Context, from, to string) error {
	entries, err := v.fs.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		a, b := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if e.IsDir() {
			if e.Name() == ".index" {
				err = durable.RemoveAll(v.fs, a)
			} else {
				err = v.removeCopied(ctx, a, b)
			}
		} else {
			if e.Type().IsRegular() && !passing(e.Name()) {
				err = v.copyLate(ctx, a, b)
			}
			if err == nil {
				err = remove(v.fs, a)
			}
		}
		if err != nil {
			return err
		}
	}
	return remove(v.fs, from)
}

// copyLate copies a file that is not there, or that has grown since it was copied.
func (v *mover) copyLate(ctx context.Context, from, to string) error {
	old, err := v.fs.Identify(from)
	if err != nil {
		return err
	}
	now, err := v.fs.Identify(to)
	switch {
	case err == nil && now.Size >= old.Size:
		return nil
	case err == nil:
		err = remove(v.fs, to)
	case errors.Is(err, fs.ErrNotExist):
		err = durable.MkdirAll(v.fs, filepath.Dir(to))
	}
	if err != nil {
		return err
	}
	if err := v.copyFile(ctx, from, to); err != nil {
		return err
	}
	return v.fs.SyncDir(filepath.Dir(to))
}

// replaceHeader writes a log anew with another header line, at its place.
func (v *mover) replaceHeader(ctx context.Context, st state, line []byte) error {
	if st.cold {
		return durable.WriteFileFunc(v.fs, catalog.ColdPath(v.j.From), true, func(w io.Writer) error {
			defer v.copiedAge(w)
			return writeCold(w, withContext(ctx, io.MultiReader(relined(st, line)...)), relinedFolds(st, line))
		})
	}
	return durable.WriteFileFunc(v.fs, v.j.From, true, func(w io.Writer) error {
		defer v.copiedAge(w)
		return v.writeRelined(ctx, w, st, line)
	})
}

// copiedAge makes w, a copy of the log, as old as the log, and gives it its permissions.
func (v *mover) copiedAge(w io.Writer) {
	keepMode(w, v.before)
	if f, ok := w.(durable.File); ok && v.j.Modified != 0 {
		_ = setTime(f, v.j.Modified+aged) // else it counts as worked on
	}
}

// offsetWriter writes to a file from an offset on.
type offsetWriter struct {
	f   durable.File
	off int64
}

func (w *offsetWriter) Write(p []byte) (int, error) {
	n, err := w.f.WriteAt(p, w.off)
	w.off += int64(n)
	return n, err
}

// contextReader stops reading when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func withContext(ctx context.Context, r io.Reader) io.Reader { return &contextReader{ctx, r} }

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
