package record

import (
	"bytes"
	"strings"
	"testing"
)

func TestSlotIsAlways256Bytes(t *testing.T) {
	for _, tt := range []struct{ name, title, source, want string }{
		{"empty", "", "", ""},
		{"short", "Fix é", "auto", "Fix é"},
		// What oh-my-pi 18 was seen to keep of 300 characters of two bytes.
		{"cut at two-byte characters", strings.Repeat("é", 300), "user", strings.Repeat("é", 79)},
		{"cut at escapes", strings.Repeat("\"", 300), "", strings.Repeat("\"", 87)},
		{"an unknown source is left out", "x", "model", "x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			line := AppendSlot([]byte("before"), tt.title, tt.source, at)[len("before"):]
			s, ok := ParseSlot(line)
			wantSource := tt.source
			if wantSource == "model" {
				wantSource = ""
			}
			if len(line) != SlotSize || bytes.IndexByte(line, '\n') != SlotSize-1 || !ok || s != (Slot{tt.want, wantSource, "2026-11-20T20:17:07.977Z"}) {
				t.Errorf("%d bytes, %v, %+v\n%s", len(line), ok, s, line)
			}
		})
	}
}

func TestParseSlotRecognises(t *testing.T) {
	for line, want := range map[string]bool{
		`{"type":"title","v":1,"title":"t","source":"auto","updatedAt":"u","pad":""}`:  true,
		`{"pad":"x","updatedAt":"","title":"","v":1.0,"type":"title"}` + "\r":          true,
		`{"type":"title","v":2,"title":"t","updatedAt":"u","pad":""}`:                  false,
		`{"type":"title","v":"1","title":"t","updatedAt":"u","pad":""}`:                false,
		`{"type":"title","v":null,"title":"t","updatedAt":"u","pad":""}`:               false,
		`{"type":"title","title":"t","updatedAt":"u","pad":""}`:                        false,
		`{"type":"session","v":1,"title":"t","updatedAt":"u","pad":""}`:                false,
		`{"type":"title","v":1,"title":null,"updatedAt":"u","pad":""}`:                 false,
		`{"type":"title","v":1,"title":"t","pad":""}`:                                  false,
		`{"type":"title","v":1,"title":"t","updatedAt":"u"}`:                           false,
		`{"type":"title","v":1,"title":"t","updatedAt":"u","pad":7}`:                   false,
		`{"type":"title","v":1,"title":"t","source":"model","updatedAt":"u","pad":""}`: false,
		`{"type":"title","v":1,"title":"t","source":null,"updatedAt":"u","pad":""}`:    false,
		`{"type":"title","v":1,"title":"t","updatedAt":"u","pad":""`:                   false,
		`null`: false,
		``:     false,
	} {
		if _, ok := ParseSlot([]byte(line)); ok != want {
			t.Errorf("ParseSlot(%s) = %v", line, ok)
		}
	}
}

func FuzzParseSlot(f *testing.F) {
	f.Add(AppendSlot(nil, "title", "auto", at))
	f.Add([]byte(`{"pad":"x","updatedAt":"","title":"\ud800","v":1,"type":"title"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, ok := ParseSlot(line)
		if !ok {
			return
		}
		out := AppendSlot(nil, s.Title, s.Source, at)
		again, ok := ParseSlot(out)
		if !ok || len(out) != SlotSize || again.Source != s.Source || !strings.HasPrefix(s.Title, again.Title) {
			t.Fatalf("%q was written as %q", line, out)
		}
	})
}
