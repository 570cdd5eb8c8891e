package instructions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/agentrun/agentrun/internal/frontmatter"
	"github.com/agentrun/agentrun/tool"
)

// Skill is a text that a model reads when it needs it.
type Skill struct {
	Name        string
	Description string
	Path        string // of SKILL.md
	Text        string // without front matter
}

// maxDescription bounds a description in the system prompt, in bytes.
const maxDescription = 1024

// Skills returns the skills, by name; of two with a name the one that is nearer to the working directory. What could not be read is
// left out and told in problems.
func (p Project) Skills() (skills []Skill, problems []error) {
	all, closing, problems := p.places()
	defer closing()
	found := map[string]Skill{}
	for _, at := range all {
		for _, dir := range at.dirs {
			for _, ours := range at.ours {
				folder := path.Join(dir, ours, "skills")
				for _, name := range at.list(folder) {
					file := path.Join(folder, name, "SKILL.md")
					text, err := readIn(at.Root, file)
					if errors.Is(err, fs.ErrNotExist) {
						continue
					}
					full := filepath.Join(at.Name(), file)
					if err != nil {
						problems = append(problems, fmt.Errorf("reading %s: %w; it is left out", full, err))
						continue
					}
					s, err := ParseSkill(full, text)
					if err == nil && found[s.Name].Name == "" && len(found) >= MaxSkills {
						err = fmt.Errorf("reading %s: there are more than %d skills", full, MaxSkills)
					}
					if err != nil {
						problems = append(problems, err)
						continue
					}
					found[s.Name] = s
				}
			}
		}
	}
	for _, s := range found {
		skills = append(skills, s)
	}
	slices.SortFunc(skills, func(a, b Skill) int { return strings.Compare(a.Name, b.Name) })
	return skills, problems
}

// list returns the names in a directory, none if it is not there.
func (at place) list(dir string) []string {
	f, err := at.OpenFile(dir, 0, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxEntries)
	slices.Sort(names)
	return names
}

// ParseSkill reads a SKILL.md; its name is that of its folder unless the front matter says otherwise. It is hostile.
func ParseSkill(source, text string) (Skill, error) {
	s := Skill{Name: filepath.Base(filepath.Dir(source)), Path: source}
	head, body, ok := frontmatter.Split([]byte(text))
	if !ok {
		return s, fmt.Errorf("reading %s: it does not begin with front matter: --- on a line, description:, --- on a line", source)
	}
	var front struct {
		Name        string `yaml:"name"`
		Description string `yaml:"description"`
	}
	if err := frontmatter.Decode(head, &front); err != nil {
		return s, fmt.Errorf("reading %s: %w", source, err)
	}
	if front.Name != "" {
		s.Name = front.Name
	}
	s.Description = oneLine(front.Description)
	s.Text = strings.TrimSpace(string(body))
	switch {
	case !validName(s.Name):
		return s, fmt.Errorf("reading %s: %.60q is no name of a skill: letters, digits, _, - and : only", source, s.Name)
	case s.Description == "":
		return s, fmt.Errorf("reading %s: it has no description, by which a model chooses it", source)
	case len(s.Description) > maxDescription:
		return s, fmt.Errorf("reading %s: its description has %d bytes, and %d are the most", source, len(s.Description), maxDescription)
	}
	return s, nil
}

// oneLine is a text that makes no lines of its own in a list.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
}

func validName(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-:") == ""
}

// SkillPrompt is what a model is told of skills, "" without any.
func SkillPrompt(skills []Skill) string {
	if len(skills) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("These skills say how some work is done. Before such work read the one that fits with the tool skill.\n\n")
	for _, s := range skills {
		fmt.Fprintf(&b, "- %s: %s\n", s.Name, s.Description)
	}
	return b.String()
}

// SkillTool gives a model the text of a skill.
type SkillTool struct{ Skills []Skill }

var _ tool.Tool = SkillTool{}

// Name is what a model calls it by.
func (SkillTool) Name() string { return "skill" }

// Description is for a model.
func (SkillTool) Description() string {
	return "Reads a skill: how some work is done here. The system prompt lists the names."
}

// Schema is that of the input.
func (SkillTool) Schema() json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","description":"of the skill"}},"required":["name"],"additionalProperties":false}`)
}

// Idempotent is true: it changes nothing.
func (SkillTool) Idempotent() bool { return true }

// ParallelSafe is true.
func (SkillTool) ParallelSafe() bool { return true }

// Call reads a skill.
func (t SkillTool) Call(_ context.Context, input json.RawMessage) (tool.Result, error) {
	var in struct {
		Name string `json:"name"`
	}
	if err := tool.Decode(input, &in); err != nil {
		return tool.Refuse(fmt.Errorf("the skill was not read: %w", err)), nil
	}
	var names []string
	for _, s := range t.Skills {
		if s.Name == in.Name {
			return tool.Result{Text: fmt.Sprintf("[of %s; other files that it names are in that directory]\n\n%s", s.Path, s.Text)}, nil
		}
		names = append(names, s.Name)
	}
	return tool.Refuse(fmt.Errorf("there is no skill %.60q; there are %s", in.Name, strings.Join(names, ", "))), nil
}
