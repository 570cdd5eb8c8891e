package redact

import (
	"bytes"
	"encoding/json"
)

// JSON replaces the secrets in the strings of a JSON text, which stays one. Names of members stay as they are, and so does what is no JSON: use
// Text for that. It returns how many there were, and text itself where there were none. It does not change text.
func (r *Redactor) JSON(text []byte) ([]byte, int) {
	if !json.Valid(text) {
		return text, 0
	}
	var out []byte
	done, replaced := 0, 0
	for i := 0; i < len(text); i++ {
		if text[i] != '"' {
			continue
		}
		end := stringEnd(text, i)
		if next := bytes.TrimLeft(text[end:], " \t\r\n"); len(next) == 0 || next[0] != ':' {
			if left, n := r.quoted(text[i:end]); n > 0 {
				out = append(append(out, text[done:i]...), left...)
				done, replaced = end, replaced+n
			}
		}
		i = end - 1
	}
	if replaced == 0 {
		return text, 0
	}
	return append(out, text[done:]...), replaced
}

// quoted replaces the secrets in a string of JSON.
func (r *Redactor) quoted(literal []byte) ([]byte, int) {
	var text string
	if json.Unmarshal(literal, &text) != nil {
		return literal, 0
	}
	left, n := r.Text([]byte(text))
	if n == 0 {
		return literal, 0
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(string(left)) != nil { // a string has a form
		return []byte(`""`), n
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), n
}

// stringEnd is where the string ends that begins at i of valid JSON.
func stringEnd(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}
