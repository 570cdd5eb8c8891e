package wire

import (
	"bytes"
	"encoding/json"
)

// Marshal is JSON without escapes that only HTML wants.
func Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimRight(buf.Bytes(), "\n"), err
}
