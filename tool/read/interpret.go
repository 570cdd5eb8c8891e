package read

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gabriel-vasile/mimetype"

	"github.com/agentrun/agentrun/internal/archive"
	"github.com/agentrun/agentrun/internal/charset"
	"github.com/agentrun/agentrun/internal/picture"
	"github.com/agentrun/agentrun/internal/textform"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/outputsink"
)

// ErrNoPages is matched by the error for pages of what has none.
var ErrNoPages = errors.New("it has no pages")

// interpret finds out what the content is, and makes of it what is shown: text in UTF-8, or
// a picture. What is raw is left as it is.
func (s *selection) interpret(ctx context.Context, opt Options) error {
	res := s.res
	if s.sel.Raw || s.rendered || res.Extracted || res.Kind == "directory" {
		return s.noPages()
	}
	size, err := res.Size()
	if err != nil {
		return err
	}
	head := make([]byte, min(size, outputsink.BinaryWindow))
	if n, err := res.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading %s: %w", res.URL, err)
	} else {
		head = head[:n]
	}
	s.size = size
	if res.ContentType == internalurl.TypeText || res.ContentType == internalurl.TypeBytes {
		// What a command printed may be anything.
		if res.ContentType, err = internalurl.Sniff(res); err != nil {
			return fmt.Errorf("reading %s: %w", res.URL, err)
		}
	}
	if res.ContentType == "application/pdf" {
		return s.pdf(ctx)
	}
	if err := s.noPages(); err != nil {
		return err
	}
	binary := res.ContentType == internalurl.TypeBytes
	switch format := archive.Detect(head); {
	case picture.Takes(res.ContentType):
		return s.picture(ctx, opt)
	case format == archive.Bzip2 && !binary:
	case format != "":
		return s.listArchive(ctx, format)
	}
	if !binary && strings.HasSuffix(strings.ToLower(s.name), ".ipynb") {
		if done, err := s.notebook(ctx, opt); done || err != nil {
			return err
		}
	}
	if form, _, err := textform.Detect(head); err == nil && form != textform.UTF16LE && form != textform.UTF16BE {
		if err := s.shorten(ctx); err != nil {
			return fmt.Errorf("reading %s: %w", res.URL, err)
		}
	}
	if err := s.decode(ctx, head, binary); err != nil {
		return err
	}
	if res.ContentType == internalurl.TypeBytes {
		s.describe(head)
	}
	return nil
}

func (s *selection) noPages() error {
	if s.sel.Pages == (internalurl.Range{}) {
		return nil
	}
	return fmt.Errorf("%s: %w: select lines, as in %[1]s:10-20", s.res.URL, ErrNoPages)
}

// describe notes what binary content is.
func (s *selection) describe(head []byte) {
	if t := mimetype.Detect(head).String(); t != "" && !strings.HasPrefix(t, "text/") {
		s.res.ContentType = t
	}
	const shown = 32
	first := fmt.Sprintf("% x", head[:min(len(head), shown)])
	if len(head) > shown {
		first += " ..."
	}
	s.res.Notes = append(s.res.Notes, fmt.Sprintf("It is %s and begins with %s", s.res.ContentType, first))
}

// decode makes UTF-8 of text in another encoding. What commands print is in none: the view of a
// run showed it as UTF-8 with damage, and so is it here, but for UTF-16.
func (s *selection) decode(ctx context.Context, head []byte, binary bool) error {
	form, bom, err := textform.Detect(head)
	var e charset.Encoding
	switch {
	case err != nil:
		return nil // it is binary
	case form == textform.UTF16LE:
		e = charset.UTF16LE
	case form == textform.UTF16BE:
		e = charset.UTF16BE
	case bom > 0:
		s.res.Content = &behind{Content: s.res.Content, from: int64(bom)}
		s.encoding = "UTF-8 with a byte order mark"
		return nil
	case s.res.Kind != "file" && s.res.Kind != "member" && s.res.Kind != "blob", !isText(s.res.ContentType) && !binary:
		return nil
	case binary:
		var check charset.Checker
		_, _ = check.Write(head) // never fails
		if e = check.Guess(); e.IsUTF8() || e.Western() || controls(head)*50 > len(head) {
			return nil
		}
	default:
		if e, err = guess(ctx, s.res.Content); err != nil {
			return fmt.Errorf("reading %s: %w", s.res.URL, err)
		}
		if e.IsUTF8() || controls(head)*50 > len(head) {
			return nil
		}
	}
	s.res.Content = &transcoded{Content: s.res.Content, encoding: e, from: int64(bom)}
	s.res.ContentType = internalurl.TypeText
	s.encoding = e.String()
	if bom > 0 {
		s.encoding += " with a byte order mark"
	}
	s.res.Notes = append(s.res.Notes, "It is "+s.encoding+", shown as UTF-8")
	return nil
}

// controls counts what text does not have.
func controls(head []byte) int {
	n := 0
	for _, b := range head {
		if b < ' ' && b != '\n' && b != '\r' && b != '\t' && b != '\f' && b != 0x1b {
			n++
		}
	}
	return n
}
