// Package instructions reads what a project and a person tell agents in files: instructions, skills, commands, and the files
// that a prompt mentions.
//
// # Instructions
//
// AGENTS.md and CLAUDE.md are read from the home, and from every directory between the root of the project (the nearest
// one above that holds .git, else the working directory) and the working directory; what is nearer comes later. Of two with
// the same text one counts. A line that is @ and a path, outside of code, is replaced by that file; the path begins at the
// file that the line is in.
//
// # Skills
//
// .agentrun/skills/NAME/SKILL.md and .claude/skills/NAME/SKILL.md below the same directories, and skills/NAME/SKILL.md of the
// home, have front matter with a description. A model is given their names and descriptions, and reads one with the tool skill.
//
// # Commands
//
// .agentrun/commands/NAME.md and .claude/commands/NAME.md, and commands/NAME.md of the home, are prompts: /NAME ARGUMENTS
// stands for the text of the file, in which $ARGUMENTS is all of them and $1 to $9 are single ones. A command in a
// directory DIR below commands is /DIR:NAME.
//
// # Trust
//
// All files of a project are hostile. They are read through the root of the project: a symbolic link, and an import, that
// leads out of it is refused, and so is what is no regular file. Imports are of files that end in .md, .mdc, .markdown or
// .txt, so that no file of keys is sent along. Sizes, depths and counts are bounded; what is left out is said in the text
// and in a problem. Nothing that a file says is run.
//
// Functions may be called concurrently, and write nothing.
package instructions

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"
)

// Bounds.
const (
	MaxFile    = 128 << 10 // bytes of a file
	MaxTotal   = 512 << 10 // bytes of all instructions, imports included
	MaxDepth   = 5         // imports within imports
	MaxSkills  = 200
	MaxImports = 100 // files
	maxAbove   = 64  // directories between the root of a project and the working directory
	maxEntries = 1000
)

// Names are the files of instructions, in their order.
var Names = []string{"AGENTS.md", "CLAUDE.md"}

// Document is one file of instructions.
type Document struct {
	Path string // absolute
	Text string // with its imports
}

// Project is where files are looked for.
type Project struct {
	Home string // of agentrun; "" has none
	Root string // absolute, without symbolic links
	Dir  string // the working directory, in Root or below
}

// NewProject returns the project that a directory is in.
func NewProject(home, dir string) (Project, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return Project{}, fmt.Errorf("looking for the project of %s: %w", dir, err)
	}
	p := Project{Home: home, Root: dir, Dir: dir}
	for above, n := dir, 0; n < maxAbove; n++ {
		if _, err := os.Lstat(filepath.Join(above, ".git")); err == nil {
			p.Root = above
			break
		}
		if above == filepath.Dir(above) {
			break
		}
		above = filepath.Dir(above)
	}
	return p, nil
}

// dirs are the directories from Root to Dir, relative to Root.
func (p Project) dirs() []string {
	rel, err := filepath.Rel(p.Root, p.Dir)
	if err != nil || rel == "." || strings.HasPrefix(rel, "..") {
		return []string{"."}
	}
	all, at := []string{"."}, ""
	for part := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		at = path.Join(at, part)
		all = append(all, at)
	}
	return all
}

// place is a directory that is looked through, below which all that is read is.
type place struct {
	*os.Root
	dirs []string // relative to it, the most general one first
	ours []string // what .agentrun and .claude are called there
}

// places are those of the home and of the project, the most general one first.
func (p Project) places() (all []place, closing func(), problems []error) {
	closing = func() {
		for _, at := range all {
			at.Close()
		}
	}
	add := func(dir string, dirs, ours []string) {
		root, err := os.OpenRoot(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			problems = append(problems, fmt.Errorf("looking for instructions in %s: %w", dir, err))
		default:
			all = append(all, place{root, dirs, ours})
		}
	}
	if p.Home != "" {
		add(p.Home, []string{"."}, []string{"."})
	}
	add(p.Root, p.dirs(), []string{".claude", ".agentrun"})
	return all, closing, problems
}

// reader reads instructions.
type reader struct {
	left     int // bytes
	imports  int
	problems []error
}

// Documents returns the instructions, the most general one first. What could not be read is left out and told in problems.
func (p Project) Documents() (docs []Document, problems []error) {
	all, closing, problems := p.places()
	defer closing()
	r := &reader{left: MaxTotal, problems: problems}
	for _, at := range all {
		for _, dir := range at.dirs {
			for _, name := range Names {
				if r.left < 0 {
					return docs, r.problems
				}
				text, ok := r.document(at, path.Join(dir, name))
				same := func(d Document) bool { return d.Text == text }
				if ok && text != "" && !slices.ContainsFunc(docs, same) {
					docs = append(docs, Document{filepath.Join(at.Name(), dir, name), text})
				}
			}
		}
	}
	return docs, r.problems
}

func (r *reader) document(at place, name string) (string, bool) {
	data, err := readIn(at.Root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	if err != nil {
		r.problem(at, name, err)
		return "", false
	}
	var b strings.Builder
	r.write(&b, at, name, data, []string{name})
	return strings.TrimSpace(b.String()), true
}

func (r *reader) problem(at place, name string, err error) {
	r.problems = append(r.problems, fmt.Errorf("reading %s: %w; it is left out", filepath.Join(at.Name(), name), err))
}

// write writes the text of a file with its imports. open are the files that it is in.
func (r *reader) write(b *strings.Builder, at place, name, text string, open []string) {
	code := false
	for line := range strings.Lines(text) {
		if r.left < 0 {
			return
		}
		if fence := strings.TrimSpace(line); strings.HasPrefix(fence, "```") || strings.HasPrefix(fence, "~~~") {
			code = !code
		}
		to, ok := "", false
		if !code {
			to, ok = ParseImport(line)
		}
		if !ok {
			if r.left -= len(line); r.left < 0 {
				err := fmt.Errorf("all instructions together have more than %d bytes", MaxTotal)
				r.problem(at, name, err)
				fmt.Fprintf(b, "[the rest is left out: %v]\n", err)
				return
			}
			b.WriteString(line)
			continue
		}
		if r.imports++; r.imports > MaxImports {
			err := fmt.Errorf("there are more than %d imports", MaxImports)
			r.problem(at, name, err)
			fmt.Fprintf(b, "[the rest is left out: %v]\n", err)
			r.left = -1
			return
		}
		to = path.Join(path.Dir(name), to)
		var data string
		var err error
		switch {
		case slices.Contains(open, to):
			err = errors.New("it imports itself")
		case len(open) > MaxDepth:
			err = fmt.Errorf("it is the import of an import, %d deep", MaxDepth)
		default:
			data, err = readIn(at.Root, to)
		}
		if err != nil {
			r.problem(at, to, err)
			fmt.Fprintf(b, "[%s is left out: %v]\n", to, bare(err))
			continue
		}
		r.write(b, at, to, data, append(slices.Clip(open), to))
		if !strings.HasSuffix(data, "\n") {
			b.WriteByte('\n')
		}
	}
}

// bare is an error without the path that it names.
func bare(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

// ParseImport returns the path of a line that imports a file. The line is hostile.
func ParseImport(line string) (string, bool) {
	to, ok := strings.CutPrefix(strings.TrimSpace(line), "@")
	if !ok || to == "" || len(to) > 1024 || path.IsAbs(to) || !utf8.ValidString(to) ||
		strings.ContainsFunc(to, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return "", false
	}
	switch strings.ToLower(path.Ext(to)) {
	case ".md", ".mdc", ".markdown", ".txt":
		return path.Clean(to), true
	}
	return "", false
}

// readIn reads a text below a root, whatever links say.
func readIn(root *os.Root, name string) (string, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO does not hold it up
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", errors.New("it is no regular file")
	case info.Size() > MaxFile:
		return "", fmt.Errorf("it has %d bytes, and %d are the most", info.Size(), MaxFile)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	switch {
	case err != nil:
		return "", err
	case len(data) > MaxFile:
		return "", fmt.Errorf("it has more than %d bytes", MaxFile)
	case !utf8.Valid(data) || strings.ContainsRune(string(data), 0):
		return "", errors.New("it is no text in UTF-8")
	}
	return strings.TrimPrefix(string(data), "\ufeff"), nil
}

// Prompt is what a model is told of instructions, "" without any.
func Prompt(docs []Document) string {
	if len(docs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("These files tell how work is done here. Where two of them differ, the later one counts.\n")
	for _, d := range docs {
		fmt.Fprintf(&b, "\n<instructions path=%q>\n%s\n</instructions>\n", d.Path, d.Text)
	}
	return b.String()
}
