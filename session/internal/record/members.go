package record

import (
	"bytes"
	"iter"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// member is one member of an object, as it stands in the line.
type member struct {
	key   []byte // the literal with its quotes
	value []byte // without white space around it
	start int    // where the key begins in the object
}

// name returns the decoded key.
func (m *member) name() []byte { return decode(m.key) }

// text returns the decoded value of a string, nil for any other value and for
// the empty string. It points into the line when there is nothing to decode.
func (m *member) text() []byte {
	if len(m.value) <= len(`""`) || m.value[0] != '"' {
		return nil
	}
	return decode(m.value)
}

// decode decodes a valid string literal.
func decode(lit []byte) []byte {
	s, err := ecmajson.Unquote(lit)
	if err != nil {
		return nil // not reached: the line was validated
	}
	return s[:len(s):len(s)]
}

// members iterates over the top-level members of obj, which must be a valid JSON
// object without white space around it.
func members(obj []byte) iter.Seq[*member] {
	return func(yield func(*member) bool) {
		var m member
		for i := skipSpace(obj, 1); i < len(obj) && obj[i] == '"'; {
			m.start = i
			end := skipString(obj, i)
			m.key = obj[i:end]
			i = skipSpace(obj, skipSpace(obj, end)+len(":"))
			end = skipValue(obj, i)
			m.value = obj[i:end]
			if !yield(&m) {
				return
			}
			i = skipSpace(obj, skipSpace(obj, end)+len(","))
		}
	}
}

// The skip functions need valid JSON. They never read past the end of anything
// else either, but then what they return means nothing.

func skipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return min(i, len(b))
}

// skipString returns the offset after the string that begins at b[i].
func skipString(b []byte, i int) int {
	i++
	for i < len(b) {
		q := bytes.IndexByte(b[i:], '"')
		if q < 0 {
			return len(b)
		}
		end := i + q
		slashes := 0
		for end-1-slashes >= i && b[end-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return end + 1
		}
		i = end + 1
	}
	return len(b)
}

// skipValue returns the offset after the value that begins at b[i].
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			if depth == 0 {
				return i // the end of the object around a scalar
			}
			depth--
			i++
		case ',', ':', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return i
			}
			i++
			continue
		default: // a number or a literal
			for i++; i < len(b) && !endsScalar[b[i]]; i++ {
			}
		}
		if depth == 0 {
			return i
		}
	}
	return len(b)
}

// endsScalar marks the bytes that end a number, true, false or null.
var endsScalar = [256]bool{',': true, ':': true, '}': true, ']': true, ' ': true, '\n': true, '\r': true, '\t': true, '"': true, '{': true, '[': true}

// elements iterates over the elements of a valid JSON array; there are none in
// any other value.
func elements(arr []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if arr[0] != '[' {
			return
		}
		for i := skipSpace(arr, 1); i < len(arr) && arr[i] != ']'; {
			end := skipValue(arr, i)
			if !yield(arr[i:end]) {
				return
			}
			i = skipSpace(arr, skipSpace(arr, end)+len(","))
		}
	}
}
