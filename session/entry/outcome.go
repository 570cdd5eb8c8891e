package entry

import (
	"bytes"
	"strings"

	"github.com/tidwall/gjson"
)

// CustomTypeInterruptedThinking is the customType of the message that carries on
// the reasoning of a turn that was cut short.
const CustomTypeInterruptedThinking = "interrupted-thinking"

// outcome says how an assistant turn ended.
type outcome uint8

const (
	succeeded outcome = iota
	failed            // aborted or error: not sent again unless a note follows
	void              // a retry took its place, or it failed before it said anything
)

// scanTurn reads the assistant message at raw[at]: it appends the ids of its tool
// calls to ids and tells how the turn ended.
func scanTurn(raw []byte, at int, ids []string) ([]string, outcome) {
	if line := raw[at:]; !bytes.Contains(line, call) && endsWell(line) {
		return ids, succeeded // what most turns are, without a look at their members
	}
	var stop string
	retried, sawContent, sawRetry := false, false, false
	m := enter(raw, at, '{')
	for {
		name, ok := m.member()
		if !ok {
			break
		}
		switch {
		case name == "content" && !sawContent:
			sawContent = true
			if m.b[m.i] != '[' {
				m.skip()
				break
			}
			ids = m.appendCalls(ids)
			if stop == "" && !sawRetry && endsWell(m.b[m.i:]) {
				return ids, succeeded
			}
		case name == "stopReason" && stop == "":
			stop = unquote(m.value())
		case name == "retryRecovery" && !sawRetry:
			sawRetry, retried = true, truthyJSON(m.value())
		default:
			m.skip()
		}
	}
	switch {
	case retried:
		return ids, void
	case stop == StopError && isEmptyTurn(gjson.Parse(text(raw[at:]))):
		return ids, void
	case stop == StopError, stop == StopAborted:
		return ids, failed
	}
	return ids, succeeded
}

// endsWell reports whether an assistant message whose content is followed by rest
// surely succeeded: nothing in rest can be a retryRecovery member, and its only
// stopReason, at whatever depth, is none of the bad ones. It looks for words that
// begin with a rare byte, which takes no time.
func endsWell(rest []byte) bool {
	if bytes.Contains(rest, asciiEscape) || bytes.Contains(rest, recovery) {
		return false
	}
	i := bytes.Index(rest, reason)
	if i < 0 {
		return false
	}
	rest = rest[i+len(reason):]
	return !bytes.HasPrefix(rest, []byte(StopError)) && !bytes.HasPrefix(rest, []byte(StopAborted)) &&
		!bytes.Contains(rest, reason[:len("Reason")])
}

var (
	recovery = []byte("Recovery")
	reason   = []byte(`Reason":"`)
	call     = []byte(`Call"`) // ends the type of a toolCall
)

// appendCalls appends the ids of the tool calls in the array at s.i, and moves
// behind it.
func (s *scanner) appendCalls(ids []string) []string {
	blocks := enter(s.b, s.i, '[')
	for {
		if _, ok := blocks.element(); !ok {
			s.i = min(blocks.i+1, len(s.b))
			return ids
		}
		if blocks.b[blocks.i] != '{' {
			blocks.skip()
			continue
		}
		var typ, id string
		members := enter(blocks.b, blocks.i, '{')
		for {
			name, ok := members.member()
			if !ok {
				break
			}
			switch {
			case name == "type" && typ == "":
				typ = unquote(members.value())
			case name == "id" && id == "":
				id = unquote(members.value())
			default:
				members.skip()
			}
		}
		blocks.i = min(members.i+1, len(blocks.b))
		if typ == BlockToolCall {
			ids = append(ids, id)
		}
	}
}

// isEmptyTurn reports whether the content of message m holds nothing. Blocks of
// unknown types count as something.
func isEmptyTurn(m gjson.Result) bool {
	content := m.Get("content")
	if content.Type == gjson.String {
		return isBlank(content)
	}
	for b := range elements(content) {
		switch str(b.Get("type")) {
		case BlockText:
			if !isBlank(b.Get("text")) {
				return false
			}
		case BlockThinking:
			if !isBlank(b.Get("thinking")) || !isBlank(b.Get("thinkingSignature")) {
				return false
			}
		case BlockRedactedThinking:
			if !isBlank(b.Get("data")) {
				return false
			}
		case BlockFallback:
		default:
			return false
		}
	}
	return true
}

func isBlank(r gjson.Result) bool { return strings.TrimSpace(str(r)) == "" }

// isInterruptionNote reports whether m carries on the reasoning of the turn before
// it.
func (m *ContextMessage) isInterruptionNote() bool {
	if m.Role != RoleCustom && m.Role != RoleHookMessage {
		return false
	}
	path := "customType"
	if m.entry.typ == TypeMessage {
		path = "message.customType"
	}
	return str(gjson.Get(text(m.entry.raw), path)) == CustomTypeInterruptedThinking
}

// excluded reports whether the execution in e is not for models.
func (e *Entry) excluded() bool {
	m := enter(e.raw, messageAt(e.raw), '{')
	return m.find("excludeFromContext") && truthyJSON(m.value())
}
