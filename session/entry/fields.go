package entry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// ErrReserved reports a body with a member that belongs to the envelope of an
// entry: give it another name.
var ErrReserved = errors.New("member name is reserved for the entry itself")

// isReserved tells the members that the log itself writes: the envelope, the
// checksum, and the list of strings kept elsewhere.
func isReserved(name string) bool {
	switch name {
	case "type", "id", "parentId", "timestamp", "crc", "externalized":
		return true
	}
	return false
}

// AppendFields appends the members of b, each with a comma before it, as they
// stand behind the envelope in a line: for a [Custom], ,"customType":"x". The
// JSON is in the form of JavaScript's JSON.stringify. On an error dst is returned
// as it was.
//
// It neither allocates nor reflects for a [MessageBody], beyond what dst needs to
// grow. A message must be an object; [Raw] fields too, and without envelope
// members ([ErrReserved]).
func AppendFields(dst []byte, b Body) ([]byte, error) {
	if b == nil {
		return dst, errors.New("writing an entry: it has no body")
	}
	start := len(dst)
	out, err := appendFields(dst, b)
	if err != nil {
		return dst[:start], fmt.Errorf("writing a %.40q entry: %w", b.EntryType(), err)
	}
	return out, nil
}

func appendFields(dst []byte, b Body) ([]byte, error) {
	switch b := b.(type) {
	case MessageBody:
		return appendMessage(dst, b.Message)
	case *MessageBody:
		return appendMessage(dst, b.Message)
	case Raw:
		return appendMembers(dst, b.Fields)
	case Message:
		data, err := marshal(b)
		if err != nil {
			return dst, err
		}
		return appendMessage(dst, data)
	}
	data, err := marshal(b)
	if err != nil {
		return dst, err
	}
	return appendMembers(dst, data)
}

func appendMessage(dst []byte, message json.RawMessage) ([]byte, error) {
	dst = append(dst, `,"message":`...)
	start := len(dst)
	dst, err := ecmajson.AppendNormal(dst, message)
	if err != nil {
		return dst, fmt.Errorf("message: %w", err)
	}
	if dst[start] != '{' {
		return dst, errors.New("the message is not a JSON object")
	}
	return dst, nil
}

// appendMembers appends the members of the object fields.
func appendMembers(dst []byte, fields json.RawMessage) ([]byte, error) {
	if len(fields) == 0 {
		return dst, nil
	}
	start := len(dst)
	dst, err := ecmajson.AppendNormal(dst, fields)
	if err != nil {
		return dst, err
	}
	if dst[start] != '{' {
		return dst, errors.New("its fields are not a JSON object")
	}
	if len(dst) == start+len("{}") {
		return dst[:start], nil
	}
	for name := range members(dst[start:]) {
		if isReserved(name) {
			return dst, fmt.Errorf("%q: %w", name, ErrReserved)
		}
	}
	dst[start] = ','
	return dst[:len(dst)-1], nil
}

// marshal is [json.Marshal] without the escapes for HTML, which only cost time
// here: what it returns is normalised afterwards.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// members yields the members of the object in b: their names, decoded, and their
// JSON (`"name":value`), in the order of the text.
func members(b []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for key, value := range ecmajson.Object(b) {
			name, err := ecmajson.Unquote(key)
			if err != nil {
				return
			}
			if !yield(text(name), slices.Concat([]byte(key), colon, []byte(value))) {
				return
			}
		}
	}
}

var colon = []byte(":")
