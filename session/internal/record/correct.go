package record

import (
	"bytes"
	"hash/crc32"
	"math/bits"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// MaxCorrect is the longest line, in bytes, that [Correct] works on. A line that
// was changed otherwise, edited for instance, passes for one with a flipped bit
// once in 2^32 / (8 * length): once in 2,000 at this length, once in 800,000 for a
// line of 700 bytes.
const MaxCorrect = 256 << 10

// Flip is one bit of a line that is not as it was sealed.
type Flip struct {
	Offset int  // of the byte in the line
	Mask   byte // the bit in the byte
}

// Correct finds the bit whose change makes the crc of a sealed line hold, for a
// line in which one bit flipped, wherever: in what is sealed, in the crc, or in the
// bytes around it. CRC-32C tells all single bits of a line of this length apart. The
// line that results is JSON. It is not changed; ok is false when there is no such
// bit.
func Correct(line []byte) (f Flip, ok bool) {
	n := len(line) - sealLen
	if n < 1 || len(line) > MaxCorrect {
		return Flip{}, false
	}
	body, tail := line[:n], line[n:]
	sum := crc32.Checksum(body, castagnoli)
	if f, ok = differInOneBit(tail, appendSeal(nil, sum)); ok {
		f.Offset += n
	} else {
		_, stored, sealed := cutSeal(append([]byte{'{'}, tail...))
		if !sealed {
			return Flip{}, false
		}
		if f, ok = flipFor(n, sum^stored); !ok {
			return Flip{}, false
		}
	}
	fixed := bytes.Clone(line)
	fixed[f.Offset] ^= f.Mask
	return f, Verify(fixed) == CRCOK && ecmajson.Valid(fixed)
}

// BrokenSeal reports whether a line that has no crc had one before a bit of it, or of
// what stands around it, flipped. Such a line reads as one of another program.
func BrokenSeal(line []byte) bool {
	n := len(line) - sealLen
	if n < 1 || string(line[n:n+2]) != crcPrefix[:2] && string(line[n+3:n+6]) != crcPrefix[3:6] {
		return false // most lines of other programs
	}
	_, ok := Correct(line)
	return ok
}

// flipFor returns the bit, in n bytes, that changes their CRC-32C by syndrome.
func flipFor(n int, syndrome uint32) (Flip, bool) {
	if syndrome == 0 {
		return Flip{}, false
	}
	for at := n - 1; at >= 0; at-- {
		// The change by a bit of the last byte is a power of two in the register; each
		// byte behind it turns the register once more. Here it is turned back.
		i := unshift[syndrome>>24]
		syndrome = (syndrome^castagnoli[i])<<8 | uint32(i)
		if syndrome < 1<<8 && bits.OnesCount32(syndrome) == 1 {
			return Flip{Offset: at, Mask: byte(syndrome)}, true
		}
	}
	return Flip{}, false
}

// unshift maps the highest byte of an entry of the CRC's table to its index.
var unshift = func() (t [256]uint8) {
	for i, v := range castagnoli {
		t[v>>24] = uint8(i)
	}
	return t
}()

// differInOneBit returns the bit in which two texts of one length differ.
func differInOneBit(a, b []byte) (f Flip, ok bool) {
	for i := range a {
		x := a[i] ^ b[i]
		switch {
		case x == 0:
			continue
		case ok || bits.OnesCount8(x) != 1:
			return Flip{}, false
		}
		f, ok = Flip{Offset: i, Mask: x}, true
	}
	return f, ok
}
