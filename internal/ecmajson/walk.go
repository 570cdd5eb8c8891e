package ecmajson

import (
	"bytes"
	"iter"
)

// Key is the literal of a member's name, quotes included, as it stands in the text.
type Key []byte

// Is reports whether the key is name, which must need no escaping.
func (k Key) Is(name string) bool {
	if len(k) == len(name)+2 && string(k[1:len(k)-1]) == name {
		return true
	}
	if bytes.IndexByte(k, '\\') < 0 {
		return false
	}
	s, err := Unquote(k)
	return err == nil && string(s) == name
}

// Value is the raw text of a value, without white space around it.
type Value []byte

// Kind tells values apart by their first byte: '{', '[', '"', 't', 'f', 'n',
// '0' for every number, and 0 for an empty Value.
func (v Value) Kind() byte {
	switch {
	case len(v) == 0:
		return 0
	case v[0] == '-' || v[0]-'0' <= 9:
		return '0'
	}
	return v[0]
}

// Object iterates over the members of the object in b, which must be valid, in
// the order of the text. It yields nothing when b is no object.
func Object(b []byte) iter.Seq2[Key, Value] {
	return func(yield func(Key, Value) bool) {
		i := skipSpace(b, 0)
		if i >= len(b) || b[i] != '{' {
			return
		}
		for {
			i = skipSpace(b, i+1)
			if i >= len(b) || b[i] != '"' {
				return
			}
			start := i
			end, ok := stringEnd(b, i)
			if !ok {
				return
			}
			if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
				return
			}
			i = skipSpace(b, i+1)
			from := i
			if i = ValueEnd(b, i); i == from || !yield(Key(b[start:end]), Value(b[from:i])) {
				return
			}
			if i = skipSpace(b, i); i >= len(b) || b[i] != ',' {
				return
			}
		}
	}
}

// Array iterates over the elements of the array in b, which must be valid, with
// their indexes. It yields nothing when b is no array.
func Array(b []byte) iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) {
		i := skipSpace(b, 0)
		if i >= len(b) || b[i] != '[' {
			return
		}
		for n := 0; ; n++ {
			i = skipSpace(b, i+1)
			from := i
			if i = ValueEnd(b, i); i == from || !yield(n, Value(b[from:i])) {
				return
			}
			if i = skipSpace(b, i); i >= len(b) || b[i] != ',' {
				return
			}
		}
	}
}

// Get returns the value of the member name of the object in b; of several, the
// last, as JSON.parse does. The name must need no escaping.
func Get(b []byte, name string) (Value, bool) {
	var found Value
	for k, v := range Object(b) {
		if k.Is(name) {
			found = v
		}
	}
	return found, found != nil
}

// ValueEnd returns the end of the value that starts at b[i], trusting that it is
// valid: brackets are counted, not matched. On bytes that start no value it
// returns i.
func ValueEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			end, ok := stringEnd(b, i)
			if !ok {
				return len(b)
			}
			i = end
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
		case ',', ':', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return i
			}
			i++
		default:
			for i++; i < len(b) && !delimits(b[i]); i++ {
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

// delimits reports whether c ends a number or a word.
func delimits(c byte) bool {
	switch c {
	case ',', ':', '}', ']', '{', '[', '"', ' ', '\n', '\r', '\t':
		return true
	}
	return false
}
