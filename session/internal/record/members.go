package record

import (
	"encoding/binary"
	"math/bits"

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
	inner := lit[1 : len(lit)-1 : len(lit)-1]
	for _, c := range inner {
		if c == '\\' || c >= 0x80 {
			s, _ := ecmajson.Unquote(lit) // it has no error for a valid literal
			return s[:len(s):len(s)]
		}
	}
	return inner
}

// walker validates an object and iterates over its members in the same pass:
//
//	w := walker{obj: b}
//	for w.next(&m) { ... }
//	if !w.valid { ... }
type walker struct {
	obj   []byte // without white space around it
	at    int    // after what was read
	valid bool   // the object was read to its end and is one JSON value
}

// next reads the next member. It returns false after the last one and where the
// object is not JSON.
func (w *walker) next(m *member) bool {
	b := w.obj
	i := w.at
	switch {
	case i == 0:
		if len(b) == 0 || b[0] != '{' {
			return false
		}
		i = skipSpace(b, 1)
		if i < len(b) && b[i] == '}' {
			w.valid = i+1 == len(b)
			return false
		}
	case i < len(b) && b[i] == ',':
		i = skipSpace(b, i+1)
	default:
		w.valid = i+1 == len(b) && b[i] == '}'
		return false
	}
	if i == len(b) || b[i] != '"' {
		return false
	}
	n, err := ecmajson.Scan(b[i:])
	if err != nil {
		return false
	}
	m.start, m.key = i, b[i:i+n]
	if i = skipSpace(b, i+n); i == len(b) || b[i] != ':' {
		return false
	}
	i = skipSpace(b, i+1)
	if n, err = ecmajson.Scan(b[i:]); err != nil {
		return false
	}
	m.value = b[i : i+n]
	w.at = skipSpace(b, i+n)
	return true
}

// elements returns the elements of a valid JSON array, none of any other value.
func elements(arr []byte) (out [][]byte) {
	if arr[0] != '[' {
		return nil
	}
	for i := skipSpace(arr, 1); i < len(arr) && arr[i] != ']'; {
		n, err := ecmajson.Scan(arr[i:])
		if err != nil {
			return out
		}
		out = append(out, arr[i:i+n])
		i = skipSpace(arr, min(skipSpace(arr, i+n)+len(","), len(arr)))
	}
	return out
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// isSpace reports the white space of JSON, which is narrower than Unicode's.
func isSpace(c byte) bool {
	return c <= ' ' && (c == ' ' || c == '\n' || c == '\r' || c == '\t')
}

// skipString returns the offset after the string that begins at b[i], or len(b).
func skipString(b []byte, i int) int {
	for i++; i < len(b); i += len(`\"`) {
		i = plainEnd(b, i)
		if i < len(b) && b[i] == '"' {
			return i + 1
		}
	}
	return len(b)
}

// plainEnd returns the offset of the first quote or backslash at or after i, or
// len(b). The strings of an envelope are too short for bytes.IndexByte to pay,
// and it would have to be called twice.
func plainEnd(b []byte, i int) int {
	const (
		ones   = 0x0101010101010101
		highs  = 0x80 * ones
		quotes = '"' * ones
		slants = '\\' * ones
	)
	for ; len(b)-i >= 8; i += 8 {
		// A byte of x-ones&^x has its high bit set where x has a zero byte, and
		// perhaps in bytes after the first such one, which do not matter.
		x := binary.LittleEndian.Uint64(b[i:])
		q, s := x^quotes, x^slants
		if hit := ((q-ones)&^q | (s-ones)&^s) & highs; hit != 0 {
			return i + bits.TrailingZeros64(hit)>>3
		}
	}
	for ; i < len(b); i++ {
		if b[i] == '"' || b[i] == '\\' {
			return i
		}
	}
	return len(b)
}
