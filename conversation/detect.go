package conversation

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobstore"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// Format is what bytes of a conversation are.
type Format int

const (
	// NAL is a ConversationStateStructure, whose parts are blobs.
	NAL Format = iota
	// Legacy is a ConversationState, which has its parts inline.
	Legacy
)

func (f Format) String() string {
	if f == Legacy {
		return "legacy"
	}
	return "NAL"
}

// Detect tells the two forms apart, which give the same numbers to ids in the one and to
// messages in the other. An empty state is NAL.
func Detect(data []byte) (Format, error) {
	list, err := split(data)
	if err != nil {
		return NAL, err
	}
	ids, messages := 0, 0
	for _, f := range list {
		varint := f.value == nil && f.raw[0]&7 == 0 // one byte tags have the type in front
		switch f.number {
		case 1, 3, 6, 7, 8:
			if len(f.value) == 32 && !inline(f.number, f.value) {
				ids++
			} else if len(f.value) > 0 || f.number == 1 || f.number == 3 {
				messages++
			}
		case 10:
			if varint {
				return NAL, nil // a mode; there it is a map
			}
			messages++
		case 2, 13, 14, 17, 18, 19, 21, SidecarField:
			if f.number >= 17 || f.number == 2 {
				return NAL, nil // numbers that the legacy form does not have
			}
		}
	}
	if messages > ids {
		return Legacy, nil
	}
	return NAL, nil
}

// inline reports whether 32 bytes are a message of the legacy form rather than an id.
func inline(n protowire.Number, value []byte) bool {
	var m proto.Message
	switch n {
	case 1:
		return value[0] == '{' && bytes.HasSuffix(value, []byte("}"))
	case 3:
		m = &agentv1.TodoItem{}
	case 6:
		m = &agentv1.ConversationSummary{}
	case 7:
		m = &agentv1.ConversationPlan{}
	case 8:
		m = &agentv1.ConversationTurn{}
	}
	// All of a hash being known fields of the right types happens once in 2^40 or so.
	return proto.Unmarshal(value, m) == nil && len(m.ProtoReflect().GetUnknown()) == 0
}

// FromText reads the text form of a state: "~" and base64, of either alphabet, padded or
// not, or hexadecimal digits. A bare "~" is an empty state.
func FromText(text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	if coded, ok := strings.CutPrefix(text, "~"); ok {
		coded = strings.TrimRight(coded, "=")
		coded = strings.NewReplacer("-", "+", "_", "/").Replace(coded)
		data, err := base64.RawStdEncoding.DecodeString(coded)
		if err != nil {
			return nil, fmt.Errorf("reading a conversation state: %w: behind its ~ there is no base64", ErrNotState)
		}
		return data, nil
	}
	data, err := hex.DecodeString(strings.ToLower(text))
	if err != nil {
		return nil, fmt.Errorf("reading a conversation state: %w: it is neither ~ with base64 nor hexadecimal", ErrNotState)
	}
	return data, nil
}

// Text is the text form that other programs read: "~" and padded base64.
func Text(state []byte) string { return "~" + base64.StdEncoding.EncodeToString(state) }

// Parse reads a state of either form, in its bytes or its text form, over a store that
// has its blobs. A legacy one is upgraded: its parts are blobs in memory, over the store.
// See State.Upgrade for old fields of the newer form.
func Parse(data []byte, store blobstore.Store, l Limits) (*State, error) {
	if isText(data) {
		var err error
		if data, err = FromText(string(data)); err != nil {
			return nil, err
		}
	}
	format, err := Detect(data)
	if err != nil {
		return nil, fmt.Errorf("reading a conversation state: %w", err)
	}
	if format == NAL {
		return New(data, store, l)
	}
	old := &agentv1.ConversationState{}
	if err := (proto.UnmarshalOptions{RecursionLimit: 200}).Unmarshal(data, old); err != nil {
		return nil, fmt.Errorf("reading a conversation state: %w: %w", ErrNotState, err)
	}
	over := newOverlay(store)
	m, err := upgrade(context.Background(), old, newWriter(over))
	if err != nil {
		return nil, fmt.Errorf("upgrading a conversation state: %w", err)
	}
	if data, err = marshal.Marshal(m); err != nil {
		return nil, fmt.Errorf("upgrading a conversation state: %w", err)
	}
	return New(data, over, l)
}

// isText reports whether all of data is a text form. No message begins with a "~": it
// would be a group that ends. Digits might be one, of fields 6 and 7 and of 12, that is
// no valid state.
func isText(data []byte) bool {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return false
	}
	if data[0] == '~' {
		return true
	}
	for _, c := range data {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
			return false
		}
	}
	return true
}
