package proto_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// unheard draws fields that m has not declared, encoded.
func unheard(rt *rapid.T, m protoreflect.MessageDescriptor) []byte {
	var data []byte
	for range rapid.IntRange(1, 3).Draw(rt, "fields") {
		number := protowire.Number(rapid.OneOf(rapid.IntRange(1, 130), rapid.Just(100001), rapid.Just(1<<29-1)).Draw(rt, "number"))
		if m.Fields().ByNumber(number) != nil {
			continue
		}
		switch rapid.IntRange(0, 3).Draw(rt, "wire") {
		case 0:
			data = protowire.AppendTag(data, number, protowire.VarintType)
			data = protowire.AppendVarint(data, rapid.Uint64().Draw(rt, "varint"))
		case 1:
			data = protowire.AppendTag(data, number, protowire.BytesType)
			data = protowire.AppendBytes(data, rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(rt, "bytes"))
		case 2:
			data = protowire.AppendTag(data, number, protowire.Fixed64Type)
			data = protowire.AppendFixed64(data, rapid.Uint64().Draw(rt, "fixed"))
		case 3:
			data = protowire.AppendTag(data, number, protowire.Fixed32Type)
			data = protowire.AppendFixed32(data, rapid.Uint32().Draw(rt, "fixed"))
		}
	}
	return data
}

// strew gives m, and some of the messages in it, fields that nobody has declared.
func strew(rt *rapid.T, m protoreflect.Message) {
	m.SetUnknown(unheard(rt, m.Descriptor()))
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				strew(rt, v.Message())
				return true
			})
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				strew(rt, v.List().Get(i).Message())
			}
		case !f.IsMap() && f.Message() != nil:
			strew(rt, v.Message())
		}
		return true
	})
}

// TestFieldsThatNobodyKnowsSurviveAChange: at every depth, and beside enum values that
// nobody knows, which the samples have.
func TestFieldsThatNobodyKnowsSurviveAChange(t *testing.T) {
	all := recorded(t)
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.SampledFrom(all).Draw(rt, "sample")
		m := s.expected(t)
		strew(rt, m.ProtoReflect())
		sent, err := proto.Marshal(m)
		if err != nil {
			rt.Fatal(err)
		}
		read := s.empty(t)
		if err := proto.Unmarshal(sent, read); err != nil {
			rt.Fatalf("%s: %v", s, err)
		}
		for _, message := range []proto.Message{m, read} {
			for _, f := range byNumber(message.ProtoReflect().Descriptor().Fields()) {
				if f.Kind() == protoreflect.StringKind && !f.IsList() && !f.IsMap() && f.ContainingOneof() == nil {
					message.ProtoReflect().Set(f, protoreflect.ValueOfString("changed"))
				}
			}
		}
		written, err := proto.Marshal(read)
		if err != nil {
			rt.Fatal(err)
		}
		again := s.empty(t)
		if err := proto.Unmarshal(written, again); err != nil {
			rt.Fatalf("%s: %v", s, err)
		}
		// Equal compares what is unknown as well.
		if !proto.Equal(again, m) {
			rt.Errorf("%s is\n%v\nwant\n%v", s, again, m)
		}
	})
}

// TestNpmKeepsWhatItDoesNotKnow: peers that read and write a state keep what only agentrun
// has in it, at least those with protobuf-es and its defaults.
func TestNpmKeepsWhatItDoesNotKnow(t *testing.T) {
	own := protowire.AppendBytes(protowire.AppendTag(nil, 100001, protowire.BytesType), []byte("only here"))
	var lines []byte
	var want []sample
	for _, s := range recorded(t) {
		s.bytes = append(slices.Clone(s.bytes), own...)
		lines = append(lines, (s.String() + " " + hex.EncodeToString(s.bytes) + "\n")...)
		want = append(want, s)
	}
	got := samples(t, string(wire(t, lines, "keep", "gen")))
	if len(got) != len(want) {
		t.Fatalf("%d messages came back of %d", len(got), len(want))
	}
	for i, s := range got {
		if got, want := s.decode(t), want[i].decode(t); !proto.Equal(got, want) {
			t.Errorf("%s came back as\n%v\nwant\n%v", s, got, want)
		}
	}
}

// TestAnActionOfSubagentsIsKept: number 9 of ConversationAction was the completion of a
// background subagent once. It is none of the cases, stays in the message, and a reader finds
// it among the unknown fields.
func TestAnActionOfSubagentsIsKept(t *testing.T) {
	inside := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "subagent-1")
	data := protowire.AppendBytes(protowire.AppendTag(nil, 9, protowire.BytesType), inside)
	data = protowire.AppendString(protowire.AppendTag(data, 11, protowire.BytesType), "auth")
	action := &agentv1.ConversationAction{}
	if err := proto.Unmarshal(data, action); err != nil {
		t.Fatal(err)
	}
	if action.GetAction() != nil || action.GetTriggeringAuthId() != "auth" {
		t.Errorf("the action is %v", action)
	}
	number, kind, n := protowire.ConsumeTag(action.ProtoReflect().GetUnknown())
	value, _ := protowire.ConsumeBytes(action.ProtoReflect().GetUnknown()[max(n, 0):])
	if number != 9 || kind != protowire.BytesType || !bytes.Equal(value, inside) {
		t.Errorf("the first unknown field is %d of type %d, %q", number, kind, value)
	}
	action.TriggeringAuthId = proto.String("other")
	written, err := proto.Marshal(action)
	if err != nil {
		t.Fatal(err)
	}
	again := &agentv1.ConversationAction{}
	if err := proto.Unmarshal(written, again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.ProtoReflect().GetUnknown(), action.ProtoReflect().GetUnknown()) || again.GetTriggeringAuthId() != "other" {
		t.Errorf("the action became %v", again)
	}
	if action.ProtoReflect().Descriptor().Fields().ByNumber(9) != nil {
		t.Error("a field has the number 9: it could be written")
	}
}

// TestJSONKeepsWhatNobodyKnowsOfEnums: the canonical form has numbers in their place. It has
// no place for fields that nobody knows.
func TestJSONKeepsWhatNobodyKnowsOfEnums(t *testing.T) {
	for _, s := range recorded(t) {
		want := s.expected(t)
		text, err := protojson.Marshal(want)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		got := s.empty(t)
		if err := protojson.Unmarshal(text, got); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if !proto.Equal(got, want) {
			t.Errorf("%s is by way of JSON\n%v\nwant\n%v", s, got, want)
		}
	}
}

// TestAClaimedLengthAllocatesNothing: a length is believed when the bytes are there.
func TestAClaimedLengthAllocatesNothing(t *testing.T) {
	data := protowire.AppendTag(nil, 2, protowire.BytesType)
	data = protowire.AppendVarint(data, 2<<30)
	data = append(data, "a few bytes"...)
	if err := proto.Unmarshal(data, &agentv1.SetBlobArgs{}); err == nil {
		t.Fatal("2 GiB of 11 bytes were decoded")
	}
	if n := testing.AllocsPerRun(10, func() { _ = proto.Unmarshal(data, &agentv1.SetBlobArgs{}) }); n > 10 {
		t.Errorf("%v allocations for what is not there", n)
	}
}

// TestStatesInStatesEndSomewhere: a subagent has a state that has subagents. What would
// overflow the stack is an error.
func TestStatesInStatesEndSomewhere(t *testing.T) {
	nest := func(depth int) []byte {
		var data []byte
		for range depth {
			state := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), data)
			entry := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), state)
			data = protowire.AppendBytes(protowire.AppendTag(nil, 16, protowire.BytesType), entry)
		}
		return data
	}
	if err := proto.Unmarshal(nest(100), &agentv1.ConversationStateStructure{}); err != nil {
		t.Errorf("100 levels: %v", err)
	}
	if err := proto.Unmarshal(nest(6000), &agentv1.ConversationStateStructure{}); !errors.Is(err, proto.Error) {
		t.Errorf("6000 levels: %v", err)
	}
}
