// Package hook runs commands of a person at points of an agent's run.
//
// # Configuration
//
// Hooks are a list, the member "hooks" of config.json in a home, and that of the file .agentrun/hooks.json of a project:
//
//	{"hooks": [
//	  {"on": "before-tool", "tool": "bash", "command": "./check-command", "timeout": "5s", "required": true},
//	  {"on": "after-tool", "tool": "edit", "command": "gofmt -l . | head"},
//	  {"on": "stop", "command": "go vet ./... >&2 || exit 2"}
//	]}
//
//	on        session-start, before-tool, after-tool, before-compaction or stop; those of subagents too, but for stop
//	tool      a pattern with * and ? of the tools that it is for; without it, all
//	command   what sh(1) runs, in the directory of the session, outside of any sandbox
//	timeout   how long it may take: 10s if it is left out, MaxTimeout at most
//	required  before-tool only: when the hook itself fails, the call is denied, not made
//
// A hook of a project is code of whoever wrote the project. It is run only when the person trusts this very file: [Trust]
// keeps its path and the hash of its content in the home, and a file that has changed since is not trusted any more. What the
// command of a trusted hook runs, such as a script of the project, is not looked at.
//
// # Protocol
//
// A hook gets one JSON object on standard input, an [Input], and answers by its exit status:
//
//	0      with nothing on standard output: it has nothing to say. With one JSON object there, an [Answer]: before a tool
//	       "deny" is why the call is not made, after a tool "remark" is put behind the result, on stop "continue" is said
//	       to the model, which goes on.
//	2      the same with what it wrote to standard error, or a sentence where that is empty
//	other  it failed
//
// # Promises
//
//   - A hook that fails, takes too long, says what is none of the above or cannot be started is reported, with its name, and
//     does nothing to the run, but for the one that is required.
//   - It is given its time and no more: then it and everything it started is killed. Nothing that a hook starts outlives it.
//   - Of its output MaxOutput bytes are read; more is a failure.
//   - Its environment is that of agentrun without what looks like a secret. It sees arguments as the tool gets them, secrets
//     included; where the session replaces those, what the hook says is kept and shown without them.
//
// A Runner is safe for concurrent use.
package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/agentrun/agentrun/internal/strictjson"
)

// Point is where in a run a hook is called.
type Point string

// Points of a run.
const (
	SessionStart     Point = "session-start"
	BeforeTool       Point = "before-tool"
	AfterTool        Point = "after-tool"
	BeforeCompaction Point = "before-compaction"
	Stop             Point = "stop"
)

// Points are all of them, in the order of a run.
func Points() []Point { return []Point{SessionStart, BeforeTool, AfterTool, BeforeCompaction, Stop} }

// pointNames are all of them for a sentence.
func pointNames() string {
	var names []string
	for _, p := range Points() {
		names = append(names, string(p))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Hook is one command.
type Hook struct {
	On       Point    `json:"on"`
	Tool     string   `json:"tool,omitempty"`
	Command  string   `json:"command"`
	Timeout  Duration `json:"timeout,omitempty"`
	Required bool     `json:"required,omitempty"`
	Source   string   `json:"-"` // the file that it is from
}

// Duration is a time as people write it, such as 5s.
type Duration time.Duration

// UnmarshalJSON reads a string such as "5s".
func (d *Duration) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) != nil {
		return errors.New(`a time is a string such as "5s"`)
	}
	t, err := time.ParseDuration(s)
	if err != nil || t <= 0 || t > MaxTimeout {
		return fmt.Errorf("%.40q is no time of at most %v, such as 5s", s, MaxTimeout)
	}
	*d = Duration(t)
	return nil
}

// MarshalJSON writes it so.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// Limits of hooks.
const (
	MaxFile        = 64 << 10 // bytes of a file
	MaxHooks       = 100      // in a file
	MaxOutput      = 64 << 10 // bytes of each of a hook's streams
	MaxTimeout     = 10 * time.Minute
	DefaultTimeout = 10 * time.Second
)

// name is how a hook is called in messages.
func (h Hook) name() string {
	command, _, cut := strings.Cut(h.Command, "\n")
	if cut || len(command) > 60 {
		command = strings.ToValidUTF8(command[:min(60, len(command))], "") + "..."
	}
	return fmt.Sprintf("the %s hook %q of %s", h.On, command, h.Source)
}

// is reports whether the hook is for a tool.
func (h Hook) is(p Point, tool string) bool {
	if h.On != p {
		return false
	}
	ok, err := path.Match(h.Tool, tool)
	return h.Tool == "" || ok && err == nil
}

// ParseFile reads a file of hooks. It is hostile; the error is a sentence.
func ParseFile(source string, data []byte) ([]Hook, error) {
	if len(data) > MaxFile {
		return nil, fmt.Errorf("reading %s: it has %d bytes, and a file of hooks has %d at most", source, len(data), MaxFile)
	}
	var file struct {
		Hooks json.RawMessage `json:"hooks"`
	}
	if err := strictjson.Decode(data, &file); err != nil {
		return nil, fmt.Errorf("reading %s: %w", source, err)
	}
	return Parse(source, file.Hooks)
}

// Parse reads a list of hooks, as it stands in a file; nothing is an empty list. It is hostile; the error is a sentence.
func Parse(source string, data []byte) ([]Hook, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	var list []Hook
	if err := strictjson.Decode(data, &list); err != nil {
		return nil, fmt.Errorf("reading the hooks of %s: %w", source, err)
	}
	if len(list) > MaxHooks {
		return nil, fmt.Errorf("reading the hooks of %s: there are %d, and %d are the most", source, len(list), MaxHooks)
	}
	for i := range list {
		h := &list[i]
		h.Source = source
		if err := h.check(); err != nil {
			return nil, fmt.Errorf("reading the hooks of %s: hook %d: %w", source, i+1, err)
		}
		if h.Timeout == 0 {
			h.Timeout = Duration(DefaultTimeout)
		}
	}
	return list, nil
}

func (h *Hook) check() error {
	switch {
	case !slices.Contains(Points(), h.On):
		return fmt.Errorf("%.40q is no point of a run: write %s", string(h.On), pointNames())
	case strings.TrimSpace(h.Command) == "":
		return errors.New("it has no command")
	case strings.ContainsRune(h.Command, 0):
		return errors.New("its command has a NUL in it")
	case h.Tool != "" && h.On != BeforeTool && h.On != AfterTool:
		return fmt.Errorf("a hook on %s is for no tool: leave \"tool\" out", h.On)
	case h.Required && h.On != BeforeTool:
		return errors.New("only a hook on before-tool can be required")
	}
	if _, err := path.Match(h.Tool, ""); err != nil {
		return fmt.Errorf("%.60q is no pattern of a tool: write it with * and ?", h.Tool)
	}
	return nil
}

// Input is what a hook gets on standard input. Members that a point does not have are left out.
type Input struct {
	Version   int             `json:"v"` // of this form: 1
	Point     Point           `json:"on"`
	Session   string          `json:"session"`
	CWD       string          `json:"cwd"`
	Agent     string          `json:"agent"`
	Resumed   bool            `json:"resumed,omitempty"` // session-start: the run goes on with one before
	Call      string          `json:"call,omitempty"`    // its id
	Tool      string          `json:"tool,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Result    *Result         `json:"result,omitempty"` // after-tool
	Tokens    int64           `json:"tokens,omitempty"` // before-compaction: of the context, as estimated
	Answer    string          `json:"answer,omitempty"` // stop: the last one
}

// Result is what a tool said.
type Result struct {
	Text     string `json:"text"` // as the model is shown it
	IsError  bool   `json:"isError"`
	Artifact string `json:"artifact,omitempty"` // where all of it is, if it is shortened
}

// Answer is what a hook may say on standard output.
type Answer struct {
	Deny     string `json:"deny,omitempty"`
	Remark   string `json:"remark,omitempty"`
	Continue string `json:"continue,omitempty"`
}

// text is what an answer says at a point.
func (a Answer) text(p Point) string {
	switch p {
	case BeforeTool:
		return a.Deny
	case AfterTool:
		return a.Remark
	case Stop:
		return a.Continue
	}
	return ""
}

// ParseAnswer reads what a hook wrote to standard output. It is hostile.
func ParseAnswer(data []byte) (a Answer, err error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return a, nil
	}
	if err := strictjson.Decode(data, &a); err != nil {
		return Answer{}, fmt.Errorf("what it wrote to standard output is no answer, but %.80q: %w", data, err)
	}
	return a, nil
}
