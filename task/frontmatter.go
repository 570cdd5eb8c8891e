package task

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// members are those of the front matter that a Type is made of.
var members = []string{
	"name", "description", "tools", "disallowedTools", "model", "thinking", "readOnly", "spawns", "isolation", "runner", "command",
}

// others are members of other programs' front matter that are near to one of ours and mean something else.
var others = []string{"mode", "commands", "skills"}

// inherited are names of models that mean that of the parent. All but the first are of Claude Code, and name whichever model
// of a family is the newest, which is nothing that a provider can be asked for.
var inherited = []string{"inherit", "sonnet", "opus", "haiku"}

// fieldTools are the names that Claude Code gives to tools which have another one here but for the case.
var fieldTools = map[string]string{
	"glob": "find", "ls": "find", "multiedit": "edit", "notebookread": "read", "notebookedit": "edit", "agent": "task", "todowrite": "todo",
}

// ourTools are names of tools as they are called here.
func ourTools(names words) []string {
	tools := make([]string, 0, len(names))
	for _, name := range names {
		if lower := strings.ToLower(name); fieldTools[lower] != "" {
			name = fieldTools[lower]
		} else if !strings.Contains(name, "__") { // those of MCP servers are as their server says
			name = lower
		}
		if !slices.Contains(tools, name) {
			tools = append(tools, name)
		}
	}
	return tools
}

// mistaken says which member of a front matter must have been meant to be another one.
func mistaken(head []byte) error {
	var all map[string]any
	if err := yaml.Unmarshal(head, &all); err != nil {
		return nil //nolint:nilerr // what was read into members has no mistake of form
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if slices.Contains(members, key) || slices.Contains(others, key) {
			continue
		}
		for _, member := range members {
			if bare(key) == bare(member) || len(key) > 3 && oneOff(bare(key), bare(member)) {
				return fmt.Errorf("its front matter has %.40q: write %s", key, member)
			}
		}
	}
	return nil
}

// bare is a key without what its spelling may differ in.
func bare(key string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(key))
}

// oneOff reports whether one byte more, fewer or other makes b of a.
func oneOff(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 {
		return false
	}
	same := 0
	for same < len(a) && a[same] == b[same] {
		same++
	}
	if len(a) == len(b) {
		return same < len(a) && a[same+1:] == b[same+1:]
	}
	return a[same:] == b[same+1:]
}
