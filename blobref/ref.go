// Package blobref names blobs by what they contain.
//
// A [Ref] is the SHA-256 of a blob's bytes. Its text is the reference that
// pi and oh-my-pi write into session entries in place of large content:
//
//	blob:sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//
// Exactly that form is accepted: the prefix, then 64 lower-case hexadecimal
// digits, nothing before or after. A Ref is made by parsing, hashing, or from a
// complete digest, and its contents are not exported, so code that holds one
// may build a file name from it without checking again: [Ref.Hex] never
// contains anything but 64 characters of 0-9 and a-f.
//
// Values are comparable, may be map keys, and are safe for concurrent use. The
// zero Ref stands for "no blob". Nothing here does I/O.
package blobref

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

const (
	// Prefix begins the text of every reference.
	Prefix = "blob:sha256:"

	// HexLen is the length of the digest as text.
	HexLen = 2 * sha256.Size

	// TextLen is the length of every reference as text.
	TextLen = len(Prefix) + HexLen
)

// ErrInvalid is wrapped by every error of this package: the text is not a
// reference.
var ErrInvalid = errors.New(`not a blob reference (want "blob:sha256:" and 64 lower-case hexadecimal digits)`)

// Ref names a blob by the SHA-256 of its bytes. The zero value names none: no
// bytes are known that hash to it, and stores refuse to write under it.
type Ref struct {
	sum [sha256.Size]byte
}

// Of returns the reference of data.
func Of(data []byte) Ref { return Ref{sum: sha256.Sum256(data)} }

// FromSum returns the reference with the given digest. It is for hashes that
// were computed while bytes streamed past, and for stores whose ids are not
// SHA-256 of what they hold.
func FromSum(sum [sha256.Size]byte) Ref { return Ref{sum: sum} }

// Parse reads the text of a reference, as [Ref.String] prints it. It allocates
// nothing when it succeeds.
func Parse(s string) (Ref, error) { return parse(s) }

// ParseHex reads a digest of 64 lower-case hexadecimal digits without the
// prefix, as it stands in blob file names and in blob://sha256/ URLs.
func ParseHex(s string) (Ref, error) {
	var r Ref
	if !decode(&r.sum, s) {
		return Ref{}, fmt.Errorf("parsing blob digest %s: %w", quote(s), ErrInvalid)
	}
	return r, nil
}

func parse[T string | []byte](s T) (Ref, error) {
	var r Ref
	if len(s) != TextLen || string(s[:len(Prefix)]) != Prefix || !decode(&r.sum, s[len(Prefix):]) {
		return Ref{}, fmt.Errorf("parsing blob reference %s: %w", quote(s), ErrInvalid)
	}
	return r, nil
}

// decode is strict where encoding/hex is not: upper case is another file name
// on the disk, so it must not be another spelling of the same reference.
func decode[T string | []byte](sum *[sha256.Size]byte, s T) bool {
	if len(s) != HexLen {
		return false
	}
	for i := range sum {
		hi, lo := digit(s[2*i]), digit(s[2*i+1])
		if hi|lo > 0xf {
			return false
		}
		sum[i] = hi<<4 | lo
	}
	return true
}

func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// quote keeps an error about hostile text to one short line.
func quote[T string | []byte](s T) string {
	const most = 96
	if len(s) > most {
		return fmt.Sprintf("%q... (%d bytes)", string(s[:most]), len(s))
	}
	return fmt.Sprintf("%q", string(s))
}

// String returns the reference as text: [Prefix] and 64 lower-case hexadecimal
// digits. The zero Ref prints 64 zeros.
func (r Ref) String() string {
	var buf [TextLen]byte
	return string(r.AppendTo(buf[:0]))
}

// Hex returns the digest alone, 64 lower-case hexadecimal digits: the name of
// the blob's file.
func (r Ref) Hex() string {
	var buf [HexLen]byte
	hex.Encode(buf[:], r.sum[:])
	return string(buf[:])
}

// AppendTo appends what [Ref.String] returns to dst.
func (r Ref) AppendTo(dst []byte) []byte {
	dst = append(dst, Prefix...)
	return hex.AppendEncode(dst, r.sum[:])
}

// Sum returns the digest.
func (r Ref) Sum() [sha256.Size]byte { return r.sum }

// IsZero reports whether r names no blob.
func (r Ref) IsZero() bool { return r == Ref{} }

// Verify reports whether data are the bytes that r names.
func (r Ref) Verify(data []byte) bool { return sha256.Sum256(data) == r.sum }

// MarshalText implements [encoding.TextMarshaler], so that a Ref in JSON is the
// string that [Ref.String] returns. It never fails; a field that may hold no
// reference wants `omitzero`.
func (r Ref) MarshalText() ([]byte, error) { return r.AppendTo(nil), nil }

// AppendText implements [encoding.TextAppender]. It never fails.
func (r Ref) AppendText(dst []byte) ([]byte, error) { return r.AppendTo(dst), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] with the grammar of
// [Parse]. On an error r is unchanged.
func (r *Ref) UnmarshalText(text []byte) error {
	parsed, err := parse(text)
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}
