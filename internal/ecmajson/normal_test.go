package ecmajson

import (
	"bytes"
	"testing"
)

func TestAppendNormalWritesWhatStringifyWrites(t *testing.T) {
	for in, want := range map[string]string{
		` { "a" : [ 1 , 2 ] } `:                                `{"a":[1,2]}`,
		`{"b":1,"a":2,"b":3}`:                                  `{"b":3,"a":2}`,
		`{"10":1,"2":2,"x":3,"1":4}`:                           `{"1":4,"2":2,"10":1,"x":3}`,
		`{"x":{"z":1,"0":{"a":1,"a":2}},"0":0}`:                `{"0":0,"x":{"0":{"a":2},"z":1}}`,
		`{"a":{"a":1,"a":2},"a":[{"1":{"b":1,"0":0},"0":[]}]}`: `{"a":[{"0":[],"1":{"0":0,"b":1}}]}`,
		`{"4294967295":2,"4294967294":1,"00":4,"0":3}`:         `{"0":3,"4294967294":1,"4294967295":2,"00":4}`,
		`{"__proto__":1,"constructor":2,"__proto__":3}`:        `{"__proto__":3,"constructor":2}`,
		`{"\u0061":1,"a":2}`:                                   `{"a":2}`,
		`"\/\u0041\u000a\u001F\u007f\u2028<>&"`:                "\"/A\\n\\u001f\x7f\u2028<>&\"",
		`"\ud83d\ude00 \uD83D \ude00\ud83d"`:                   "\"\U0001F600 \\ud83d \\ude00\\ud83d\"",
		"\"\xff \xed\xa0\x80 \xf0\x9f\x98 \xe2\x82\"":          "\"\uFFFD \uFFFD\uFFFD\uFFFD \uFFFD \uFFFD\"",
		`[1.0,-0,-0.0,1E2,1e21,123456789012345680000,0.000001,1e-7,5e-324,1.7976931348623157e308]`: `[1,0,0,100,1e+21,123456789012345680000,0.000001,1e-7,5e-324,1.7976931348623157e+308]`,
		`[1e400,12345678901234567890,0.1000000000000000055,-1E-400]`:                               `[1e400,12345678901234567890,0.1000000000000000055,-1E-400]`,
	} {
		got, err := AppendNormal([]byte("> "), []byte(in))
		if err != nil || string(got) != "> "+want {
			t.Errorf("AppendNormal(%s)\n got %s, %v\nwant > %s", in, got, err, want)
		}
	}
}

func TestAppendNormalRefusesWhatIsNotOneValue(t *testing.T) {
	for _, in := range []string{``, `{}x`, `{"a":1}{"b":2}`, `{"a":01}`, "\"\n\"", `{"a":1,}`} {
		if got, err := AppendNormal([]byte("kept"), []byte(in)); err == nil || string(got) != "kept" {
			t.Errorf("AppendNormal(%q) = %q, %v; want an error and dst as it was", in, got, err)
		}
	}
}

func TestAppendNormalOfNormalInputDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool allocate")
	}
	dst := make([]byte, 0, len(line))
	if n := testing.AllocsPerRun(100, func() { dst, _ = AppendNormal(dst[:0], line) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if !bytes.Equal(dst, line) {
		t.Errorf("changed to %s", dst)
	}
}

func FuzzAppendNormal(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		once, err := AppendNormal(nil, b)
		if (err == nil) != Valid(b) {
			t.Fatalf("AppendNormal(%q): %v, though Valid says %v", b, err, Valid(b))
		}
		if err != nil {
			return
		}
		if !Normal(once) {
			t.Fatalf("AppendNormal(%q) = %q, which is not Normal", b, once)
		}
		twice, err := AppendNormal(nil, once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("not idempotent: %q, then %q, %v", once, twice, err)
		}
		if Normal(b) != bytes.Equal(b, once) {
			t.Fatalf("Normal(%q) = %v, AppendNormal gives %q", b, Normal(b), once)
		}
	})
}
