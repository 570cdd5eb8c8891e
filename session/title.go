package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
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

// Title is the session's title, "" when it has none. The entry that gave the last
// one counts: pi writes nothing else, and the header may have had to cut it. Only
// a title slot that was written after that entry and says something else is newer.
func (s *Session) Title(ctx context.Context) (string, error) {
	st, err := s.snapshot(ctx)
	switch {
	case err != nil:
		return "", err
	case st.file == nil:
		return s.head().Title, nil
	}
	title := st.header.Title
	if st.hasSlot {
		title = st.slot.Title
	}
	if st.none {
		return title, nil
	}
	given, err := s.lastTitle(ctx, st)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", s.Path(), err)
	}
	if !given.OK || st.hasSlot && st.slot.UpdatedAt > given.At && !(title != "" && strings.HasPrefix(given.Title, title)) {
		return title, nil
	}
	return given.Title, nil
}

// given is what the entries of a log say about its title.
type given struct {
	OK    bool   `json:"ok"`    // an entry gave one
	Title string `json:"title"` // the last one, on whatever branch
	At    string `json:"at"`    // the timestamp of its entry
	To    int64  `json:"to"`    // how far the log was read for it
}

// titleReach is how much of the end of a log is read for a title before the index
// is asked, and then all of it.
const titleReach = 16 << 20

// lastTitle finds the last entry that gives a title. A compaction of ours repeats
// the title of its time, so that nothing before it has to be read.
func (s *Session) lastTitle(ctx context.Context, st state) (given, error) {
	s.mu.Lock()
	known := s.given
	s.mu.Unlock()
	if known.file != st.file {
		known = titleMark{file: st.file}
		if ix, ok := s.loadIndex(st); ok && ix.Given.To >= st.end {
			known.given = ix.Given
		}
	}
	if known.To == 0 {
		from := max(st.end, st.src.size-titleReach)
		found, told, err := findTitle(ctx, st.src, from, st.src.size)
		if err == nil && !told && from > st.end {
			found, err = s.titleInTree(ctx)
		}
		if err != nil {
			return given{}, err
		}
		known.given = found
	} else if known.To < st.src.size {
		found, told, err := findTitle(ctx, st.src, known.To, st.src.size)
		if err != nil {
			return given{}, err
		}
		if told {
			known.given = found
		}
	}
	known.To = max(st.end, st.lastAt) // the last line may grow
	s.mu.Lock()
	s.given = known
	s.mu.Unlock()
	s.keepIndex(st, func(ix *index) { ix.Given = known.given })
	return known.given, nil
}

// titleMark is a given and the file it is of.
type titleMark struct {
	file durable.File
	given
}

// titleWords are parts of every type that kindOf says may tell of a title.
var titleWords = &wordSearch{words: []string{"title_change", "session_info", "compaction"}}

// findTitle searches [from, to) backwards. told is false when nothing there says
// what the title was.
func findTitle(ctx context.Context, src source, from, to int64) (found given, told bool, err error) {
	err = eachBackward(ctx, src, from, to, func(line []byte, at int64) bool {
		if titleWords.next(line) == len(line) {
			return true
		}
		eachRecord(line, func(raw []byte, _ int, e record.Envelope) {
			if g, ok := titleIn(kindOf(e.Type), newEntry(raw, at, e, 0), string(e.Timestamp)); ok {
				found, told = g, true
			}
		}, nil)
		return !told
	})
	return found, told, err
}

// titleInTree searches all entries of the file.
func (s *Session) titleInTree(ctx context.Context) (given, error) {
	t, err := s.Tree(ctx)
	if err != nil {
		return given{}, err
	}
	for i := len(t.nodes.list) - 1; i >= 0; i-- {
		k := t.nodes.list[i].kind
		if k != kindTitle && k != kindCompaction {
			continue
		}
		e, err := t.entry(i)
		if err != nil {
			return given{}, err
		}
		if g, ok := titleIn(k, e, string(record.AppendTime(nil, e.Time()))); ok {
			return g, nil
		}
	}
	return given{}, nil
}

// titleIn returns what an entry says about the title: it gives one, or it repeats
// the one of its time, which may be none.
func titleIn(k kind, e entry.Entry, at string) (given, bool) {
	switch k {
	case kindTitle:
		if title, _, ok := e.Title(); ok {
			return given{OK: true, Title: title, At: at}, true
		}
	case kindCompaction:
		if c, ok := e.Checkpoint(); ok {
			return given{OK: c.Title != "", Title: c.Title, At: at}, true
		}
	}
	return given{}, false
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
	title = s.clearTitle(CleanTitle(title))
	switch {
	case title == "":
		return fmt.Errorf("renaming %s: the title is empty; give at least one visible character", s.Path())
	case len(title) > maxTitleBytes:
		return fmt.Errorf("renaming %s: the title has %d bytes and may have %d; shorten it", s.Path(), len(title), maxTitleBytes)
	}
	previous, err := s.Title(ctx)
	if err != nil {
		return err
	}
	if err := s.writable(ctx); err != nil {
		return err
	}
	g, err := s.groupOf(ctx, []entry.Body{
		entry.TitleChange{Title: title, PreviousTitle: previous, Source: source},
		entry.SessionInfo{Name: title},
	})
	if err != nil {
		return err
	}
	if s.quota != nil {
		if err := s.admit(ctx, g.reqs...); err != nil {
			return err
		}
	}
	g.do = func() error {
		// Between our entries and the header somebody may have given another title.
		st := s.known()
		last, err := s.lastTitle(ctx, st)
		if err != nil || last.OK && last.Title != title {
			return err
		}
		return s.writeTitle(ctx, title, source)
	}
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
	// Who has moved the session has written to the header without an entry.
	now, err := readPreamble(st.src)
	if err != nil {
		return fmt.Errorf("renaming %s: %w", s.Path(), err)
	}
	st.preamble = now
	line, err := record.Retitle(st.line, title, source)
	if err == nil && len(line) <= len(st.line)+1 {
		return s.overwrite(line[:len(st.line)], st.at)
	}
	if err != nil && !errors.Is(err, record.ErrNoRoom) {
		return fmt.Errorf("renaming %s: %w", s.Path(), err)
	}
	header := st.header
	header.Title, header.TitleSource = title, source
	return s.rewrite(ctx, header.AppendLine(nil))
}

// keepTitle makes h, a header that replaces the one of st, as long as its title wants
// where no entry gives that: otherwise the header may have less of it.
func (s *Session) keepTitle(ctx context.Context, st state, h *record.Header) error {
	if !h.CutsTitle() {
		return nil
	}
	given, err := s.lastTitle(ctx, st)
	h.KeepTitle = err == nil && !(given.OK && strings.HasPrefix(given.Title, h.Title))
	return err
}

// overwrite replaces bytes of the first lines by as many others.
func (s *Session) overwrite(b []byte, at int64) error {
	// Not the descriptor for appends: Linux appends whatever offset it is given.
	f, err := s.fs.OpenFile(s.Path(), os.O_RDWR, 0)
	if err != nil {
		return openError(s.Path(), err)
	}
	was, ierr := f.Identify()
	_, err = f.WriteAt(b, at)
	if err == nil && ierr == nil {
		asOld(f, was, was.Size)
	}
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
		return fmt.Errorf("renaming %s: %w", s.Path(), err)
	}
	return nil
}
