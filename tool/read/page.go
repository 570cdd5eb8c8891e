package read

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
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
	p := Page{URL: s.res.URL, ContentType: s.res.ContentType, Encoding: s.encoding, Pages: s.pages, Notes: append([]string(nil), s.res.Notes...)}
	if s.only != "" {
		p.Size = s.size
		for _, i := range s.pictures {
			p.Images = append(p.Images, i.image)
		}
		p.note("%s", s.only)
		return p, nil
	}
	if s.size >= lazyFrom && !s.rendered && !isText(p.ContentType) && !s.sel.Raw && len(s.sel.Ranges) == 0 && s.sel.Tail == 0 {
		return p, p.first(ctx, s)
	}
	ix, err := s.res.Index(ctx)
	if err != nil {
		return p, err
	}
	p.Size, p.Lines = ix.Size, ix.Lines
	if s.rendered || s.encoding != "" || s.more {
		p.Size = s.size
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
	if s.sel.Raw || !s.rendered && !isText(p.ContentType) {
		err = p.bytes(ctx, s, ranges, opt)
	} else {
		err = p.text(ctx, s, ranges, opt)
	}
	if s.more {
		p.Lines = -1
	}
	return p, err
}

// first takes the first bytes of large binary content.
func (p *Page) first(ctx context.Context, s *selection) error {
	p.Size, p.Lines = s.size, -1
	p.Data = make([]byte, MaxBytes)
	if _, err := io.ReadFull(contextReader{ctx, io.NewSectionReader(s.res, 0, s.size)}, p.Data); err != nil {
		return fmt.Errorf("reading %s: %w", s.res.URL, err)
	}
	p.note("Binary content of %s, of which data holds the first %s. Use %s:raw for every byte", size(s.size), size(MaxBytes), p.URL)
	return nil
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
		if i == 0 {
			section = skipped(section, s.sel.Skip)
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
	case cut && s.sel.Raw && len(ranges) > 1:
		p.note("Showing the first %s of %s. Use fewer ranges of lines to see the rest", size(int64(len(data))), size(all))
	case cut && s.sel.Raw:
		rest := internalurl.Selector{Raw: true, Ranges: []internalurl.Range{{First: p.LastLine + 1, Last: ranges[0].Last}}}
		if at := bytes.LastIndexByte(data, '\n') + 1; at < len(data) {
			rest.Ranges[0].First, rest.Skip = p.LastLine, int64(len(data)-at)
			if at == 0 && p.FirstLine == p.LastLine {
				rest.Skip += s.sel.Skip
			}
		}
		p.note("Showing the first %s of %s. Use %s%s to continue", size(int64(len(data))), size(all), p.URL, rest)
	case cut:
		p.note("Binary content of %s, of which data holds the first %s. Use %s:raw for every byte", size(all), size(int64(len(data))), p.URL)
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
func (p *Page) text(ctx context.Context, s *selection, ranges []internalurl.Range, opt Options) error {
	var text strings.Builder
	var gone int64
	defer func() {
		if gone > 0 {
			p.note("%s of control sequences and rewritten text left out. Use %s:raw for every byte", size(gone), p.URL)
		}
	}()
	left := int64(MaxLines)
	skip := s.sel.Skip
	for i, r := range ranges {
		r.Last = min(r.Last, p.Lines)
		if r.First > p.Lines {
			p.beyond(r.First)
			break
		}
		if i > 0 {
			fmt.Fprintf(&text, "[lines %d-%d not shown]\n", p.LastLine+1, r.First-1)
		}
		last := s.lastWithPictures(r.First, min(r.Last, r.First+left-1))
		got, err := p.lines(ctx, s, r, last, MaxBytes-text.Len(), skip, opt.Numbers)
		if err != nil {
			return err
		}
		text.WriteString(got.text)
		if got.last >= r.First {
			if p.FirstLine == 0 {
				p.FirstLine = r.First
			}
			p.LastLine = got.last
			n, err := s.leftOut(ctx, r.First, got, skip, opt.Numbers)
			if err != nil {
				return err
			}
			gone += n
			s.shownOutputs(ctx, opt, r.First, got.last, p)
		}
		left -= got.last - r.First + 1
		if i < len(ranges)-1 && got.text != "" && !strings.HasSuffix(got.text, "\n") {
			text.WriteByte('\n')
		}
		if got.last < r.Last || got.skip > 0 || left == 0 && i < len(ranges)-1 {
			rest := internalurl.Range{First: got.last + 1, Last: r.Last}
			if s.more {
				rest.Last = ranges[i].Last
			}
			ranges = append([]internalurl.Range{rest}, ranges[i+1:]...)
			switch {
			case got.skip > 0:
				ranges[0].First = got.last
			case got.last == rest.Last:
				ranges = ranges[1:]
			}
			p.more(s, ranges, got.skip)
			p.Text = text.String()
			return nil
		}
		skip = 0
	}
	p.Text = text.String()
	switch {
	case s.more && p.LastLine == p.Lines && p.LastLine < ranges[len(ranges)-1].Last:
		p.more(s, []internalurl.Range{{First: p.LastLine + 1, Last: ranges[len(ranges)-1].Last}}, 0)
	case p.LastLine < p.Lines && s.paging:
		p.more(s, nil, 0)
	case s.next != "" && p.LastLine == p.Lines && ranges[len(ranges)-1].Last == internalurl.ToEnd:
		p.note("Use %s to continue", s.next)
	}
	return nil
}

// more notes what was shown and how to go on.
func (p *Page) more(s *selection, rest []internalurl.Range, skip int64) {
	what := fmt.Sprintf("Showing lines %d-%d of %d", p.FirstLine, p.LastLine, p.Lines)
	if p.FirstLine == p.LastLine {
		what = fmt.Sprintf("Showing line %d of %d", p.FirstLine, p.Lines)
	}
	if s.more {
		what = fmt.Sprintf("Showing lines %d-%d of %s", p.FirstLine, p.LastLine, size(s.size))
	}
	if len(rest) == 0 && s.paging && p.LastLine < p.Lines {
		rest = []internalurl.Range{{First: p.LastLine + 1, Last: internalurl.ToEnd}}
	}
	if len(rest) > 0 {
		if last := &rest[len(rest)-1]; last.Last == p.Lines {
			last.Last = internalurl.ToEnd
		}
		what += fmt.Sprintf(". Use %s%s to continue", p.URL, internalurl.Selector{Ranges: rest, Skip: skip})
	}
	p.Notes = append(p.Notes, what)
}

// excerpt is sanitised text of some lines.
type excerpt struct {
	text string
	last int64 // the last line it has, first-1 for none
	skip int64 // how much of that line was shown, when it is cut; else 0
}

// lines takes the lines r.First to last as far as they fit in budget bytes, without the first
// skip bytes. The first line of a page is shown in part rather than not at all.
func (p *Page) lines(ctx context.Context, s *selection, r internalurl.Range, last int64, budget int, skip int64, numbers bool) (excerpt, error) {
	none := excerpt{last: r.First - 1}
	if last < r.First || budget <= 0 {
		return none, nil
	}
	section, err := s.res.Lines(ctx, internalurl.Range{First: r.First, Last: last})
	if err != nil {
		return none, err
	}
	rest, skip, whole, err := sanitise(ctx, section.SectionReader, skip, budget)
	if err != nil {
		return none, fmt.Errorf("reading %s: %w", s.res.URL, err)
	}
	if whole && !numbers && len(rest) <= budget {
		return excerpt{text: string(rest), last: section.Last}, nil
	}
	var text []byte
	line := r.First
	var number []byte
	for len(rest) > 0 {
		if number = number[:0]; numbers {
			number = append(strconv.AppendInt(number, line, 10), '\t')
		}
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 && whole {
			end = len(rest)
		}
		if end == 0 || len(text)+len(number)+end > budget {
			break
		}
		text = append(append(text, number...), rest[:end]...)
		rest = rest[end:]
		line++
	}
	switch {
	case whole && len(rest) == 0:
		return excerpt{text: string(text), last: section.Last}, nil
	case line > r.First:
		return excerpt{text: string(text), last: line - 1}, nil
	case p.FirstLine != 0:
		return none, nil // it begins the next page
	}
	raw, err := s.res.Lines(ctx, internalurl.Range{First: r.First, Last: r.First})
	if err != nil {
		return none, err
	}
	part := rest[:max(min(len(rest), budget-len(number)), 0)]
	if i := lastRune(part); i >= 0 && !utf8.FullRune(part[i:]) {
		part = part[:i]
	}
	if len(part) == 0 {
		p.note("Line %d is %s long and holds nothing to show for %s. Use %s:raw:%[1]d+1 for its bytes", r.First, size(raw.Size()), size(maxScan), p.URL)
		return excerpt{last: r.First}, nil
	}
	p.note("Line %d is %s long and shown in part", r.First, size(raw.Size()))
	return excerpt{text: string(append(number, part...)), last: r.First, skip: skip + int64(len(part))}, nil
}

// leftOut is how many bytes of the lines from first on are not in their text, other than carriage returns at the ends of
// lines and a byte order mark. Of a line that is shown in part, and of what a command printed, it is 0: a terminal shows
// no more of that either.
func (s *selection) leftOut(ctx context.Context, first int64, got excerpt, skip int64, numbers bool) (int64, error) {
	if s.rendered || got.skip > 0 || s.res.Kind != "file" && s.res.Kind != "member" && s.res.Kind != "blob" {
		return 0, nil
	}
	section, err := s.res.Lines(ctx, internalurl.Range{First: first, Last: got.last})
	if err != nil {
		return 0, err
	}
	shown := int64(len(got.text)) + skip
	for line := first; numbers && line <= got.last; line++ {
		shown -= int64(len(strconv.FormatInt(line, 10)) + len("\t"))
	}
	gone := section.Size() - shown
	if gone <= 0 {
		return 0, nil
	}
	r := contextReader{ctx, section.SectionReader}
	block := make([]byte, 32<<10)
	var last byte
	for begun := false; ; begun = true {
		n, err := io.ReadFull(r, block)
		part := block[:n]
		if !begun && first == 1 && bytes.HasPrefix(part, []byte("\ufeff")) {
			gone -= int64(len("\ufeff"))
		}
		gone -= int64(bytes.Count(part, []byte("\r\n")))
		if n > 0 {
			if last == '\r' && part[0] == '\n' {
				gone--
			}
			last = part[n-1]
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return max(gone, 0), nil
		}
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", s.res.URL, err)
		}
	}
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

// sanitise reads r until there is more text than budget, or the end, or maxScan. Of the first
// line the first skip bytes of the text are left out, as far as it goes; how many that
// were is returned. whole is set when the end was reached.
func sanitise(ctx context.Context, r *io.SectionReader, skip int64, budget int) (text []byte, skipped int64, whole bool, err error) {
	var clean outputsink.Sanitizer
	text = make([]byte, 0, budget+4<<10)
	block := make([]byte, 32<<10)
	for scanned := 0; skipped < skip || len(text) <= budget && scanned < maxScan; {
		if err := ctx.Err(); err != nil {
			return nil, 0, false, err
		}
		n, err := r.Read(block)
		text = clean.Append(text, block[:n])
		if skipped == skip {
			scanned += n
		}
		if errors.Is(err, io.EOF) {
			whole = true
			break
		}
		if err != nil {
			return nil, 0, false, err
		}
		text, skipped, skip = leaveOut(text, skipped, skip)
	}
	text = clean.Flush(text)
	text, skipped, _ = leaveOut(text, skipped, skip)
	if !whole {
		at, _ := r.Seek(0, io.SeekCurrent)
		whole = at == r.Size()
	}
	return text, skipped, whole, nil
}

// leaveOut takes the beginning of a line off a text: up to skip bytes, skipped of which are gone.
// Where the line ends before, no more of it is left out.
func leaveOut(text []byte, skipped, skip int64) ([]byte, int64, int64) {
	n := int(min(skip-skipped, int64(len(text))))
	if n <= 0 {
		return text, skipped, skip
	}
	if end := bytes.IndexByte(text[:n], '\n'); end >= 0 {
		n, skip = end, skipped+int64(end)
	}
	for n < len(text) && n > 0 && !utf8.RuneStart(text[n]) {
		n++ // what was asked for is in the middle of a character
		skip = max(skip, skipped+int64(n))
	}
	return append(text[:0], text[n:]...), skipped + int64(n), skip
}

// skipped is a section without its first bytes, as far as its first line goes.
func skipped(s internalurl.Section, skip int64) internalurl.Section {
	if skip = min(skip, max(s.Size()-1, 0)); skip > 0 {
		s.SectionReader = io.NewSectionReader(s.SectionReader, skip, s.Size()-skip)
	}
	return s
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
