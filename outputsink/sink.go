// Package outputsink takes the output of a program of any size and keeps what is needed to show it.
//
// A [Sink] has one [io.Writer] for each stream of the program. It merges both in the order of arrival and keeps
//
//   - exact totals of bytes and lines,
//   - a view: the first and the last lines as clean text, within fixed limits ([Options]),
//   - and, as soon as the view cannot be everything, a [File] with every byte as the program wrote it, from the
//     first, together with a CRC-32C and a sparse line index.
//
// # What is promised
//
//   - The view is a function of the merged bytes and the options: how they were cut into writes changes nothing.
//   - A file is opened at most once and only if it is needed: when there are more than MaxBytes bytes or MaxLines
//     lines, when a line of the view is shortened or sanitising makes it too large, or when the output is binary (a
//     NUL, or mostly invalid UTF-8, in its first 8 KiB). Binary output is described, not shown.
//   - If the file cannot be opened or a write fails, writers never notice: the view and the totals go on, and the
//     [Summary] tells what the file holds and why. A file that holds nothing is not advertised. One that has filled
//     the disk gives 64 KiB of it back, so that what happened can still be recorded.
//   - Memory is bounded by the options: about five times MaxBytes, plus 128 KiB of bytes on their way to the file and
//     at most 256 KiB of line index, for any amount of output.
//   - Line n of the view is line n of the file: sanitising neither adds nor removes a newline.
//   - The Summary's line "…" between head and tail and its notice are the only words in the view that the program
//     did not write.
//
// # What a crash leaves
//
// Small writes are collected and reach the file when 128 KiB have come, or [FlushAfter] after the first of them; a
// kill of the process can cost the output of that moment. The file then ends there, and has no index. With
// MaxArtifactBytes a crash while old bytes are being dropped can leave some lines of the kept tail twice.
//
// # Concurrency
//
// Writers, [Live] readers and Close may be used by different goroutines at once. A Live reader itself belongs to one.
// The sink has no goroutine; a timer of its own flushes late bytes, and is gone when Close returns.
package outputsink

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/agentrun/agentrun/internal/lineindex"
)

// The limits of oh-my-pi 18: DEFAULT_MAX_BYTES and DEFAULT_MAX_LINES of its truncation, the settings
// tools.artifactHeadBytes and tools.outputMaxColumns of its sink.
const (
	DefaultMaxBytes   = 50 << 10 // 51,200: head and tail together
	DefaultHeadBytes  = 20 << 10 // 20,480: which leaves 30,720 for the tail
	DefaultMaxLines   = 3000
	DefaultMaxColumns = 768 // bytes a line, not characters
)

// FlushAfter is how long bytes wait for more before they are written to the file.
const FlushAfter = 50 * time.Millisecond

// spillFlush is FlushAfter with Options.Spill, where somebody reads while it comes.
const spillFlush = 10 * time.Millisecond

// ErrClosed is returned by writes behind Close.
var ErrClosed = errors.New("outputsink: the sink is closed")

// Index is the line index of a file.
type Index = lineindex.Index

// File is where a sink puts the whole stream. The sink calls one method at a time. Files may fail and lie: whatever
// they return, the sink does not panic and counts only bytes they claimed to have taken.
type File interface {
	io.Writer   // appends
	io.ReaderAt // also after Finish
	io.WriterAt
	Truncate(size int64) error

	// URL is what the notice names, such as "artifact://3".
	URL() string

	// Finish is called once, when all is written: it publishes the index and makes durable what has to be.
	Finish(Index) error

	// Close is called once, last.
	Close() error
}

// Options are the limits of a sink. [DefaultOptions] gives those to begin with.
type Options struct {
	// MaxBytes is the size of the view's text. 0 or less means DefaultMaxBytes.
	MaxBytes int

	// HeadBytes is how much of MaxBytes first lines may take. What they leave is for the last lines. 0 shows last
	// lines only. More than MaxBytes means MaxBytes.
	HeadBytes int

	// MaxLines is how many lines the view has, divided between head and tail as MaxBytes is. 0 means any number.
	MaxLines int

	// MaxColumns is the length in bytes from which on a line is shortened, "…" included. 0 means never, and so does
	// a value of MaxBytes or more; a line that is larger than the view is then shown in part.
	MaxColumns int

	// MaxArtifactBytes limits the file, 0 does not. Of a larger stream the file keeps the first half of the limit
	// and at least the last quarter less 256 bytes, with a line between that tells which bytes are missing. Less
	// than MinArtifactBytes means MinArtifactBytes.
	MaxArtifactBytes int64

	// Spill makes the file in any case, with the first byte or at the end: for those who read while it comes, and
	// before there is a view.
	Spill bool

	// Redact makes what replaces secrets in one of the two streams, before the sink counts, shows or keeps anything of it; nil replaces
	// nothing, and costs nothing. A redact.Stream is one.
	Redact func() Redactor

	// Screen makes the text of a view in place of the sanitizer, for output to a terminal; nil is the sanitizer. It is
	// called once, by New, and the screen hands its lines to text. No output is binary then, the lines of the view are
	// those of the screen and not of the file, and there is a file as soon as the screen is not exact.
	Screen func(text func(b []byte)) Screen

	// Open makes the file. It is called at most once, during a Write or Close. nil means that nothing is kept.
	Open func() (File, error)
}

// Screen makes text of what is written to a terminal. The sink calls one method at a time.
type Screen interface {
	io.Writer // gives no error, and may hand out text

	// Finish is called once, at the end, and hands out the rest: valid UTF-8 without control characters but newlines.
	Finish()

	// Exact reports, behind Finish, whether the text is all that was written.
	Exact() bool
}

// DefaultOptions returns the limits with which a model is shown output. Only Open is left to set.
func DefaultOptions() Options {
	return Options{
		MaxBytes:   DefaultMaxBytes,
		HeadBytes:  DefaultHeadBytes,
		MaxLines:   DefaultMaxLines,
		MaxColumns: DefaultMaxColumns,
	}
}

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	o.HeadBytes = min(max(o.HeadBytes, 0), o.MaxBytes)
	o.MaxLines = max(o.MaxLines, 0)
	o.MaxColumns = max(o.MaxColumns, 0)
	if o.MaxArtifactBytes = max(o.MaxArtifactBytes, 0); o.MaxArtifactBytes > 0 {
		o.MaxArtifactBytes = max(o.MaxArtifactBytes, MinArtifactBytes)
	}
	return o
}

// Sink takes the output of one program. Use [New].
type Sink struct {
	opts Options

	mu       sync.Mutex
	spool    spool
	scan     scanner
	screen   Screen
	text     screenText
	view     *view // nil once the output is known to be binary
	first    []byte
	sniffed  bool        // binary or not is decided
	redact   [2]Redactor // by stream; nil without Options.Redact
	cleared  []byte      // what a Redactor gave last
	redacted int64

	grown  chan struct{} // closed when more has come; nil while nobody waits
	closed bool
	refs   int // Live readers that may still read the file
	sum    Summary
	err    error

	flusher *time.Timer
	armed   bool
	late    sync.WaitGroup // flushes that the timer began
}

// New returns a sink. It must be closed.
func New(o Options) *Sink {
	o = o.withDefaults()
	s := &Sink{opts: o, view: newView(o)}
	s.spool.open, s.spool.file.limit = o.Open, o.MaxArtifactBytes
	if o.Redact != nil {
		s.redact = [2]Redactor{o.Redact(), o.Redact()}
	}
	if o.Screen != nil {
		s.sniffed = true
		s.text.view = s.view
		s.screen = o.Screen(s.text.add)
	}
	return s
}

// Stdout returns the writer for the standard output. Writes to it take all bytes and give no error before Close,
// ErrClosed behind it. It is safe for concurrent use.
func (s *Sink) Stdout() io.Writer { return s.writer(0) }

// Stderr returns the writer for the standard error. It is as Stdout.
func (s *Sink) Stderr() io.Writer { return s.writer(1) }

type writer struct{ s *Sink }

func (w writer) Write(p []byte) (int, error) { return w.s.write(p) }

func (s *Sink) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, ErrClosed
	}
	s.take(p)
	return len(p), nil
}

// take takes the next bytes of the merged stream.
func (s *Sink) take(p []byte) {
	if len(p) == 0 {
		return
	}
	if s.opts.Spill || s.spool.size()+int64(len(p)) > int64(s.opts.MaxBytes) {
		s.spool.start()
	}
	s.spool.write(p)
	if !s.sniffed {
		s.sniff(p)
	}
	switch {
	case s.screen != nil:
		_, _ = s.screen.Write(p) // gives none
	case s.view != nil:
		s.scan.scan(p, s.view)
	}
	if !s.spool.started && s.tooMuch() {
		s.spool.start()
	}
	s.arm()
	if s.grown != nil {
		close(s.grown)
		s.grown = nil
	}
}

// tooMuch reports whether the view can't be everything that has come so far.
func (s *Sink) tooMuch() bool {
	return s.view == nil || !s.view.whole() || s.screen != nil && s.closed && !s.screen.Exact() || s.spool.size() > int64(s.opts.MaxBytes) ||
		s.opts.MaxLines > 0 && s.spool.lines() > int64(s.opts.MaxLines)
}

// sniff collects the first bytes until it is known whether the output is binary.
func (s *Sink) sniff(p []byte) {
	s.first = append(s.first, p[:min(len(p), BinaryWindow-len(s.first))]...)
	if len(s.first) == BinaryWindow {
		s.decide(false)
	}
}

func (s *Sink) decide(whole bool) {
	if IsBinary(s.first, whole) {
		s.view = nil
	}
	s.sniffed, s.first = true, nil
}

// Spill makes the file now, whatever comes, as Options.Spill does from the beginning: for a stream that somebody begins
// to read while it comes. The error is why there is no file; the sink goes on as before then, or without one.
func (s *Sink) Spill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.spool.start()
	if s.spool.err != nil {
		return s.spool.err
	}
	s.opts.Spill = true
	s.spool.flush()
	return s.spool.err
}

// arm sees to it that bytes which wait for more reach the file in time.
func (s *Sink) arm() {
	if s.armed || !s.spool.waiting() {
		return
	}
	s.armed = true
	s.late.Add(1)
	after := FlushAfter
	if s.opts.Spill {
		after = spillFlush
	}
	if s.flusher == nil {
		s.flusher = time.AfterFunc(after, s.flushLate)
	} else {
		s.flusher.Reset(after)
	}
}

func (s *Sink) flushLate() {
	defer s.late.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	if !s.closed && s.spool.waiting() {
		s.spool.flush()
	}
}

// Close ends the stream and returns what came of it. The summary is whole and true whatever happened. The error is
// that of the artifact, if one was wanted and is not as it should be (the same that ArtifactState tells); it says
// nothing about the program whose output this was.
//
// Live readers may read on to the end; the file is closed by the last of them. Close may be called again and by
// several goroutines; each call returns the same.
func (s *Sink) Close() (Summary, error) {
	s.mu.Lock()
	if !s.closed {
		s.endRedaction()
		s.closed = true
		if s.armed && s.flusher.Stop() {
			s.armed = false
			s.late.Done()
		}
		s.finish()
		if s.grown != nil {
			close(s.grown)
			s.grown = nil
		}
	}
	s.mu.Unlock()
	s.late.Wait()
	return s.sum, s.err
}

// finish makes the summary.
func (s *Sink) finish() {
	if !s.sniffed {
		s.decide(true)
	}
	sum := Summary{TotalBytes: s.spool.size(), Binary: s.view == nil, Redacted: s.redacted}
	switch {
	case s.screen != nil:
		s.screen.Finish()
		s.view.finish(s.text.unended)
		sum.SanitizedBytes = max(0, sum.TotalBytes-s.text.bytes)
	case s.view != nil:
		s.scan.finish(s.view)
		s.view.finish(s.spool.unended)
		sum.SanitizedBytes = s.scan.in - s.scan.kept
	}
	if sum.Truncated = s.tooMuch() || s.spool.started; sum.Truncated || s.opts.Spill {
		s.spool.start()
		sum.ArtifactState, s.err = s.spool.finish()
	}
	if s.opts.Spill {
		sum.Truncated = s.tooMuch() // the lines are counted by now
	}
	sum.TotalLines = s.spool.lines()
	var r rendered
	between := int64(-1)
	if s.view != nil {
		total := sum.TotalLines
		if s.screen != nil {
			total = s.text.lines()
		}
		r = s.view.render(total)
		r.total, r.screen = total, s.screen != nil
		sum.Text, sum.ShownBytes, sum.ShownLines = r.text, r.bytes, r.lines
		sum.Ranges, sum.ShortenedLines = r.ranges, r.shortened
		if first, last := r.headLast+1, r.tailFirst-1; first <= last && !r.screen {
			between = s.spool.sizeOfLines(first, last)
		}
	}
	if k := sum.ArtifactState.Kind; k != ArtifactNone && k != ArtifactMissing {
		sum.Artifact, sum.Index = s.spool.file.URL(), s.spool.index
		sum.ArtifactBytes = sum.Index.Size
	}
	if s.refs == 0 {
		if err := s.spool.release(); err != nil && s.err == nil {
			sum.ArtifactState.Kind, sum.ArtifactState.Reason = ArtifactUnconfirmed, oneLine(err)
			s.err = fmt.Errorf("closing the artifact %s: %w", sum.Artifact, err)
		}
	}
	sum.Notice = sum.notice(r, s.opts.MaxColumns, between)
	sum.View = sum.Text
	if sum.Notice != "" {
		if n := len(sum.View); n > 0 && sum.View[n-1] != '\n' {
			sum.View += "\n"
		}
		sum.View += sum.Notice
		sum.Text = sum.View[:len(sum.Text)] // one string instead of two
	}
	s.sum, s.view = sum, nil
}
