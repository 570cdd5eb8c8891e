package record

import (
	"hash/crc32"
	"time"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// CRC says what the checksum of a line says about it.
type CRC uint8

const (
	CRCNone     CRC = iota // the line does not end with a crc: another program wrote it
	CRCOK                  // the bytes are those that were sealed
	CRCMismatch            // changed after it was written, by damage or by another program
)

func (c CRC) String() string {
	switch c {
	case CRCOK:
		return "ok"
	case CRCMismatch:
		return "mismatch"
	}
	return "none"
}

// The frame of the crc member: `,"crc":"` + 8 hex digits + `"}`.
const (
	crcPrefix = `,"crc":"`
	crcDigits = 8
	crcSuffix = `"}`
	sealLen   = len(crcPrefix) + crcDigits + len(crcSuffix)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Verify checks the crc of a line that starts with its '{' and ends with its
// '}'. A line that ends otherwise has no crc. It does not look at the JSON.
func Verify(line []byte) CRC {
	body, sum, ok := cutSeal(line)
	switch {
	case !ok:
		return CRCNone
	case crc32.Checksum(body, castagnoli) == sum:
		return CRCOK
	}
	return CRCMismatch
}

// Unseal returns the line without its crc member, closing brace included, so
// without the last byte of what was sealed; ok is false when it has none.
// Seal(append(dst, body...), len(dst)) gives the line back.
func Unseal(line []byte) (body []byte, ok bool) {
	body, _, ok = cutSeal(line)
	return body, ok
}

// hasSeal reports whether a line ends as one with a crc does.
func hasSeal(line []byte) bool {
	_, _, ok := cutSeal(line)
	return ok
}

func cutSeal(line []byte) (body []byte, sum uint32, ok bool) {
	n := len(line) - sealLen
	if n < 1 || line[0] != '{' {
		return nil, 0, false
	}
	tail := line[n:]
	if string(tail[:len(crcPrefix)]) != crcPrefix || string(tail[sealLen-len(crcSuffix):]) != crcSuffix {
		return nil, 0, false
	}
	for _, c := range tail[len(crcPrefix) : len(crcPrefix)+crcDigits] {
		d := hexValue[c]
		if d > 0xf {
			return nil, 0, false
		}
		sum = sum<<4 | uint32(d)
	}
	return line[:n:n], sum, true
}

// Begin appends the opening of an entry up to and including its timestamp. The
// caller appends the fields, each as `,"name":value`, and then calls [Seal].
// An empty parent makes a root.
func Begin(dst []byte, typ, id, parent string, t time.Time) []byte {
	dst = append(dst, `{"type":`...)
	dst = ecmajson.AppendString(dst, typ)
	dst = append(dst, `,"id":`...)
	dst = ecmajson.AppendString(dst, id)
	dst = append(dst, `,"parentId":`...)
	if parent == "" {
		dst = append(dst, "null"...)
	} else {
		dst = ecmajson.AppendString(dst, parent)
	}
	dst = append(dst, `,"timestamp":"`...)
	dst = AppendTime(dst, t)
	return append(dst, '"')
}

// Seal closes the object that was begun at dst[start:] with its crc, a brace and
// a newline. At least one member must have been written, and no closing brace.
func Seal(dst []byte, start int) []byte {
	return append(appendSeal(dst, crc32.Checksum(dst[start:], castagnoli)), '\n')
}

// appendSeal appends the crc member and the brace.
func appendSeal(dst []byte, sum uint32) []byte {
	dst = append(dst, crcPrefix...)
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[sum>>shift&0xf])
	}
	return append(dst, crcSuffix...)
}

// Reseal returns a line, given without its newline, with a crc that holds in
// place of the one that does not. A line without a crc comes back as it is.
func Reseal(line []byte) []byte {
	body, ok := Unseal(Trim(line))
	if !ok {
		return line
	}
	out := Seal(append(make([]byte, 0, len(line)+1), body...), 0)
	return out[:len(out)-1]
}

const hexDigits = "0123456789abcdef"

// hexValue maps the lower-case hex digits to their values and every other byte
// to something above 15: a crc in upper case was not written by this format.
var hexValue = func() (t [256]uint8) {
	for i := range t {
		t[i] = 0xff
	}
	for i := range hexDigits {
		t[hexDigits[i]] = uint8(i)
	}
	return t
}()
