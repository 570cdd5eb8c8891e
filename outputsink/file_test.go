package outputsink

import (
	"errors"
	"io"
	"os"
	"testing"
)

// memFile is an artifact in memory that can run full, fail and lie.
type memFile struct {
	data []byte
	url  string
	room int // bytes it takes before it fails with err; only with err
	err  error

	short     bool  // takes half of each write and says so without an error
	boast     bool  // says it took more than it was given
	finishErr error // of Finish
	closeErr  error // of Close

	finished, closed bool
	index            Index
	writes           int
}

func (f *memFile) take(p []byte, at int64) (int, error) {
	f.writes++
	n, err := len(p), error(nil)
	switch {
	case f.closed || f.finished:
		return 0, os.ErrClosed
	case f.err != nil && at+int64(len(p)) > int64(f.room):
		n, err = int(max(0, int64(f.room)-at)), f.err
	case f.short:
		n = len(p) / 2
	}
	if grow := at + int64(n) - int64(len(f.data)); grow > 0 {
		f.data = append(f.data, make([]byte, grow)...)
	}
	copy(f.data[at:], p[:n])
	if f.boast {
		n = len(p) + 7
	}
	return n, err
}

func (f *memFile) Write(p []byte) (int, error)             { return f.take(p, int64(len(f.data))) }
func (f *memFile) WriteAt(p []byte, at int64) (int, error) { return f.take(p, at) }
func (f *memFile) URL() string                             { return f.url }
func (f *memFile) Finish(ix Index) error                   { f.finished, f.index = true, ix; return f.finishErr }
func (f *memFile) Close() error                            { f.closed = true; return f.closeErr }
func (f *memFile) Truncate(size int64) error {
	if size > int64(len(f.data)) {
		return errors.New("truncating to more than there is")
	}
	f.data = f.data[:size]
	return nil
}

func (f *memFile) ReadAt(p []byte, at int64) (int, error) {
	if f.closed {
		return 0, os.ErrClosed
	}
	if at >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.data[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// diskFile is an artifact on disk.
type diskFile struct{ *os.File }

func (diskFile) URL() string        { return "artifact://0" }
func (diskFile) Finish(Index) error { return nil }

func newDiskFile(t testing.TB, dir string) diskFile {
	t.Helper()
	f, err := os.CreateTemp(dir, "artifact")
	if err != nil {
		t.Fatal(err)
	}
	return diskFile{f}
}
