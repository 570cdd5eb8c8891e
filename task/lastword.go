package task

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/agentrun/agentrun/session/entry"
)

// maxEventLine is the longest line of JSON that is looked into, in bytes; a longer one is passed over.
const maxEventLine = 16 << 20

// lastWord is what a program that was run as an agent has said at last, of its output in lines of JSON: of those that claude
// (--output-format stream-json), codex (exec --json) and pi (--mode json) print. Other lines are passed over.
type lastWord struct {
	known  bool   // there was a line of these programs
	text   string // the last answer
	failed string // why it says that it failed; "" if it does not
	usage  entry.Usage
	// structured is the answer as the schema that the program was given says, nil without one: of claude (--json-schema).
	structured json.RawMessage
}

// event is what these lines have in common; each program fills in some of it.
type event struct {
	Type    string          `json:"type"`
	Subtype string          `json:"subtype"`            // claude: of a result
	Result  *string         `json:"result"`             // claude
	IsError bool            `json:"is_error"`           // claude
	Errors  []string        `json:"errors"`             // claude: of a result that is one
	Cost    float64         `json:"total_cost_usd"`     // claude: of all, in the result
	Output  json.RawMessage `json:"structured_output"`  // claude
	Below   string          `json:"parent_tool_use_id"` // claude: the call of the subagent of its own that says it
	Message json.RawMessage `json:"message"`            // claude, pi: a message; codex: of an error
	Usage   *struct {
		Input     int64 `json:"input_tokens"`
		Output    int64 `json:"output_tokens"`
		Cached    int64 `json:"cached_input_tokens"`     // codex: part of the input
		CacheRead int64 `json:"cache_read_input_tokens"` // claude: beside the input
		CacheNew  int64 `json:"cache_creation_input_tokens"`
	} `json:"usage"` // claude: of all, in the result; codex: of a turn
	Item struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"item"` // codex
	Error struct {
		Message string `json:"message"`
	} `json:"error"` // codex
}

// said is a message of an assistant.
type said struct {
	Role         string `json:"role"`
	StopReason   string `json:"stopReason"`   // pi
	ErrorMessage string `json:"errorMessage"` // pi
	Content      []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	Usage *struct {
		Input      int64 `json:"input"`
		Output     int64 `json:"output"`
		CacheRead  int64 `json:"cacheRead"`
		CacheWrite int64 `json:"cacheWrite"`
		Cost       struct {
			Total float64 `json:"total"`
		} `json:"cost"` // US dollars
	} `json:"usage"` // pi
}

func (s *said) text() string {
	var parts []string
	for _, c := range s.Content {
		if c.Type == "text" && c.Text != "" {
			parts = append(parts, c.Text)
		}
	}
	return strings.Join(parts, "\n\n")
}

// readLastWord reads the output of a program.
func readLastWord(r io.Reader) (lastWord, error) {
	var w lastWord
	in := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line) <= maxEventLine {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(line) <= maxEventLine {
			w.line(line)
		}
		line = line[:0]
		if errors.Is(err, io.EOF) {
			return w, nil
		}
		if err != nil {
			return w, err
		}
	}
}

// decode takes what it can: a member that is of another kind than in the versions that we know leaves the others as they are.
func decode(raw []byte, v any) bool {
	err := json.Unmarshal(raw, v)
	var other *json.UnmarshalTypeError
	return err == nil || errors.As(err, &other)
}

// line reads one line.
func (w *lastWord) line(line []byte) {
	text := strings.TrimSpace(string(line))
	if strings.HasPrefix(text, "[{") { // claude with --output-format json --verbose
		var all []json.RawMessage
		if json.Unmarshal([]byte(text), &all) == nil {
			for _, one := range all {
				w.line(one)
			}
		}
		return
	}
	if !strings.HasPrefix(text, "{") || !strings.Contains(text, `"type"`) {
		return
	}
	var e event
	if !decode([]byte(text), &e) {
		return
	}
	switch e.Type {
	case "result": // claude: the end
		w.known = true
		if e.Result != nil && !e.IsError {
			w.text = *e.Result
		}
		if e.IsError || e.Subtype != "" && e.Subtype != "success" {
			if w.failed = e.Subtype; e.Result != nil && *e.Result != "" {
				w.failed = firstLine(*e.Result)
			} else if len(e.Errors) > 0 && e.Errors[0] != "" {
				w.failed = firstLine(e.Errors[0])
			}
			w.failed = cmp.Or(w.failed, "it is an error")
		} else if len(e.Output) > 0 && string(e.Output) != "null" {
			w.structured = e.Output
		}
		if u := e.Usage; u != nil {
			w.usage = entry.Usage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheNew}
		}
		w.usage.Cost.Total = e.Cost
	case "item.completed": // codex
		if w.known = true; e.Item.Type == "agent_message" {
			w.text = e.Item.Text
		}
	case "turn.completed":
		if w.known = true; e.Usage != nil {
			w.usage.Input += e.Usage.Input - e.Usage.Cached
			w.usage.CacheRead += e.Usage.Cached
			w.usage.Output += e.Usage.Output
		}
	case "turn.failed":
		w.known, w.failed = true, firstLine(e.Error.Message)
	case "assistant", "message_end": // claude; pi
		var s said
		if !decode(e.Message, &s) || s.Role != "assistant" || e.Below != "" {
			return
		}
		w.known = true
		if text := s.text(); text != "" {
			w.text = text
		}
		if e.Type == "message_end" {
			if w.failed = ""; s.StopReason == "error" || s.StopReason == "aborted" {
				w.failed = firstLine(s.ErrorMessage)
				if w.failed == "" {
					w.failed = s.StopReason
				}
			}
			if u := s.Usage; u != nil {
				w.usage.Input += u.Input
				w.usage.Output += u.Output
				w.usage.CacheRead += u.CacheRead
				w.usage.CacheWrite += u.CacheWrite
				w.usage.Cost.Total += u.Cost.Total
			}
		}
	}
}
