package entry

import (
	"bytes"
	"iter"
	"unsafe"

	"github.com/tidwall/gjson"
)

// Peeks read single members out of a line without decoding it. Each begins with a
// search for bytes that must be there if the answer is not "none", because most
// lines answer "none" and a search costs a few nanoseconds.

// text views b as a string without a copy. Entries never change, so neither does
// the string.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// mentions reports whether the JSON in b can hold a string or member name equal to
// word, which consists of ASCII letters: either it stands there plainly, or some
// letter is written as an escape.
func mentions(b []byte, word string) bool {
	return bytes.Contains(b, unsafe.Slice(unsafe.StringData(word), len(word))) ||
		bytes.Contains(b, asciiEscape)
}

var asciiEscape = []byte(`\u00`)

var messageRole = []byte(`,"message":{"role":"`)

// Role returns the role of the message that the entry contributes to a context:
// that of the message itself, [RoleCustom] for a custom_message, or one of the two
// summary roles; "" for entries that contribute none.
func (e Entry) Role() string {
	switch e.typ {
	case TypeMessage:
		return e.messageRole()
	case TypeCustomMessage:
		return RoleCustom
	case TypeBranchSummary:
		return RoleBranchSummary
	case TypeCompaction:
		return RoleCompactionSummary
	}
	return ""
}

func (e Entry) messageRole() string {
	// Both programs and this one write the envelope first, in strings without
	// escapes, and the role as the message's first member. Without a bracket or a
	// backslash before it, the match can only be the line's own member.
	head := e.raw[:min(len(e.raw), 512)]
	if i := bytes.Index(head, messageRole); i > 0 && bytes.IndexByte(head[1:i], '{') < 0 &&
		bytes.IndexByte(head[1:i], '[') < 0 && bytes.IndexByte(head[:i], '\\') < 0 {
		role := head[i+len(messageRole):]
		if end := bytes.IndexByte(role, '"'); end >= 0 && bytes.IndexByte(role[:end], '\\') < 0 {
			return roleName(role[:end])
		}
	}
	return str(gjson.Get(text(e.raw), "message.role"))
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
	return e.appendToolCallIDs(nil)
}

// appendToolCallIDs is ToolCallIDs for an entry known to be an assistant message.
func (e Entry) appendToolCallIDs(dst []string) []string {
	if !mentions(e.raw, BlockToolCall) {
		return dst
	}
	for b := range elements(e.message().Get("content")) {
		if str(b.Get("type")) == BlockToolCall {
			dst = append(dst, str(b.Get("id")))
		}
	}
	return dst
}

// ToolCallID returns the id of the call that a toolResult message answers, and ""
// for any other entry.
func (e Entry) ToolCallID() string {
	if e.Role() != RoleToolResult {
		return ""
	}
	return str(gjson.Get(text(e.raw), "message.toolCallId"))
}
