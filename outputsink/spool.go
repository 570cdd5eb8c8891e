package outputsink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"github.com/agentrun/agentrun/internal/lineindex"
)

const (
	// spoolBytes is how many bytes are collected before they are written: writing 128 KiB at once takes a third to
	// half of the time of 32 writes of 4 KiB, and larger writes gain nothing more.
	spoolBytes = 128 << 10

	// directBytes is the size from which on a write is not worth the copy.
	directBytes = 32 << 10

	// spareBytes is what a file gives back when it has filled the disk, so that there is room for those who record
	// what became of it: its provenance, and the log.
	spareBytes = 64 << 10
)

var errNoFile = errors.New("no file was asked for")

// spool brings the stream to its file. Until a file is wanted all of the stream is in buf; from then on buf holds
// what has not been written yet. The stream can be read back from both.
type spool struct {
	open func() (File, error)

	buf      []byte            // the stream from base on
	base     int64             // bytes of the stream before buf
	counted  lineindex.Builder // of those
	newlines int64             // in buf, until the file is wanted
	unended  bool              // the last byte of the stream is no newline

	// marks are two earlier states of counted: the second is behind the first, and the first at least spareBytes
	// before any place where a write may fail (or at the beginning).
	marks [2]lineindex.Builder

	started  bool
	file     layout
	err      error // why the file is missing or ends at byte kept
	kept     int64
	index    Index // of the file, once it is cut or finished
	released bool
}

func (s *spool) size() int64 { return s.base + int64(len(s.buf)) }

// lines returns the number of lines of the stream. Once a file is wanted, it is known only after finish.
func (s *spool) lines() int64 {
	n := s.newlines
	if s.started {
		return s.counted.Lines()
	}
	if s.unended {
		n++
	}
	return n
}

// waiting reports whether bytes could be written now.
func (s *spool) waiting() bool { return s.started && s.err == nil && len(s.buf) > 0 }

// start opens the file, if that has not been done.
func (s *spool) start() {
	if s.started {
		return
	}
	s.started = true
	if s.open == nil {
		s.err = errNoFile
		return
	}
	f, err := s.open()
	if err == nil && f == nil {
		err = errNoFile
	}
	if err != nil {
		s.err = err
		return
	}
	s.file.File = f
}

// write takes the next bytes of the stream.
func (s *spool) write(p []byte) {
	if len(p) == 0 {
		return
	}
	s.unended = p[len(p)-1] != '\n'
	if !s.started {
		s.newlines += int64(bytes.Count(p, newlineText))
		s.buf = append(s.buf, p...)
		return
	}
	if cap(s.buf) < spoolBytes {
		s.buf = append(make([]byte, 0, spoolBytes), s.buf...)
	}
	for len(p) > 0 {
		if len(s.buf) == 0 && len(p) >= directBytes {
			s.store(p)
			return
		}
		n := min(max(spoolBytes-len(s.buf), 0), len(p))
		s.buf = append(s.buf, p[:n]...)
		p = p[n:]
		if len(s.buf) >= spoolBytes {
			s.flush()
		}
	}
}

// flush writes what has been collected.
func (s *spool) flush() {
	b := s.buf
	s.buf = s.buf[:0]
	s.store(b)
}

// store writes the bytes of the stream at base, and counts them in any case.
func (s *spool) store(b []byte) {
	n := 0
	if s.err == nil {
		if s.base-s.marks[1].Size() >= spareBytes {
			s.marks[0], s.marks[1] = s.marks[1], s.counted
		}
		var err error
		if n, err = s.file.append(b); err != nil {
			_, _ = s.counted.Write(b[:n])
			s.cut(s.base+int64(n), err)
		} else {
			n = 0
		}
	}
	_, _ = s.counted.Write(b[n:])
	s.base += int64(len(b))
}

// cut ends the file at byte k of the stream, up to where everything is counted.
func (s *spool) cut(k int64, err error) {
	s.err, s.kept, s.index = err, k, s.counted.Index()
	switch {
	case s.file.dropped():
		// Part of the tail may be overwritten. The first half is as it always was.
		s.kept = s.file.half()
		s.index, err = extendIndex(Index{}, s.file, s.kept)
		if err != nil {
			s.kept = 0
		}
	case k >= 2*spareBytes && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)):
		less := k - spareBytes
		mark := s.marks[1]
		if mark.Size() > less {
			mark = s.marks[0]
		}
		if ix, err := extendIndex(mark.Index(), s.file, less); err == nil && s.file.Truncate(less) == nil {
			s.kept, s.index = less, ix
		}
	}
	if s.file.Truncate(s.kept) != nil && s.file.dropped() {
		s.kept = 0
	}
}

// finish writes the rest, finishes the file and tells its state. The file stays open for readers until release.
func (s *spool) finish() (ArtifactState, error) {
	s.flush()
	if s.err != nil {
		state := ArtifactState{Kind: ArtifactMissing, Reason: oneLine(s.err), opened: s.file.File != nil}
		err := fmt.Errorf("keeping the output: %w", s.err)
		if s.kept > 0 {
			state.Kind, state.Head = ArtifactCut, s.kept
			if ferr := s.file.Finish(s.index); ferr != nil {
				err = errors.Join(err, ferr)
			}
		}
		return state, err
	}
	state := ArtifactState{Kind: ArtifactComplete, Head: s.base}
	s.index = s.counted.Index()
	var err error
	if s.file.dropped() {
		state = ArtifactState{Kind: ArtifactCapped, Head: s.file.half(), Tail: s.base - s.file.tail}
		s.index, err = extendIndex(Index{}, s.file, s.file.position(s.base))
	}
	if err == nil {
		err = s.file.Finish(s.index)
	}
	if err != nil {
		state.Kind, state.Reason = ArtifactUnconfirmed, oneLine(err)
		if errors.Is(err, fs.ErrNotExist) { // somebody removed it: nobody is told of a file that is not there
			state = ArtifactState{Kind: ArtifactMissing, Reason: oneLine(err), opened: true}
		}
		return state, fmt.Errorf("finishing the artifact %s: %w", s.file.URL(), err)
	}
	return state, nil
}

// release closes the file.
func (s *spool) release() error {
	if s.released || s.file.File == nil {
		return nil
	}
	s.released = true
	return s.file.Close()
}

// extendIndex makes the index of the first bytes of a file out of that of fewer.
func extendIndex(ix Index, r io.ReaderAt, size int64) (Index, error) {
	ix, err := lineindex.Extend(context.Background(), ix, io.NewSectionReader(r, ix.Size, size-ix.Size))
	if err == nil && ix.Size != size {
		err = io.ErrUnexpectedEOF
	}
	return ix, err
}

// sizeOfLines returns the bytes of some lines of the finished stream, or -1 when they can't be found any more.
func (s *spool) sizeOfLines(first, last int64) int64 {
	ix := s.counted.Index()
	off, end, err := ix.LineRange(readerAt(s.readAt), first, last)
	if err != nil {
		return -1
	}
	return end - off
}

type readerAt func(p []byte, off int64) (int, error)

// ReadAt implements io.ReaderAt.
func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		n, err := r(p[done:], off+int64(done))
		done += n
		if err != nil {
			return done, err
		}
		if n == 0 {
			return done, io.EOF
		}
	}
	return done, nil
}

// readAt reads some bytes of the stream, none when off is its end.
func (s *spool) readAt(p []byte, off int64) (int, error) {
	switch {
	case off >= s.size():
		return 0, nil
	case off >= s.base:
		return copy(p, s.buf[off-s.base:]), nil
	case s.released:
		return 0, ErrClosed
	}
	end := s.base
	if s.err != nil {
		end = s.kept
	}
	lost := &LostError{From: off, To: s.base, err: s.err}
	if off >= end {
		return 0, lost
	}
	if s.err == nil && s.file.dropped() {
		if half := s.file.half(); off < half {
			end = half
		} else if off < s.file.tail {
			lost.To, lost.err = s.file.tail, errLimit
			return 0, lost
		}
	}
	n, err := s.file.ReadAt(p[:min(int64(len(p)), end-off)], s.file.position(off))
	if n = max(0, min(n, len(p))); n > 0 {
		return n, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return 0, fmt.Errorf("reading the output kept so far: %w", err)
}
