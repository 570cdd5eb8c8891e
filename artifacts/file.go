package artifacts

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/lineindex"
)

// File is an artifact while it is written. ReadAt, WriteAt and the accessors are
// safe for concurrent use; the rest belongs to one goroutine.
//
// A File ends in one of three ways: Finish says that it is as it should be,
// Discard removes it, and Close without either leaves the bytes written so far
// and marks them as interrupted.
type File struct {
	dir  *Dir
	id   int64
	f    durable.File
	side sidecar

	mu    sync.Mutex // guards ended
	ended bool
}

// ID is the artifact's number.
func (f *File) ID() int64 { return f.id }

// URL is how the artifact is read within its session: artifact://<n>.
func (f *File) URL() string { return "artifact://" + strconv.FormatInt(f.id, 10) }

// Path is the file's name on disk.
func (f *File) Path() string { return f.f.Name() }

// Write appends p where the last Write ended.
func (f *File) Write(p []byte) (int, error) { return f.f.Write(p) }

// ReadAt reads what was written so far.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }

// WriteAt overwrites bytes; it does not move the place where Write continues.
func (f *File) WriteAt(p []byte, off int64) (int, error) { return f.f.WriteAt(p, off) }

// Truncate cuts the file to size bytes; it does not move the place where Write
// continues.
func (f *File) Truncate(size int64) error { return f.f.Truncate(size) }

// errEnded is returned by an ending after another one.
var errEnded = errors.New("the artifact was ended before")

// end lets only one ending through.
func (f *File) end() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := !f.ended
	f.ended = true
	return first
}

// Finish declares the file complete. ix must describe its bytes. With
// Options.Sync the data, its provenance and its name are on the disk when Finish
// returns. After an error the bytes are still there; State then tells that they
// were never declared complete. Close the file after it.
func (f *File) Finish(ix lineindex.Index) error { return f.FinishAs(Complete, "", ix) }

// FinishAs is Finish for a file that is not the whole output: state says in what
// way and note says why, in a few words for a person.
func (f *File) FinishAs(state State, note string, ix lineindex.Index) error {
	if !f.end() {
		return fmt.Errorf("finishing artifact %d: %w", f.id, errEnded)
	}
	if err := f.finish(state, note, ix); err != nil {
		return fmt.Errorf("finishing artifact %d: %w", f.id, err)
	}
	return nil
}

func (f *File) finish(state State, note string, ix lineindex.Index) error {
	if f.dir.opt.Sync {
		if err := f.f.Sync(); err != nil {
			return err
		}
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
	f.side.State, f.side.Note = state, note
	f.side.Bytes, f.side.Lines, f.side.CRC32C = ix.Size, ix.Lines, &sum
	return f.record()
}

// record replaces the sidecar.
func (f *File) record() error {
	content, err := f.side.encode()
	if err != nil {
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
	// The data first: a provenance without data is only a number used up, data
	// without provenance would look like a complete artifact of another program.
	err := errors.Join(f.f.Close(), f.dir.fs.Remove(f.Path()))
	if err == nil {
		err = f.dir.fs.Remove(f.dir.join(sidecarName(f.id)))
	}
	if err != nil {
		return fmt.Errorf("discarding artifact %d: %w", f.id, err)
	}
	return nil
}

// Close closes the file. Before Finish it records that the artifact was
// interrupted and how many bytes it has; it never removes anything.
func (f *File) Close() error {
	if f.end() {
		f.side.State = Interrupted
		f.side.Note = "its writer stopped before the end"
		f.side.Lines = -1
		if at, err := f.f.Identify(); err == nil {
			f.side.Bytes = at.Size
		}
		if err := errors.Join(f.record(), f.f.Close()); err != nil {
			return fmt.Errorf("closing artifact %d: %w", f.id, err)
		}
		return nil
	}
	return f.f.Close()
}
