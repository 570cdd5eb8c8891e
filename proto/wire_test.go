package proto_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// nodeEnv names a folder that node/prepare made.
const nodeEnv = "AGENTRUN_NODE_DIR"

// sample is a message of testdata/wire.txt: bytes that protobufjs made, with types from the
// table and not from the .proto files. The variant is which case of each oneof it has, or
// "zero": the fields with explicit presence are there, with zero values.
type sample struct {
	name    protoreflect.FullName
	variant string
	bytes   []byte
}

func (s sample) String() string { return string(s.name) + "/" + s.variant }

func samples(t testing.TB, lines string) []sample {
	t.Helper()
	var all []sample
	for line := range strings.Lines(lines) {
		name, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		message, variant, ok := strings.Cut(name, "/")
		data, err := hex.DecodeString(digits)
		if !ok || err != nil {
			t.Fatalf("line %d: %q is no sample: %v", len(all)+1, name, err)
		}
		all = append(all, sample{protoreflect.FullName(message), variant, data})
	}
	return all
}

func recorded(t testing.TB) []sample {
	t.Helper()
	data, err := os.ReadFile("testdata/wire.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := samples(t, string(data))
	if len(all) < 800 {
		t.Fatalf("testdata/wire.txt has only %d samples", len(all))
	}
	return all
}

// decode gives the message that the bytes of s are.
func (s sample) decode(t testing.TB) proto.Message {
	t.Helper()
	m := s.empty(t)
	if err := proto.Unmarshal(s.bytes, m); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return m
}

func (s sample) empty(t testing.TB) proto.Message {
	t.Helper()
	typ, err := protoregistry.GlobalTypes.FindMessageByName(s.name)
	if err != nil {
		t.Fatal(err)
	}
	return typ.New().Interface()
}

// expected is the message that s ought to be.
func (s sample) expected(t testing.TB) proto.Message {
	m := s.empty(t)
	if s.variant == "zero" {
		zero(m.ProtoReflect())
		return m
	}
	variant, err := strconv.Atoi(s.variant)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	fill(m.ProtoReflect(), variant, 1)
	return m
}

func TestWhatNpmWroteIsRead(t *testing.T) {
	seen := map[protoreflect.FullName]bool{}
	for _, s := range recorded(t) {
		seen[s.name] = true
		got := s.decode(t)
		if where := unknown(got.ProtoReflect()); where != "" {
			t.Errorf("%s has bytes that nobody knows in %s", s, where)
		}
		if want := s.expected(t); !proto.Equal(got, want) {
			t.Errorf("%s is\n%v\nwant\n%v", s, got, want)
		}
	}
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		if ours(m.Descriptor().ParentFile()) && !m.Descriptor().IsMapEntry() && !seen[m.Descriptor().FullName()] {
			t.Errorf("there is no sample of %s", m.Descriptor().FullName())
		}
		return true
	})
}

// TestNpmReadsWhatIsWrittenHere: runtimes that leave out what they do not know decode what
// is encoded here, and encode it again.
func TestNpmReadsWhatIsWrittenHere(t *testing.T) {
	table, err := filepath.Abs("testdata/table.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := recorded(t)
	for name, types := range map[string]string{"protobufjs": table, "protobuf-es": "gen"} {
		t.Run(name, func(t *testing.T) {
			var lines []byte
			for _, s := range all {
				data, err := proto.MarshalOptions{Deterministic: true}.Marshal(s.expected(t))
				if err != nil {
					t.Fatalf("%s: %v", s, err)
				}
				lines = append(lines, (s.String() + " " + hex.EncodeToString(data) + "\n")...)
			}
			back := samples(t, string(wire(t, lines, "echo", types)))
			if len(back) != len(all) {
				t.Fatalf("%d messages came back of %d", len(back), len(all))
			}
			for i, s := range back {
				if got, want := s.decode(t), all[i].expected(t); !proto.Equal(got, want) {
					t.Errorf("%s came back as\n%v\nwant\n%v", s, got, want)
				}
			}
		})
	}
}

// TestTheSamplesAreWhatNpmMakesNow: the file is of this table.
func TestTheSamplesAreWhatNpmMakesNow(t *testing.T) {
	table, err := filepath.Abs("testdata/table.txt")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/wire.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := wire(t, nil, "make", table); !bytes.Equal(got, want) {
		t.Error("testdata/wire.txt is not what node/wire.mjs makes of testdata/table.txt")
	}
}

// wire runs node/wire.mjs, or skips the test.
func wire(t *testing.T, in []byte, args ...string) []byte {
	t.Helper()
	dir := os.Getenv(nodeEnv)
	if dir == "" {
		t.Skipf("%s is not set: proto/node/prepare makes such a folder", nodeEnv)
	}
	script, err := filepath.Abs("node/wire.mjs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", append([]string{script}, args...)...)
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(in)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node/wire.mjs %v: %v\n%s", args, err, stderr.String())
	}
	return out
}

// unknown names the first message in m that has unknown fields, or is empty.
func unknown(m protoreflect.Message) (where protoreflect.FullName) {
	if len(m.GetUnknown()) > 0 {
		return m.Descriptor().FullName()
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				where = unknown(v.Message())
				return where == ""
			})
		case f.IsList() && f.Message() != nil:
			for i := 0; i < v.List().Len() && where == ""; i++ {
				where = unknown(v.List().Get(i).Message())
			}
		case !f.IsMap() && f.Message() != nil:
			where = unknown(v.Message())
		}
		return where == ""
	})
	return where
}

// zero sets the fields with explicit presence, and of a oneof the first, to nothing.
func zero(m protoreflect.Message) {
	one := false
	for _, f := range byNumber(m.Descriptor().Fields()) {
		o := f.ContainingOneof()
		if f.Message() != nil || f.Enum() != nil || f.Kind() == protoreflect.Int64Kind || f.Kind() == protoreflect.Uint64Kind || o == nil {
			continue
		}
		if !o.IsSynthetic() {
			if one {
				continue
			}
			one = true
		}
		v := f.Default()
		if f.Kind() == protoreflect.BytesKind {
			v = protoreflect.ValueOfBytes([]byte{})
		}
		m.Set(f, v)
	}
}

// fill sets all fields of m, and of each oneof the case of that variant, to the values that
// node/wire.mjs gives them.
func fill(m protoreflect.Message, variant, depth int) {
	cases := map[protoreflect.Name][]protoreflect.FieldNumber{}
	for _, f := range byNumber(m.Descriptor().Fields()) {
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			cases[o.Name()] = append(cases[o.Name()], f.Number())
		}
	}
	for _, f := range byNumber(m.Descriptor().Fields()) {
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			of := cases[o.Name()]
			if of[variant%len(of)] == f.Number() {
				m.Set(f, value(f, f, f.Number(), depth, m.NewField))
			}
			continue
		}
		if variant > 0 {
			continue
		}
		switch {
		case f.IsMap():
			entries := m.Mutable(f).Map()
			new := func(protoreflect.FieldDescriptor) protoreflect.Value { return entries.NewValue() }
			entries.Set(protoreflect.ValueOfString(string(f.Name())).MapKey(), value(f, f.MapValue(), f.Number(), depth, new))
		case f.IsList():
			list := m.Mutable(f).List()
			new := func(protoreflect.FieldDescriptor) protoreflect.Value { return list.NewElement() }
			for i := range 2 {
				list.Append(value(f, f, f.Number()+protoreflect.FieldNumber(i), depth, new))
			}
		default:
			m.Set(f, value(f, f, f.Number(), depth, m.NewField))
		}
	}
}

// value is what a field, or an element of one, of the kind of typ has.
func value(f, typ protoreflect.FieldDescriptor, number protoreflect.FieldNumber, depth int,
	new func(protoreflect.FieldDescriptor) protoreflect.Value,
) protoreflect.Value {
	name := string(f.Name())
	switch typ.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(name + " é")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0, byte(number), 255})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(number) + 0.5)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(-int32(number))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1<<31 + uint32(number))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(-(int64(number) << 40) - 1)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1<<63 + uint64(number))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1000 + protoreflect.EnumNumber(number))
	}
	v := new(f)
	m := v.Message()
	fields := m.Descriptor().Fields()
	switch m.Descriptor().FullName() {
	case "google.protobuf.Value":
		m.Set(fields.ByName("string_value"), protoreflect.ValueOfString(name))
	case "google.protobuf.Struct":
		entries := m.Mutable(fields.ByName("fields")).Map()
		entry := entries.NewValue()
		entry.Message().Set(entry.Message().Descriptor().Fields().ByName("string_value"), protoreflect.ValueOfString(name))
		entries.Set(protoreflect.ValueOfString(name).MapKey(), entry)
	default:
		if depth > 0 {
			fill(m, 0, depth-1)
		}
	}
	return v
}

// TestSamplesSurviveBeingReadAndWritten: what is decoded and encoded is the same message.
func TestSamplesSurviveBeingReadAndWritten(t *testing.T) {
	for _, s := range recorded(t) {
		data, err := proto.Marshal(s.decode(t))
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		again := sample{s.name, s.variant, data}
		if got, want := again.decode(t), s.decode(t); !proto.Equal(got, want) {
			t.Errorf("%s is %v, and was %v", s, got, want)
		}
		// The order of fields may differ from that of npm, and nothing else.
		if a, b := slices.Sorted(slices.Values(data)), slices.Sorted(slices.Values(s.bytes)); !bytes.Equal(a, b) {
			t.Errorf("%s has other bytes: %x, and was %x", s, data, s.bytes)
		}
	}
}
