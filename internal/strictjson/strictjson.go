// Package strictjson reads JSON whose form is ours: a member that nobody knows is a mistake to tell of, not one to pass over.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

var errFollows = errors.New("something follows the value")

// Decode reads data, which is one JSON value and nothing behind it but space, into what into points to. A member that has no
// field there is an error. Names and values are taken as encoding/json takes them; what was read before an error may be in into.
func Decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errFollows
	}
	return nil
}
