// Package proto_test holds the messages of proto/ to what peers send and read: a table of
// every number, name, type and label (testdata/table.txt, written by table.go from notes,
// apart from the .proto files), and bytes that the npm runtime of protobuf made of the same
// messages. What the generated code is used for has its tests elsewhere.
package proto_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/agentrun/agentrun/gen/agent/v1/service"
	_ "github.com/agentrun/agentrun/gen/agentrun/kv/v1"
)

// ours reports whether a file is one of proto/.
func ours(f protoreflect.FileDescriptor) bool {
	for _, pkg := range []string{"agent/", "aiserver/", "anyrun/", "agentrun/"} {
		if strings.HasPrefix(f.Path(), pkg) {
			return true
		}
	}
	return false
}

// TestDescriptorsAreThoseOfTheTable: a number is never used again for anything else, and a
// name is what JSON has, so a difference is an error of one of both, whichever was changed.
func TestDescriptorsAreThoseOfTheTable(t *testing.T) {
	data, err := os.ReadFile("testdata/table.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := sections(string(data))
	got := map[string]string{}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if ours(f) {
			describe(f, got)
		}
		return true
	})
	if len(got) < 500 {
		t.Fatalf("only %d messages, enums and services are linked", len(got))
	}
	for name, section := range want {
		switch is, ok := got[name]; {
		case !ok:
			t.Errorf("the table has %s, the descriptors have not", name)
		case is != section:
			t.Errorf("%s is\n%sand in the table it is\n%s", name, is, section)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("the descriptors have %s, the table has not", name)
		}
	}
}

// sections cuts the table at its empty lines: by the first line of each.
func sections(text string) map[string]string {
	all := map[string]string{}
	for section := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		head, rest, _ := strings.Cut(strings.TrimRight(section, "\n")+"\n", "\n")
		all[head] = rest
	}
	return all
}

// describe writes what a file declares as the table has it.
func describe(f protoreflect.FileDescriptor, into map[string]string) {
	describeEnums(f.Enums(), into)
	describeMessages(f.Messages(), into)
	for i := range f.Services().Len() {
		s := f.Services().Get(i)
		text := ""
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			text += fmt.Sprintf("  %s %s%s -> %s%s\n", m.Name(), stream(m.IsStreamingClient()), m.Input().FullName(),
				stream(m.IsStreamingServer()), m.Output().FullName())
		}
		into["service "+string(s.FullName())] = text
	}
}

func stream(is bool) string {
	if is {
		return "stream "
	}
	return ""
}

func describeEnums(enums protoreflect.EnumDescriptors, into map[string]string) {
	for i := range enums.Len() {
		e := enums.Get(i)
		text := ""
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			text += fmt.Sprintf("  %d %s\n", v.Number(), v.Name())
		}
		into["enum "+string(e.FullName())] = text
	}
}

func describeMessages(messages protoreflect.MessageDescriptors, into map[string]string) {
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.IsMapEntry() {
			continue
		}
		describeEnums(m.Enums(), into)
		describeMessages(m.Messages(), into)
		text := reserved(m)
		for _, f := range byNumber(m.Fields()) {
			text += fmt.Sprintf("  %d %s %s%s\n", f.Number(), f.Name(), typeOf(f), label(f))
		}
		into["message "+string(m.FullName())] = text
	}
}

func byNumber(fields protoreflect.FieldDescriptors) []protoreflect.FieldDescriptor {
	var all []protoreflect.FieldDescriptor
	for i := range fields.Len() {
		all = append(all, fields.Get(i))
	}
	slices.SortFunc(all, func(a, b protoreflect.FieldDescriptor) int { return cmp.Compare(a.Number(), b.Number()) })
	return all
}

func reserved(m protoreflect.MessageDescriptor) string {
	var numbers []string
	for i := range m.ReservedRanges().Len() {
		r := m.ReservedRanges().Get(i)
		for n := r[0]; n < r[1]; n++ {
			numbers = append(numbers, fmt.Sprint(n))
		}
	}
	if numbers == nil {
		return ""
	}
	return "  reserved " + strings.Join(numbers, " ") + "\n"
}

func typeOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "map<" + typeOf(f.MapKey()) + "," + typeOf(f.MapValue()) + ">"
	case f.Message() != nil:
		return string(f.Message().FullName())
	case f.Enum() != nil:
		return string(f.Enum().FullName())
	}
	return f.Kind().String()
}

func label(f protoreflect.FieldDescriptor) string {
	switch o := f.ContainingOneof(); {
	case f.HasOptionalKeyword():
		return " optional"
	case o != nil:
		return " oneof " + string(o.Name())
	case f.IsList():
		return " repeated"
	}
	return ""
}
