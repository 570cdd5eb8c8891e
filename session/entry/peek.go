package entry

import (
	"bytes"
	"iter"
	"unsafe"

	"github.com/tidwall/gjson"
)

// Peeks read single members out of a line without decoding it. What every entry of
// a long path is asked uses a scanner; the rest gjson.

// mentions reports whether the JSON in b can hold a string or member name equal to
// word, which consists of ASCII letters: either it stands there plainly, or some
// letter is written as an escape. It spares most lines a closer look.
func mentions(b []byte, word string) bool {
	return bytes.Contains(b, unsafe.Slice(unsafe.StringData(word), len(word))) || bytes.Contains(b, asciiEscape)
}

var asciiEscape = []byte(`\u00`)

// Role returns the role of the message that the entry contributes to a context:
// that of the message itself, [RoleCustom] for a custom_message, or one of the two
// summary roles; "" for entries that contribute none.
func (e Entry) Role() string {
	if e.seen != nil && e.typ == TypeMessage {
		return e.seen.role
	}
	switch e.typ {
	case TypeMessage:
		return roleAt(e.raw, messageAt(e.raw))
	case TypeCustomMessage:
		return RoleCustom
	case TypeBranchSummary:
		return RoleBranchSummary
	case TypeCompaction:
		return RoleCompactionSummary
	}
	return ""
}

// The members of a message entry in the order in which pi, oh-my-pi and this
// program write them.
const (
	canonicalID        = `{"type":"message","id":"`
	canonicalParent    = `,"parentId":`
	canonicalTimestamp = `,"timestamp":"`
	canonicalMessage   = `,"message":`
)

// messageAt returns where the message of a line begins, the length of the line if
// it has none.
func messageAt(raw []byte) int {
	if i := canonicalMessageAt(raw); i > 0 {
		return i
	}
	line := enter(raw, 0, '{')
	if !line.find("message") {
		return len(raw)
	}
	return line.i
}

// canonicalMessageAt is messageAt for lines in the usual order, else 0. It looks for
// the quote that ends a string without regard to escapes: inside of a string what
// follows an escaped quote can't be a comma and a bare quote, so no such line is
// mistaken.
func canonicalMessageAt(b []byte) int {
	i, ok := behindString(b, 0, canonicalID)
	if !ok {
		return 0
	}
	if i, ok = behind(b, i, canonicalParent); !ok {
		return 0
	}
	if j, null := behind(b, i, "null"); null {
		i = j
	} else if i, ok = behindString(b, i, `"`); !ok {
		return 0
	}
	if i, ok = behindString(b, i, canonicalTimestamp); !ok {
		return 0
	}
	if i, ok = behind(b, i, canonicalMessage); !ok {
		return 0
	}
	return i
}

// behind returns where b goes on behind prefix, which must stand at b[i].
func behind(b []byte, i int, prefix string) (int, bool) {
	end := i + len(prefix)
	return end, end <= len(b) && string(b[i:end]) == prefix
}

// behindString is behind, and then on behind the next quote.
func behindString(b []byte, i int, prefix string) (int, bool) {
	i, ok := behind(b, i, prefix)
	if !ok {
		return i, false
	}
	n := bytes.IndexByte(b[i:], '"')
	return i + n + 1, n >= 0
}

// roleAt returns the role of the message at raw[at].
func roleAt(raw []byte, at int) string {
	if start, ok := behind(raw, at, `{"role":"`); ok {
		n := bytes.IndexByte(raw[start:], '"')
		if n >= 0 && bytes.IndexByte(raw[start:start+n], '\\') < 0 {
			return roleName(raw[start : start+n])
		}
	}
	return stringAt(raw, at, "role")
}

// stringAt returns a string member of the message at raw[at].
func stringAt(raw []byte, at int, name string) string {
	m := enter(raw, at, '{')
	if !m.find(name) {
		return ""
	}
	return unquote(m.value())
}

// str is the string in r, "" if r is anything but a string.
func str(r gjson.Result) string {
	if r.Type != gjson.String {
		return ""
	}
	return r.Str
}

// message returns the message member of the line.
func (e Entry) message() gjson.Result { return gjson.Get(text(e.raw), "message") }

// elements yields the elements of an array, and nothing of anything else.
func elements(r gjson.Result) iter.Seq[gjson.Result] {
	return func(yield func(gjson.Result) bool) {
		if r.IsArray() {
			r.ForEach(func(_, v gjson.Result) bool { return yield(v) })
		}
	}
}

// ToolCallIDs returns the ids of the tool calls in an assistant message, in their
// order, and nil for any other entry.
func (e Entry) ToolCallIDs() []string {
	if e.Role() != RoleAssistant {
		return nil
	}
	ids, _ := scanTurn(e.raw, messageAt(e.raw), nil)
	return ids
}

// ToolCallID returns the id of the call that a toolResult message answers, and ""
// for any other entry.
func (e Entry) ToolCallID() string {
	if e.Role() != RoleToolResult {
		return ""
	}
	return stringAt(e.raw, messageAt(e.raw), "toolCallId")
}
