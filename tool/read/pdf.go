package read

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/pdftext"
	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/internalurl"
)

// maxDocument bounds the text of the pages that are looked through for lines.
const maxDocument = 32 << 20

// maxCopied is the largest PDF that is no file, in bytes: it is copied.
const maxCopied = 64 << 20

// Main must be called at the beginning of main by a program that is to show PDF files: they are
// read by a process of their own, which is the program executed anew.
func Main() { pdftext.Main() }

// pdf makes text of some pages of a PDF: those that were asked for, or as many as a page of
// text takes.
func (s *selection) pdf(ctx context.Context) error {
	f, err := s.osFile(ctx)
	if err != nil {
		return s.noPDF(ctx, err)
	}
	defer f.Close()
	asked := s.sel.Pages
	if asked == (internalurl.Range{}) {
		asked = internalurl.Range{First: 1, Last: internalurl.ToEnd}
	}
	d := &document{sel: s.sel, first: asked.First}
	pages, err := pdftext.Read(ctx, f, toInt(asked.First), toInt(asked.Last), d.page)
	if err != nil && d.last == 0 {
		return s.noPDF(ctx, err)
	}
	n := int64(pages)
	if asked.First > n {
		return fmt.Errorf("page %d is beyond the end of %s, which has %d: use %[2]s:p%[3]d for the last", asked.First, s.res.URL, n)
	}
	s.rendered = true
	s.res.Kind = "document"
	whole := d.first == 1 && d.last == n
	s.pages = Pages{First: d.first, Last: d.last, Of: n}
	if end := min(asked.Last, n); d.last < end {
		next := internalurl.Range{First: d.last + 1, Last: asked.Last}
		if end == n {
			next.Last = internalurl.ToEnd
		}
		s.next = s.res.URL + internalurl.Selector{Pages: next}.String()
	}
	about := fmt.Sprintf("Pages %d-%d of %d of a PDF", d.first, d.last, n)
	if d.first == d.last {
		about = fmt.Sprintf("Page %d of %d of a PDF", d.first, n)
	}
	s.res.Notes = append(s.res.Notes, about)
	if err != nil {
		s.res.Notes = append(s.res.Notes, fmt.Sprintf("The pages behind were not read: %v", err))
		s.next = ""
	}
	if !whole {
		open := internalurl.Range{First: d.first, Last: asked.Last}
		if asked.Last >= n {
			open.Last = internalurl.ToEnd
		}
		s.res.URL += internalurl.Selector{Pages: open}.String()
	}
	s.res.Content = newText(d.text.Bytes(), s.res.Content)
	return nil
}

func toInt(n int64) int { return int(min(n, math.MaxInt32)) }

// noPDF shows a file that cannot be read as what it is besides.
func (s *selection) noPDF(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.sel.Pages != (internalurl.Range{}) {
		return fmt.Errorf("reading %s: %w", s.res.URL, err)
	}
	s.res.Notes = append(s.res.Notes, "It is a PDF, but: "+strings.TrimSuffix(err.Error(), "."))
	return nil
}

// osFile is the content as a file for another process.
func (s *selection) osFile(ctx context.Context) (*os.File, error) {
	fd := -1
	var err error
	if f, ok := s.res.Content.(*file); ok {
		fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), f.Name()), nil
	}
	size, err := s.res.Size()
	if err != nil {
		return nil, err
	}
	if size > maxCopied {
		return nil, fmt.Errorf("it has %s, and %s are the most", quantity.Bytes(size), quantity.Size(maxCopied))
	}
	if fd, err = unix.MemfdCreate("agentrun-pdf", unix.MFD_CLOEXEC); err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "pdf")
	if _, err := io.Copy(f, contextReader{ctx, io.NewSectionReader(s.res, 0, size)}); err != nil {
		_ = f.Close() // it is gone with that
		return nil, err
	}
	return f, nil
}

var _ durable.File = (*file)(nil)

// document is the text of pages that follow each other.
type document struct {
	sel         internalurl.Selector
	first, last int64 // pages
	text        bytes.Buffer
	lines       int64
	// from is how long the text is in front of the first line that is asked for.
	from int
}

// page takes a page, and reports whether there is room for more.
func (d *document) page(p pdftext.Page) bool {
	chunk := fmt.Sprintf("--- page %d ---\n", p.Number)
	switch {
	case p.Err != nil:
		chunk += "[" + p.Err.Error() + "]\n"
	case p.Text == "":
		chunk += "(no text)\n"
	default:
		chunk += p.Text
	}
	lines := int64(strings.Count(chunk, "\n"))
	fits := d.last == 0 || d.text.Len()-d.from+len(chunk) <= MaxBytes && d.lines+lines-d.before() <= MaxLines
	if d.searches() {
		fits = d.text.Len()+len(chunk) <= maxDocument
	}
	if !fits {
		return false
	}
	d.text.WriteString(chunk)
	d.lines += lines
	d.last = int64(p.Number)
	if len(d.sel.Ranges) == 1 && d.lines < d.sel.Ranges[0].First {
		d.from = d.text.Len()
	}
	return true
}

// before is how many lines there are in front of the first that is asked for.
func (d *document) before() int64 {
	if len(d.sel.Ranges) == 1 {
		return d.sel.Ranges[0].First - 1
	}
	return 0
}

// searches reports whether lines are asked for that may be on any page.
func (d *document) searches() bool {
	return d.sel.Tail > 0 || len(d.sel.Ranges) > 1 || len(d.sel.Ranges) == 1 && d.lines < d.sel.Ranges[0].First
}
