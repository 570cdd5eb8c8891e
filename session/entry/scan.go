package entry

import (
	"bytes"
	"unsafe"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// text views b as a string without a copy. The bytes of entries never change, so
// neither does the string.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// scanner walks the members of one object, or the elements of one array, of JSON
// whose structure is trusted; on any other bytes it ends early or yields nonsense,
// in linear time and within bounds. It stops as soon as its caller does, which is
// what makes it fit for lines whose first few members tell all.
type scanner struct {
	b    []byte
	i    int
	open bool // positioned behind a bracket or comma
}

// enter returns a scanner for the object or array that begins with bracket at b[i].
// If something else does, the scanner yields nothing.
func enter(b []byte, i int, bracket byte) scanner {
	if i = skipSpace(b, i); i >= len(b) || b[i] != bracket {
		return scanner{b: b, i: len(b)}
	}
	return scanner{b: b, i: i + 1, open: true}
}

// member moves to the next member of an object: its name is returned, and s.i is
// where its value begins. The caller moves s behind the value, with skip or value.
func (s *scanner) member() (name string, ok bool) {
	start, ok := s.element()
	if !ok || s.b[start] != '"' {
		return "", false
	}
	// Names are short and plain: this beats the general way to a string's end.
	i := start + 1
	for i < len(s.b) && s.b[i] != '"' && s.b[i] != '\\' {
		i++
	}
	if i < len(s.b) && s.b[i] == '"' {
		name = text(s.b[start+1 : i])
		i++
	} else {
		i = stringEnd(s.b, start)
		name = unquote(s.b[start:i])
	}
	if i = skipSpace(s.b, i); i >= len(s.b) || s.b[i] != ':' {
		return "", false
	}
	s.i = skipSpace(s.b, i+1)
	return name, s.i < len(s.b)
}

// element moves to the next element of an array and returns where it begins.
func (s *scanner) element() (start int, ok bool) {
	i := skipSpace(s.b, s.i)
	if !s.open {
		if i >= len(s.b) || s.b[i] != ',' {
			return 0, false
		}
		i = skipSpace(s.b, i+1)
	}
	s.i, s.open = i, false
	return i, i < len(s.b) && s.b[i] != '}' && s.b[i] != ']'
}

// skip moves behind the value at s.i.
func (s *scanner) skip() { s.i = valueEnd(s.b, s.i) }

// value moves behind the value at s.i and returns it.
func (s *scanner) value() []byte {
	start := s.i
	s.skip()
	return s.b[start:s.i]
}

// find moves to the value of the first member with that name.
func (s *scanner) find(name string) bool {
	for {
		n, ok := s.member()
		if !ok || n == name {
			return ok
		}
		s.skip()
	}
}

// valueEnd returns the end of the value at b[i]. It does what ecmajson.ValueEnd does,
// but finds the ends of strings with vector instructions: most of a message is
// text, and this is twice as fast there.
func valueEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
		default: // a number, a literal, or what stands between values
			for i++; i < len(b) && !structural[b[i]]; i++ {
			}
			if depth > 0 {
				continue
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

// structural marks the bytes that end a number or literal.
var structural = [256]bool{
	',': true, ':': true, ' ': true, '\t': true, '\n': true, '\r': true,
	'"': true, '{': true, '}': true, '[': true, ']': true,
}

// stringEnd returns the end of the string whose opening quote is at b[i].
func stringEnd(b []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		i += n
		if b[i-1] != '\\' {
			return i + 1
		}
		escapes := i
		for b[escapes-1] == '\\' { // the opening quote ends this
			escapes--
		}
		if (i-escapes)%2 == 0 {
			return i + 1
		}
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// unquote decodes a string literal, without a copy if it holds no escape. It is ""
// for anything else.
func unquote(lit []byte) string {
	if len(lit) < 2 || lit[0] != '"' || lit[len(lit)-1] != '"' {
		return ""
	}
	if bytes.IndexByte(lit, '\\') < 0 {
		return text(lit[1 : len(lit)-1])
	}
	s, err := ecmajson.Unquote(lit)
	if err != nil {
		return ""
	}
	return text(s)
}

// truthyJSON is JavaScript's test of the value v, save that every number passes but
// the plain zero.
func truthyJSON(v []byte) bool {
	switch string(v) {
	case "", "null", "false", `""`, "0":
		return false
	}
	return true
}
