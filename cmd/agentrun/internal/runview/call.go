package runview

import (
	"encoding/json"
	"strings"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/tool"
)

// subjects are the arguments that say what a call is about, the one that says most first.
var subjects = [...]string{"command", "script", "code", "path", "pattern", "glob", "url", "name", "query", "text", "mode"}

// maxSubject bounds what is looked at of an argument.
const maxSubject = 200

// Subject is what a call is about, in one line; "" where its arguments do not tell.
func Subject(arguments json.RawMessage) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(arguments, &members) != nil {
		return ""
	}
	for _, name := range subjects {
		var s string
		if raw, ok := members[name]; ok && json.Unmarshal(raw, &s) == nil && strings.TrimSpace(s) != "" {
			return short(s)
		}
	}
	var in struct {
		Tasks []struct{ Name, Agent string }
	}
	if json.Unmarshal(arguments, &in) == nil {
		var names []string
		for _, t := range in.Tasks {
			if t.Name == "" {
				t.Name = t.Agent
			}
			names = append(names, t.Name)
		}
		return short(strings.Join(names, ", "))
	}
	return ""
}

// Reason is why a call failed, in one line: the first one that it says, and of a command that ended otherwise the one that
// says how; "" where it did not fail.
func Reason(r tool.Result) string {
	if !r.IsError {
		return ""
	}
	first, last := "", ""
	for line := range strings.Lines(r.Text) {
		if line = strings.TrimSpace(line); line != "" {
			if last = line; first == "" {
				first = line
			}
		}
	}
	if strings.HasPrefix(last, "[") && last != first { // what the tool remarks of what it shows
		return short(first) + " " + short(last)
	}
	return short(first)
}

func short(s string) string {
	if len(s) > maxSubject {
		s = strings.ToValidUTF8(s[:maxSubject], "") + "…"
	}
	return Clean(s)
}

// CallRow is a call that has its result, in one row: who made it unless that is the main agent, the tool and what it was
// about, how long it took, and the artifact that holds all of its output.
func CallRow(id, subject string, e agent.CallFinished, width int) Row {
	r := Row{{"✓ ", Green}}
	if e.Result.IsError {
		r = Row{{"✗ ", Red}}
	}
	if id != agent.MainID {
		r = append(r, Span{Clean(id) + "  ", Faint})
	}
	r = append(r, Span{Clean(e.Tool), Bold})
	end := Row{{"  " + Duration(e.Took), Faint}}
	if e.Result.Artifact != "" {
		end = append(end, Span{"  " + Clean(e.Result.Artifact), Cyan})
	}
	if subject != "" {
		if room := width - r.Width() - end.Width() - 1; room >= 8 {
			r = append(r, Span{" ", Plain}, Row{{subject, Plain}}.Fit(room)[0])
		}
	}
	return append(r, end...).Fit(width)
}

// PastRow is a call of an earlier run: its time is not known any more.
func PastRow(subject string, e agent.CallFinished) Row {
	r := CallRow(agent.MainID, subject, e, 500)
	for i, s := range r {
		if s.Style == Faint {
			return append(r[:i:i], r[i+1:]...)
		}
	}
	return r
}

// ReasonRow is below a call that failed.
func ReasonRow(reason string) Row { return Row{{"  " + reason, Faint}} }
