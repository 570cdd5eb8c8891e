package entry

import (
	"strings"

	"github.com/tidwall/gjson"
)

// CustomTypeInterruptedThinking is the customType of the message that carries on
// the reasoning of a turn that was cut short.
const CustomTypeInterruptedThinking = "interrupted-thinking"

// outcome reports how the assistant turn in e ended: whether it must not be sent
// again (a retry took its place, or it ended in an error before it said anything),
// and whether it failed otherwise.
func (e Entry) outcome() (dropped, failed bool) {
	retried := mentions(e.raw, "retryRecovery")
	stopped := mentions(e.raw, `"`+StopError+`"`) || mentions(e.raw, `"`+StopAborted+`"`)
	if !retried && !stopped {
		return false, false
	}
	m := e.message()
	if retried && truthy(m.Get("retryRecovery")) {
		return true, false
	}
	switch str(m.Get("stopReason")) {
	case StopError:
		empty := isEmptyTurn(m)
		return empty, !empty
	case StopAborted:
		return false, true
	}
	return false, false
}

// truthy is JavaScript's test of a value.
func truthy(r gjson.Result) bool {
	switch r.Type {
	case gjson.True, gjson.JSON:
		return true
	case gjson.String:
		return r.Str != ""
	case gjson.Number:
		return r.Num != 0
	}
	return false
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
func (m ContextMessage) isInterruptionNote() bool {
	if m.Role != RoleCustom && m.Role != RoleHookMessage || !mentions(m.entry.raw, CustomTypeInterruptedThinking) {
		return false
	}
	path := "customType"
	if m.entry.typ == TypeMessage {
		path = "message.customType"
	}
	return str(gjson.Get(text(m.entry.raw), path)) == CustomTypeInterruptedThinking
}

// excluded reports whether the execution in e is not for models.
func (e Entry) excluded() bool {
	return mentions(e.raw, "excludeFromContext") && truthy(e.message().Get("excludeFromContext"))
}
