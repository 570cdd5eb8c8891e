package task

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/agentrun/agentrun/internal/frontmatter"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/task/isolation"
)

// Type is a kind of subagent: a system prompt, and what goes with it.
//
// It is written as a Markdown file with front matter, as other programs write theirs:
//
//	---
//	name: reviewer
//	description: Reads a change and says what is wrong with it.
//	tools: read, grep, find
//	model: anthropic:claude-haiku-4-5
//	---
//	You review changes...
//
// Members of the front matter that are not named here are passed over: other programs have more of them. One that is all but
// one of these (readonly, tool) is refused: what it was to forbid would be allowed. Tools may have the names that Claude Code
// gives them (Read, Glob, Bash...), and its short names of models (sonnet, opus, haiku) are the model of the parent.
type Type struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tools       []string `json:"tools,omitempty"`           // those it may use; nil is all that its parent has
	Without     []string `json:"disallowedTools,omitempty"` // those that it may not use, whatever Tools says
	Model       string   `json:"model,omitempty"`           // "provider:id"; "" or "inherit" is its parent's
	Thinking    string   `json:"thinking,omitempty"`        // one of model.ThinkingLevels; "" is its parent's
	ReadOnly    bool     `json:"readOnly,omitempty"`        // it changes nothing: tools that may are not given to it
	Spawns      []string `json:"spawns,omitempty"`          // types of subagents that it may start; nil is all, empty none
	// Isolation gives it files of its own; "" is none. A call may add it, and not take it away.
	Isolation isolation.Kind `json:"isolation,omitempty"`
	// Runner is RunnerCommand for a type that is another program, which Command names: a program and its arguments, in which
	// {prompt} stands for the prompt. Without that the program reads the prompt from its standard input. "" asks a model.
	Runner  string   `json:"runner,omitempty"`
	Command []string `json:"command,omitempty"`
	System  string   `json:"-"`
	Source  string   `json:"source"` // the file that it is from; "built in"
}

// MaxType is the largest file of a type, in bytes.
const MaxType = 1 << 20

// words reads both "a, b" and a list.
type words []string

func (w *words) UnmarshalYAML(data []byte) error {
	var list []string
	if err := yaml.Unmarshal(data, &list); err == nil {
		*w = list
		return nil
	}
	var text string
	if err := yaml.Unmarshal(data, &text); err != nil {
		return errors.New("give names with commas, or a list")
	}
	*w = words{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			*w = append(*w, part)
		}
	}
	return nil
}

// ParseType reads a type from a file's text; its name is that of the file unless the front matter says otherwise.
func ParseType(source string, data []byte) (t Type, err error) {
	defer func() {
		if p := recover(); p != nil { // a front matter is hostile, and YAML is large
			err = fmt.Errorf("reading %s: its front matter cannot be read", source)
		}
	}()
	t = Type{Source: source, Name: strings.TrimSuffix(filepath.Base(source), ".md")}
	if len(data) > MaxType {
		return t, fmt.Errorf("reading %s: it has %d bytes, and a type has %d at most", source, len(data), MaxType)
	}
	head, body, ok := frontmatter.Split(data)
	if !ok {
		return t, fmt.Errorf("reading %s: it does not begin with front matter: --- on a line, name: and description:, --- on a line", source)
	}
	var front struct {
		Name        string   `yaml:"name"`
		Description string   `yaml:"description"`
		Tools       *words   `yaml:"tools"`
		Without     *words   `yaml:"disallowedTools"`
		Model       string   `yaml:"model"`
		Thinking    string   `yaml:"thinking"`
		ReadOnly    bool     `yaml:"readOnly"`
		Spawns      *words   `yaml:"spawns"`
		Isolation   string   `yaml:"isolation"`
		Runner      string   `yaml:"runner"`
		Command     []string `yaml:"command"`
	}
	if err := yaml.Unmarshal(head, &front); err != nil {
		return t, fmt.Errorf("reading %s: its front matter cannot be read: %s", source, firstLine(err.Error()))
	}
	if err := mistaken(head); err != nil {
		return t, fmt.Errorf("reading %s: %w", source, err)
	}
	if front.Name != "" {
		t.Name = front.Name
	}
	t.Description, t.Model, t.Thinking, t.ReadOnly = strings.TrimSpace(front.Description), front.Model, front.Thinking, front.ReadOnly
	if front.Runner != "" && front.Runner != "model" {
		t.Runner, t.Command = front.Runner, front.Command
	}
	kind, kindErr := isolation.ParseKind(front.Isolation)
	if kind != isolation.None {
		t.Isolation = kind
	}
	if slices.Contains(inherited, t.Model) {
		t.Model = ""
	}
	if front.Tools != nil && !slices.Contains(*front.Tools, "*") {
		t.Tools = ourTools(*front.Tools)
	}
	if front.Without != nil {
		t.Without = ourTools(*front.Without)
	}
	if front.Spawns != nil && !slices.Contains(*front.Spawns, "*") {
		t.Spawns = *front.Spawns
	}
	t.System = strings.TrimSpace(string(body))
	switch {
	case !validName(t.Name):
		return t, fmt.Errorf("reading %s: %.60q is no name of a type: letters, digits, _ and - only", source, t.Name)
	case t.Runner != "" && t.Runner != RunnerCommand:
		return t, fmt.Errorf("reading %s: %.40q is no runner: model, command", source, t.Runner)
	case t.Runner == RunnerCommand && (len(t.Command) == 0 || t.Command[0] == "" || strings.Contains(t.Command[0], promptMark)):
		return t, fmt.Errorf("reading %s: its runner is a command, and it names none: command: [program, argument, ...]", source)
	case kindErr != nil:
		return t, fmt.Errorf("reading %s: %w", source, kindErr)
	case t.Description == "":
		return t, fmt.Errorf("reading %s: it has no description, by which a model chooses it", source)
	case t.Thinking != "" && !slices.Contains(model.ThinkingLevels(), t.Thinking):
		return t, fmt.Errorf("reading %s: %.40q is no level of thinking: %s", source, t.Thinking, strings.Join(model.ThinkingLevels(), ", "))
	}
	return t, nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

func validName(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

//go:embed types/*.md
var builtin embed.FS

// Types returns the types in some directories, those of the first one counting where two have a name, and the built-in
// ones: task, scout and reviewer. Files that cannot be read are left out, and told in problems. A directory that is not there
// has none.
func Types(dirs ...string) (types []Type, problems []error) {
	known := map[string]bool{}
	add := func(source string, data []byte, err error) {
		var t Type
		if err == nil {
			t, err = ParseType(source, data)
		}
		switch {
		case err != nil:
			problems = append(problems, err)
		case !known[t.Name]:
			known[t.Name] = true
			types = append(types, t)
		}
	}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.md"))
		if err != nil {
			problems = append(problems, fmt.Errorf("looking for types of agents in %s: %w", dir, err))
		}
		for _, file := range files {
			info, err := os.Stat(file)
			if err == nil && (!info.Mode().IsRegular() || info.Size() > MaxType) {
				err = fmt.Errorf("reading %s: it is no file of at most %d bytes", file, MaxType)
			}
			var data []byte
			if err == nil {
				data, err = os.ReadFile(file)
			}
			add(file, data, err)
		}
	}
	files, _ := fs.Glob(builtin, "types/*.md") // the pattern is right
	for _, file := range files {
		data, err := builtin.ReadFile(file)
		add(file, data, err)
		if n := len(types); n > 0 && types[n-1].Source == file {
			types[n-1].Source, types[n-1].Name = "built in", strings.TrimSuffix(path.Base(file), ".md")
		}
	}
	return types, problems
}
