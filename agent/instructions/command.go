package instructions

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/agentrun/agentrun/internal/frontmatter"
)

// Command is a prompt in a file.
type Command struct {
	Name        string // without the slash
	Description string
	Path        string
	Text        string
}

// Command returns the command of a name: the file that is nearest to the working directory. An error that matches
// fs.ErrNotExist says that there is none.
func (p Project) Command(name string) (Command, error) {
	if !validName(name) {
		return Command{}, fmt.Errorf("%.60q is no name of a command: letters, digits, _, - and : only", name)
	}
	all, closing, problems := p.places()
	defer closing()
	if len(problems) > 0 {
		return Command{}, errors.Join(problems...)
	}
	for _, at := range slices.Backward(all) {
		for _, dir := range slices.Backward(at.dirs) {
			for _, ours := range slices.Backward(at.ours) {
				file := path.Join(dir, ours, "commands", strings.ReplaceAll(name, ":", "/")+".md")
				text, err := readIn(at.Root, file)
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				full := filepath.Join(at.Name(), file)
				if err != nil {
					return Command{}, fmt.Errorf("reading the command %s: %w", full, bare(err))
				}
				return ParseCommand(name, full, text)
			}
		}
	}
	return Command{}, &noCommandError{name}
}

// noCommandError is fs.ErrNotExist in words.
type noCommandError struct{ name string }

func (e *noCommandError) Error() string {
	return "there is no command /" + e.name + ", in .agentrun/commands or .claude/commands of the project, or in commands of the home"
}

func (e *noCommandError) Is(target error) bool { return target == fs.ErrNotExist }

// Commands are the names of the commands there are, in the order of the alphabet. What cannot be looked into is left out.
func (p Project) Commands() []string {
	all, closing, _ := p.places()
	defer closing()
	var names []string
	for _, at := range all {
		for _, dir := range at.dirs {
			for _, ours := range at.ours {
				below := path.Join(dir, ours, "commands")
				for _, pattern := range []string{"*.md", "*/*.md"} {
					files, _ := fs.Glob(at.FS(), path.Join(below, pattern))
					for _, file := range files {
						name := strings.TrimSuffix(strings.TrimPrefix(file, below+"/"), ".md")
						if name = strings.ReplaceAll(name, "/", ":"); validName(name) {
							names = append(names, name)
						}
					}
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ParseCommand reads the file of a command, whose front matter may be missing. It is hostile.
func ParseCommand(name, source, text string) (Command, error) {
	c := Command{Name: name, Path: source}
	head, body, ok := frontmatter.Split([]byte(text))
	if ok {
		var front struct {
			Description string `yaml:"description"`
		}
		if err := frontmatter.Decode(head, &front); err != nil {
			return c, fmt.Errorf("reading %s: %w", source, err)
		}
		c.Description = oneLine(front.Description)
	}
	if c.Text = strings.TrimSpace(string(body)); c.Text == "" {
		return c, fmt.Errorf("reading %s: the command has no text", source)
	}
	return c, nil
}

var parameter = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$(ARGUMENTS|[1-9])`) })

// maxExpanded bounds a prompt that a command makes, in bytes.
const maxExpanded = 1 << 20

// Expand is the prompt that the command makes of arguments. Where its text has no place for them they follow it. What
// arguments hold is not looked at again.
func (c Command) Expand(arguments string) (string, error) {
	arguments = strings.TrimSpace(arguments)
	words, used, size := strings.Fields(arguments), false, len(c.Text)
	prompt := parameter().ReplaceAllStringFunc(c.Text, func(p string) string {
		used = true
		value := ""
		if p == "$ARGUMENTS" {
			value = arguments
		} else if n := int(p[1] - '1'); n < len(words) {
			value = words[n]
		}
		if size += len(value); size > maxExpanded {
			return ""
		}
		return value
	})
	if size > maxExpanded {
		return "", fmt.Errorf("the prompt of /%s has more than %d bytes with these arguments; put them into a file and mention it", c.Name, maxExpanded)
	}
	if !used && arguments != "" {
		prompt += "\n\n" + arguments
	}
	return prompt, nil
}

// ParseSlash takes apart a prompt that is a slash command: /NAME and arguments. A path such as /etc/hosts, or one behind a
// space, is none. The prompt is hostile.
func ParseSlash(prompt string) (name, arguments string, ok bool) {
	rest, ok := strings.CutPrefix(prompt, "/")
	if !ok {
		return "", "", false
	}
	end := strings.IndexAny(rest, " \t\n")
	if end < 0 {
		end = len(rest)
	}
	if name = rest[:end]; !validName(name) || strings.Contains(name, "::") || strings.Trim(name, ":") != name {
		return "", "", false
	}
	return name, strings.TrimSpace(rest[end:]), true
}
