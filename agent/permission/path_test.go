package permission

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// tree makes a directory with files, and links in it.
func tree(t *testing.T) string {
	t.Helper()
	dir := must(filepath.EvalSymlinks(t.TempDir()))
	for _, name := range []string{".env", ".env.local", "sub/.env", "src/a.go", "main.go", "odd:1"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"plain": ".env", "src/out": "../sub", "src/away": "/etc", "again": "src"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestARuleOnPathsHoldsForEveryNameOfAFile(t *testing.T) {
	dir := tree(t)
	absolute := func(name string) string {
		return `{"path":` + string(must(json.Marshal(filepath.Join(dir, name)))) + `}`
	}
	for _, tt := range []struct {
		name, tool, arguments string
		want                  Action
	}{
		{"at the top", "read", `{"path":".env"}`, Deny},
		{"with more behind", "read", `{"path":".env.local"}`, Deny},
		{"below", "read", `{"path":"sub/.env"}`, Deny},
		{"absolute", "read", absolute(".env"), Deny},
		{"not cleaned", "read", `{"path":"sub/../.env"}`, Deny},
		{"with lines", "read", `{"path":".env:1"}`, Deny},
		{"with a selector of bytes", "read", `{"path":"plain:raw"}`, Deny},
		{"with two selectors", "read", `{"path":"plain:1-2:raw"}`, Deny},
		{"through a link", "read", `{"path":"plain"}`, Deny},
		{"through the link of a directory", "read", `{"path":"src/out/.env"}`, Deny},
		{"to be written", "write", `{"path":".env"}`, Deny},
		{"to be made", "write", `{"path":"src/out/.env.new"}`, Deny},
		{"in a list", "grep", `{"pattern":"x","paths":["main.go",".env"]}`, Deny},
		{"in a list through a link", "find", `{"paths":["plain"]}`, Deny},
		{"not another file", "read", `{"path":"main.go"}`, Allow},
		{"not a script", "bash", `{"command":"cat .env"}`, Allow},
		{"not a URL", "read", `{"path":"artifact://3:1-10"}`, Allow},
		{"a path that is none", "read", `{"path":"\u0000"}`, Allow},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rules(t, `{"default":"allow","rules":[{"action":"deny","tool":"*","match":{"path":"*/.env*"}}]}`)
			if d := Decide(dir, []*Rules{r}, tt.tool, json.RawMessage(tt.arguments)); d.Action != tt.want {
				t.Errorf("%s %s: %v, want %v", tt.tool, tt.arguments, d, tt.want)
			}
		})
	}
}

func TestAPathIsAllowedWithAllThatItLeadsTo(t *testing.T) {
	dir := tree(t)
	r := rules(t, `{"default":"deny","rules":[{"action":"allow","tool":"*","match":{"path":"src/*"}}]}`)
	every := rules(t, `{"default":"deny","rules":[{"action":"allow","tool":"*","match":{"path":`+string(must(json.Marshal(dir+"/*")))+`}}]}`)
	for _, tt := range []struct {
		name, tool, arguments string
		rules                 *Rules
		want                  Action
	}{
		{"a file", "read", `{"path":"src/a.go"}`, r, Allow},
		{"lines of a file", "read", `{"path":"src/a.go:1-2"}`, r, Allow},
		{"a file to be made", "write", `{"path":"src/new/b.go"}`, r, Allow},
		{"its absolute name", "read", `{"path":` + string(must(json.Marshal(dir+"/src/a.go"))) + `}`, r, Allow},
		{"what leaves by dots", "read", `{"path":"src/../main.go"}`, r, Deny},
		{"what leaves by a link", "read", `{"path":"src/away/passwd"}`, r, Deny},
		{"what a link leaves to write", "write", `{"path":"src/out/new"}`, r, Deny},
		{"what comes in by a link", "read", `{"path":"again/a.go"}`, r, Deny},
		{"all of a list", "grep", `{"paths":["src/a.go","src/b"]}`, r, Allow},
		{"not some of a list", "grep", `{"paths":["src/a.go","main.go"]}`, r, Deny},
		{"a command with no path", "bash", `{"command":"ls","cwd":"src/"}`, r, Deny},
		{"an absolute pattern", "read", `{"path":"main.go"}`, every, Allow},
		{"a file with a colon", "read", `{"path":"odd:1"}`, every, Allow},
		{"a search of the working directory", "grep", `{}`, every, Deny},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := Decide(dir, []*Rules{tt.rules}, tt.tool, json.RawMessage(tt.arguments)); d.Action != tt.want {
				t.Errorf("%s %s: %v, want %v", tt.tool, tt.arguments, d, tt.want)
			}
		})
	}
}

func TestSearchesHideWhatRulesKeepFromThem(t *testing.T) {
	dir := tree(t)
	for _, tt := range []struct {
		name, rule string
		want       bool
	}{
		{"for all tools", `{"action":"deny","tool":"*","match":{"path":"*/.env*"}}`, true},
		{"for read", `{"action":"deny","tool":"read","match":{"path":"*/.env*"}}`, true},
		{"for grep", `{"action":"deny","tool":"grep","match":{"paths":"*/.env*"}}`, true},
		{"that are to be asked about", `{"action":"ask","tool":"read","match":{"path":"*/.env*"}}`, true},
		{"with another argument", `{"action":"deny","tool":"grep","match":{"path":"*/.env*","pattern":"KEY*"}}`, true},
		{"with an argument of another value", `{"action":"deny","tool":"grep","match":{"path":"*/.env*","pattern":"x"}}`, false},
		{"for another tool", `{"action":"deny","tool":"write","match":{"path":"*/.env*"}}`, false},
		{"that allow", `{"action":"allow","tool":"read","match":{"path":"*/.env*"}}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hidden := Hidden(dir, []*Rules{rules(t, `{"rules":[`+tt.rule+`]}`)}, "grep", json.RawMessage(`{"pattern":"KEY="}`))
			for path, want := range map[string]bool{".env": tt.want, "sub/.env": tt.want, "main.go": false} {
				if got := hidden != nil && hidden(path, filepath.Join(dir, path)); got != want {
					t.Errorf("%s is hidden: %v, want %v", path, got, want)
				}
			}
			if got := hidden != nil && hidden("src/out/x", filepath.Join(dir, "sub/.env")); got != tt.want {
				t.Errorf("what is there by another name is hidden: %v, want %v", got, tt.want)
			}
		})
	}
}

func FuzzPaths(f *testing.F) {
	f.Add("read", "src/a.go:1-2", "src/*", "path")
	f.Add("grep", "plain", "*/.env*", "paths")
	f.Add("read", "artifact://3", "artifact:*", "path")
	f.Fuzz(func(t *testing.T, tool, path, pattern, name string) {
		arguments, err := json.Marshal(map[string]string{name: path})
		if err != nil || !isPath(name) {
			return
		}
		rule := func(action, other Action) *Rules {
			return &Rules{Default: other, Rules: []Rule{{Action: action, Tool: "*", Match: map[string]string{name: pattern}}}}
		}
		allowed := rule(Allow, Ask).Decide(tool, arguments).Action == Allow
		if denied := rule(Deny, Ask).Decide(tool, arguments).Action == Deny; allowed && !denied {
			t.Errorf("%s %s: %q allows it and does not deny it", tool, arguments, pattern)
		}
	})
}
