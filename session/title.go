package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/record"
)

// Sources of a title.
const (
	TitleUser = "user" // a person chose it
	TitleAuto = "auto" // a program made it
)

// maxTitleBytes bounds a title; what is shown of it is far less.
const maxTitleBytes = 4096

// Title is the session's title, "" when it has none. A title that the header had
// to cut is read from the entry that gave it.
func (s *Session) Title(ctx context.Context) (string, error) {
	st, err := s.snapshot(ctx)
	if err != nil {
		return "", err
	}
	title := st.header.Title
	if st.hasSlot {
		title = st.slot.Title
	}
	if st.file == nil || st.none {
		return "", nil
	}
	if title != "" && len(title) < shortTitle {
		return title, nil
	}
	// pi knows titles only from entries, and a long one is cut in the header.
	full, ok, err := s.titleEntry(ctx, title)
	if err != nil || !ok {
		return title, err
	}
	return full, nil
}

// shortTitle is a length in bytes that no header or slot of usual size cuts.
const shortTitle = 64

// titleEntry finds the last entry that gives a title.
func (s *Session) titleEntry(ctx context.Context, prefix string) (string, bool, error) {
	t, err := s.Tree(ctx)
	if err != nil {
		return "", false, err
	}
	for i := len(t.nodes.list) - 1; i >= 0; i-- {
		if t.nodes.list[i].kind != kindTitle {
			continue
		}
		e, err := t.entry(i)
		if err != nil {
			return "", false, fmt.Errorf("reading %s: %w", s.path, err)
		}
		if title, _, ok := e.Title(); ok {
			return title, prefix == "" || strings.HasPrefix(title, prefix), nil
		}
	}
	return "", false, nil
}

// CleanTitle makes one line of a title: control characters and runs of white
// space become a space.
func CleanTitle(title string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(title, "\uFFFD"), func(r rune) bool {
		return r <= ' ' || r == 0x7f || r >= 0x80 && r <= 0x9f || r == '\u2028' || r == '\u2029'
	}), " ")
}

// Rename gives the session a title. Two entries record it, one for oh-my-pi and
// one for pi; then the header is written over in place. Should that last step
// fail, the title is not lost: the entries have it.
func (s *Session) Rename(ctx context.Context, title, source string) error {
	title = CleanTitle(title)
	switch {
	case title == "":
		return fmt.Errorf("renaming %s: the title is empty; give at least one visible character", s.path)
	case len(title) > maxTitleBytes:
		return fmt.Errorf("renaming %s: the title has %d bytes and may have %d; shorten it", s.path, len(title), maxTitleBytes)
	}
	previous, err := s.Title(ctx)
	if err != nil {
		return err
	}
	_, err = s.AppendAll(ctx,
		entry.TitleChange{Title: title, PreviousTitle: previous, Source: source},
		entry.SessionInfo{Name: title})
	if err != nil {
		return err
	}
	g := &group{wake: make(chan wake, 1), do: func() error { return s.writeTitle(ctx, title, source) }}
	return s.submit(ctx, g)
}

// writeTitle writes the title into the header, or into the title slot of a file
// that oh-my-pi made. The lock is held.
func (s *Session) writeTitle(ctx context.Context, title, source string) error {
	st := s.known()
	if st.hasSlot {
		slot := record.AppendSlot(nil, title, source, s.now())
		if st.at == int64(len(slot)) {
			return s.overwrite(slot, 0)
		}
	}
	line, err := record.Retitle(st.line, title, source)
	if err == nil && len(line) <= len(st.line)+1 {
		return s.overwrite(line[:len(st.line)], st.at)
	}
	if err != nil && !errors.Is(err, record.ErrNoRoom) {
		return fmt.Errorf("renaming %s: %w", s.path, err)
	}
	header := st.header
	header.Title, header.TitleSource = title, source
	return s.rewrite(ctx, header.AppendLine(nil))
}

// overwrite replaces bytes of the first lines by as many others.
func (s *Session) overwrite(b []byte, at int64) error {
	// Not the descriptor for appends: Linux appends whatever offset it is given.
	f, err := s.fs.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		return openError(s.path, err)
	}
	_, err = f.WriteAt(b, at)
	if err == nil && s.durability == Sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.st.preamble, err = readPreamble(s.st.src)
	}
	if err != nil {
		return fmt.Errorf("renaming %s: %w", s.path, err)
	}
	return nil
}
