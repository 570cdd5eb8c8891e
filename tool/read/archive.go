package read

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

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
	about := fmt.Sprintf("%s archive of %d members; read one as %s:/NAME", a.Format, len(a.Members), s.base)
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

// oneLine is a name on a line, whatever it holds.
func oneLine(name string) string { return strings.ReplaceAll(name, "\n", "?") }

// memberName is what a member is called from outside.
func (s *selection) memberName(member string) string {
	if _, sel, err := internalurl.CutSelector(member); internalurl.Is(s.base) || err != nil || !sel.IsZero() || strings.HasPrefix(member, "/") {
		return s.base + ":/" + strings.TrimLeft(member, "/")
	}
	return s.base + ":" + member
}

// enter goes from an archive to a member of it, or to a directory.
func (s *selection) enter(ctx context.Context, member string) error {
	src, err := s.source()
	if err != nil {
		return err
	}
	if src == nil {
		return fmt.Errorf("%s is no archive, so there is no %.80q in it: lines are selected as in %[1]s:10-20", s.base, member)
	}
	content, err := src.Open(ctx, member)
	if errors.Is(err, archive.ErrNoMember) {
		a, lerr := src.List(ctx)
		if lerr != nil {
			return fmt.Errorf("reading %s: %w", s.base, lerr)
		}
		if below := a.Below(member); len(below) > 0 && strings.Trim(member, "/.") != "" && !s.sel.Raw {
			s.res.URL = s.memberName(strings.TrimSuffix(member, "/") + "/")
			s.list(a, member)
			return nil
		}
		return fmt.Errorf("%s has no member %.200q: %s", s.base, member, named(a))
	}
	if err != nil {
		return fmt.Errorf("reading %.200s: %w", s.memberName(member), err)
	}
	s.res.Content = &part{ReaderAt: content, size: content.Size, under: s.res.Content}
	s.res.URL, s.res.Kind, s.res.ContentType = s.memberName(member), "member", internalurl.TypeText
	s.res.Kept, s.res.Changed = nil, false
	s.name = member
	return nil
}

// named are some members.
func named(a archive.Archive) string {
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
