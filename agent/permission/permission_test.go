package permission

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func rules(t testing.TB, text string) *Rules {
	t.Helper()
	r, err := Parse("rules.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

func TestCallsAreDecidedOn(t *testing.T) {
	const file = `{"default": "ask", "tools": {"read": "allow"}, "rules": [
		{"action": "allow", "tool": "bash", "match": {"command": "go test*"}},
		{"action": "allow", "tool": "bash", "match": {"command": "cd *"}},
		{"action": "allow", "tool": "bash", "match": {"command": "echo *"}},
		{"action": "deny", "tool": "bash", "match": {"command": "git push*"}, "reason": "others see it"},
		{"action": "deny", "tool": "*", "match": {"path": "*/.env*"}},
		{"action": "deny", "tool": "grep", "match": {"paths": "/etc/*"}},
		{"action": "allow", "tool": "grep", "match": {"paths": "src/*"}},
		{"action": "allow", "tool": "write", "match": {"path": "src/?.go"}}
	]}`
	command := func(s string) string { return `{"command":` + string(must(json.Marshal(s))) + `}` }
	for _, tt := range []struct {
		name, tool, arguments string
		want                  Action
	}{
		{"a command that matches is allowed", "bash", command("go test ./..."), Allow},
		{"all commands of a list have to be allowed", "bash", command("cd src && go test ./..."), Allow},
		{"one that no rule allows is left to the default", "bash", command("cd src && rm -rf ."), Ask},
		{"one that is denied within a list denies", "bash", command("cd src; git push origin"), Deny},
		{"one in a substitution denies", "bash", command("echo $(git push)"), Deny},
		{"one behind an assignment denies", "bash", command("A=1 git push"), Deny},
		{"quotes do not hide a command", "bash", command(`g"it" pu\sh`), Deny},
		{"an assignment is not allowed along", "bash", command("PATH=. go test"), Ask},
		{"an assignment of its own is not allowed along", "bash", command("PATH=.; go test"), Ask},
		{"a redirection is not allowed along", "bash", command("go test > /etc/passwd"), Ask},
		{"a redirection to nowhere is", "bash", command("go test >/dev/null 2>&1 </dev/null"), Allow},
		{"a function is not allowed along", "bash", command("go() { rm x; }; go test"), Ask},
		{"a name that is not known is not allowed", "bash", command("echo a; $CMD b"), Ask},
		{"a script that cannot be read is not allowed", "bash", command("go test ("), Ask},
		{"a command that is no text is not allowed", "bash", `{"command":["go test"]}`, Ask},
		{"a script of nothing is not allowed", "bash", command("# go test"), Ask},
		{"a path that is denied is so for all tools", "read", `{"path":"a/.env.local"}`, Deny},
		{"a tool has its own default", "read", `{"path":"a/b"}`, Allow},
		{"one element of a list denies", "grep", `{"paths":["src/a","/etc/passwd"]}`, Deny},
		{"all elements of a list have to be allowed", "grep", `{"paths":["src/a","b"]}`, Ask},
		{"a list that is allowed", "grep", `{"paths":["src/a","src/b"]}`, Allow},
		{"an empty list matches nothing", "grep", `{"paths":[]}`, Ask},
		{"an argument that is missing is empty", "grep", `{}`, Ask},
		{"? is one character", "write", `{"path":"src/é.go"}`, Allow},
		{"? is not two", "write", `{"path":"src/ab.go"}`, Ask},
		{"arguments that are no object are denied", "read", `[1]`, Deny},
		{"no arguments are none", "read", ``, Allow},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := rules(t, file).Decide(tt.tool, json.RawMessage(tt.arguments))
			if d.Action != tt.want {
				t.Errorf("%s %s: %v, want %v", tt.tool, tt.arguments, d, tt.want)
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestTheStrictestSourceCounts(t *testing.T) {
	parent := rules(t, `{"default": "allow", "rules": [{"action": "deny", "tool": "bash", "reason": "no shell"}]}`)
	child := rules(t, `{"default": "ask", "rules": [{"action": "allow", "tool": "*"}]}`)
	for _, tt := range []struct {
		name, tool string
		sources    []*Rules
		want       Action
	}{
		{"a child gets no more than its parent", "bash", []*Rules{parent, child}, Deny},
		{"what both allow is allowed", "read", []*Rules{parent, child}, Allow},
		{"without rules nothing is", "read", nil, Deny},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := Decide("", tt.sources, tt.tool, nil); d.Action != tt.want {
				t.Errorf("got %v, want %v", d, tt.want)
			}
		})
	}
	if got, want := Decide("", []*Rules{parent}, "bash", nil).String(), `deny by the rule "deny bash (no shell)" of rules.json`; got != want {
		t.Errorf("the decision says %q, want %q", got, want)
	}
}

func TestRulesThatCannotBeReadAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"another action":    `{"rules":[{"action":"maybe","tool":"*"}]}`,
		"no tool":           `{"rules":[{"action":"deny"}]}`,
		"an unknown member": `{"rules":[{"action":"deny","tool":"*","when":"now"}]}`,
		"something behind":  `{} {}`,
		"no object":         `[]`,
		"a nameless match":  `{"rules":[{"action":"deny","tool":"*","match":{"":"x"}}]}`,
		"too many":          `{"rules":[` + strings.Repeat(`{"action":"deny","tool":"*"},`, MaxRules) + `{"action":"deny","tool":"*"}]}`,
		"too large":         strings.Repeat(" ", MaxFile) + "{}",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse("rules.json", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), "reading rules.json: ") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestADefaultThatIsGivenIsToldFromNone(t *testing.T) {
	for text, want := range map[string]bool{`{}`: true, `{"default":"deny"}`: false, `{"default":"allow"}`: false} {
		if r := rules(t, text); r.Defaulted != want {
			t.Errorf("%s: %v, want %v", text, r.Defaulted, want)
		}
	}
}

func FuzzDecide(f *testing.F) {
	f.Add("bash", `{"command":"cd a && git push"}`, "git *")
	f.Add("grep", `{"paths":["a",["b",{}]]}`, "*?\\*")
	f.Fuzz(func(t *testing.T, tool, arguments, pattern string) {
		deny := Rules{Default: Allow, Rules: []Rule{{Action: Deny, Tool: "*", Match: map[string]string{"command": pattern}}}}
		allow := Rules{Rules: []Rule{{Action: Allow, Tool: "*", Match: map[string]string{"command": pattern}}}}
		d, a := deny.Decide(tool, json.RawMessage(arguments)), allow.Decide(tool, json.RawMessage(arguments))
		// Who allows with a pattern allows no more than who denies with it denies.
		if a.Action == Allow && d.Action != Deny {
			t.Errorf("%s %s: %q allows it and does not deny it", tool, arguments, pattern)
		}
	})
}

func ExampleParse() {
	rules, err := Parse("permissions.json", []byte(`{
		"default": "ask",
		"rules": [
			{"action": "allow", "tool": "bash", "match": {"command": "go test*"}},
			{"action": "deny", "tool": "bash", "match": {"command": "git push*"}, "reason": "others see it"}
		]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rules.Decide("bash", json.RawMessage(`{"command": "go test ./..."}`)).Action)
	fmt.Println(rules.Decide("bash", json.RawMessage(`{"command": "go test ./... && git push"}`)))
	// Output:
	// allow
	// deny by the rule "deny bash command=\"git push*\" (others see it)" of permissions.json
}
