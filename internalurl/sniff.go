package internalurl

import (
	"bytes"
	"errors"
	"io"

	"github.com/agentrun/agentrun/outputsink"
)

// signatures of what agents store and models read besides text.
var signatures = []struct{ prefix, typ string }{
	{"\x89PNG\r\n\x1a\n", "image/png"},
	{"\xff\xd8\xff", "image/jpeg"},
	{"GIF87a", "image/gif"},
	{"GIF89a", "image/gif"},
	{"%PDF-", "application/pdf"},
}

// Sniff tells the type of content from its first 8 KiB: an image type or PDF by
// signature, TypeBytes for what outputsink.IsBinary says is binary, else TypeText.
func Sniff(content io.ReaderAt) (string, error) {
	head := make([]byte, outputsink.BinaryWindow)
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
	if outputsink.IsBinary(head, n < outputsink.BinaryWindow) {
		return TypeBytes, nil
	}
	return TypeText, nil
}
