package search

import (
	"bytes"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// Members whose values nobody said: the same in every entry, or signatures. The
// depth is that in an entry, and below 1 that in a message; what a tool is called
// with stands deeper, and is searched whole.
var skippedMembers = map[int]map[string]bool{
	1: {"type": true, "id": true, "parentId": true, "timestamp": true, "crc": true, "pad": true, "externalized": true, "previousTitle": true},
	2: {"role": true, "api": true, "provider": true, "model": true, "stopReason": true, "toolName": true},
	4: {"type": true, "mimeType": true, "thinkingSignature": true, "textSignature": true, "thoughtSignature": true},
}

// longestSkipped is the longest of their names, as a literal.
const longestSkipped = len(`"thinkingSignature"`)

// dataLength is how long a string of nothing but base64 is taken for data.
const dataLength = 512

// appendEntryText appends what an entry says: every string value of its JSON, at any
// depth, each on lines of its own, but for skippedMembers and base64. It walks the
// text flat, so nesting costs nothing. Of records of ours it is what recordTexts lists.
func appendEntryText(dst, raw []byte) []byte {
	if dst, ok := appendRecordText(dst, raw); ok {
		return dst
	}
	depth, inMessage := 0, false
	for i := 0; i < len(raw); {
		switch raw[i] {
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
			continue
		case '"':
		default:
			i++
			continue
		}
		end := ecmajson.ValueEnd(raw, i)
		if end <= i+1 || end > len(raw) {
			break
		}
		lit := raw[i:end]
		if i = skipSpace(raw, end); i < len(raw) && raw[i] == ':' { // a member's name
			i = skipSpace(raw, i+1)
			if depth == 1 {
				inMessage = string(lit) == `"message"`
			}
			if len(lit) <= longestSkipped && (depth == 1 || inMessage) && skippedMembers[depth][string(lit[1:len(lit)-1])] ||
				inMessage && depth == 2 && string(lit) == `"details"` && isFinish(raw[i:]) {
				i = max(i, ecmajson.ValueEnd(raw, i))
			}
			continue
		}
		if len(lit) == 2 || isData(lit) {
			continue
		}
		if bytes.IndexByte(lit, '\\') < 0 {
			dst = append(dst, lit[1:len(lit)-1]...)
		} else if text, err := ecmajson.Unquote(lit); err == nil {
			dst = append(dst, text...)
		}
		dst = append(dst, '\n')
	}
	return dst
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// isData reports whether a string literal is long and nothing but base64, as
// images, signatures and encrypted reasoning are.
func isData(lit []byte) bool {
	if len(lit) < dataLength {
		return false
	}
	for _, c := range lit[1 : len(lit)-1] {
		if asciiClass[c] == separator && c != '+' && c != '/' && c != '=' && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// plainText takes control sequences of terminals out of the output of a program, so
// that colours do not hide words. What a carriage return or an erasure would remove
// from a screen stays: it is in the artifact. text is returned as it is where there
// is none of them.
func (s *scratch) plainText(text []byte) []byte {
	at := bytes.IndexByte(text, 0x1b)
	if at < 0 {
		return text
	}
	dst := s.plain[:0]
	for at >= 0 {
		dst = append(dst, text[:at]...)
		text = text[at+controlLen(text[at:]):]
		at = bytes.IndexByte(text, 0x1b)
	}
	s.plain = append(dst, text...)
	return s.plain
}

// controlLen is the length of the escape sequence that b begins with. A sequence
// ends with its line, so lines keep their numbers.
func controlLen(b []byte) int {
	if len(b) < 2 {
		return 1
	}
	i := 2
	switch b[1] {
	case '[': // CSI: parameters, then a final byte
		for i < len(b) && b[i] >= 0x20 && b[i] < 0x40 {
			i++
		}
		if i < len(b) && b[i] >= 0x40 && b[i] < 0x7f {
			i++
		}
	case ']', 'P', 'X', '^', '_': // OSC, DCS, SOS, PM, APC: a string
		for i < len(b) && b[i] != '\n' {
			if b[i] == 0x07 {
				return i + 1
			}
			if b[i] == 0x1b {
				if i+1 < len(b) && b[i+1] == '\\' {
					i += 2
				}
				return i
			}
			i++
		}
	default:
		if b[1] < 0x20 || b[1] >= 0x7f {
			return 1
		}
		for i < len(b) && b[i-1] >= 0x20 && b[i-1] < 0x30 { // intermediates of a longer sequence
			i++
		}
	}
	return i
}
