package artifacts

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/agentrun/agentrun/internal/process"
)

// someSidecars are written by this package.
func someSidecars() []sidecar {
	sum, created := crcHex(0x71af9a4e), time.Date(2026, 11, 21, 16, 17, 48, 154901941, time.UTC)
	self := process.ID{Host: "vm", BootID: "2f9747eb-20cb-4840-acbf-048b5716f9bf", PID: 30540, PIDStart: 1310982}
	return []sidecar{
		{Created: created, ID: self},
		{Run: "a run", Tool: "bash", Created: created, ID: self},
		{Run: "a run", Tool: "bash", Created: created, ID: self, State: Complete, Bytes: 1 << 40, Lines: 3, CRC32C: &sum},
		{Tool: "bash", Created: created, ID: self, State: Partial, Note: "it ends early", Bytes: 3, Lines: -1},
	}
}

func TestWhatThisPackageWritesIsReadWithoutEncodingJSON(t *testing.T) {
	for _, side := range someSidecars() {
		content, err := side.encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := parseOwn(content); !ok || !reflect.DeepEqual(got, side) {
			t.Errorf("%s is read as %+v, %t", content, got, ok)
		}
		line, err := json.Marshal(packed{7, side})
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := parseOwnPacked(append(line, '\n')); !ok || !reflect.DeepEqual(got, packed{7, side}) {
			t.Errorf("%s is read as %+v, %t", line, got, ok)
		}
	}
}

// Whatever is read so means the same to encoding/json.
func FuzzOwnLines(f *testing.F) {
	for _, side := range someSidecars() {
		content, _ := side.encode()
		f.Add(content)
		line, _ := json.Marshal(packed{7, side})
		f.Add(append(line, '\n'))
	}
	f.Add([]byte(`{"tool":"a\u0062","created":"2026-11-21T16:17:48Z","host":"","bootId":"","pid":01,"pidStart":-1,"bytes":-0,"lines":1}` + "\n"))
	f.Add([]byte(`,"created":"2026-11-21T16:17:48Z","host":"","bootId":"","pid":0,"pidStart":0,"bytes":0,"lines":0}` + "\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if got, ok := parseOwn(line); ok {
			var want sidecar
			if err := json.Unmarshal(line, &want); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%q is read as %+v, and is %+v, %v", line, got, want, err)
			}
		}
		if got, ok := parseOwnPacked(line); ok {
			var want packed
			if err := json.Unmarshal(line, &want); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%q is read as %+v, and is %+v, %v", line, got, want, err)
			}
		}
	})
}

func BenchmarkProvenance(b *testing.B) {
	content, err := someSidecars()[2].encode()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("canonical", func(b *testing.B) {
		for b.Loop() {
			if _, ok := parseOwn(content); !ok {
				b.Fatal("it is not")
			}
		}
	})
	b.Run("json", func(b *testing.B) {
		for b.Loop() {
			var s sidecar
			if err := json.Unmarshal(content, &s); err != nil {
				b.Fatal(err)
			}
		}
	})
}
