package ecmajson

import (
	"fmt"
	"io"
)

// SyntaxError says where and why bytes are not JSON. It unwraps to
// [io.ErrUnexpectedEOF] when they are the beginning of a value that was cut off,
// which is what a torn write leaves.
type SyntaxError struct {
	Offset    int // of the first byte that does not fit, or the length of the input
	Truncated bool
}

func (e *SyntaxError) Error() string {
	if e.Truncated {
		return fmt.Sprintf("JSON value is cut off at byte %d", e.Offset)
	}
	return fmt.Sprintf("not JSON at byte %d", e.Offset)
}

// Unwrap gives io.ErrUnexpectedEOF for a value that was cut off, else nil.
func (e *SyntaxError) Unwrap() error {
	if e.Truncated {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// Valid reports whether b is one JSON value, white space around it allowed.
func Valid(b []byte) bool {
	end, ok := scan(b)
	return ok && skipSpace(b, end) == len(b)
}

// Scan finds the end of the first JSON value in b, white space before it
// allowed. What follows the value is not looked at, so records that were run
// together can be taken apart. The error is a [*SyntaxError].
func Scan(b []byte) (end int, err error) {
	end, ok := scan(b)
	if !ok {
		return 0, &SyntaxError{Offset: end, Truncated: end >= len(b)}
	}
	return end, nil
}

// nesting remembers which of the open containers are objects, a bit a level.
// The first 512 levels live on the caller's stack.
type nesting struct {
	depth int
	few   [8]uint64
	more  []uint64
}

func (n *nesting) push(object bool) {
	word, bit := n.depth>>6, uint(n.depth&63)
	n.depth++
	if word < len(n.few) {
		n.few[word] &^= 1 << bit
		if object {
			n.few[word] |= 1 << bit
		}
		return
	}
	if word -= len(n.few); word == len(n.more) {
		n.more = append(n.more, 0)
	}
	n.more[word] &^= 1 << bit
	if object {
		n.more[word] |= 1 << bit
	}
}

// pop leaves a container and reports whether the one around it is an object.
func (n *nesting) pop() (object bool) {
	n.depth--
	if n.depth == 0 {
		return false
	}
	word, bit := (n.depth-1)>>6, uint((n.depth-1)&63)
	if word < len(n.few) {
		return n.few[word]>>bit&1 != 0
	}
	return n.more[word-len(n.few)]>>bit&1 != 0
}

// scan is the grammar of RFC 8259 as a loop. It returns the end of the value,
// or the offset of the byte that does not fit; len(b) means the input ended.
func scan(b []byte) (end int, ok bool) {
	var open nesting
	object := false // whether the innermost open container is an object
	i := skipSpace(b, 0)
value:
	if i >= len(b) {
		return len(b), false
	}
	switch c := b[i]; c {
	case '"':
		if i, ok = stringEnd(b, i); !ok {
			return i, false
		}
	case '{':
		i = skipSpace(b, i+1)
		open.push(true)
		object = true
		if i < len(b) && b[i] == '}' {
			i++
			object = open.pop()
			break
		}
		goto key
	case '[':
		i = skipSpace(b, i+1)
		open.push(false)
		object = false
		if i < len(b) && b[i] == ']' {
			i++
			object = open.pop()
			break
		}
		goto value
	case 't', 'f', 'n':
		if i, ok = wordEnd(b, i); !ok {
			return i, false
		}
	default:
		if i, ok = numberEnd(b, i); !ok {
			return i, false
		}
	}
after:
	if open.depth == 0 {
		return i, true
	}
	if i = skipSpace(b, i); i >= len(b) {
		return len(b), false
	}
	switch c := b[i]; {
	case c == ',':
		i = skipSpace(b, i+1)
		if !object {
			goto value
		}
	case c == '}' && object, c == ']' && !object:
		i++
		object = open.pop()
		goto after
	default:
		return i, false
	}
key:
	if i >= len(b) {
		return len(b), false
	}
	if b[i] != '"' {
		return i, false
	}
	if i, ok = stringEnd(b, i); !ok {
		return i, false
	}
	if i = skipSpace(b, i); i >= len(b) {
		return len(b), false
	}
	if b[i] != ':' {
		return i, false
	}
	i = skipSpace(b, i+1)
	goto value
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && isSpace(b[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// wordEnd reads true, false or null at i.
func wordEnd(b []byte, i int) (end int, ok bool) {
	word := "null"
	switch b[i] {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	}
	if len(b)-i >= len(word) && string(b[i:i+len(word)]) == word {
		return i + len(word), true
	}
	for k := range len(word) {
		if i+k == len(b) || b[i+k] != word[k] {
			return i + k, false
		}
	}
	return i, false
}

// numberEnd reads a number at i.
func numberEnd(b []byte, i int) (end int, ok bool) {
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i == len(b):
		return i, false
	case b[i] == '0':
		i++
	case '1' <= b[i] && b[i] <= '9':
		i = skipDigits(b, i)
	default:
		return i, false
	}
	if i < len(b) && b[i] == '.' {
		first := i + 1
		if i = skipDigits(b, first); i == first {
			return i, false
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		first := i
		if i = skipDigits(b, first); i == first {
			return i, false
		}
	}
	return i, true
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}
