package record

import "bytes"

// maxScanDepth bounds the memory of a scan of damaged bytes: eight bytes for
// each level. Deeper nesting reads as a syntax error there.
const maxScanDepth = 1 << 20

// scanner finds out how far bytes are the beginning of a JSON object.
type scanner struct {
	open []int // offsets of the containers that are open, complemented (^) for arrays
}

// scanResult is where a scan ended and why.
type scanResult struct {
	end   int  // after the object, or at the first byte that cannot continue it
	whole bool // the object is complete
	last  span // the inner container that was closed last, if nothing but white space follows it up to end
}

// span is a stretch of a line; the zero value is none.
type span struct{ from, to int }

// object scans the object that begins at b[from], which is '{'.
//
// When it is not whole, no later record begins between from and end-2: a string
// that swallowed the beginning of one ends at the quote of its first key, and the
// key's first letter cannot follow. Only a record that stands where a value was
// expected is read as part of the object, and then it is the last one closed,
// since what follows it does not fit. So a search for records may go on at end-2,
// and all searches together read every byte a bounded number of times.
func (s *scanner) object(b []byte, from int) scanResult {
	const (
		wantValue      = iota // after ':' or ','
		wantFirstValue        // after '['
		wantKey               // after ',' in an object
		wantFirstKey          // after '{'
		wantColon
		wantNext // after a value
	)
	s.open = append(s.open[:0], from)
	var last span
	fail := func(end int) scanResult {
		if last.to == 0 || skipSpace(b[:end], last.to) < end {
			last = span{}
		}
		return scanResult{end: end, last: last}
	}
	state := wantFirstKey
	i := from + 1
	for {
		i = skipSpace(b, i)
		if i == len(b) {
			return fail(i)
		}
		c := b[i]
		switch state {
		case wantKey, wantFirstKey:
			if c == '"' {
				end, ok := scanString(b, i)
				if !ok {
					return fail(end)
				}
				i, state = end, wantColon
				continue
			}
			if c != '}' || state == wantKey {
				return fail(i)
			}
		case wantColon:
			if c != ':' {
				return fail(i)
			}
			i, state = i+1, wantValue
			continue
		case wantValue, wantFirstValue:
			switch {
			case c == '"':
				end, ok := scanString(b, i)
				if !ok {
					return fail(end)
				}
				i, state = end, wantNext
				continue
			case c == '{' || c == '[':
				if len(s.open) == maxScanDepth {
					return fail(i)
				}
				if c == '{' {
					s.open, state = append(s.open, i), wantFirstKey
				} else {
					s.open, state = append(s.open, ^i), wantFirstValue
				}
				i++
				continue
			case c == ']' && state == wantFirstValue:
			default:
				end, ok := scanScalar(b, i)
				if !ok {
					return fail(end)
				}
				i, state = end, wantNext
				continue
			}
		case wantNext:
			inArray := s.open[len(s.open)-1] < 0
			switch {
			case c == ',' && inArray:
				i, state = i+1, wantValue
				continue
			case c == ',':
				i, state = i+1, wantKey
				continue
			case c == ']' && inArray, c == '}' && !inArray:
			default:
				return fail(i)
			}
		}
		// c closes the innermost container.
		i, state = i+1, wantNext
		last = span{s.open[len(s.open)-1], i}
		if last.from < 0 {
			last.from = ^last.from
		}
		s.open = s.open[:len(s.open)-1]
		if len(s.open) == 0 {
			return scanResult{end: i, whole: true}
		}
	}
}

// scanString returns the offset after the string that begins at b[i], or that of
// the first byte that cannot be in it.
func scanString(b []byte, i int) (end int, ok bool) {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, true
		case c < 0x20:
			return i, false
		case c == '\\':
			i++
			if i == len(b) {
				return i, false
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					i++
					if i == len(b) || !isHex(b[i]) {
						return i, false
					}
				}
			default:
				return i, false
			}
		}
	}
	return i, false
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// scanScalar returns the offset after the number or literal that begins at b[i],
// or that of the first byte that cannot be in it.
func scanScalar(b []byte, i int) (end int, ok bool) {
	for _, lit := range []string{"true", "false", "null"} {
		if b[i] != lit[0] {
			continue
		}
		for k := range len(lit) {
			if i+k == len(b) || b[i+k] != lit[k] {
				return i + k, false
			}
		}
		return i + len(lit), true
	}
	run := func() bool { // at least one digit
		from := i
		for i < len(b) && '0' <= b[i] && b[i] <= '9' {
			i++
		}
		return i > from
	}
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case !run():
		return i, false
	}
	if i < len(b) && b[i] == '.' {
		if i++; !run() {
			return i, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !run() {
			return i, false
		}
	}
	return i, true
}

// nextObject returns the offset of the next `{"` at or after from, or len(b).
func nextObject(b []byte, from int) int {
	if i := bytes.Index(b[from:], []byte(`{"`)); i >= 0 {
		return from + i
	}
	return len(b)
}
