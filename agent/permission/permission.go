// Package permission decides whether a tool may be called as a model asks for it.
//
// # Rules
//
// A rule names an action, a tool and, if it is to hold for some calls only, patterns for arguments:
//
//	{"rules": [
//	  {"action": "allow", "tool": "bash", "match": {"command": "go test*"}},
//	  {"action": "ask",   "tool": "bash", "match": {"command": "git push*"}, "reason": "others see it"},
//	  {"action": "deny",  "tool": "*",    "match": {"path": "*/.env*"}, "reason": "it holds keys"}
//	]}
//
// In a pattern * stands for any text, slashes and newlines included, ? for one character, and \ takes the meaning
// from the character behind it. A pattern is compared with the whole value: of a string its text, of a list each
// element, of anything else its JSON. An argument that is not given is the empty text.
//
// A file has more names than one. So a pattern for an argument that holds paths (path, paths, file, files, dir: each means all
// of them; and cwd) is compared with the path as it is written, cleaned, relative to the working directory, absolute, and with
// symbolic links resolved; of what read is given also without what follows a colon, such as the lines :10-20. "*/.env*"
// matches .env too, by its absolute name. A rule that denies or asks holds when any name of any path matches. One that
// allows must match a name of each: of the path and of what it leads to. grep and find show no file for which such a
// rule denies or asks them, or read: see [Hidden]. Hard links are not known for what they are, and a rule about paths does
// not hold what bash and python run: rules about those, and a sandbox, do.
//
// A script is more than its text: "cd src && git push" runs git push. So a pattern for the argument command of the
// tool bash is compared with each simple command of the script too, as mvdan.cc/sh reads it, and with each redirection
// that writes a file ("> name"). A rule that denies or asks holds when any of them matches. What is allowed must be
// allowed for each of them, by one rule or by several: with the assignments before it, for PATH=. go test runs another
// go. A script that cannot be read, or that runs something whose name is only known when it runs, is allowed by no
// pattern but "*". This is an aid for asking: what a script really does is held by a sandbox.
//
// # Decision
//
// Of the rules that hold the strictest decides: deny, then ask, then allow; of equal ones the first. When none holds,
// the default of the [Rules] decides, which denies if it is not set. Rules of several sources, such as a parent's and
// its child's, are asked all, and again the strictest decision counts: nobody gets more than each of them gives.
//
// All functions are safe for concurrent use.
package permission

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/internal/strictjson"
)

// Action is what becomes of a call.
type Action uint8

// Actions, each stricter than the one before it.
const (
	Deny  Action = iota // the zero value: what nobody decided is denied
	Ask                 // a person is asked
	Allow               // it is made
)

var actions = map[Action]string{Deny: "deny", Ask: "ask", Allow: "allow"}

func (a Action) String() string { return actions[a] }

// MarshalText writes the action's name.
func (a Action) MarshalText() ([]byte, error) {
	if s, ok := actions[a]; ok {
		return []byte(s), nil
	}
	return nil, fmt.Errorf("action %d has no name", a)
}

// UnmarshalText reads allow, ask or deny.
func (a *Action) UnmarshalText(text []byte) error {
	for action, name := range actions {
		if name == string(text) {
			*a = action
			return nil
		}
	}
	return fmt.Errorf("%.40q is no action: write allow, ask or deny", text)
}

// Rule says what becomes of some calls.
type Rule struct {
	Action Action            `json:"action"`
	Tool   string            `json:"tool"`            // a pattern
	Match  map[string]string `json:"match,omitempty"` // patterns by the names of arguments; all must match
	Reason string            `json:"reason,omitempty"`
}

// String is the rule in one line.
func (r Rule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Action, r.Tool)
	names := make([]string, 0, len(r.Match))
	for name := range r.Match {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, " %s=%q", name, r.Match[name])
	}
	if r.Reason != "" {
		fmt.Fprintf(&b, " (%s)", r.Reason)
	}
	return b.String()
}

// Limits of a file of rules.
const (
	MaxFile    = 1 << 20 // bytes
	MaxRules   = 1000
	maxPattern = 4096 // bytes
)

// Rules are the rules of one source.
type Rules struct {
	Source  string // where they are from, for messages: the name of a file
	Rules   []Rule
	Default Action
	// Defaulted says that Default was not given, and is Deny because nothing else was.
	Defaulted bool
	// ByTool are defaults of single tools, such as those that only read.
	ByTool map[string]Action
	// Why says why the default of a tool is what it is, for messages; it may be nil.
	Why map[string]string
}

// Parse reads the rules of a file. Its error is a sentence that says what is wrong where.
func Parse(source string, data []byte) (Rules, error) {
	r := Rules{Source: source}
	if len(data) > MaxFile {
		return r, fmt.Errorf("reading %s: it has %d bytes, and rules have %d at most", source, len(data), MaxFile)
	}
	var file struct {
		Rules   []Rule            `json:"rules"`
		Default *Action           `json:"default"`
		ByTool  map[string]Action `json:"tools"`
	}
	if err := strictjson.Decode(data, &file); err != nil {
		return r, fmt.Errorf("reading %s: %w", source, err)
	}
	if len(file.Rules) > MaxRules {
		return r, fmt.Errorf("reading %s: it has %d rules, and %d are the most", source, len(file.Rules), MaxRules)
	}
	for i, rule := range file.Rules {
		if rule.Tool == "" {
			return r, fmt.Errorf("reading %s: rule %d names no tool: write %q for all", source, i+1, "*")
		}
		for name, pattern := range rule.Match {
			if name == "" || len(pattern) > maxPattern {
				return r, fmt.Errorf("reading %s: rule %d: a pattern needs the name of an argument, not %.40q, and %d bytes at most", source, i+1, name, maxPattern)
			}
		}
	}
	r.Rules, r.ByTool = file.Rules, file.ByTool
	if r.Defaulted = file.Default == nil; !r.Defaulted {
		r.Default = *file.Default
	}
	return r, nil
}

// Decision is what becomes of a call, and why.
type Decision struct {
	Action Action
	Rule   *Rule  // that decided; nil for a default
	Source string // of the rule or the default
	Reason string // of a default, "" where none is given
}

// String is the decision as a model or a person reads it.
func (d Decision) String() string {
	if d.Rule == nil && d.Reason != "" {
		return fmt.Sprintf("%s by default of %s, because %s", d.Action, d.Source, d.Reason)
	}
	if d.Rule == nil {
		return fmt.Sprintf("%s by default of %s", d.Action, d.Source)
	}
	return fmt.Sprintf("%s by the rule %q of %s", d.Action, d.Rule.String(), d.Source)
}

// Decide decides on a call in the working directory. The arguments are those of a model; what is no JSON object is denied.
func (r *Rules) Decide(tool string, arguments json.RawMessage) Decision {
	return Decide("", []*Rules{r}, tool, arguments)
}

// decide decides on each simple command of a script by itself, since different rules may allow them, and on any other
// call at once.
func (r *Rules) decide(c *call) Decision {
	var strictest Decision
	for i, command := range c.parts() {
		c.deciding = command
		if d := r.decideOne(c); i == 0 || d.Action < strictest.Action {
			strictest = d
		}
	}
	return strictest
}

func (r *Rules) decideOne(c *call) Decision {
	var found *Rule
	for i := range r.Rules {
		rule := &r.Rules[i]
		if (found == nil || rule.Action < found.Action) && c.matches(rule) {
			found = rule
		}
	}
	if found != nil {
		return Decision{Action: found.Action, Rule: found, Source: r.Source}
	}
	if action, ok := r.ByTool[c.tool]; ok {
		return Decision{Action: action, Source: r.Source, Reason: r.Why[c.tool]}
	}
	return Decision{Action: r.Default, Source: r.Source, Reason: r.Why[c.tool]}
}

// Decide asks several sources, and the strictest decision counts, of equal ones the first. Without a source everything
// is denied. Relative paths in the arguments begin at dir, "" for the working directory; symbolic links are looked up.
func Decide(dir string, sources []*Rules, tool string, arguments json.RawMessage) Decision {
	call, err := read(dir, tool, arguments)
	if err != nil {
		return Decision{Action: Deny, Rule: &Rule{Action: Deny, Tool: tool, Reason: err.Error()}, Source: "the arguments"}
	}
	d := Decision{Action: Deny, Source: "no rules"}
	for i, r := range sources {
		if next := r.decide(call); i == 0 || next.Action < d.Action {
			d = next
		}
	}
	return d
}
