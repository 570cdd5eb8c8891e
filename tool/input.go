package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"

	"github.com/agentrun/agentrun/internal/strictjson"
)

// Decode reads the input of a call into what in points to: one JSON value, without members that in does not have. A whole
// number may be written as 3.0 or 1e3, as a schema has it. Its error says what is wrong with the input, and not that it
// is the input that is wrong.
func Decode(input json.RawMessage, in any) error {
	err := strictjson.Decode(input, in)
	var mistyped *json.UnmarshalTypeError
	if !errors.As(err, &mistyped) {
		return err
	}
	if strings.HasPrefix(mistyped.Value, "number ") {
		if plain, perr := plainIntegers(input); perr == nil {
			err = strictjson.Decode(plain, in)
		}
	}
	if errors.As(err, &mistyped) {
		return describe(mistyped)
	}
	return err
}

// plainIntegers writes whole numbers that have a point or an exponent without it.
func plainIntegers(input json.RawMessage) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(input))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	return json.Marshal(plain(value))
}

func plain(value any) any {
	const exact = 1 << 53 // a float64 holds every whole number up to it
	switch v := value.(type) {
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") && f == math.Trunc(f) && math.Abs(f) <= exact {
			return int64(f)
		}
	}
	return value
}

// describe says in the words of JSON what a decoder says in those of Go.
func describe(err *json.UnmarshalTypeError) error {
	what, wanted := err.Field, err.Type.String()
	if what == "" {
		what = "it"
	}
	switch err.Type.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		wanted = "a whole number"
	case reflect.Float32, reflect.Float64:
		wanted = "a number"
	case reflect.String:
		wanted = "a string"
	case reflect.Bool:
		wanted = "true or false"
	case reflect.Slice, reflect.Array:
		wanted = "an array"
	case reflect.Struct, reflect.Map:
		wanted = "an object"
	}
	is := strings.TrimPrefix(err.Value, "number ")
	switch is {
	case "array", "object":
		is = "an " + is
	case "bool":
		is = "true or false"
	case "string", "number":
		is = "a " + is
	}
	return fmt.Errorf("%s is %.100s, and %s is wanted", what, is, wanted)
}

// Refuse answers a call that was not carried out with the reason.
func Refuse(err error) Result {
	return Result{Text: "[" + err.Error() + "]", IsError: true, Refused: true}
}
