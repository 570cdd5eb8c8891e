package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"sync"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/lineindex"
)

// File is an artifact while it is written; it is what package outputsink writes
// to. ReadAt and the accessors are safe for concurrent use; the rest belongs to
// one goroutine.
//
// A File ends in one of three ways: Finish says that it ends where it should,
// Discard removes it, and Close without either leaves the bytes written so far
// and marks them as interrupted.
type File struct {
	dir  *Dir
	id   int64
	f    durable.File
	side sidecar

	size int64 // of the file, where Quota is asked
	room int64 // what Quota has granted and was not written

	mu        sync.Mutex // guards all below
	ended     bool
	failed    error // of the first write that failed
	rewritten bool
}

// ID is the artifact's number.
func (f *File) ID() int64 { return f.id }

// URL is how the artifact is read within its session: artifact://<n>.
func (f *File) URL() string { return "artifact://" + strconv.FormatInt(f.id, 10) }

// Path is the file's name on disk, as far as it is known to have moved.
func (f *File) Path() string { return f.dir.join(logName(f.id, f.side.Tool)) }

// Write appends p where the last Write ended.
func (f *File) Write(p []byte) (int, error) {
	allowed, refused := f.admit(p, f.size)
	n, err := 0, error(nil)
	if len(allowed) > 0 || refused == nil {
		n, err = f.f.Write(allowed)
	}
	f.grew(f.size + int64(n))
	if err == nil {
		err = refused
	}
	f.noticed(err)
	return n, err
}

// admit returns as much of what is to be written at off as the quota has room for,
// and why it has none for the rest.
func (f *File) admit(p []byte, off int64) ([]byte, error) {
	ask := f.dir.opt.Quota
	need := off + int64(len(p)) - f.size
	if ask == nil || need <= f.room {
		return p, nil
	}
	// Given back first: a quota that counts files anew would count this room twice.
	f.returnRoom()
	granted, err := ask(f.dir.Path(), need)
	if f.room = granted; need <= granted {
		return p, nil
	}
	return p[:max(0, int64(len(p))-(need-f.room))], err
}

// grew notes the size of the file, which uses up room, or gives it back.
func (f *File) grew(size int64) {
	if f.dir.opt.Quota != nil {
		f.room -= size - f.size
		f.size = size
	}
}

// returnRoom gives back what was granted and not used.
func (f *File) returnRoom() {
	if f.room > 0 {
		_, _ = f.dir.opt.Quota(f.dir.Path(), -f.room) // there is nothing to refuse
		f.room = 0
	}
}

// ReadAt reads what was written so far.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }

// WriteAt overwrites bytes; it does not move the place where Write continues. A
// file that was overwritten is finished as Capped.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	allowed, refused := f.admit(p, off)
	n, err := 0, error(nil)
	if len(allowed) > 0 || refused == nil {
		n, err = f.f.WriteAt(allowed, off)
	}
	if end := off + int64(n); end > f.size {
		f.grew(end)
	}
	if err == nil {
		err = refused
	}
	f.noticed(err)
	f.mu.Lock()
	f.rewritten = true
	f.mu.Unlock()
	return n, err
}

// Truncate cuts the file to size bytes, where Write then continues.
func (f *File) Truncate(size int64) error {
	err := f.f.Truncate(size)
	if err == nil {
		f.grew(size)
		_, err = f.f.Seek(size, io.SeekStart)
	}
	f.noticed(err)
	return err
}

// noticed remembers the first error of a write: it decides about the state.
func (f *File) noticed(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = err
	}
}

// errEnded is returned by an ending after another one.
var errEnded = errors.New("the artifact was ended before")

// end lets only one ending through.
func (f *File) end() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := !f.ended
	if first {
		f.returnRoom()
	}
	f.ended = true
	return first
}

// Finish declares that nothing more is written. ix must describe the bytes of the
// file. Its State is Complete, or Partial when a write failed before, or Capped
// when bytes were overwritten. With Options.Sync the data, its provenance and its
// name are on the disk when Finish returns. After an error the bytes are still
// there; State then tells that they were never declared complete. Close the file
// after it.
func (f *File) Finish(ix lineindex.Index) error {
	if !f.end() {
		return fmt.Errorf("finishing artifact %d: %w", f.id, errEnded)
	}
	if err := f.finish(ix); err != nil {
		return fmt.Errorf("finishing artifact %d: %w", f.id, err)
	}
	return nil
}

func (f *File) finish(ix lineindex.Index) error {
	if f.dir.opt.Sync {
		if err := f.f.Sync(); err != nil {
			return err
		}
	}
	if err := f.at(context.Background()); err != nil {
		return err
	}
	at, err := f.f.Identify()
	if err != nil {
		return err
	}
	if at.Size != ix.Size {
		return fmt.Errorf("the file has %d bytes, its index %d", at.Size, ix.Size)
	}
	f.dir.keepIndex(f.id, ix, at)
	sum := crcHex(ix.CRC32C)
	f.side.State, f.side.Note = f.outcome(ix.Size)
	f.side.Bytes, f.side.Lines, f.side.CRC32C = ix.Size, ix.Lines, &sum
	return f.record()
}

// outcome is the state of a file that ends at byte size.
func (f *File) outcome(size int64) (State, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.failed != nil:
		return Partial, fmt.Sprintf("it ends at byte %d because of %v", size, f.failed)
	case f.rewritten:
		return Capped, "it keeps the beginning and the end of the output, within the size allowed"
	default:
		return Complete, ""
	}
}

// record replaces the sidecar, which is where the file is.
func (f *File) record() error {
	content, err := f.side.encode()
	if err != nil {
		return err
	}
	// A directory that was moved just now takes no new file at its old place.
	for range freeTries {
		if err = f.put(content); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	release, err := f.dir.lock(context.Background()) // it stays now
	if err != nil {
		return err
	}
	defer release()
	return f.put(content)
}

// freeTries is how often a sidecar is put into a directory that may be moved
// meanwhile before the directory is locked for that.
const freeTries = 3

func (f *File) put(content []byte) error {
	if err := f.at(context.Background()); err != nil {
		return err
	}
	if f.dir.opt.Sync {
		if err := f.dir.publish(); err != nil {
			return err
		}
	}
	return durable.WriteFile(f.dir.fs, f.dir.join(sidecarName(f.id)), f.dir.opt.Sync, content)
}

// Discard removes the artifact. Its number is not used again.
func (f *File) Discard() error {
	if !f.end() {
		return fmt.Errorf("discarding artifact %d: %w", f.id, errEnded)
	}
	if err := f.remove(); err != nil {
		return fmt.Errorf("discarding artifact %d: %w", f.id, err)
	}
	return nil
}

// remove closes and removes the file. The data goes first: a provenance without
// data is only a number used up, data without provenance would look like a
// complete artifact of another program.
func (f *File) remove() error {
	gone := f.at(context.Background())
	err := f.f.Close()
	if gone != nil {
		return errors.Join(gone, err)
	}
	err = errors.Join(err, f.dir.fs.Remove(f.Path()))
	if err == nil {
		f.room = f.size
		f.returnRoom()
		err = f.dir.fs.Remove(f.dir.join(sidecarName(f.id)))
	}
	return err
}

// Close closes the file. Before Finish it records that the artifact was
// interrupted and how many bytes it has; one without any is removed as by
// Discard.
func (f *File) Close() error {
	if !f.end() {
		return f.f.Close()
	}
	at, err := f.f.Identify()
	if err == nil && at.Size == 0 {
		err = f.remove()
	} else if err == nil {
		f.side.State, f.side.Note = Interrupted, "its writer stopped before the end"
		f.side.Bytes, f.side.Lines = at.Size, -1
		err = errors.Join(f.record(), f.f.Close())
	}
	if err != nil {
		return fmt.Errorf("closing artifact %d: %w", f.id, err)
	}
	return nil
}
