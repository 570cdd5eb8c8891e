package artifacts

import (
	"fmt"
	"strconv"
	"strings"
)

// AgentID names a subagent and its output within a session, as in
// agent://0-Parent.1-Child: one segment for each level of nesting, joined by
// dots. agentrun hands out <index>-<name> segments; oh-my-pi also has plain names
// (Anna, Anna-2, Anna.Bob). An AgentID that is not zero came from ParseAgentID,
// so it is safe as part of a file name. It is comparable; the zero value stands
// for no agent.
type AgentID struct{ s string }

// MaxAgentID is the longest id, in bytes. It leaves room in a file name for a
// version, an extension and the prefix of a temporary.
const MaxAgentID = 200

// maxAgentDepth bounds the nesting of ids.
const maxAgentDepth = 16

// ParseAgentID checks an id that came from a model, a URL or a file name. It
// accepts up to 16 segments of ASCII letters, digits, '_' and '-', each starting
// with a letter or digit, at most MaxAgentID bytes in all. A segment of 'v' and
// digits is refused: it would read as a version.
func ParseAgentID(s string) (AgentID, error) {
	switch {
	case s == "":
		return AgentID{}, fmt.Errorf("agent id is empty: use agent://<id>")
	case len(s) > MaxAgentID:
		return AgentID{}, fmt.Errorf("agent id %.20q... is %d bytes long, at most %d are allowed", s, len(s), MaxAgentID)
	case strings.Count(s, ".") >= maxAgentDepth:
		return AgentID{}, fmt.Errorf("agent id %q has more than %d levels", s, maxAgentDepth)
	}
	for segment := range strings.SplitSeq(s, ".") {
		if err := checkSegment(segment); err != nil {
			return AgentID{}, fmt.Errorf("agent id %q is invalid: %w", s, err)
		}
	}
	return AgentID{s}, nil
}

// checkSegment is the one rule for what a model may call an agent.
func checkSegment(segment string) error {
	if segment == "" {
		return fmt.Errorf("a name is empty")
	}
	if segment[0] == '_' || segment[0] == '-' {
		return fmt.Errorf("name %q must begin with a letter or digit", segment)
	}
	for i := range len(segment) {
		if !isWord(segment[i]) {
			return fmt.Errorf("name %q may hold only ASCII letters, digits, '-' and '_'", segment)
		}
	}
	if _, ok := parseVersion(segment); ok {
		return fmt.Errorf("name %q reads as a version; choose another", segment)
	}
	return nil
}

// parseVersion reads v<digits>. Any number of digits counts, so that no name can
// look like a version that is merely out of range; those give version 0.
func parseVersion(segment string) (int, bool) {
	digits, ok := strings.CutPrefix(segment, "v")
	if !ok || digits == "" {
		return 0, false
	}
	for i := range len(digits) {
		if !isDigit(digits[i]) {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || strconv.FormatInt(n, 10) != digits {
		return 0, true
	}
	return int(n), true
}

// ParseAgentRef reads an id with an optional version, <id>.v<n>. Version 0
// stands for the newest.
func ParseAgentRef(s string) (id AgentID, version int, err error) {
	if dot := strings.LastIndexByte(s, '.'); dot >= 0 {
		if v, ok := parseVersion(s[dot+1:]); ok {
			if v == 0 {
				return AgentID{}, 0, fmt.Errorf("agent id %.220q has no such version: versions are .v1, .v2 and so on", s)
			}
			s, version = s[:dot], v
		}
	}
	id, err = ParseAgentID(s)
	return id, version, err
}

// String is the id as in agent://<id>.
func (id AgentID) String() string { return id.s }

// IsZero reports whether id stands for no agent.
func (id AgentID) IsZero() bool { return id.s == "" }

// Parent is the id of the agent that started this one; zero for the top level.
func (id AgentID) Parent() AgentID {
	if dot := strings.LastIndexByte(id.s, '.'); dot >= 0 {
		return AgentID{id.s[:dot]}
	}
	return AgentID{}
}

// Child returns the id of the agent called name below id; below the zero value,
// at the top level.
func (id AgentID) Child(name string) (AgentID, error) {
	if id.IsZero() {
		return ParseAgentID(name)
	}
	return ParseAgentID(id.s + "." + name)
}

// topIndex is the highest <index>- of any segment, -1 for none.
func (id AgentID) topIndex() int64 {
	top := int64(-1)
	for segment := range strings.SplitSeq(id.s, ".") {
		number, _, ok := strings.Cut(segment, "-")
		if !ok {
			continue
		}
		if n, ok := ParseID(canonical(number)); ok {
			top = max(top, n)
		}
	}
	return top
}

// agentKind tells the files of one agent apart.
type agentKind uint8

const (
	agentText agentKind = 1 << iota // <id>.md
	agentJSON                       // <id>.json
	agentLog                        // <id>.jsonl
	agentHold                       // .agent-<id>.json
)

// agentExt are the extensions of an agent's files.
var agentExt = [...]struct {
	ext  string
	kind agentKind
}{{".md", agentText}, {".json", agentJSON}, {".jsonl", agentLog}}

// parseAgentFile reads the name of a file that belongs to an agent.
func parseAgentFile(name string) (id AgentID, version int, kind agentKind, ok bool) {
	if hold, found := strings.CutPrefix(name, agentSidecar); found {
		hold, found = strings.CutSuffix(hold, jsonSuffix)
		id, err := ParseAgentID(hold)
		return id, 1, agentHold, found && err == nil
	}
	for _, e := range agentExt {
		stem, found := strings.CutSuffix(name, e.ext)
		if !found {
			continue
		}
		id, version, err := ParseAgentRef(stem)
		if version == 0 {
			version = 1
		} else if version == 1 {
			return AgentID{}, 0, 0, false // version 1 is the name without one
		}
		return id, version, e.kind, err == nil
	}
	return AgentID{}, 0, 0, false
}

// agentFile is the name of an agent's file of version 1 or more.
func agentFile(id AgentID, version int, ext string) string {
	if version == 1 {
		return id.s + ext
	}
	return id.s + ".v" + strconv.Itoa(version) + ext
}
