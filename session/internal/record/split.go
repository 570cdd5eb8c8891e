package record

import (
	"bytes"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// maxParts bounds the list of damage in one line: from there on adjacent damage
// is one part, garbage. Records are always found, and each is longer than a Part.
const maxParts = 1 << 14

// Part is a stretch of a line that is not one JSON value.
type Part struct {
	Off, Len int
	// Kind is "" for a whole record, which the caller parses, else the damage.
	//
	// A KindJoined part is the damage of records that run together: it covers
	// them all, stands before them, and each of them is a part of its own. No
	// other parts overlap.
	Kind Kind
}

// Split takes apart a line for which [Parse] returned [ErrSyntax]: every whole
// record in it, and around them what is torn, zero bytes or garbage. The parts
// are in order and cover everything except white space and byte order marks
// between them. What has no damage gives one part with Kind "".
//
// A whole record is an object whose crc holds, or one with a type and a timestamp
// that has an id and a parentId, or is a header, or has nothing after it but a zero
// byte, another record or the end of the line. The condition keeps the parts of a
// torn record, such as the content blocks of its message, from being taken for
// records. One record cannot be told from such a part: one without a crc that
// stands exactly where a torn one expected a value, with something after it that
// reads on.
//
// A stretch is torn when it is the beginning of a JSON object, wherever in the
// file it stands, since the newline after it may have been written by a later
// writer to repair the file.
//
// The time is linear in the length of the line, whatever its bytes; the memory is
// bounded by the number of parts and one word for each level of nesting.
func Split(line []byte) []Part {
	s := splitter{line: line}
	return s.split()
}

func (s *splitter) split() []Part {
	line := s.line
	from := 0 // everything before it is in parts
	for at := nextObject(line, 0); at < len(line); {
		end, whole := scan(line, at)
		s.read += end - at
		next, found := end, span{at, end}
		if !whole {
			next, found = max(at+1, end-len(`{"`)), nested(line, at, end)
		}
		if found.to > 0 && s.isRecord(found) {
			s.damage(from, found.from)
			s.add(found.from, found.to, "")
			from, next = found.to, found.to
		}
		at = nextObject(line, next)
	}
	s.damage(from, len(line))
	return withJoined(s.parts)
}

type splitter struct {
	line  []byte
	parts []Part
	read  int // bytes that were scanned; tests hold it against the length of the line
}

// isRecord reports whether a whole object or array is a record, not a part of
// one.
func (s *splitter) isRecord(at span) bool {
	if s.line[at.from] != '{' {
		return false
	}
	e, err := parseAny(s.line[at.from:at.to])
	switch {
	case err != nil:
		return false
	case e.CRC == CRCOK:
		return true
	}
	if _, ok := ParseTime(e.Timestamp); !ok {
		return false
	}
	if e.ID != nil && (e.HasParent || e.IsHeader()) {
		return true
	}
	rest := s.line[skipSpace(s.line, at.to):]
	return len(rest) == 0 || rest[0] == 0 || rest[0] == '{'
}

func (s *splitter) add(from, to int, kind Kind) {
	if kind != "" && len(s.parts) >= maxParts {
		if last := &s.parts[len(s.parts)-1]; last.Kind != "" {
			last.Len, last.Kind = to-last.Off, KindGarbage
			return
		}
	}
	s.parts = append(s.parts, Part{from, to - from, kind})
}

// damage adds the parts of a stretch without records.
func (s *splitter) damage(from, to int) {
	for from < to {
		stretch := s.line[from:to]
		if stretch[0] == 0 {
			n := len(stretch) - len(bytes.TrimLeft(stretch, "\x00"))
			s.add(from, from+n, KindNUL)
			from += n
			continue
		}
		n := bytes.IndexByte(stretch, 0)
		if n < 0 {
			n = len(stretch)
		}
		if len(Trim(stretch[:n])) > 0 {
			s.add(from, from+n, classify(stretch[:n]))
		}
		from += n
	}
}

// classify names a stretch without records and zero bytes.
func classify(b []byte) Kind {
	b = Trim(b)
	if b[0] != '{' {
		if ecmajson.Valid(b) {
			return KindScalar
		}
		return KindGarbage
	}
	if end, whole := scan(b, 0); !whole && end == len(b) {
		return KindTorn
	}
	return KindGarbage
}

// withJoined adds the damage of records with nothing between them.
func withJoined(parts []Part) []Part {
	out := make([]Part, 0, len(parts)+1)
	for len(parts) > 0 {
		n := 0
		for n < len(parts) && parts[n].Kind == "" {
			n++
		}
		if n > 1 {
			first, last := parts[0], parts[n-1]
			out = append(out, Part{first.Off, last.Off + last.Len - first.Off, KindJoined})
		}
		n = max(n, 1)
		out = append(out, parts[:n]...)
		parts = parts[n:]
	}
	return out
}
