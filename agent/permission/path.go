package permission

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/internalurl"
)

// fileArguments are the arguments of tools that name files and directories. A pattern for one of them is compared with all of
// them: what a rule says of a path holds for whoever takes a list of them too.
var fileArguments = []string{"path", "paths", "file", "files", "dir"}

// directoryArgument is where a command runs. What is allowed for files says nothing of it.
const directoryArgument = "cwd"

// isPath reports whether an argument holds paths.
func isPath(name string) bool {
	return name == directoryArgument || slices.Contains(fileArguments, name)
}

// searches reports whether a tool looks through the working directory when it is given no path.
func searches(tool string) bool { return tool == "grep" || tool == "find" }

// readsURLs reports whether a tool takes URLs for paths.
func readsURLs(tool string) bool { return tool == "read" || searches(tool) }

// maxPath is the longest path in bytes, PATH_MAX of Linux; no link is looked for in a longer one.
const maxPath = 4095

// place is the names of one file: relative ones and absolute ones.
type place []string

// named is what an argument names.
type named struct {
	names  place   // every name of all that it may mean
	places []place // what it means: as the path says, and where symbolic links lead
}

// files are what the arguments name that a pattern for name is compared with.
func (c *call) files(name string) []named {
	if files, ok := c.named[name]; ok {
		return files
	}
	of := fileArguments
	if name == directoryArgument {
		of = []string{name}
	}
	var values []string
	given := false
	for _, argument := range of {
		if value, ok := c.arguments[argument]; ok {
			given = true
			values = append(values, texts(value)...)
		}
	}
	if len(values) == 0 && searches(c.tool) && name != directoryArgument {
		values = []string{"."}
	}
	var files []named
	for _, value := range values {
		files = append(files, c.names(value))
	}
	if !given {
		files = append(files, named{names: place{""}, places: []place{{""}}})
	}
	if c.named == nil {
		c.named = map[string][]named{}
	}
	c.named[name] = files
	return files
}

// names are those of what a path means: the path as it is written, cleaned, absolute, and with its links resolved.
func (c *call) names(path string) named {
	n := named{names: place{path}}
	variants := []string{path}
	if c.tool == "read" { // a selector or a member of an archive may follow
		for end := len(path); ; {
			if end = strings.LastIndexByte(path[:end], ':'); end <= 0 {
				break
			}
			if end <= maxPath {
				variants = append(variants, path[:end])
			}
		}
	}
	meant := false
	for _, variant := range variants {
		lexical, real, err := c.locate(variant)
		n.names = append(n.names, lexical...)
		n.names = append(n.names, real...)
		if meant {
			continue
		}
		if _, lerr := os.Lstat(c.absolute(variant)); lerr == nil { // the longest that is there is what is read
			n.places, meant = nil, true
		}
		n.places = append(n.places, lexical, real)
		if err != nil { // where it leads is not known
			n.places = append(n.places, nil)
		}
	}
	if readsURLs(c.tool) && internalurl.Is(path) {
		n.places = []place{{path}}
	}
	return n
}

// absolute is a path from the root on.
func (c *call) absolute(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(c.dir, path)
}

// locate returns the names of what a path says, and of what it leads to.
func (c *call) locate(path string) (lexical, real place, err error) {
	lexical = c.notations(c.absolute(path))
	if len(path) > maxPath {
		return lexical, nil, errors.New("no path is that long")
	}
	target, err := resolve(c.absolute(path))
	if err != nil {
		return lexical, nil, err
	}
	return lexical, c.notations(target), nil
}

// notations are the names of an absolute path: that, and the relative ones.
func (c *call) notations(path string) place {
	names := place{path}
	for _, dir := range []string{c.dir, c.real} {
		if rel, err := filepath.Rel(dir, path); err == nil && !slices.Contains(names, rel) {
			names = append(names, rel)
		}
	}
	return names
}

// resolve follows all links of an absolute path, of which the end may not be there.
func resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) || filepath.Dir(path) == path {
		return real, err
	}
	if _, lerr := os.Lstat(path); lerr == nil {
		return "", err // a link that leads nowhere
	}
	if real, err = resolve(filepath.Dir(path)); err != nil {
		return "", err
	}
	return filepath.Join(real, filepath.Base(path)), nil
}

// matchesPath compares a pattern with what an argument names: one that denies or asks with every name of it, one that allows
// with each place, which must be matched by one of its names.
func (c *call) matchesPath(action Action, name, pattern string) bool {
	files := c.files(name)
	matched := func(name string) bool { return match(pattern, name) }
	for _, file := range files {
		if action != Allow {
			if slices.ContainsFunc(file.names, matched) {
				return true
			}
			continue
		}
		for _, place := range file.places {
			if !slices.ContainsFunc(place, matched) {
				return false
			}
		}
	}
	return action == Allow && len(files) > 0
}

// Hidden returns which files a call that searches directories may not show: those for which a rule about paths denies, or wants
// asked, the call, or a call of read. path is the name of a file as the search has it, real is where it is without symbolic
// links. nil hides nothing.
func Hidden(dir string, sources []*Rules, tool string, arguments json.RawMessage) func(path, real string) bool {
	call, err := read(dir, tool, arguments)
	if err != nil {
		return nil
	}
	reading := *call
	reading.tool, reading.arguments = "read", nil
	var rules []*Rule
	for _, source := range sources {
		for i := range source.Rules {
			if r := &source.Rules[i]; call.mayHide(r) || reading.mayHide(r) {
				rules = append(rules, r)
			}
		}
	}
	if len(rules) == 0 {
		return nil
	}
	return func(path, real string) bool {
		names := append(call.notations(call.absolute(path)), call.notations(real)...)
		return slices.ContainsFunc(rules, func(r *Rule) bool { return r.hides(names) })
	}
}

// mayHide reports whether a rule is about paths, and holds for what else the call says.
func (c *call) mayHide(r *Rule) bool {
	if r.Action == Allow || !match(r.Tool, c.tool) {
		return false
	}
	about := false
	for name, pattern := range r.Match {
		if slices.Contains(fileArguments, name) {
			about = true
		} else if !c.matchesArgument(r.Action, name, pattern) {
			return false
		}
	}
	return about
}

// hides reports whether each pattern about paths matches one of a file's names.
func (r *Rule) hides(names place) bool {
	for name, pattern := range r.Match {
		if slices.Contains(fileArguments, name) && !slices.ContainsFunc(names, func(name string) bool { return match(pattern, name) }) {
			return false
		}
	}
	return true
}
