package lineindex

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
)

// reseal gives changed bytes a right checksum again, as somebody would who makes them on purpose.
func reseal(b []byte) []byte {
	body := b[:len(b)-trailerLen]
	return binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli))
}

func TestDecodingGivesBackWhatWasEncoded(t *testing.T) {
	for name, data := range map[string]string{
		"nothing":                  "",
		"one line":                 "a\n",
		"an unterminated line":     "a",
		"many lines":               strings.Repeat("some text\n", 50_000),
		"a line at the very end":   strings.Repeat("x", minEvery-1) + "\n",
		"long lines":               strings.Repeat(strings.Repeat("x", 3*minEvery)+"\n", 9),
		"unterminated, many lines": strings.Repeat("some text\n", 50_000) + "end",
	} {
		t.Run(name, func(t *testing.T) {
			want, stamp := build(t, []byte(data)), Stamp{Size: int64(len(data)), ModTime: -5}
			got, gotStamp, err := Unmarshal(want.Marshal(stamp))
			if err != nil || gotStamp != stamp || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v, %v\nwant %+v, %v", got, gotStamp, err, want, stamp)
			}
		})
	}
}

func TestTheEncodedFormIsFrozen(t *testing.T) {
	ix := build(t, []byte(strings.Repeat(strings.Repeat("x", 9999)+"\n", 5)+"end"))
	const want = "4c4e4958" + "01" + "01" + "00" + "00" + // magic, version, partial, 16 KiB cells
		"53c3000000000000" + "2a00000000000000" + // stamp: 50,003 bytes, 42 ns
		"53c3000000000000" + "0600000000000000" + "3d2b206c" + // 50,003 bytes, 6 lines, CRC
		"03000000" + "a09c0102" + "a09c0102" + "904e01" + // line 3 at 20,000, line 5 at 40,000, line 6 at 50,000
		"7b6ca90b"
	got := hex.EncodeToString(ix.Marshal(Stamp{Size: 50003, ModTime: 42}))
	if got != want {
		t.Errorf("encoded\n got %s\nwant %s", got, want)
	}
}

func TestEveryDamagedByteIsNoticed(t *testing.T) {
	ix := build(t, []byte(strings.Repeat("some text\n", 9_000)))
	good := ix.Marshal(Stamp{Size: 90_000})
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, _, err := Unmarshal(bad); !errors.Is(err, ErrFormat) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if _, _, err := Unmarshal(good[:i]); !errors.Is(err, ErrFormat) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
}

func TestForgedIndexesAreRefused(t *testing.T) {
	ix := build(t, []byte(strings.Repeat("some text\n", 9_000)))
	good := ix.Marshal(Stamp{Size: 90_000})
	le := binary.LittleEndian
	for name, forge := range map[string]func(b []byte){
		"a newer version":           func(b []byte) { b[4] = 2 },
		"unknown flags":             func(b []byte) { b[5] = 2 },
		"a reserved byte":           func(b []byte) { b[7] = 1 },
		"cells beyond any file":     func(b []byte) { b[6] = 60 },
		"wider cells":               func(b []byte) { b[6] = 9 },
		"a negative size":           func(b []byte) { le.PutUint64(b[24:], 1<<63) },
		"a smaller size":            func(b []byte) { le.PutUint64(b[24:], 70_000) },
		"more lines than bytes":     func(b []byte) { le.PutUint64(b[32:], 90_001) },
		"no lines":                  func(b []byte) { le.PutUint64(b[32:], 0) },
		"lines that end too early":  func(b []byte) { le.PutUint64(b[32:], 4_000) },
		"more samples than follow":  func(b []byte) { le.PutUint32(b[44:], 6) },
		"fewer samples than follow": func(b []byte) { le.PutUint32(b[44:], 4) },
		"a great many samples":      func(b []byte) { le.PutUint32(b[44:], 1<<31) },
		"more lines than fit in":    func(b []byte) { b[headerLen+3], b[headerLen+4] = 0xff, 0x7f },
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Clone(good)
			forge(bad)
			if _, _, err := Unmarshal(reseal(bad)); !errors.Is(err, ErrFormat) {
				t.Errorf("got %v, want ErrFormat", err)
			}
		})
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, data := range []string{"", "a", "a\nb\n", strings.Repeat("some text\n", 9_000), strings.Repeat(strings.Repeat("x", 3*minEvery)+"\n", 9)} {
		ix := build(f, []byte(data))
		f.Add(ix.Marshal(Stamp{Size: ix.Size, ModTime: 7}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= trailerLen {
			b = reseal(b) // the checksum would otherwise keep the fuzzer out
		}
		ix, s, err := Unmarshal(b)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		again, s2, err := Unmarshal(ix.Marshal(s))
		if err != nil || s2 != s || !reflect.DeepEqual(again, ix) {
			t.Fatalf("%+v became %+v, %v", ix, again, err)
		}
		file := bytes.NewReader(bytes.Repeat([]byte("ab\n"), 20_000))
		for _, line := range []int64{1, 2, ix.Lines / 2, ix.Lines - 1, ix.Lines} {
			if off, end, err := ix.LineRange(file, line, line); err == nil && (off < 0 || end <= off || end > ix.Size) {
				t.Fatalf("line %d: bytes %d to %d of %d", line, off, end, ix.Size)
			}
		}
	})
}
