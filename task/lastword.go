package task

import (
	"bufio"
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
}

// event is what these lines have in common; each program fills in some of it.
type event struct {
	Type    string          `json:"type"`
	Subtype string          `json:"subtype"`  // claude: of a result
	Result  *string         `json:"result"`   // claude
	IsError bool            `json:"is_error"` // claude
	Message json.RawMessage `json:"message"`  // claude, pi: a message; codex: of an error
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

// line reads one line.
func (w *lastWord) line(line []byte) {
	text := strings.TrimSpace(string(line))
	if !strings.HasPrefix(text, "{") || !strings.Contains(text, `"type"`) {
		return
	}
	var e event
	if json.Unmarshal([]byte(text), &e) != nil {
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
			}
		}
		if u := e.Usage; u != nil {
			w.usage = entry.Usage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheNew}
		}
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
		if json.Unmarshal(e.Message, &s) != nil || s.Role != "assistant" {
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
			}
		}
	}
}
