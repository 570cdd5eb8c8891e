package ecmajson

import (
	"encoding/json"
	"testing"
)

// line is a log entry of about 700 bytes, the size that sessions mostly hold.
var line = []byte(`{"type":"message","id":"3f2a9c1b","parentId":"7d41e0aa","timestamp":"2026-01-05T09:12:44.381Z","message":{"role":"assistant","content":[{"type":"text","text":"The sink keeps a head and a tail window.\nEverything between them goes to the file, so the notice can name exact ranges. I'll run the tests for the package now and look at the \"totals\" again, because the count of lines was off by one when the last chunk had no newline."},{"type":"toolCall","id":"toolu_01A9","name":"bash","arguments":{"command":"go test -race ./outputsink/..."}}],"provider":"anthropic","model":"claude","usage":{"input":1234,"output":85,"cacheRead":20111,"cacheWrite":0,"cost":{"total":0.01234}},"stopReason":"toolUse","timestamp":1767604364381}}`)

func BenchmarkValid(b *testing.B) {
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if !Valid(line) {
			b.Fatal("not valid")
		}
	}
}

// The peer of BenchmarkValid.
func BenchmarkValidEncodingJSON(b *testing.B) {
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if !json.Valid(line) {
			b.Fatal("not valid")
		}
	}
}

func BenchmarkAppendNormal(b *testing.B) {
	b.SetBytes(int64(len(line)))
	dst := make([]byte, 0, 2*len(line))
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if dst, err = AppendNormal(dst[:0], line); err != nil {
			b.Fatal(err)
		}
	}
}
