package record

import (
	"crypto/rand"
	"encoding/hex"
	"time"
)

// idLen is the length of the ids that NewID makes.
const idLen = 24

// MaxIDLen is the longest id, in bytes, that may be used outside the log: in a
// URL, a file name, a message to a user. The log itself keeps ids of any length.
const MaxIDLen = 256

// NewID returns an id for a new entry: 24 lower-case hex digits, 48 bits of Unix
// time in milliseconds and 48 random ones.
//
// A log is appended to without having been read whole, so an id cannot be
// checked against all others: 48 random bits within one millisecond make a
// collision impossible in practice. The clock is the machine's own and not one
// that can be set by options, since a stopped clock would leave the random half
// alone. Ids made in order sort in order only as far as the clock does.
func NewID() string {
	var b [idLen / 2]byte
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	rand.Read(b[6:]) // never fails: it ends the program when the system has no randomness
	var text [idLen]byte
	hex.Encode(text[:], b[:])
	return string(text[:])
}

// ValidID reports whether an id may be used outside the log: 1 to [MaxIDLen]
// bytes. What characters a place allows is that place's rule.
func ValidID(id string) bool { return id != "" && len(id) <= MaxIDLen }
