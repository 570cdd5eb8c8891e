package persist

import (
	"bytes"
	"encoding/base64"
)

// encoding is a way to write bytes as base64. The zero value is the canonical
// one: standard alphabet, padded, on one line.
type encoding struct {
	url      bool   // - and _ instead of + and /
	unpadded bool   // no = at the end
	wrap     int    // characters a line; 0 is one line
	newline  string // between lines
	trailing bool   // newline after the last line too
}

func (e encoding) codec() *base64.Encoding {
	c := base64.StdEncoding
	if e.url {
		c = base64.URLEncoding
	}
	if e.unpadded {
		c = c.WithPadding(base64.NoPadding)
	}
	return c.Strict()
}

// decodeBase64 decodes s and finds the encoding that gives exactly s again. It
// reports false if there is none: s is no base64, or base64 of some mixed kind.
func decodeBase64(s []byte) (data []byte, e encoding, ok bool) {
	digits := s
	if i := bytes.IndexByte(s, '\n'); i >= 0 {
		e.newline = "\n"
		if i > 0 && s[i-1] == '\r' {
			e.newline = "\r\n"
		}
		e.wrap = i + 1 - len(e.newline)
		e.trailing = bytes.HasSuffix(s, []byte(e.newline))
		digits = bytes.ReplaceAll(s, []byte(e.newline), nil)
	}
	e.url = bytes.IndexByte(digits, '-') >= 0 || bytes.IndexByte(digits, '_') >= 0
	e.unpadded = len(digits)%4 != 0
	if bytes.IndexByte(digits, '\r') >= 0 || bytes.IndexByte(digits, '\n') >= 0 || e.newline != "" && e.wrap == 0 {
		return nil, e, false // the decoder would skip them
	}
	codec := e.codec()
	data = make([]byte, codec.DecodedLen(len(digits)))
	n, err := codec.Decode(data, digits)
	if err != nil {
		return nil, e, false
	}
	data = data[:n]
	if e != (encoding{}) && !bytes.Equal(e.append(nil, data), s) {
		return nil, e, false
	}
	return data, e, true
}

// append appends data in this encoding.
func (e encoding) append(dst, data []byte) []byte {
	if e.wrap <= 0 {
		dst = e.codec().AppendEncode(dst, data)
		if e.trailing {
			dst = append(dst, e.newline...)
		}
		return dst
	}
	text := e.codec().AppendEncode(nil, data)
	for len(text) > e.wrap {
		dst = append(append(dst, text[:e.wrap]...), e.newline...)
		text = text[e.wrap:]
	}
	dst = append(dst, text...)
	if e.trailing {
		dst = append(dst, e.newline...)
	}
	return dst
}

// Pictures of one pixel, in base64.
const (
	pixelPNG  = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	pixelGIF  = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
	pixelWebP = "UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA=="
	pixelJPEG = "/9j/4AAQSkZJRgABAQEASABIAAD/2wBDAP//////////////////////////////////////////////////////////////////////////////////////wgALCAABAAEBAREA/8QAFBABAAAAAAAAAAAAAAAAAAAAAP/aAAgBAQABPxA="
)

// standIn is the picture that holds the place of an image of the given type
// where a reference would be taken for base64.
func standIn(mimeType string) string {
	switch mimeType {
	case "image/gif":
		return pixelGIF
	case "image/webp":
		return pixelWebP
	case "image/jpeg", "image/jpg":
		return pixelJPEG
	}
	return pixelPNG
}

func isStandIn(s string) bool {
	return s == pixelPNG || s == pixelGIF || s == pixelWebP || s == pixelJPEG
}
