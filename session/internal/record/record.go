// Package record reads and writes one line of a session log.
//
// # The file
//
// A session log is UTF-8 text, one JSON value a line, every line ended by
// '\n'. The first line is the header ([Header]), every later one an entry.
// This is version 3 of the session format that pi and oh-my-pi share, and
// what is added here is additive: both programs read it and keep it.
//
// A file made by oh-my-pi has one more line before the header, a title slot of
// exactly 256 bytes ([Slot]). A byte order mark before a line and a '\r' at its
// end are accepted ([Trim]) and never written.
//
// # An entry
//
//		{"type":"message","id":"6921f0a1c3d44b7e90aa12fe","parentId":null,"timestamp":"2026-11-20T20:17:07.977Z",<fields>,"crc":"e3069283"}
//
//	  - type: a string. Any value is kept; the ones with a meaning are listed in
//	    package entry.
//	  - id: a string, unique in the file. Written here as 24 lower-case hex digits
//	    ([NewID]); other programs use ids of other lengths, and any string that is
//	    not empty is an id. Version 1 of the format has no ids.
//	  - parentId: the id of the entry this one continues, null for a root.
//	  - timestamp: ISO 8601, UTC, milliseconds, as Date.prototype.toISOString
//	    prints it ([AppendTime]).
//	  - the fields of that type of entry.
//	  - crc: the last member, optional. Its value is the CRC-32C (Castagnoli,
//	    the CRC of iSCSI, RFC 3720) of every byte from the opening brace up to but
//	    excluding the comma before "crc", as eight lower-case hex digits. The line
//	    then ends with exactly `,"crc":"xxxxxxxx"}`, no white space. A crc member
//	    anywhere else is a member like any other.
//
// The order of members is free to read (oh-my-pi writes the ids of some entries
// last), fixed as above in what is written here. Where a member stands twice,
// the last one counts, as in JavaScript.
//
// # The header
//
//	{"type":"session","version":3,"id":"01a1fa9b-...","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/srv/app","title":"Fix the pool","titleSource":"auto","pad":"      ","crc":"9ae0daaf"}
//
// It has no parentId. pad is a string of spaces that brings the line to a
// round length (see [Header.AppendLine]), so that a new title can be written in
// place ([Retitle]). The title stands behind the other members, so that a write over it
// that was cut short leaves them whole ([ParseTornHeader]).
//
// # Damage
//
// [Parse] accepts a line that is one JSON object with a type. For every other
// line [Split] finds the records that are whole inside it and names the rest.
// Both are total: any bytes have an answer, in time linear in their number.
// A crc that does not match on a line that is JSON is not an error: the line is
// used and [Envelope].CRC says so.
//
// # Trust
//
// A line whose crc holds is taken to be what its writer wrote: its first members
// are read and nothing is checked after them. The crc protects against accident,
// not against malice: somebody who can write the file can compute it. So what
// decodes the fields later must survive bytes that are not JSON.
//
// Everything here is a pure function of its arguments, safe for concurrent use.
// Nothing does I/O.
package record

import (
	"errors"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// Errors of [Parse]. They are returned bare: the caller knows file and line.
var (
	// ErrBlank is a line of nothing but white space. It is no damage.
	ErrBlank = errors.New("blank line")
	// ErrSyntax is a line that is not one JSON value. [Split] says what it holds.
	ErrSyntax = errors.New("not one JSON value")
	// ErrScalar is valid JSON that is no object: null, 42, "x", [].
	ErrScalar = errors.New("JSON, but not an object")
	// ErrNoType is an object without a type, which is no record of a session.
	ErrNoType = errors.New(`a JSON object without a "type"`)
)

// Kind names what is wrong with a stretch of a log. The values are shown to
// users and are part of what `sessions show --json` prints.
type Kind string

// The kinds of damage. The last three are found by whoever has the whole tree.
const (
	KindTorn        Kind = "torn"         // the beginning of a record, its end never written
	KindNUL         Kind = "nul"          // zero bytes, as file systems leave them after a crash
	KindJoined      Kind = "joined"       // records without a newline between them; all are used
	KindGarbage     Kind = "garbage"      // not a record and not the beginning of one
	KindScalar      Kind = "scalar"       // JSON, but not an object
	KindChecksum    Kind = "checksum"     // JSON, but not the bytes that were sealed; used
	KindDuplicateID Kind = "duplicate-id" // an id that an earlier entry has
	KindOrphan      Kind = "orphan"       // a parentId that no earlier entry has
	KindCycle       Kind = "cycle"        // an entry that is its own ancestor
)

// Envelope is what every record has in common. The slices point into the line
// that was parsed, except where a string held an escape: those are decoded
// copies (with lone surrogates as WTF-8).
type Envelope struct {
	Type      []byte // never empty
	ID        []byte // nil when there is none, as in version 1; then the caller derives one
	Parent    []byte // nil for null, no parentId, or one that is no string: a root
	Timestamp []byte // nil when there is none; see ParseTime
	HasParent bool   // the line has a parentId, if only null; version 1 has none
	CRC       CRC
}

// IsHeader reports whether the record is a session header. pi appends a whole
// file once more in some cases, so a header may stand in the middle of a file.
func (e *Envelope) IsHeader() bool { return string(e.Type) == typeSession }

// IsSlot reports whether the record is of the type of a title slot.
func (e *Envelope) IsSlot() bool { return string(e.Type) == typeSlot }

const (
	typeSession = "session"
	typeSlot    = "title"
)

// Parse reads the envelope of one line, given without its '\n'.
//
// A line in the form that is written here with a crc that holds costs one pass
// of the checksum and no allocation. Any other line is validated first.
// The errors are [ErrBlank], [ErrSyntax], [ErrScalar] and [ErrNoType].
func Parse(line []byte) (e Envelope, err error) {
	if Verify(line) == CRCOK && e.readCanonical(line) {
		return e, nil
	}
	return parseAny(line)
}

// KindOf names the damage that an error of [Parse] stands for; "" for
// [ErrBlank], which is none, and for [ErrSyntax], which [Split] resolves.
func KindOf(err error) Kind {
	switch {
	case errors.Is(err, ErrScalar):
		return KindScalar
	case errors.Is(err, ErrNoType):
		return KindGarbage
	}
	return ""
}

// readCanonical reads the member order that Begin writes. The line must be one
// whose crc holds, so that it is JSON without duplicate members. It fills the
// fields one by one: an Envelope is larger than all that is read of most lines,
// and copying it would show.
func (e *Envelope) readCanonical(b []byte) bool {
	const (
		beforeType   = `{"type":"`
		beforeID     = `,"id":"`
		beforeParent = `,"parentId":`
		beforeTime   = `,"timestamp":"`
	)
	if len(b) < len(beforeType) || string(b[:len(beforeType)]) != beforeType {
		return false
	}
	i := len(beforeType)
	if e.Type, i = plainString(b, i); len(e.Type) == 0 {
		return false
	}
	if len(b)-i < len(beforeID) || string(b[i:i+len(beforeID)]) != beforeID {
		return false
	}
	if e.ID, i = plainString(b, i+len(beforeID)); len(e.ID) == 0 {
		return false
	}
	if len(b)-i < len(beforeParent+"null") || string(b[i:i+len(beforeParent)]) != beforeParent {
		return false
	}
	e.HasParent = true
	i += len(beforeParent)
	switch {
	case b[i] == '"':
		if e.Parent, i = plainString(b, i+1); len(e.Parent) == 0 {
			return false
		}
	case string(b[i:i+len("null")]) == "null":
		i += len("null")
	default:
		return false
	}
	if len(b)-i < len(beforeTime) || string(b[i:i+len(beforeTime)]) != beforeTime {
		return false
	}
	e.Timestamp, _ = plainString(b, i+len(beforeTime))
	e.CRC = CRCOK
	return len(e.Timestamp) > 0
}

// plainString reads the rest of a string whose opening quote is before b[i] and
// returns the offset after it. It returns nil for a string with an escape.
func plainString(b []byte, i int) (s []byte, next int) {
	end := plainEnd(b, i)
	if end == len(b) || b[end] != '"' {
		return nil, end
	}
	return b[i:end:end], end + 1
}

// parseAny reads any line: validated, any order of members, the last of
// duplicates.
func parseAny(line []byte) (Envelope, error) {
	b := Trim(line)
	switch {
	case len(b) == 0:
		return Envelope{}, ErrBlank
	case b[0] != '{' && ecmajson.Valid(b):
		return Envelope{}, ErrScalar
	}
	var (
		e = Envelope{CRC: Verify(b)}
		m member
		w = walker{obj: b}
	)
	for w.next(&m) {
		switch string(m.name()) {
		case "type":
			e.Type = m.text()
		case "id":
			e.ID = m.text()
		case "parentId":
			e.Parent, e.HasParent = m.text(), true
		case "timestamp":
			e.Timestamp = m.text()
		}
	}
	switch {
	case !w.valid:
		return Envelope{}, ErrSyntax
	case e.Type == nil:
		return Envelope{}, ErrNoType
	}
	return e, nil
}

// Trim cuts what may stand around the JSON value of a line without being damage:
// a byte order mark before it (the first line of a file saved by some editors, or
// of a file appended to another) and white space, the '\r' of CRLF included.
func Trim(line []byte) []byte { return trimEnd(trimStart(line)) }

const bom = "\xef\xbb\xbf"

func trimStart(b []byte) []byte {
	b = b[skipSpace(b, 0):]
	if len(b) >= len(bom) && string(b[:len(bom)]) == bom {
		b = b[skipSpace(b, len(bom)):]
	}
	return b
}

func trimEnd(b []byte) []byte {
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}
