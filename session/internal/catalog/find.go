package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNotFound is matched by the error of Find for a session that there is not.
var ErrNotFound = errors.New("no such session")

// AmbiguousError is returned for a name that several sessions answer to.
type AmbiguousError struct {
	Arg        string
	Candidates []Info // newest first
}

func (e *AmbiguousError) Error() string {
	names := make([]string, 0, len(e.Candidates))
	same := 0
	for i, s := range e.Candidates {
		name := displayID(s)
		if i > 0 && s.ID == e.Candidates[i-1].ID || i+1 < len(e.Candidates) && s.ID == e.Candidates[i+1].ID {
			name = s.Path // the id alone does not tell them apart
		}
		names = append(names, name)
		if rank(s.ID, s.Path, strings.ToLower(e.Arg)) <= exactName {
			same++
		}
	}
	if same == len(names) {
		return fmt.Sprintf("several sessions are called %.100q: give the path of one (%s)", e.Arg, Several(names))
	}
	return fmt.Sprintf("several sessions begin with %.100q: give more of the id, or a path (%s)", e.Arg, Several(names))
}

// maxNamed bounds the candidates that a sentence names.
const maxNamed = 5

// Several lists what an ambiguous name may mean, for a sentence: the first few, and how
// many more there are. What is not plain is quoted.
func Several(names []string) string {
	list := make([]string, 0, maxNamed)
	for _, name := range names[:min(len(names), maxNamed)] {
		if strings.ContainsFunc(name, notPlain) {
			name = fmt.Sprintf("%.400q", name)
		}
		list = append(list, name)
	}
	text := strings.Join(list, ", ")
	if more := len(names) - len(list); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// notPlain reports whether a name with r in it is easier to read in quotes.
func notPlain(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
}

func displayID(s Info) string {
	if CheckID(s.ID) != nil {
		return s.Path
	}
	return s.ID
}

// Find returns the session that arg names: a path (anything with a slash, or the
// name of a log that is in the current directory), a session id, the base name of
// a log, or the beginning of either, in any case. An exact id or name beats a
// prefix, and an id beats a name.
//
// A path may name the plain or the cold form, whichever there is. The errors:
// one that matches [ErrNotFound], an [*AmbiguousError], an [*Unreadable] for what
// is there but is no session, the context's.
//
// File names carry the ids, so only what matches is opened; files that are
// called otherwise are looked into as in a listing, and all of them are before
// Find says that there is no such session.
func (c *Catalog) Find(ctx context.Context, arg string) (Info, error) {
	switch {
	case arg == "":
		return Info{}, fmt.Errorf("finding a session: the name is empty; give an id, the beginning of one, or a path: %w", ErrNotFound)
	case strings.IndexByte(arg, 0) >= 0:
		return Info{}, fmt.Errorf("finding session %q: a name holds no NUL: %w", arg, ErrNotFound)
	case strings.ContainsRune(arg, filepath.Separator):
		return c.At(arg)
	case isLogName(arg):
		if info, err := c.At(arg); !errors.Is(err, ErrNotFound) {
			return info, err
		}
	}
	var info Info
	err := c.steadily(func(moves string) (err error) {
		info, err = c.named(ctx, arg, moves)
		return err
	})
	return info, err
}

// named is Find for anything but a path.
func (c *Catalog) named(ctx context.Context, arg, moves string) (Info, error) {
	found, err := c.find(ctx, "")
	if err != nil {
		return Info{}, err
	}
	found.moves = moves
	want := strings.ToLower(arg)
	if info, ok, err := c.findByName(ctx, found, arg, want); ok || err != nil {
		return info, err
	}
	l, err := c.load(ctx, found)
	if err != nil {
		return Info{}, err
	}
	if info, ok, err := choose(l.Sessions, arg, want); ok || err != nil {
		return info, err
	}
	for i := range l.Unreadable {
		if rank("", l.Unreadable[i].Path, want) != noMatch {
			return Info{}, &l.Unreadable[i]
		}
	}
	return Info{}, fmt.Errorf("no session is called %q: see agentrun sessions list: %w", arg, ErrNotFound)
}

// At returns the session whose log is at path. It need not lie in the home. The
// errors are those of Find.
func (c *Catalog) At(path string) (Info, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Info{}, fmt.Errorf("finding session %s: %w", path, err)
	}
	for _, p := range []string{abs, PlainPath(abs), ColdPath(abs)} {
		info, err := c.read(&file{path: p})
		if !errors.Is(err, fs.ErrNotExist) {
			return info, err
		}
	}
	return Info{}, fmt.Errorf("there is no session file %s: see agentrun sessions list: %w", abs, ErrNotFound)
}

// findByName answers from the names of files, opening only those that match and
// those whose names say no id. ok is false when the names do not decide it.
func (c *Catalog) findByName(ctx context.Context, found *finding, arg, want string) (Info, bool, error) {
	look := finding{moves: found.moves}
	for _, f := range found.files {
		if _, _, named := ParseFileName(baseName(f.path)); !named || rank("", f.path, want) != noMatch {
			look.files = append(look.files, f)
		}
	}
	l, err := c.load(ctx, &look)
	if err != nil {
		return Info{}, false, err
	}
	// A header that disagrees with its file's name may hide a better match.
	for _, s := range l.Sessions {
		if _, id, named := ParseFileName(baseName(s.Path)); named && s.ID != "" && s.ID != id {
			return Info{}, false, nil
		}
	}
	return choose(l.Sessions, arg, want)
}

// Among is Find among sessions that are known already.
func Among(sessions []Info, arg string) (info Info, ok bool, err error) {
	return choose(sessions, arg, strings.ToLower(arg))
}

// choose returns the best match; ok is false when nothing matches.
func choose(sessions []Info, arg, want string) (Info, bool, error) {
	best := noMatch
	var matches []Info
	for _, s := range sessions {
		r := rank(s.ID, s.Path, want)
		if r < best {
			best, matches = r, matches[:0]
		}
		if r == best && r != noMatch {
			matches = append(matches, s)
		}
	}
	switch len(matches) {
	case 0:
		return Info{}, false, nil
	case 1:
		return matches[0], true, nil
	}
	slices.SortFunc(matches, newestFirst)
	return Info{}, false, &AmbiguousError{Arg: arg, Candidates: matches}
}

// Ranks of a match, the best first.
const (
	exactID = iota
	exactName
	idPrefix
	namePrefix
	noMatch
)

// rank says how well want, in lower case and not empty, names the session with
// this id in its header and this path. The id in a file's name is the session's
// when the header is not known; else it is but a part of the name.
func rank(id, path, want string) int {
	base := strings.ToLower(baseName(path))
	stem, _, _ := cutExt(base)
	named := ""
	if _, fromName, ok := ParseFileName(baseName(path)); ok {
		named = strings.ToLower(fromName)
	}
	if id = strings.ToLower(id); id == "" {
		id = named
	}
	switch {
	case id == want:
		return exactID
	case base == want || stem == want || named == want:
		return exactName
	case strings.HasPrefix(id, want):
		return idPrefix
	case strings.HasPrefix(base, want) || strings.HasPrefix(named, want):
		return namePrefix
	}
	return noMatch
}
