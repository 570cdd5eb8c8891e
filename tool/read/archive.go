package read

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode"

	"github.com/agentrun/agentrun/internal/archive"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/outputsink"
)

// source is the content as an archive; nil when it is none.
func (s *selection) source() (*archive.Source, error) {
	size, err := s.res.Size()
	if err != nil {
		return nil, err
	}
	head := make([]byte, min(size, archive.Window))
	n, err := s.res.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading %s: %w", s.res.URL, err)
	}
	format := archive.Detect(head[:n])
	if format == "" {
		return nil, nil
	}
	// Not s.res: its content becomes the member, which is read from the archive.
	return &archive.Source{ReaderAt: s.res.Content, Size: size, Name: s.name, Format: format}, nil
}

// listArchive makes a page of what an archive has.
func (s *selection) listArchive(ctx context.Context, format archive.Format) error {
	a, err := (&archive.Source{ReaderAt: s.res.Content, Size: s.size, Name: s.name, Format: format}).List(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		s.res.Notes = append(s.res.Notes, fmt.Sprintf("It begins as %s does, but: %v", format, err))
		s.res.ContentType = internalurl.TypeBytes
		return nil
	}
	s.list(a, "")
	return nil
}

// list shows the members of an archive, those below a directory of it.
func (s *selection) list(a archive.Archive, dir string) {
	s.size, _ = s.res.Size() // which was asked for before
	members := a.Below(dir)
	var list bytes.Buffer
	for _, m := range members {
		list.WriteString(oneLine(m.Name))
		switch {
		case m.Mode&fs.ModeSymlink != 0, m.Link != "":
			list.WriteString(" -> " + oneLine(m.Link))
		case strings.HasSuffix(m.Name, "/"):
		case m.Mode.IsDir():
			list.WriteString("/")
		case m.Size >= 0:
			list.WriteString("  " + outputsink.FormatBytes(m.Size))
		}
		list.WriteByte('\n')
	}
	s.rendered = true
	s.res.Kind = "archive"
	count := fmt.Sprintf("%d members", len(a.Members))
	if len(a.Members) == 1 {
		count = "1 member"
	}
	about := fmt.Sprintf("%s archive of %s; read one as %s:/NAME", a.Format, count, s.base)
	switch a.Format {
	case archive.Gzip, archive.Zstd, archive.Bzip2:
		about = fmt.Sprintf("It is compressed with %s; read its content as %s", a.Format, s.memberName(a.Members[0].Name))
	}
	s.res.Notes = append(s.res.Notes, about)
	if a.Cut != "" {
		s.res.Notes = append(s.res.Notes, a.Cut)
	}
	s.res.Content = newText(list.Bytes(), s.res.Content)
}

// oneLine is a name on a line, whatever it holds: newlines, and sequences that a terminal obeys.
func oneLine(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, name)
}

// memberName is what a member is called from outside.
func (s *selection) memberName(member string) string {
	if _, sel, err := internalurl.CutSelector("x:" + member); internalurl.Is(s.base) || err != nil || !sel.IsZero() || strings.HasPrefix(member, "/") {
		return s.base + ":/" + strings.TrimLeft(member, "/")
	}
	return s.base + ":" + member
}

// maxNesting is how many archives may be in each other.
const maxNesting = 4

// enter goes from an archive to a member of it, or to a directory; "b.tar:x" is a member of a
// member.
func (s *selection) enter(ctx context.Context, member string) error {
	var err error
	for depth := 1; member != "" && err == nil; depth++ {
		if depth > maxNesting {
			return fmt.Errorf("%s is the last of %d archives in each other that are read: extract it", s.base, maxNesting)
		}
		member, err = s.step(ctx, member)
	}
	return err
}

// step goes to the member of that name, or to the one that the name begins with, and returns
// what the latter leaves of it.
func (s *selection) step(ctx context.Context, member string) (rest string, err error) {
	src, err := s.source()
	if err != nil {
		return "", err
	}
	if src == nil {
		return "", s.noArchive(member)
	}
	content, err := src.Open(ctx, member)
	if errors.Is(err, archive.ErrNoMember) {
		a, lerr := src.List(ctx)
		if lerr != nil {
			return "", fmt.Errorf("reading %s: %w", s.base, lerr)
		}
		if below := a.Below(member); len(below) > 0 && strings.Trim(member, "/.") != "" && !s.sel.Raw {
			s.res.URL = s.memberName(strings.TrimSuffix(member, "/") + "/")
			s.list(a, member)
			return "", nil
		}
		outer, inner, ok := within(a, member)
		if !ok {
			return "", fmt.Errorf("%s has no member %.200q: %s", s.base, member, some(a))
		}
		member, rest = outer, inner
		content, err = src.Open(ctx, member)
	}
	if err != nil {
		return "", fmt.Errorf("reading %.200s: %w", s.memberName(member), err)
	}
	s.res.Content = newPart(content, content.Size, s.res.Content)
	s.res.URL, s.res.Kind, s.res.ContentType = s.memberName(member), "member", internalurl.TypeText
	s.res.Kept, s.res.Changed = nil, false
	s.base, s.name = s.res.URL, member
	return rest, nil
}

// maxColons is how many places of a name may be the end of that of a member.
const maxColons = 50

// within cuts a name at a colon behind that of a member.
func within(a archive.Archive, name string) (member, rest string, ok bool) {
	end := len(name)
	for range maxColons {
		if end = strings.LastIndexByte(name[:end], ':'); end < 0 {
			break
		}
		if rest := strings.TrimLeft(name[end+1:], "/"); rest != "" && a.Has(name[:end]) {
			return name[:end], rest, true
		}
	}
	return "", "", false
}

// noArchive says why nothing was found by a name: it may have been meant as a selector.
func (s *selection) noArchive(member string) error {
	if s.res.Kind == "directory" {
		return fmt.Errorf("%s is a directory, and %.80q selects no lines of its list: read %s/NAME for what is in it", s.base, member, strings.TrimRight(s.base, "/"))
	}
	_, sel, err := internalurl.CutSelector("x:" + member)
	if err != nil || !sel.IsZero() || !strings.ContainsAny(member, "./") {
		if _, err := internalurl.ParseSelector(":" + member); err != nil {
			return fmt.Errorf("reading %s: %w", s.base, err)
		}
	}
	return fmt.Errorf("%s is no archive, so there is no %.80q in it: select lines, as in %[1]s:10-20, or read it whole", s.base, member)
}

// some names some members.
func some(a archive.Archive) string {
	const most = 10
	var names []string
	for _, m := range a.Members[:min(len(a.Members), most)] {
		names = append(names, fmt.Sprintf("%.100s", oneLine(m.Name)))
	}
	text := "it has " + strings.Join(names, ", ")
	switch {
	case len(names) == 0:
		return "it is empty"
	case len(a.Members) > most:
		text += fmt.Sprintf(" and %d more", len(a.Members)-most)
	}
	return text
}
