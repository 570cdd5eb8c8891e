package read

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/outputsink"
)

// maxScan is how many bytes are sanitised for one page: output that consists of
// control sequences may be far larger than its text.
const maxScan = 16 << 20

// page fills a Page within the limits.
func (s *selection) page(ctx context.Context, opt Options) (Page, error) {
	p := Page{URL: s.res.URL, ContentType: s.res.ContentType, Notes: append([]string(nil), s.res.Notes...)}
	ix, err := s.res.Index(ctx)
	if err != nil {
		return p, err
	}
	p.Size, p.Lines = ix.Size, ix.Lines
	if p.ContentType == internalurl.TypeText {
		// What a command printed may be anything.
		if p.ContentType, err = internalurl.Sniff(s.res); err != nil {
			return p, fmt.Errorf("reading %s: %w", s.res.URL, err)
		}
	}
	ranges, err := s.ranges(ctx)
	if err != nil {
		return p, err
	}
	if len(ranges) > 0 && ranges[0].First > ix.Lines {
		_, err := s.res.Lines(ctx, ranges[0])
		return p, err
	}
	switch {
	case s.res.Extracted:
		err := p.whole(s.res, ix)
		return p, err
	case ix.Lines == 0:
		p.note("The %s is empty", s.res.Kind)
		return p, nil
	case len(ranges) == 0:
		ranges = []internalurl.Range{{First: 1, Last: internalurl.ToEnd}}
	}
	if s.sel.Raw || !isText(p.ContentType) {
		err = p.bytes(ctx, s, ranges, opt)
	} else {
		err = p.text(ctx, s, ranges)
	}
	return p, err
}

func (p *Page) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// whole takes all of a resource that is in memory anyway.
func (p *Page) whole(res *internalurl.Resource, ix lineindex.Index) error {
	data := make([]byte, ix.Size)
	if _, err := io.ReadFull(io.NewSectionReader(res, 0, ix.Size), data); err != nil {
		return fmt.Errorf("reading %s: %w", res.URL, err)
	}
	p.Text = strings.ToValidUTF8(string(data), "\uFFFD")
	p.FirstLine, p.LastLine = min(1, ix.Lines), ix.Lines
	return nil
}

// bytes takes raw or binary content.
func (p *Page) bytes(ctx context.Context, s *selection, ranges []internalurl.Range, opt Options) error {
	limit := MaxBytes
	if s.sel.Raw {
		if limit = opt.MaxRaw; limit <= 0 {
			limit = DefaultMaxRaw
		}
	}
	var data []byte
	var all int64
	for i, r := range ranges {
		section, err := s.res.Lines(ctx, r)
		if errors.Is(err, lineindex.ErrRange) && i > 0 {
			p.beyond(r.First)
			break
		}
		if err != nil {
			return err
		}
		all += section.Size()
		part := make([]byte, min(section.Size(), int64(limit-len(data))))
		if _, err := io.ReadFull(contextReader{ctx, section}, part); err != nil {
			return fmt.Errorf("reading %s: %w", s.res.URL, err)
		}
		if len(part) > 0 {
			if p.FirstLine == 0 {
				p.FirstLine = section.First
			}
			p.LastLine = section.First + int64(bytes.Count(part[:len(part)-1], newline))
		}
		data = append(data, part...)
	}
	text := isText(p.ContentType)
	switch cut := int64(len(data)) < all; {
	case cut && s.sel.Raw:
		p.note("Showing the first %s of %s. Use a smaller range of lines, such as %s:raw:%d", size(int64(len(data))), size(all), p.URL, p.LastLine)
	case cut:
		p.note("Showing the first %s of %s of binary content. Use %s:raw for every byte", size(int64(len(data))), size(all), p.URL)
	case !s.sel.Raw:
		p.note("Binary content of %s. Use %s:raw for its bytes", size(all), p.URL)
	}
	if text && utf8.Valid(data) {
		p.Text = string(data)
	} else {
		p.Data = data
	}
	return nil
}

var newline = []byte{'\n'}

// beyond notes that the rest of a list of ranges is not there.
func (p *Page) beyond(first int64) { p.note("There is no line %d: the last is %d", first, p.Lines) }

// text takes sanitised lines until the page is full.
func (p *Page) text(ctx context.Context, s *selection, ranges []internalurl.Range) error {
	var text strings.Builder
	left := int64(MaxLines)
	for i, r := range ranges {
		r.Last = min(r.Last, p.Lines)
		if r.First > p.Lines {
			p.beyond(r.First)
			break
		}
		if i > 0 {
			fmt.Fprintf(&text, "[lines %d-%d not shown]\n", p.LastLine+1, r.First-1)
		}
		got, err := p.lines(ctx, s, r, min(r.Last, r.First+left-1), MaxBytes-text.Len())
		if err != nil {
			return err
		}
		text.WriteString(got.text)
		if got.last >= r.First {
			if p.FirstLine == 0 {
				p.FirstLine = r.First
			}
			p.LastLine = got.last
		}
		left -= got.last - r.First + 1
		if i < len(ranges)-1 && got.text != "" && !strings.HasSuffix(got.text, "\n") {
			text.WriteByte('\n')
		}
		if got.last < r.Last || got.partial || left == 0 && i < len(ranges)-1 {
			ranges = append([]internalurl.Range{{First: got.last + 1, Last: r.Last}}, ranges[i+1:]...)
			if got.last == r.Last {
				ranges = ranges[1:]
			}
			p.more(s, ranges)
			p.Text = text.String()
			return nil
		}
	}
	p.Text = text.String()
	if p.LastLine < p.Lines && s.paging {
		p.more(s, nil)
	}
	return nil
}

// more notes what was shown and how to go on.
func (p *Page) more(s *selection, rest []internalurl.Range) {
	what := fmt.Sprintf("Showing lines %d-%d of %d", p.FirstLine, p.LastLine, p.Lines)
	if p.FirstLine == p.LastLine {
		what = fmt.Sprintf("Showing line %d of %d", p.FirstLine, p.Lines)
	}
	if len(rest) == 0 && s.paging && p.LastLine < p.Lines {
		rest = []internalurl.Range{{First: p.LastLine + 1, Last: internalurl.ToEnd}}
	}
	if len(rest) > 0 {
		if last := &rest[len(rest)-1]; last.Last == p.Lines {
			last.Last = internalurl.ToEnd
		}
		what += fmt.Sprintf(". Use %s%s to continue", p.URL, internalurl.Selector{Ranges: rest})
	}
	p.Notes = append(p.Notes, what)
}

// excerpt is sanitised text of some lines.
type excerpt struct {
	text    string
	last    int64 // the last line it has, first-1 for none
	partial bool  // that line is cut
}

// lines takes the lines r.First to last as far as they fit in budget bytes. The
// first line of a page is shown in part rather than not at all.
func (p *Page) lines(ctx context.Context, s *selection, r internalurl.Range, last int64, budget int) (excerpt, error) {
	none := excerpt{last: r.First - 1}
	if last < r.First || budget <= 0 {
		return none, nil
	}
	section, err := s.res.Lines(ctx, internalurl.Range{First: r.First, Last: last})
	if err != nil {
		return none, err
	}
	text, scanned, err := sanitise(ctx, section, budget)
	if err != nil {
		return none, fmt.Errorf("reading %s: %w", s.res.URL, err)
	}
	if len(text) <= budget && scanned == section.Size() {
		return excerpt{text: string(text), last: section.Last}, nil
	}
	text = text[:min(len(text), budget)]
	if whole := bytes.LastIndexByte(text, '\n') + 1; whole > 0 {
		text = text[:whole]
		return excerpt{text: string(text), last: r.First + int64(bytes.Count(text, newline)) - 1}, nil
	}
	if p.FirstLine != 0 {
		return none, nil // it begins the next page
	}
	if i := lastRune(text); i >= 0 && !utf8.FullRune(text[i:]) {
		text = text[:i]
	}
	line, err := s.res.Lines(ctx, internalurl.Range{First: r.First, Last: r.First})
	if err != nil {
		return none, err
	}
	p.note("Line %d is %s long and shown in part. Use %s:raw:%[1]d+1 for all of it", r.First, size(line.Size()), p.URL)
	return excerpt{text: string(text), last: r.First, partial: true}, nil
}

// lastRune is where the last character of text begins, whole or not; -1 without
// one.
func lastRune(text []byte) int {
	i := len(text) - 1
	for i > 0 && len(text)-i < utf8.UTFMax && !utf8.RuneStart(text[i]) {
		i--
	}
	return i
}

// sanitise reads r until there is more text than budget, or the end, or maxScan.
func sanitise(ctx context.Context, r io.Reader, budget int) (text []byte, scanned int64, err error) {
	var clean outputsink.Sanitizer
	text = make([]byte, 0, budget+4<<10)
	block := make([]byte, 32<<10)
	for len(text) <= budget && scanned < maxScan {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		n, err := r.Read(block)
		text = clean.Append(text, block[:n])
		scanned += int64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return clean.Flush(text), scanned, nil
}

// size writes a number of bytes for a sentence.
func size(n int64) string {
	switch {
	case n == 1:
		return "1 byte"
	case n < 1024:
		return fmt.Sprintf("%d bytes", n)
	default:
		return outputsink.FormatBytes(n)
	}
}
