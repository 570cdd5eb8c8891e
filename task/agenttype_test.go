package task_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/task"
)

func TestATypeOfAnotherProgramMeansWhatItsAuthorMeant(t *testing.T) {
	for _, tt := range []struct {
		name, front string
		want        task.Type
	}{
		{"its names of tools", "tools: Read, Grep, Glob, Bash, MultiEdit, Edit, mcp__git__Log", task.Type{Tools: []string{"read", "grep", "find", "bash", "edit", "mcp__git__Log"}}},
		{"tools that are taken away", "disallowedTools: [Bash, Write]", task.Type{Without: []string{"bash", "write"}}},
		{"a short name of a model", "model: sonnet", task.Type{}},
		{"a model by its name", "model: anthropic:claude", task.Type{Model: "anthropic:claude"}},
		{"members that are not ours", "mode: subagent\ncolor: red\nskills: a\nmaxTurns: 3\npermissionMode: plan", task.Type{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := task.ParseType("a.md", []byte("---\ndescription: d\n"+tt.front+"\n---\nbody\n"))
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Name, tt.want.Description, tt.want.System, tt.want.Source = "a", "d", "body", "a.md"
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestAMistakeInATypeIsNoPermission(t *testing.T) {
	for _, tt := range []struct{ front, want string }{
		{"readonly: true", `has "readonly": write readOnly`},
		{"read-only: true", `has "read-only": write readOnly`},
		{"tool: read", `has "tool": write tools`},
		{"Tools: read", `has "Tools": write tools`},
		{"isolaton: worktree", `has "isolaton": write isolation`},
		{"runnr: command", `has "runnr": write runner`},
		{"disallowed_tools: bash", `has "disallowed_tools": write disallowedTools`},
	} {
		t.Run(tt.front, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "a.md"), []byte("---\ndescription: d\n"+tt.front+"\n---\nbody\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			types, problems := task.Types(dir)
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), tt.want) {
				t.Errorf("the problems are %v, want one with %q", problems, tt.want)
			}
			if len(types) > 0 && types[0].Name == "a" {
				t.Error("the type is there all the same")
			}
		})
	}
}

func FuzzParseType(f *testing.F) {
	f.Add([]byte("---\nname: a\ndescription: d\ntools: Read, b\n---\nx"))
	f.Add([]byte("---\ndescription: d\nreadonly: [1]\n---\n"))
	f.Add([]byte("---\n? [a]\n: b\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		typ, err := task.ParseType("a.md", data)
		if err == nil && (typ.Name == "" || typ.Description == "") {
			t.Errorf("a type without a name or a description: %+v", typ)
		}
	})
}
