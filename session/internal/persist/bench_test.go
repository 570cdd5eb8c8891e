package persist

import (
	"bytes"
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
)

// shortEntry is an entry of about 700 bytes, the size that sessions mostly hold.
var shortEntry = []byte(`{"type":"message","id":"3f2a9c1b","parentId":"7d41e0aa","timestamp":"2026-01-05T09:12:44.381Z","message":{"role":"assistant","content":[{"type":"text","text":"The sink keeps a head and a tail window.\nEverything between them goes to the file, so the notice can name exact ranges. I'll run the tests for the package now and look at the \"totals\" again, because the count of lines was off by one when the last chunk had no newline."},{"type":"toolCall","id":"toolu_01A9","name":"bash","arguments":{"command":"go test -race ./outputsink/..."}}],"provider":"anthropic","model":"claude","usage":{"input":1234,"output":85,"cacheRead":20111,"cacheWrite":0,"cost":{"total":0.01234}},"stopReason":"toolUse","timestamp":1767604364381}}`)

// imageEntry holds a picture of 300 KiB.
var imageEntry = []byte(`{"type":"message","message":{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","data":"` +
	base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1, 2, 3, 250}, 75<<10)) + `","mimeType":"image/png"}]}}`)

// outputEntry holds 50 KiB of text, as much as a tool result shows.
var outputEntry = []byte(`{"type":"message","message":{"role":"toolResult","content":[{"type":"text","text":"` +
	strings.Repeat(`session.go:412: the quick \"brown\" fox jumps over the lazy dog\n`, 800) + `"}]}}`)

func BenchmarkPlain(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(shortEntry)))
	for b.Loop() {
		if !Plain(shortEntry) {
			b.Fatal("not plain")
		}
	}
}

func BenchmarkPlainToolOutput(b *testing.B) {
	b.SetBytes(int64(len(outputEntry)))
	for b.Loop() {
		if !Plain(outputEntry) {
			b.Fatal("not plain")
		}
	}
}

func BenchmarkRestoreNothing(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(shortEntry)))
	for b.Loop() {
		if _, _, err := Restore(context.Background(), shortEntry, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrepareImage(b *testing.B) {
	store := blobs{}
	ref, err := store.put(context.Background(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(imageEntry)))
	for b.Loop() {
		if _, err := Prepare(context.Background(), imageEntry, func(context.Context, []byte) (blobref.Ref, error) { return ref, nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodeImage is the floor for BenchmarkPrepareImage: the decoding that cannot be avoided.
func BenchmarkDecodeImage(b *testing.B) {
	text := imageEntry[bytes.Index(imageEntry, []byte(`"data":"`))+8:]
	text = text[:bytes.IndexByte(text, '"')]
	dst := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	b.SetBytes(int64(len(imageEntry)))
	for b.Loop() {
		if _, err := base64.StdEncoding.Decode(dst, text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRestoreImage(b *testing.B) {
	store := blobs{}
	line, err := Prepare(context.Background(), imageEntry, store.put)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(imageEntry)))
	for b.Loop() {
		if _, missing, err := Restore(context.Background(), line, store.get); err != nil || len(missing) > 0 {
			b.Fatal(missing, err)
		}
	}
}
