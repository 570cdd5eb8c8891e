package diskkv

import (
	"bytes"
	"database/sql/driver"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

var (
	emptyRef = blobref.Of(nil)

	// emptyMark is how an empty blob is written, as the programs that share the format
	// do: a reader of theirs takes a value without bytes for none.
	emptyMark = []byte{0}
)

// encode returns the value that is stored for the bytes of a verified blob.
func encode(data []byte) []byte {
	if len(data) == 0 {
		return emptyMark
	}
	return data
}

// bytesOf returns the bytes of a column of class BLOB or TEXT.
func bytesOf(v driver.Value) (raw []byte, text bool, err error) {
	switch v := v.(type) {
	case []byte:
		if v == nil {
			v = []byte{} // as the driver hands out a value without bytes
		}
		return v, false, nil
	case string:
		return []byte(v), true, nil
	}
	return nil, false, fmt.Errorf("%w: it is stored as a %T, not as bytes or text", blobstore.ErrCorrupt, v)
}

// decodeVerified returns the bytes of a blob as which a value can be read, and proves
// them: those of the value itself, nothing for the one byte 0x00, or those that the
// value is the hexadecimal or base64 form of.
func decodeVerified(ref blobref.Ref, raw []byte) ([]byte, error) {
	if ref.Verify(raw) {
		return raw, nil
	}
	if bytes.Equal(raw, emptyMark) {
		if ref == emptyRef {
			return []byte{}, nil
		}
		return nil, blobstore.ErrCorrupt
	}
	for _, decode := range []func([]byte) ([]byte, bool){fromHex, fromBase64} {
		data, ok := decode(raw)
		if !ok {
			continue
		}
		if ref.Verify(data) {
			return data, nil
		}
		if ref == emptyRef && bytes.Equal(data, emptyMark) {
			return []byte{}, nil
		}
	}
	return nil, blobstore.ErrCorrupt
}

// decodeOpaque returns the bytes of a value of a foreign file under an id that need
// not be their hash. Where the hash decides nothing, text is hexadecimal when it can
// be, as those who wrote text wrote it, and base64 when not.
func decodeOpaque(ref blobref.Ref, raw []byte, text bool) ([]byte, error) {
	if !text && len(raw) > 1 {
		return raw, nil
	}
	if data, err := decodeVerified(ref, raw); err == nil {
		return data, nil
	}
	if !text {
		if bytes.Equal(raw, emptyMark) {
			return []byte{}, nil
		}
		return raw, nil
	}
	for _, decode := range []func([]byte) ([]byte, bool){fromHex, fromBase64} {
		if data, ok := decode(raw); ok {
			if bytes.Equal(data, emptyMark) {
				data = []byte{}
			}
			return data, nil
		}
	}
	return nil, fmt.Errorf("%w: the text is neither hexadecimal nor base64", blobstore.ErrCorrupt)
}

// fromHex decodes hexadecimal digits of either case, with space around them.
func fromHex(text []byte) ([]byte, bool) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || len(text)%2 != 0 || !isHex(text[0]) {
		return nil, false
	}
	data := make([]byte, len(text)/2)
	if _, err := hex.Decode(data, text); err != nil {
		return nil, false
	}
	return data, true
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// fromBase64 decodes base64, standard or url-safe, padded or not.
func fromBase64(text []byte) ([]byte, bool) {
	text = bytes.TrimSpace(text)
	text = bytes.TrimRight(text, "=")
	if len(text) == 0 {
		return nil, false
	}
	coding := base64.RawStdEncoding
	if bytes.ContainsAny(text, "-_") {
		coding = base64.RawURLEncoding
	}
	data := make([]byte, coding.DecodedLen(len(text)))
	n, err := coding.Decode(data, text)
	if err != nil {
		return nil, false
	}
	return data[:n], true
}

// parsePointer reads the hexadecimal id that a pointer holds.
func parsePointer(v driver.Value) (blobref.Ref, error) {
	raw, _, err := bytesOf(v)
	if err != nil {
		return blobref.Ref{}, err
	}
	sum, ok := fromHex(raw)
	if !ok || len(sum) != 32 {
		return blobref.Ref{}, fmt.Errorf("%w: a pointer holds %d bytes that are no id of 64 hexadecimal digits", blobstore.ErrCorrupt, len(raw))
	}
	ref := blobref.FromSum([32]byte(sum))
	if ref.IsZero() {
		return blobref.Ref{}, fmt.Errorf("%w: a pointer holds the zero id", blobstore.ErrCorrupt)
	}
	return ref, nil
}

var errNoValue = errors.New("no value")
