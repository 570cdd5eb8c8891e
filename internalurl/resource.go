package internalurl

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/lineindex"
)

// Types of content that resources have. Blobs may have image types besides.
const (
	TypeText     = "text/plain"
	TypeMarkdown = "text/markdown"
	TypeJSON     = "application/json"
	TypeBytes    = "application/octet-stream"
)

// Content is an open resource: bytes at any offset, and an index of its lines.
// Its methods are safe for concurrent use, except Close.
type Content interface {
	io.ReaderAt
	io.Closer
	// Size is the number of bytes there are now.
	Size() (int64, error)
	// Index is the line index of the bytes there are now. It may read all of
	// them the first time.
	Index(ctx context.Context) (lineindex.Index, error)
}

// Resource is what a URL stands for, opened and not loaded: a line of 10 GB costs
// a seek. Close it after use.
type Resource struct {
	URL         string // canonical, without selector
	Selector    Selector
	ContentType string
	// Kind is what messages call it: "artifact", "agent output", "session",
	// "entry", "blob", "file".
	Kind string
	// Notes are remarks about the content for whoever reads it, one sentence
	// each: what was extracted, that an artifact was interrupted.
	Notes []string
	// Extracted is set for a part of structured output, which is not paged.
	Extracted bool
	// Changed is set for an artifact whose bytes are not those that were kept, as far
	// as that showed when it was opened; Notes tell it.
	Changed bool
	// Kept is what the bytes were when they were kept; nil where nothing noted it.
	Kept *Kept

	Content
}

// Kept is what a finished artifact held.
type Kept struct {
	Bytes  int64
	CRC32C uint32 // of all bytes
}

// Section is a run of whole lines of a resource.
type Section struct {
	*io.SectionReader
	First, Last int64 // line numbers from 1
}

// Lines returns the lines of rng, whose Last may lie beyond the end. A first line
// beyond the end is an error that matches lineindex.ErrRange and says where the
// end is.
func (r *Resource) Lines(ctx context.Context, rng Range) (Section, error) {
	ix, err := r.Index(ctx)
	if err != nil {
		return Section{}, err
	}
	if rng.First > ix.Lines {
		return Section{}, &BeyondEndError{URL: r.URL, Kind: r.Kind, Line: rng.First, Lines: ix.Lines}
	}
	first, last := rng.First, min(rng.Last, ix.Lines)
	off, end, err := ix.LineRange(r, first, last)
	if err != nil {
		return Section{}, fmt.Errorf("reading %s: %w", r.URL, err)
	}
	return Section{io.NewSectionReader(r, off, end-off), first, last}, nil
}

// BeyondEndError is returned for a first line that a resource does not have. It
// matches lineindex.ErrRange.
type BeyondEndError struct {
	URL   string
	Kind  string
	Line  int64 // the line asked for
	Lines int64 // how many there are
}

func (e *BeyondEndError) Error() string {
	if e.Lines == 0 {
		return fmt.Sprintf("Line %d is beyond end of %s (0 lines total). The %[2]s is empty.", e.Line, e.Kind)
	}
	unit := "lines"
	if e.Lines == 1 {
		unit = "line"
	}
	return fmt.Sprintf("Line %d is beyond end of %s (%d %s total). Use %s:1 to read from the start, or %[5]s:%[3]d to read the last line.",
		e.Line, e.Kind, e.Lines, unit, e.URL)
}

func (e *BeyondEndError) Is(target error) bool { return target == lineindex.ErrRange }

// loaded is content in memory.
type loaded struct {
	*bytes.Reader
	data []byte
	once sync.Once
	ix   lineindex.Index
}

func newLoaded(data []byte) *loaded { return &loaded{Reader: bytes.NewReader(data), data: data} }

func (l *loaded) Size() (int64, error) { return int64(len(l.data)), nil }
func (l *loaded) Close() error         { return nil }

func (l *loaded) Index(context.Context) (lineindex.Index, error) {
	l.once.Do(func() {
		var b lineindex.Builder
		_, _ = b.Write(l.data) // never fails
		l.ix = b.Index()
	})
	return l.ix, nil
}

// streamed is content behind offsets that nobody changes.
type streamed struct {
	io.ReaderAt
	size  int64
	close func() error

	mu    sync.Mutex // guards all below
	ix    lineindex.Index
	known bool
}

func (s *streamed) Size() (int64, error) { return s.size, nil }
func (s *streamed) Close() error         { return s.close() }

func (s *streamed) Index(ctx context.Context) (lineindex.Index, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known {
		return s.ix, nil
	}
	ix, err := lineindex.Build(ctx, io.NewSectionReader(s.ReaderAt, 0, s.size))
	if err != nil {
		return ix, fmt.Errorf("counting lines: %w", err)
	}
	s.ix, s.known = ix, true
	return ix, nil
}

// states are the notes about artifacts that are not the whole output.
func stateNote(info artifacts.Info) string {
	if info.State == artifacts.Complete {
		return ""
	}
	note := fmt.Sprintf("Artifact %d is %s", info.ID, info.State)
	if info.Note != "" {
		note += ": " + strings.TrimSuffix(info.Note, ".")
	}
	return note
}
