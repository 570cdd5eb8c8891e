package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/agent/permission"
	"github.com/agentrun/agentrun/internal/seal"
)

// allowedTools is the value of --allow.
type allowedTools []string

func (a *allowedTools) String() string { return strings.Join(*a, " ") }
func (a *allowedTools) Type() string   { return "TOOL" }

func (a *allowedTools) Set(name string) error {
	set, err := toolsOf(nil)
	if err == nil {
		err = set.Knows(name)
	}
	if err == nil && !slices.Contains(*a, name) {
		*a = append(*a, name)
	}
	return err
}

// permissionsFile is the name of the file of rules in a home.
const permissionsFile = "permissions.json"

// permissions are the rules of a home, with defaults for what they do not say. What no sandbox confines is denied, but for
// the tools that are allowed for this run.
func permissions(home string, confined bool, allowed []string) (*permission.Rules, error) {
	path := filepath.Join(home, permissionsFile)
	ours := permission.Rules{Source: "agentrun", Default: permission.Deny, ByTool: map[string]permission.Action{}, Why: map[string]string{}}
	for _, name := range []string{"read", "grep", "find", "edit", "write", "task", "merge", "yield", "skill", "todo", "mode"} {
		ours.ByTool[name] = permission.Allow
	}
	for _, name := range []string{"bash", "python", "ssh"} {
		why := "what it runs is in no sandbox here"
		if name == "ssh" {
			why = "what runs on another host is in no sandbox of this one"
		} else if confined {
			ours.ByTool[name] = permission.Allow
			continue
		}
		ours.Why[name] = fmt.Sprintf("%s; --allow %s, or a rule for it in %s, permits it", why, name, path)
	}
	rules := ours
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("reading the rules for calls: %w", err)
	default:
		if rules, err = permission.Parse(path, data); err != nil {
			return nil, err
		}
		if rules.Defaulted {
			rules.Default, rules.Why = ours.Default, ours.Why
			for name := range rules.ByTool {
				delete(ours.Why, name)
			}
			maps.Copy(ours.ByTool, rules.ByTool)
			rules.ByTool = ours.ByTool
		}
	}
	if len(allowed) > 0 && rules.ByTool == nil {
		rules.ByTool = map[string]permission.Action{}
	}
	for _, name := range allowed {
		rules.ByTool[name] = permission.Allow
		delete(rules.Why, name)
	}
	return &rules, nil
}

// ownSecrets are the rules for what of a home no model may see, whatever other rules say: the key that seals what a log may permit.
func ownSecrets(home string) *permission.Rules {
	r := &permission.Rules{Source: "agentrun", Default: permission.Allow}
	homes := []string{home}
	if real, err := filepath.EvalSymlinks(home); err == nil && real != home {
		homes = append(homes, real)
	}
	for _, dir := range homes {
		r.Rules = append(r.Rules, permission.Rule{
			Action: permission.Deny, Tool: "*", Match: map[string]string{"path": permission.Literal(filepath.Join(dir, seal.Name))}, Reason: "it is the key of this home",
		})
	}
	return r
}
