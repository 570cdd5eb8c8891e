package record

import (
	"regexp"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAppendTimeIsWhatToISOStringPrints(t *testing.T) {
	for _, tt := range []struct {
		t    time.Time
		want string
	}{
		{at, "2026-11-20T20:17:07.977Z"},
		{at.In(time.FixedZone("", 3600)), "2026-11-20T20:17:07.977Z"},
		{time.Unix(0, 999_999), "1970-01-01T00:00:00.000Z"},
		{time.Date(7, 1, 2, 3, 4, 5, 6e6, time.UTC), "0007-01-02T03:04:05.006Z"},
		{time.Date(12345, 1, 2, 3, 4, 5, 6e6, time.UTC), "+012345-01-02T03:04:05.006Z"},
		{time.Date(-1, 1, 2, 3, 4, 5, 6e6, time.UTC), "-000001-01-02T03:04:05.006Z"},
	} {
		if got := string(AppendTime(nil, tt.t)); got != tt.want {
			t.Errorf("AppendTime(%v) = %s, want %s", tt.t, got, tt.want)
		}
	}
}

func TestParseTimeReadsWhatAppendTimeWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC).UnixMilli()).Draw(t, "ms")
		want := time.UnixMilli(ms).UTC()
		text := AppendTime(nil, want)
		if string(text) != want.Format("2006-01-02T15:04:05.000Z") {
			t.Fatalf("AppendTime = %s", text)
		}
		if got, ok := ParseTime(text); !ok || !got.Equal(want) {
			t.Fatalf("ParseTime(%s) = %v, %v", text, got, ok)
		}
	})
}

func TestParseTimeReadsWhatOthersWrite(t *testing.T) {
	for text, want := range map[string]string{
		"2026-02-24T10:00:01Z":                   "2026-02-24T10:00:01.000Z",
		"2026-02-24T10:00:01.5+02:00":            "2026-02-24T08:00:01.500Z",
		"2026-02-24T10:00:01.123456Z":            "2026-02-24T10:00:01.123Z",
		"2026-02-30T10:00:01.000Z":               "",
		"2026-00-10T10:00:01.000Z":               "",
		"2026-02-24T24:00:01.000Z":               "",
		"2026-02-24T10:00:0x.000Z":               "",
		"2026-02-24 10:00:01":                    "",
		"":                                       "",
		"2026-02-24T10:00:01." + zeros(80) + "Z": "",
	} {
		got, ok := ParseTime([]byte(text))
		if ok != (want != "") || ok && string(AppendTime(nil, got)) != want {
			t.Errorf("ParseTime(%q) = %v, %v, want %s", text, got, ok, want)
		}
	}
}

func zeros(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = '0'
	}
	return string(b)
}

func TestTimesDoNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		buf = AppendTime(buf[:0], at)
		if _, ok := ParseTime(buf); !ok {
			t.Fatal("not read")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNewID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{24}$`)
	seen := map[string]bool{}
	before := time.Now().UnixMilli()
	for range 10_000 {
		id := NewID()
		if !form.MatchString(id) || !ValidID(id) || seen[id] {
			t.Fatalf("NewID = %q, seen before: %v", id, seen[id])
		}
		seen[id] = true
	}
	after := time.Now().UnixMilli()
	var ms int64
	for _, c := range NewID()[:12] {
		ms = ms<<4 | int64(hexValue[c])
	}
	if ms < before || ms > after+60_000 {
		t.Errorf("the time of an id is %d, now it is %d", ms, after)
	}
	if n := testing.AllocsPerRun(100, func() { sink = NewID() }); n > 1 && !raceEnabled {
		t.Errorf("%v allocations", n)
	}
	if ValidID("") || ValidID(zeros(MaxIDLen+1)) || !ValidID(zeros(MaxIDLen)) || !ValidID("日本") {
		t.Error("ValidID")
	}
}

var sink string

func BenchmarkAppendTime(b *testing.B) {
	buf := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendTime(buf[:0], at)
	}
}

func BenchmarkParseTime(b *testing.B) {
	text := AppendTime(nil, at)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := ParseTime(text); !ok {
			b.Fatal("not read")
		}
	}
}

func BenchmarkNewID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		sink = NewID()
	}
}
