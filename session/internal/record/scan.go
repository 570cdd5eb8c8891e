package record

import (
	"bytes"
	"errors"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// maxScanDepth bounds the memory of a search in damaged bytes: eight bytes for
// each level. A record that was run into a torn one nested deeper is not found.
const maxScanDepth = 1 << 20

// span is a stretch of a line; the zero value is none.
type span struct{ from, to int }

// scan finds out how far b[from:], which begins with '{', is a JSON object. end
// is after the object when it is whole, else at the first byte that cannot
// continue it.
//
// When it is not whole, no later record begins between from and end-2, but for
// one: a string that swallowed the beginning of a record ends at the quote of its
// first key, and the key's first letter cannot follow. The exception is a record
// that stands where a value was expected and reads as part of the object; [nested]
// finds it. So a search for records may go on at end-2, and all searches together
// read every byte a bounded number of times.
func scan(b []byte, from int) (end int, whole bool) {
	// Most of what begins like an object and is none fails here, without the error
	// that a scan would make.
	if q := plainEnd(b, from+len(`{"`)); from+1 < len(b) && b[from+1] == '"' && q+1 < len(b) && b[q] == '"' && b[q+1] != ':' && !isSpace(b[q+1]) {
		return q + 1, false
	}
	n, err := ecmajson.Scan(b[from:])
	if err == nil {
		return from + n, true
	}
	if syntax, ok := errors.AsType[*ecmajson.SyntaxError](err); ok {
		return from + syntax.Offset, false
	}
	return from, false
}

// nested returns the container in b[from:to], which must be the beginning of a
// JSON object and no whole one, that may be a record of its own: the first whose
// crc holds, else the one that was closed last if nothing but white space follows
// it, because then what comes next did not fit it.
func nested(b []byte, from, to int) span {
	b = b[:len(trimEnd(b[:to]))]
	var open []int
	budget := 4 * (to - from) // bytes of checksums: containers that end alike may be nested
	for i := from; i < len(b); {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			continue
		case '{', '[':
			if len(open) == maxScanDepth {
				return span{}
			}
			open = append(open, i)
		case '}', ']':
			if len(open) == 0 {
				return span{}
			}
			last := span{open[len(open)-1], i + 1}
			open = open[:len(open)-1]
			if i == len(b)-1 {
				return last
			}
			if text := b[last.from:last.to]; len(text) <= budget && hasSeal(text) {
				if budget -= len(text); Verify(text) == CRCOK {
					return last
				}
			}
		}
		i++
	}
	return span{}
}

// nextObject returns the offset of the next `{"` at or after from, or len(b).
func nextObject(b []byte, from int) int {
	if i := bytes.Index(b[from:], []byte(`{"`)); i >= 0 {
		return from + i
	}
	return len(b)
}
