package entry

import (
	"bytes"

	"github.com/tidwall/gjson"
)

// saysNothing reports whether the message that e contributes has no content: no
// block but blank text and blank reasoning.
func (e *Entry) saysNothing(g *glance) bool {
	switch g.role {
	case RoleAssistant:
		if len(g.calls) > 0 {
			return false
		}
	case RoleUser, RoleDeveloper, RoleCustom, RoleHookMessage:
	default:
		return false
	}
	at := 0
	if e.typ == TypeMessage {
		at = messageAt(e.raw)
	}
	m := enter(e.raw, at, '{')
	if !m.find("content") {
		return e.typ == TypeMessage // an answer without content, or a question
	}
	if i, ok := behind(e.raw, m.i, `[{"type":"text","text":`); ok {
		m.i = i
	}
	if i, ok := behind(e.raw, m.i, `"`); ok && i < len(e.raw) && e.raw[i] > ' ' && e.raw[i] < 0x7f && e.raw[i] != '"' && e.raw[i] != '\\' {
		return false // what nearly every message is, told by its first character
	}
	if e.typ == TypeMessage {
		return isEmptyTurn(e.message())
	}
	return isEmptyTurn(gjson.Parse(text(e.raw)))
}

// repeats reports whether e is the message of before once more: the same JSON, with
// the same time in it. A retry, or a person who says something twice, has another one.
func (e *Entry) repeats(before *Entry) bool {
	if e.typ != TypeMessage || before.typ != TypeMessage {
		return false
	}
	a, b := before.raw[messageAt(before.raw):], e.raw[messageAt(e.raw):]
	if len(a) != len(b) { // what follows the message has one length in lines of one program
		return false
	}
	a, b = a[:valueEnd(a, 0)], b[:valueEnd(b, 0)]
	return bytes.Equal(a, b) && bytes.Contains(b, timestampMember)
}

var timestampMember = []byte(`"timestamp":`)
