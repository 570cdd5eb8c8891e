package ecmajson

import (
	"fmt"
	"math"
	"testing"
)

func TestWalkersGiveRawSpans(t *testing.T) {
	text := []byte(" { \"a\" : [1, \"x,]\\\"\" , {\"b\":[]}] ,\"\\u0062\":-1.5e3, \"c\":true,\"c\":{} } ")
	var got string
	for k, v := range Object(text) {
		got += fmt.Sprintf("%s=%s %c;", k, v, v.Kind())
		for i, e := range Array(v) {
			got += fmt.Sprintf("%d=%s;", i, e)
		}
	}
	want := `"a"=[1, "x,]\"" , {"b":[]}] [;0=1;1="x,]\"";2={"b":[]};"\u0062"=-1.5e3 0;"c"=true t;"c"={} {;`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if v, ok := Get(text, "b"); !ok || string(v) != "-1.5e3" {
		t.Errorf("Get of an escaped key: %s, %v", v, ok)
	}
	if v, ok := Get(text, "c"); !ok || string(v) != "{}" {
		t.Errorf("Get of a repeated key: %s, want the last", v)
	}
	if _, ok := Get(text, "x"); ok {
		t.Error("Get found what is not there")
	}
	for range Object([]byte(`[1]`)) {
		t.Error("an array has no members")
	}
	for range Array([]byte(`{"a":1}`)) {
		t.Error("an object has no elements")
	}
	for range Array([]byte(`[ ]`)) {
		t.Error("nothing is in an empty array")
	}
}

func TestWalkersDoNotAllocate(t *testing.T) {
	n := testing.AllocsPerRun(100, func() {
		for k, v := range Object(line) {
			if k.Is("message") {
				if _, ok := Get(v, "role"); !ok {
					t.Fatal("no role")
				}
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAppendNumberWritesWhatJSONHasNot(t *testing.T) {
	for f, want := range map[float64]string{
		math.Inf(1): "null", math.Inf(-1): "null", math.Copysign(0, -1): "0", 1e21: "1e+21", 1e20: "100000000000000000000", 1e-7: "1e-7", -0.000001: "-0.000001", 1234.5: "1234.5",
	} {
		if got := AppendNumber(nil, f); string(got) != want {
			t.Errorf("AppendNumber(%v) = %s, want %s", f, got, want)
		}
	}
	if got := AppendNumber(nil, math.NaN()); string(got) != "null" {
		t.Errorf("AppendNumber(NaN) = %s", got)
	}
}

func BenchmarkObject(b *testing.B) {
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if _, ok := Get(line, "message"); !ok {
			b.Fatal("no message")
		}
	}
}
