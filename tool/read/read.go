// Package read shows what a URL or a file holds, a page at a time.
//
// # What is promised
//
//   - A page has at most MaxLines lines and MaxBytes bytes, whole lines only. A
//     line that is longer than a page is shown in part. Whenever a page is not
//     everything, a note says exactly what to read to go on; pages that follow
//     each other are the whole, once.
//   - Text is sanitised, as in the view of a running command: no control
//     sequences, the last state of lines that were rewritten, valid UTF-8. Lines
//     keep their numbers. With ":raw" it is the very bytes.
//   - Text in another encoding is shown as UTF-8, and a note says which it is; so
//     it is for files, blobs and members of archives. What a command printed is
//     taken for UTF-8, or for UTF-16 when it is clearly that.
//   - A directory is a list of what is in it, and so is an archive (zip, tar, tar.gz, tar.zst,
//     tar.bz2); "a.zip:dir/x" is a member of it, "a.zip:dir/" a directory, and "a.zip:/10-20"
//     one whose name looks like a selector. A file that is compressed alone has one member.
//     "a.zip:b.tar:x" is a member of an archive in an archive, of which four may be in each other.
//   - A file that the kernel makes while it is read (/proc, /sys) is what it gives at once, and
//     at most 64 MiB of it. Devices, FIFOs and sockets are refused.
//   - A notebook (.ipynb) is its cells and their outputs, with the pictures among them. A PDF is
//     its text page by page, ":p7" and ":p7-9" are pages of it.
//   - A picture (PNG, JPEG, GIF, WebP) is in Page.Images as models take it: smaller where it
//     was too large, and then the original is kept as a blob.
//   - Binary content is not shown as text; a note says what it is and how it begins, and its
//     bytes are in Page.Data.
//   - Memory is bounded by limits, not by the content, and a page deep in a
//     large artifact costs a seek. A file above 100 MiB, that is not UTF-16, is read up to the end
//     of the page only, and its lines are not counted then. What has to be in memory to be shown has a limit of its
//     own: a picture of 50 million pixels, a notebook or a compressed member of 64 MiB, a PDF of
//     256 MiB. Only a part of structured output of an agent is delivered whole, whatever its size.
//
// A file is opened by its name, through links, as the user names it, or within a
// workspace; everything else is asked of the router. Nothing here writes, but for the originals
// of pictures. All functions are safe for concurrent use.
package read

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/internal/notebook"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/workspace"
)

// Limits of a page: DEFAULT_MAX_LINES and DEFAULT_MAX_BYTES of oh-my-pi 18.
const (
	MaxLines = 3000
	MaxBytes = 50 << 10
)

// DefaultMaxRaw is how many bytes of ":raw" content a Page holds. Copy has no
// such limit.
const DefaultMaxRaw = 64 << 20

// Options choose what to read and how much of it. The zero value reads the first
// page.
type Options struct {
	// Offset is the first line, from 1, and Limit the number of lines; 0 means
	// not given. They do not go with lines in the URL.
	Offset, Limit int64
	// Raw is the same as ":raw" in the URL.
	Raw bool
	// MaxRaw bounds raw content in a Page, in bytes; 0 means DefaultMaxRaw.
	MaxRaw int
	// Numbers puts the number of each line in front of it, and a tab. Raw content has none.
	Numbers bool
	// Blobs keeps the originals of pictures that are shown smaller; nil keeps none.
	Blobs blobstore.Store
	// Files is where files are looked for, and what was shown is remembered; nil opens
	// them by their names as they are.
	Files *workspace.Workspace
	// Seen is told of each file that is shown: its real path, and what it holds; nil is
	// nobody.
	Seen func(path string, size int64, crc32c uint32)
}

// Opener opens URLs; *internalurl.Router is one.
type Opener interface {
	OpenURL(ctx context.Context, u internalurl.URL) (*internalurl.Resource, error)
}

// Page is what was read. Its JSON form is what `agentrun read --json` prints.
type Page struct {
	URL         string // without selector
	ContentType string
	Size        int64 // bytes of the whole
	// Lines is how many the whole has; -1 for a file above 100 MiB of which less was looked at.
	Lines int64
	// FirstLine and LastLine are the first and last that are shown, 0 when there
	// are none.
	FirstLine, LastLine int64

	Text string // "" for binary content
	Data []byte // binary content; nil for text
	// Images are the pictures of the page, in the order in which notes name them.
	Images []tool.Image
	// Encoding is that of the content when it is not plain UTF-8; "" when it is.
	Encoding string
	// Pages are those of a document that Lines counts; the zero value for what has no pages.
	Pages Pages
	Notes []string // remarks, one sentence each: what is not shown and how to read it
}

// Pages are pages of a document, from 1.
type Pages struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	Of    int64 `json:"of"` // how many it has
}

// Read returns a page of target, a URL or the name of a file, either with a
// selector at its end.
func Read(ctx context.Context, o Opener, target string, opt Options) (Page, error) {
	s, err := open(ctx, o, target, opt)
	if err != nil {
		return Page{}, err
	}
	defer s.res.Close()
	if err := s.interpret(ctx, opt); err != nil {
		return Page{}, err
	}
	p, err := s.page(ctx, opt)
	if s.file != nil && err == nil && s.size < lazyFrom {
		// Who sees a part of what was made of it has seen the file.
		if _, err := s.file.Index(ctx); err != nil {
			return p, err
		}
		s.file.shown(opt)
	}
	return p, err
}

// ErrChanged is returned by Copy for an artifact whose bytes are not those that were
// kept.
var ErrChanged = errors.New("what was read is not what was kept; agentrun doctor looks for it elsewhere")

// Copy writes the bytes of target to w as they are, without limits, as if ":raw"
// stood at its end, and returns how many there were. Lines are selected as in
// Read. Of an artifact that changed since it was kept all is written too, and the
// error matches ErrChanged; where all of it is read, its checksum tells.
func Copy(ctx context.Context, w io.Writer, o Opener, target string, opt Options) (int64, error) {
	opt.Raw = true
	s, err := open(ctx, o, target, opt)
	if err != nil {
		return 0, err
	}
	defer s.res.Close()
	sections, err := s.sections(ctx)
	if err != nil {
		return 0, err
	}
	var total int64
	sum := crc32.New(castagnoli)
	if s.res.Kept != nil {
		w = io.MultiWriter(w, sum)
	}
	for _, section := range sections {
		n, err := io.Copy(w, contextReader{ctx, section})
		total += n
		if err != nil {
			return total, fmt.Errorf("reading %s: %w", s.res.URL, err)
		}
	}
	if m, ok := s.res.Content.(*made); ok && m.cut {
		return total, fmt.Errorf("%s goes on: %s", s.res.URL, strings.ToLower(m.remark()[:1])+m.remark()[1:])
	}
	return total, s.unchanged(total, sum.Sum32())
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// unchanged returns ErrChanged for an artifact that is not what was kept, as far as
// that shows in total bytes with that checksum.
func (s *selection) unchanged(total int64, sum uint32) error {
	kept, all := s.res.Kept, len(s.sel.Ranges) == 0 && s.sel.Tail == 0
	switch {
	case s.res.Changed:
		return fmt.Errorf("%s: %w", strings.Join(s.res.Notes, "; "), ErrChanged)
	case kept == nil || !all || total == kept.Bytes && sum == kept.CRC32C:
		return nil
	case total != kept.Bytes:
		return fmt.Errorf("%s had %d bytes when it was finished and has %d now: %w", s.res.URL, kept.Bytes, total, ErrChanged)
	}
	return fmt.Errorf("%s is changed: its checksum was %08x when it was finished and is %08x now: %w", s.res.URL, kept.CRC32C, sum, ErrChanged)
}

// contextReader ends a copy of any length when ctx is cancelled.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// selection is an open resource and which lines of it to read.
type selection struct {
	res    *internalurl.Resource
	sel    internalurl.Selector
	paging bool // a default page or offset and limit: the next page is named

	file *file  // that is read; nil for what is none
	base string // what was opened, without selector, and without the last member
	name string // of the file or member
	ref  string // the blob that is read, as pictures name it; "" for what is none

	size     int64              // of the content, whatever is made of it
	rendered bool               // the content is text that was made of it
	encoding string             // Page.Encoding
	outputs  []notebook.Picture // of a notebook
	pictures []placed           // that are the page
	only     string             // the note of a page that is nothing but pictures
	pages    Pages              // of a document, that are its lines
	more     bool               // the content is the front of a file that goes on
	next     string             // what follows these pages; "" for nothing
}

func open(ctx context.Context, o Opener, target string, opt Options) (*selection, error) {
	if opt.Offset < 0 || opt.Limit < 0 {
		return nil, errors.New("offset and limit count lines from 1: use positive numbers")
	}
	s := &selection{}
	paged := opt.Offset > 0 || opt.Limit > 0
	member := ""
	if internalurl.Is(target) {
		u, err := internalurl.Parse(target)
		if err != nil {
			return nil, err
		}
		if s.sel, err = combine(u.Selector, opt, target); err != nil {
			return nil, err
		}
		// As if it stood in the URL, so that it is refused where that would be.
		u.Selector = s.sel
		if o == nil {
			return nil, fmt.Errorf("%s cannot be read here: only files can", target)
		}
		if s.res, err = o.OpenURL(ctx, u); err != nil {
			return nil, err
		}
		if u.Scheme == internalurl.Blob && u.Member == "" {
			s.ref = u.Ref.String()
		}
		member = u.Member
		s.base = s.res.URL
		s.name = s.res.URL
	} else {
		n, err := cutFile(opt.Files, target)
		if err != nil {
			return nil, err
		}
		member = n.member
		if s.sel, err = combine(n.sel, opt, target); err != nil {
			return nil, err
		}
		if s.res, err = openFile(ctx, opt.Files, n.path); err != nil {
			return nil, err
		}
		s.file, _ = s.res.Content.(*file)
		s.base, s.name = n.path, n.path
	}
	if member != "" {
		if err := s.enter(ctx, member); err != nil {
			_ = s.res.Close() // the error to report is that of the archive
			return nil, err
		}
	}
	s.paging = paged || len(s.sel.Ranges) == 0 && s.sel.Tail == 0
	return s, nil
}

// combine adds the options to the selector of the target.
func combine(sel internalurl.Selector, opt Options, target string) (internalurl.Selector, error) {
	sel.Raw = sel.Raw || opt.Raw
	if opt.Offset == 0 && opt.Limit == 0 {
		return sel, nil
	}
	if len(sel.Ranges) > 0 || sel.Tail > 0 {
		return sel, fmt.Errorf("cannot combine offset or limit with the lines selected in %s: use one of them", target)
	}
	first, last := max(opt.Offset, 1), int64(internalurl.ToEnd)
	if opt.Limit > 0 && opt.Limit <= internalurl.ToEnd-first {
		last = first + opt.Limit - 1
	}
	sel.Ranges = []internalurl.Range{{First: first, Last: last}}
	return sel, nil
}

// ranges are the lines to read. None means the whole content.
func (s *selection) ranges(ctx context.Context) ([]internalurl.Range, error) {
	if s.sel.Tail == 0 {
		return s.sel.Ranges, nil
	}
	ix, err := s.res.Index(ctx)
	if err != nil || ix.Lines == 0 {
		return nil, err
	}
	first, last := ix.Tail(s.sel.Tail)
	return []internalurl.Range{{First: first, Last: last}}, nil
}

// sections are the bytes to read, without limits.
func (s *selection) sections(ctx context.Context) ([]*io.SectionReader, error) {
	ranges, err := s.ranges(ctx)
	if err != nil {
		return nil, err
	}
	if len(ranges) == 0 {
		size, err := s.res.Size()
		return []*io.SectionReader{io.NewSectionReader(s.res, 0, size)}, err
	}
	var sections []*io.SectionReader
	for i, r := range ranges {
		section, err := s.res.Lines(ctx, r)
		if errors.Is(err, lineindex.ErrRange) && i > 0 {
			break // the list began within the content
		}
		if err != nil {
			return nil, err
		}
		if i == 0 {
			section = skipped(section, s.sel.Skip)
		}
		sections = append(sections, section.SectionReader)
	}
	return sections, nil
}

// isText reports whether content of that type is shown as text.
func isText(contentType string) bool {
	return strings.HasPrefix(contentType, "text/") || contentType == internalurl.TypeJSON
}
