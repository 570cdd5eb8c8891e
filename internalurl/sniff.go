package internalurl

import (
	"bytes"
	"errors"
	"io"
	"unicode/utf8"
)

// sniffed is how many bytes decide about the type of content.
const sniffed = 8 << 10

// minInvalid is how many bytes that are not UTF-8 make content binary, if they
// are more than a third: a few stray ones are better shown as U+FFFD.
const minInvalid = 32

// signatures of what agents store and models read besides text.
var signatures = []struct{ prefix, typ string }{
	{"\x89PNG\r\n\x1a\n", "image/png"},
	{"\xff\xd8\xff", "image/jpeg"},
	{"GIF87a", "image/gif"},
	{"GIF89a", "image/gif"},
	{"%PDF-", "application/pdf"},
}

// Sniff tells the type of content from its first 8 KiB: an image type or PDF by
// signature, TypeBytes for a NUL or mostly invalid UTF-8, else TypeText. The rule
// for binary content is that of package outputsink.
func Sniff(content io.ReaderAt) (string, error) {
	head := make([]byte, sniffed)
	n, err := content.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	head = head[:n]
	for _, s := range signatures {
		if bytes.HasPrefix(head, []byte(s.prefix)) {
			return s.typ, nil
		}
	}
	if len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == "WEBP" {
		return "image/webp", nil
	}
	if bytes.IndexByte(head, 0) >= 0 {
		return TypeBytes, nil
	}
	invalid := 0
	for rest := head; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 {
			invalid++
		}
		rest = rest[size:]
	}
	if invalid >= minInvalid && invalid*3 > len(head) {
		return TypeBytes, nil
	}
	return TypeText, nil
}
