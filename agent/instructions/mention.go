package instructions

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentrun/agentrun/internal/picture"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/workspace"
)

// Bounds of mentions.
const (
	MaxMentions      = 50        // that are looked at; further ones are told
	MaxMentionedFile = 256 << 10 // bytes; of a larger file the model is told the size
	MaxMentioned     = 1 << 20   // bytes of all of them, pictures aside
	MaxPictures      = 20        // of a prompt
)

// mostNames bounds the names that are looked for in a prompt, of which it may have a million.
const mostNames = 1000

// ParseMentions returns the files that a prompt mentions, each once: a path behind @ at its beginning or behind a space or
// bracket, up to the next space, or between double quotes. Punctuation at its end is not of it. The prompt is hostile.
func ParseMentions(prompt string) []string {
	var names []string
	before := ' '
	for i, r := range prompt {
		if r == '@' && strings.ContainsRune(" \t\n([{<", before) && len(names) < mostNames {
			if name := mentionAt(prompt[i+1:]); name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		before = r
	}
	return names
}

func mentionAt(rest string) string {
	name := ""
	if quoted, ok := strings.CutPrefix(rest, `"`); ok {
		end := strings.IndexAny(quoted, "\"\n")
		if end < 0 || quoted[end] != '"' {
			return ""
		}
		name = quoted[:end]
	} else {
		end := strings.IndexAny(rest, " \t\r\n")
		if end < 0 {
			end = len(rest)
		}
		name = strings.TrimRight(rest[:end], `.,;:!?)]}>"'`)
	}
	if len(name) > 4096 || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '@' }) {
		return ""
	}
	return name
}

// Mention reads files that a prompt mentions. What is not shown is told in problems, one sentence each: what may returns an error
// for, what nothing is called, a directory, what cannot be read, and what is beyond MaxMentions; a nil may allows all. A file that is too large or no text is
// in the message with its size. A picture is in it as models are given it, made smaller where it has to be. nil is a message
// without files.
func Mention(w *workspace.Workspace, names []string, may func(name string) error) (m *entry.FileMentionMessage, problems []error) {
	left := room{bytes: MaxMentioned, pictures: MaxPictures}
	for i, name := range names {
		if i == MaxMentions {
			last := ""
			if more := len(names) - i - 1; more > 0 {
				last = fmt.Sprintf(" and %d more", more)
			}
			problems = append(problems, fmt.Errorf("the prompt mentions %s%s, which the model is not shown: the first %d are looked at", name, last, MaxMentions))
			break
		}
		f, err := mentioned(w, name, may, &left)
		if err != nil {
			problems = append(problems, fmt.Errorf("the prompt mentions %s, which the model is not shown: %w", name, err))
			continue
		}
		if m == nil {
			m = &entry.FileMentionMessage{Timestamp: time.Now().UnixMilli()}
		}
		m.Files = append(m.Files, *f)
	}
	return m, problems
}

// room is what there is left for files that a prompt mentions.
type room struct {
	bytes    int64
	pictures int
}

func mentioned(w *workspace.Workspace, name string, may func(string) error, left *room) (*entry.MentionedFile, error) {
	place, err := w.Resolve(name)
	if err != nil {
		return nil, err
	}
	defer place.Close()
	info, err := place.Stat()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("there is no such file")
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errors.New("it is a directory: mention files in it")
	}
	if may != nil {
		if err := may(name); err != nil {
			return nil, err
		}
	}
	f, err := place.OpenFile()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := info.Size()
	m := &entry.MentionedFile{Path: name, ByteSize: &size}
	kind, err := internalurl.Sniff(f)
	if err != nil {
		return nil, err
	}
	if picture.Takes(kind) {
		return m, left.show(f, m, kind)
	}
	if size > min(MaxMentionedFile, left.bytes) {
		m.SkippedReason = "tooLarge"
		return m, nil
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxMentionedFile+1))
	if err != nil {
		return nil, err
	}
	switch size = int64(len(data)); {
	case size > min(MaxMentionedFile, left.bytes): // it has grown
		m.SkippedReason = "tooLarge"
	case !utf8.Valid(data) || strings.ContainsRune(string(data), 0):
		m.SkippedReason = "binary"
	default:
		left.bytes -= size
		lines := int64(strings.Count(string(data), "\n"))
		if size > 0 && data[size-1] != '\n' {
			lines++
		}
		m.Content, m.LineCount = string(data), &lines
	}
	return m, nil
}

// show puts a picture into m. One that cannot be shown is in it with its size, and the reason.
func (left *room) show(f io.ReaderAt, m *entry.MentionedFile, kind string) error {
	if left.pictures == 0 || *m.ByteSize > picture.MaxFile {
		m.SkippedReason = "tooLarge"
		return nil
	}
	data, err := io.ReadAll(io.NewSectionReader(f, 0, picture.MaxFile+1))
	if err != nil {
		return err
	}
	p, err := picture.Fit(data, kind)
	switch {
	case errors.Is(err, picture.ErrTooLarge):
		m.SkippedReason = "tooLarge"
		return nil
	case err != nil: // it is none, whatever its first bytes say
		m.SkippedReason = "binary"
		return nil
	}
	left.pictures--
	m.Content = fmt.Sprintf("(a picture of %d x %d pixels)", p.Was.X, p.Was.Y)
	m.Image = &entry.ImageBlock{Data: base64.StdEncoding.EncodeToString(p.Data), MIMEType: p.MIMEType}
	return nil
}
