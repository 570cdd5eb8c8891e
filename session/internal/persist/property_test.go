package persist

import (
	"bytes"
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/ecmajson"
)

// small limits make generated entries meet every rule.
var small = limits{text: 120, image: 24}

func TestRestoreUndoesPrepare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entry := genEntry(t, false)
		checkRoundTrip(t, small, entry)
	})
}

func checkRoundTrip(t interface {
	Helper()
	Fatalf(string, ...any)
}, l limits, entry []byte,
) {
	t.Helper()
	before := bytes.Clone(entry)
	store := blobs{}
	line, err := l.prepare(context.Background(), entry, store.put)
	if err != nil {
		t.Fatalf("prepare %s: %v", entry, err)
	}
	if !bytes.Equal(entry, before) {
		t.Fatalf("prepare changed the caller's bytes")
	}
	if !ecmajson.Normal(line) {
		t.Fatalf("prepared line is not normal\nentry %s\nline  %s", entry, line)
	}
	if bytes.Equal(line, entry) && len(entry) > 0 && &line[0] != &entry[0] {
		t.Fatalf("unchanged, but copied: %s", entry)
	}
	if l.plain(entry) && !bytes.Equal(line, entry) {
		t.Fatalf("plain, but changed: %s", entry)
	}
	persisted := bytes.Clone(line)
	back, missing, err := l.restore(context.Background(), line, store.get)
	if err != nil || len(missing) > 0 {
		t.Fatalf("restore %s: %v, missing %v", line, err, missing)
	}
	if !bytes.Equal(line, persisted) {
		t.Fatalf("restore changed the line")
	}
	if !bytes.Equal(back, entry) {
		t.Fatalf("came back otherwise\nentry %s\nline  %s\nback  %s", entry, line, back)
	}
	cited := Refs(line)
	for ref := range store {
		if !contains(cited, ref) {
			t.Fatalf("blob %s is not cited by\n%s", ref, line)
		}
	}
	// Without any blob, nothing is lost of the line's ways back.
	bare, missing, err := l.restore(context.Background(), line, blobs{}.get)
	if err != nil {
		t.Fatalf("restore without blobs: %v", err)
	}
	if len(missing) == 0 {
		return
	}
	again, missing, err := l.restore(context.Background(), bare, store.get)
	if err != nil || len(missing) > 0 || !bytes.Equal(again, entry) {
		t.Fatalf("restored in two steps otherwise\nentry %s\nline  %s\nfirst %s\nthen  %s\nmissing %v, %v", entry, line, bare, again, missing, err)
	}
}

func contains(refs []blobref.Ref, ref blobref.Ref) bool {
	for _, r := range refs {
		if r == ref {
			return true
		}
	}
	return false
}

var genNames = rapid.SampledFrom([]string{
	"type", "data", "mimeType", "content", "images", "frames", "image", "result", "image_url", "lineCount", "text", "thinking",
	"thinkingSignature", "textSignature", "thoughtSignature", "encrypted_content", "arguments", "details", "message", "block",
	"externalized", "path", "ref", "form", "value", "bytes", "a/b", "m~n", "~1", "", "0", "7", "\u00e9", "\U0001F600", "\xed\xa0\x80",
})

var genTypes = rapid.SampledFrom([]string{
	"image", "image", "image_generation_call", "thinking", "text", "toolCall", "redactedThinking", "reasoning", "anthropicServerTool", "message",
})

func genBase64(t *rapid.T) string {
	data := rapid.SliceOfN(rapid.Byte(), 0, 90).Draw(t, "bytes")
	s := rapid.SampledFrom([]*base64.Encoding{
		base64.StdEncoding, base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding,
	}).Draw(t, "encoding").EncodeToString(data)
	if rapid.IntRange(0, 4).Draw(t, "wrapped") > 0 {
		return s
	}
	newline := rapid.SampledFrom([]string{"\n", "\r\n", " ", "\r"}).Draw(t, "newline")
	width := rapid.SampledFrom([]int{1, 4, 7, 64, 76}).Draw(t, "width")
	var b strings.Builder
	for len(s) > width {
		b.WriteString(s[:width] + newline)
		s = s[width:]
	}
	b.WriteString(s)
	if rapid.Bool().Draw(t, "trailing") {
		b.WriteString(newline)
	}
	return b.String()
}

var someRef = blobref.Of([]byte("some")).String()

// genString gives WTF-8.
func genString(t *rapid.T) string {
	switch rapid.IntRange(0, 9).Draw(t, "string") {
	case 0, 1, 2:
		return rapid.String().Draw(t, "text")
	case 3:
		n := rapid.IntRange(60, 130).Draw(t, "length")
		pad := strings.Repeat("x", n)
		return pad + strings.Repeat(rapid.SampledFrom([]string{"a", "\n", "\U0001F600", "\xed\xa0\x80", "\xed\xb0\x80-", "\"", "\x01", "\u2028"}).Draw(t, "unit"), rapid.IntRange(0, 80).Draw(t, "count"))
	case 4, 5:
		return genBase64(t)
	case 6:
		return "data:image/png;base64," + genBase64(t) + rapid.SampledFrom([]string{"", "", "\xed\xa0\x80"}).Draw(t, "tail")
	case 7:
		return rapid.SampledFrom([]string{someRef, someRef + "0", strings.ToUpper(someRef), "blob:sha256:"}).Draw(t, "ref")
	case 8:
		return strings.Repeat("y", 120-len(notice)) + notice
	default:
		return rapid.SampledFrom([]string{pixelPNG, "image/png", "IMAGE/gif", "image/webp", "literal", "base64", "own", "/message/content/0/data", "/externalized/0/path"}).Draw(t, "word")
	}
}

func genValue(t *rapid.T, depth int, name string) []byte {
	if name == "type" && rapid.IntRange(0, 9).Draw(t, "typed") > 0 {
		return ecmajson.AppendString(nil, genTypes.Draw(t, "type"))
	}
	if name == "mimeType" {
		return ecmajson.AppendString(nil, "image/"+rapid.SampledFrom([]string{"png", "jpeg", "gif", "webp", "svg+xml"}).Draw(t, "mime"))
	}
	if name == "lineCount" && rapid.Bool().Draw(t, "counted") {
		return []byte(rapid.SampledFrom([]string{"3", "1e400", "0.5", "1000000"}).Draw(t, "lines"))
	}
	switch kind := rapid.IntRange(0, 12).Draw(t, "kind"); {
	case kind == 12:
		return genImage(t)
	case kind < 3 && depth > 0:
		return genObject(t, depth-1, nil, nil)
	case kind < 5 && depth > 0:
		out := []byte{'['}
		for i := range rapid.IntRange(0, 4).Draw(t, "elements") {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, genValue(t, depth-1, "")...)
		}
		return append(out, ']')
	case kind == 5:
		return []byte(rapid.SampledFrom([]string{"null", "true", "false", "0", "-1.5e+300", "12345678901234567890"}).Draw(t, "scalar"))
	default:
		return ecmajson.AppendString(nil, genString(t))
	}
}

// genImage gives an object that is an image, or nearly one.
func genImage(t *rapid.T) []byte {
	members := rapid.Permutation([]string{"type", "mimeType", "data"}).Draw(t, "order")
	members = members[:rapid.IntRange(2, 3).Draw(t, "some")]
	out := []byte{'{'}
	for i, name := range members {
		if i > 0 {
			out = append(out, ',')
		}
		value := "image"
		switch name {
		case "mimeType":
			value = rapid.SampledFrom([]string{"image/png", "image/jpeg", "image/webp", "Image/GIF", "text/plain"}).Draw(t, "mime")
		case "data":
			value = genBase64(t)
		}
		out = ecmajson.AppendString(append(ecmajson.AppendString(out, name), ':'), value)
	}
	return append(out, '}')
}

func genObject(t *rapid.T, depth int, first, values []string) []byte {
	out := []byte{'{'}
	names := append([]string{}, first...)
	for range rapid.IntRange(0, 6).Draw(t, "members") {
		names = append(names, genNames.Draw(t, "name"))
	}
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(ecmajson.AppendString(out, name), ':')
		if i < len(values) {
			out = append(out, values[i]...)
		} else {
			out = append(out, genValue(t, depth, name)...)
		}
	}
	return append(out, '}')
}

// genEntry gives an entry in normal form. Now and then its member externalized
// is that of a line, as if somebody had appended a line as an entry.
func genEntry(t *rapid.T, nested bool) []byte {
	entry, err := ecmajson.AppendNormal(nil, genObject(t, 5, []string{"type", "message"}, nil))
	if err != nil {
		t.Fatalf("generated entry: %v", err)
	}
	if !nested && rapid.IntRange(0, 3).Draw(t, "line as entry") == 0 {
		entry, err = small.prepare(context.Background(), entry, blobs{}.put)
		if err != nil {
			t.Fatalf("prepare: %v", err)
		}
	}
	return entry
}
