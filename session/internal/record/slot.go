package record

import (
	"slices"
	"time"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// SlotSize is the length of a title slot, its '\n' included.
const SlotSize = 256

// Slot is the line that oh-my-pi (since its version 14) writes before the header
// so that a title can be changed in place:
//
//	{"type":"title","v":1,"title":"...","source":"auto","updatedAt":"2026-11-20T20:17:07.977Z","pad":"      "}
//
// The members stand in that order; source is "auto", "user" or absent; pad is
// spaces up to 256 bytes with the '\n'. The title of a slot goes before the one
// of the header, and an empty one means that there is none.
type Slot struct {
	Title     string
	Source    string
	UpdatedAt string
}

// ParseSlot reads a title slot, with or without its '\n'. It recognises one as
// oh-my-pi does: type "title", v 1, title, updatedAt and pad strings, and a source
// that is one of the two or absent. The length does not matter to it, but only a
// line of [SlotSize] bytes may be overwritten in place.
func ParseSlot(line []byte) (Slot, bool) {
	var (
		m                                       member
		w                                       = walker{obj: Trim(line)}
		s                                       Slot
		isType, isV1, isTitle, isUpdated, isPad bool
		isSource                                = true
	)
	for w.next(&m) {
		isString := m.value[0] == '"'
		switch string(m.name()) {
		case "type":
			isType = string(m.text()) == typeSlot
		case "v":
			isV1 = versionOf(m.value) == 1 && string(m.value) != "null"
		case "title":
			s.Title, isTitle = string(m.text()), isString
		case "source":
			s.Source = string(m.text())
			isSource = s.Source == "auto" || s.Source == "user"
		case "updatedAt":
			s.UpdatedAt, isUpdated = string(m.text()), isString
		case "pad":
			isPad = isString
		}
	}
	if !w.valid || !isType || !isV1 || !isTitle || !isUpdated || !isPad || !isSource {
		return Slot{}, false
	}
	return s, true
}

// AppendSlot appends a title slot of exactly [SlotSize] bytes. The title is cut,
// by whole code points, to the room there is. A source other than "auto" and
// "user" is left out.
func AppendSlot(dst []byte, title, source string, updated time.Time) []byte {
	tail := make([]byte, 0, 80)
	if source == "auto" || source == "user" {
		tail = append(tail, `,"source":"`...)
		tail = append(tail, source...)
		tail = append(tail, '"')
	}
	tail = append(tail, `,"updatedAt":"`...)
	tail = AppendTime(tail, updated)
	tail = append(tail, `","pad":"`...)

	const head, end = `{"type":"title","v":1,"title":"`, "\"}\n"
	room := SlotSize - len(head) - len(`"`) - len(tail) - len(end)
	inner := ecmajson.AppendString(nil, title)
	inner = cutLiteral(inner[1:len(inner)-1], room)

	dst = slices.Grow(dst, SlotSize)
	dst = append(dst, head...)
	dst = append(dst, inner...)
	dst = append(dst, '"')
	dst = append(dst, tail...)
	for range room - len(inner) {
		dst = append(dst, ' ')
	}
	return append(dst, end...)
}
