package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Decode reads the input of a call into what in points to: one JSON value, without members that in does not have. Its
// error says what is wrong with the input, and not that it is the input that is wrong.
func Decode(input json.RawMessage, in any) error {
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(in); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}

// Refuse answers a call that was not carried out with the reason.
func Refuse(err error) Result {
	return Result{Text: "[" + err.Error() + "]", IsError: true}
}
