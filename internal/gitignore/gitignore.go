// Package gitignore tells which files git ignores, by the rules of gitignore(5) and
// the code behind them, wildmatch.c and dir.c of git 2.39: what `git check-ignore
// --no-index` says. What is in the index is not looked at.
//
// Rules of one file are parsed once and matched without allocating. All functions are
// safe for concurrent use.
package gitignore

import (
	"bytes"
	"strings"
)

// Rules are the patterns of one file.
type Rules struct {
	patterns []pattern
}

type pattern struct {
	text     string
	negated  bool
	dirOnly  bool
	baseName bool // it has no slash, and is matched with the last name of a path
	prefix   int  // bytes before the first special one
}

// Parse reads the content of a .gitignore. Every content is one.
func Parse(data []byte) *Rules {
	r := &Rules{}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	for line := range bytes.Lines(data) {
		ended := bytes.HasSuffix(line, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\n"))
		if ended {
			line = bytes.TrimSuffix(line, []byte("\r"))
		}
		if i := bytes.IndexByte(line, 0); i >= 0 {
			line = line[:i]
		}
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		r.add(trimSpaces(string(line)))
	}
	return r
}

// trimSpaces takes spaces off the end that no backslash stands before.
func trimSpaces(s string) string {
	last := -1
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
			if last < 0 {
				last = i
			}
			continue
		case '\\':
			if i++; i == len(s) {
				return s
			}
		}
		last = -1
	}
	if last >= 0 {
		return s[:last]
	}
	return s
}

func (r *Rules) add(s string) {
	p := pattern{}
	s, p.negated = strings.CutPrefix(s, "!")
	s, p.dirOnly = strings.CutSuffix(s, "/")
	p.baseName = !strings.Contains(s, "/")
	s = strings.TrimPrefix(s, "/")
	if p.prefix = strings.IndexAny(s, `*?[\`); p.prefix < 0 {
		p.prefix = len(s)
	}
	if p.text = s; s != "" {
		r.patterns = append(r.patterns, p)
	}
}

// verdict is what the rules of a file say of a path.
type verdict int8

const (
	silent verdict = iota
	ignored
	included
)

// match finds the last rule that matches a path relative to the directory of the rules.
func (r *Rules) match(rel string, isDir bool) verdict {
	base := rel[strings.LastIndexByte(rel, '/')+1:]
	for i := len(r.patterns) - 1; i >= 0; i-- {
		p := &r.patterns[i]
		if p.dirOnly && !isDir {
			continue
		}
		name := rel
		if p.baseName {
			name = base
		}
		if !p.matches(name) {
			continue
		}
		if p.negated {
			return included
		}
		return ignored
	}
	return silent
}

func (p *pattern) matches(name string) bool {
	if len(name) < p.prefix || name[:p.prefix] != p.text[:p.prefix] {
		return false
	}
	if p.prefix == len(p.text) {
		return len(name) == p.prefix
	}
	// As git has it, the rest is matched as if it began here.
	return wild(p.text[p.prefix:], name[p.prefix:], !p.baseName) == match
}

// Dir is a directory with the rules that hold in it. The zero value has none.
type Dir struct {
	up    *Dir
	path  string // from the top of the repository, with slashes; "" for the top
	rules *Rules
}

// Top is the top of a repository, with the rules that come behind those of the directories:
// those of info/exclude, then those of the user.
func Top(exclude, user *Rules) *Dir {
	d := &Dir{rules: user}
	return &Dir{up: d, rules: exclude}
}

// With is the directory with the rules of its own .gitignore, path is where it is from the
// top.
func (d *Dir) With(path string, rules *Rules) *Dir {
	return &Dir{up: d, path: path, rules: rules}
}

// Ignored reports whether git ignores what is at a path from the top, if it does not
// ignore the directory that it is in, of which d has the rules.
func (d *Dir) Ignored(path string, isDir bool) bool {
	for ; d != nil; d = d.up {
		if d.rules == nil {
			continue
		}
		rel := path
		if d.path != "" {
			rel = strings.TrimPrefix(path[len(d.path):], "/")
		}
		switch d.rules.match(rel, isDir) {
		case ignored:
			return true
		case included:
			return false
		}
	}
	return false
}
