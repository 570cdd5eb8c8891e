package isolation

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// Limits of a patch that is merged.
const (
	maxFiles = 1_000_000
	maxLine  = 64 << 10 // of what stands before the changes of a file
)

// fileDiff is what a patch says of one file. Where a file gives way to a link, it says two things of one path.
type fileDiff struct {
	path     string
	old, new version
	binary   bool
	sections []section
}

// section is a part of the patch, in bytes.
type section struct{ from, to int64 }

// parsePatch reads what a patch is about. It is a file that anybody may have changed: a path that leads elsewhere is refused.
func parsePatch(r io.Reader) ([]*fileDiff, error) {
	p := &parser{in: bufio.NewReaderSize(r, maxLine), byPath: map[string]*fileDiff{}}
	for {
		line, err := p.next()
		if errors.Is(err, io.EOF) {
			return p.files, p.end(p.at)
		}
		if err != nil {
			return nil, err
		}
		if err := p.line(line); err != nil {
			return nil, err
		}
	}
}

type parser struct {
	in     *bufio.Reader
	at     int64 // bytes read
	begun  int64 // where the line begins
	files  []*fileDiff
	byPath map[string]*fileDiff

	now    *fileDiff // of the section, as it says
	head   bool      // before its changes
	header int64
}

// next returns a line, or its beginning.
func (p *parser) next() (string, error) {
	p.begun = p.at
	line, err := p.in.ReadSlice('\n')
	p.at += int64(len(line))
	text := string(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = p.in.ReadSlice('\n')
		p.at += int64(len(line))
	}
	if len(text) > 0 && (err == nil || errors.Is(err, io.EOF)) {
		return strings.TrimSuffix(text, "\n"), nil
	}
	return "", err
}

// line reads one line. A change begins each of its lines with a blank, a sign or a letter that counts, and has no such word.
func (p *parser) line(line string) error {
	if names, ok := strings.CutPrefix(line, "diff --git "); ok {
		if err := p.end(p.begun); err != nil {
			return err
		}
		path, err := pathOf(names)
		if err != nil {
			return err
		}
		p.now, p.head, p.header = &fileDiff{path: path}, true, p.begun
		return nil
	}
	if p.now == nil || !p.head {
		return nil
	}
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "old":
		p.now.old.mode = strings.TrimPrefix(rest, "mode ")
	case "new":
		p.now.new.mode = strings.TrimPrefix(strings.TrimPrefix(rest, "file "), "mode ")
	case "deleted":
		p.now.old.mode = strings.TrimPrefix(rest, "file mode ")
	case "index":
		ids, mode, _ := strings.Cut(rest, " ")
		p.now.old.id, p.now.new.id, _ = strings.Cut(ids, "..")
		if mode != "" {
			p.now.old.mode, p.now.new.mode = mode, mode
		}
	case "GIT":
		p.now.binary, p.head = true, false
	case "---", "@@":
		p.head = false
	}
	return nil
}

// end ends a section.
func (p *parser) end(at int64) error {
	f := p.now
	if f == nil {
		return nil
	}
	p.now = nil
	for _, v := range []*version{&f.old, &f.new} {
		if strings.Trim(v.id, "0") == "" {
			v.id = ""
		}
		if v.mode != "" && v.mode != modeFile && v.mode != modeExec && v.mode != modeLink || v.id != "" && !isID(v.id) {
			return fmt.Errorf("reading a patch: of %q it says what no patch of agentrun does", f.path)
		}
	}
	onlyMode := f.old.id == "" && f.new.id == "" && f.old.mode != "" && f.new.mode != ""
	f.sections = []section{{p.header, at}}
	if before := p.byPath[f.path]; before != nil {
		// A file gives way to a link: it is deleted, then made.
		if before.new.id != "" || f.old.id != "" {
			return fmt.Errorf("reading a patch: it speaks of %q twice", f.path)
		}
		before.new, before.binary = f.new, before.binary || f.binary
		before.sections = append(before.sections, f.sections...)
		return nil
	}
	if f.old.id == "" && f.new.id == "" && !onlyMode {
		return fmt.Errorf("reading a patch: it does not say what becomes of %q", f.path)
	}
	if len(p.files) == maxFiles {
		return fmt.Errorf("reading a patch: it is about more than %d files", maxFiles)
	}
	p.files = append(p.files, f)
	p.byPath[f.path] = f
	return nil
}

func isID(id string) bool {
	return len(id) == 40 && strings.Trim(id, "0123456789abcdef") == ""
}

// pathOf reads the names behind "diff --git", which are of one path.
func pathOf(names string) (string, error) {
	bad := fmt.Errorf("reading a patch: %.100q names no file", names)
	var path string
	if strings.HasPrefix(names, `"`) {
		text, rest, ok := unquotePath(names)
		if !ok || !strings.HasPrefix(rest, " ") {
			return "", bad
		}
		path = strings.TrimPrefix(text, "a/")
	} else if n := len(names) - len("a/ b/"); n > 0 && n%2 == 0 {
		path = names[2 : 2+n/2]
		if names != "a/"+path+" b/"+path {
			return "", bad
		}
	}
	if path == "" || !filepath.IsLocal(path) || filepath.Clean(path) != path || path == "." || hasGit(path) || strings.Contains(path, "\x00") {
		return "", bad
	}
	return path, nil
}

// unquotePath reads what git has quoted.
func unquotePath(s string) (text, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i >= len(s) {
				return "", "", false
			}
			if at := strings.IndexByte(`abtnvfr"\`, s[i]); at >= 0 {
				b.WriteByte("\a\b\t\n\v\f\r\"\\"[at])
				continue
			}
			if i+2 >= len(s) || s[i] < '0' || s[i] > '3' || s[i+1] < '0' || s[i+1] > '7' || s[i+2] < '0' || s[i+2] > '7' {
				return "", "", false
			}
			b.WriteByte((s[i]-'0')<<6 | (s[i+1]-'0')<<3 | (s[i+2] - '0'))
			i += 2
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}
