package redact

import "bytes"

// HasMark reports whether a text has in it what takes the place of a secret: [redacted:<kind>:<n>].
func HasMark(text []byte) bool {
	for {
		_, behind, ok := bytes.Cut(text, []byte("[redacted:"))
		if !ok {
			return false
		}
		text = behind
		kind, number, ok := bytes.Cut(text[:min(len(text), 100)], []byte(":"))
		if !ok || len(bytes.Trim(kind, "abcdefghijklmnopqrstuvwxyz0123456789-")) > 0 {
			continue
		}
		if n, _, ok := bytes.Cut(number, []byte("]")); ok && len(n) > 0 && len(bytes.Trim(n, "0123456789")) == 0 {
			return true
		}
	}
}
