package outputsink

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

const (
	eachByte = 0x0101010101010101
	highBits = 0x8080808080808080
)

// dirty returns a word whose highest bit in a byte is set where that byte of x is not clean. Above the first such
// byte there may be bits too many, because a sum carries out of bytes that are not ASCII; below there are none.
func dirty(x uint64) uint64 {
	printable := x + eachByte*(0x80-0x20)                                    // bit set from 0x20 on
	tabOrNewline := (x + eachByte*(0x80-0x09)) &^ (x + eachByte*(0x80-0x0b)) // bit set for 0x09 and 0x0a
	del := x + eachByte                                                      // bit set for 0x7f
	return (^(printable | tabOrNewline) | del | x) & highBits
}

// cleanLen returns how many bytes at the beginning of p are clean: printable ASCII, tab and newline, which a view
// shows as they are. Nearly all output is, so this is the loop the sink's speed hangs on: eight bytes a step.
func cleanLen(p []byte) int {
	i := 0
	for ; len(p)-i >= 32; i += 32 {
		q := p[i : i+32 : i+32]
		a, b := binary.LittleEndian.Uint64(q), binary.LittleEndian.Uint64(q[8:])
		c, d := binary.LittleEndian.Uint64(q[16:]), binary.LittleEndian.Uint64(q[24:])
		if dirty(a)|dirty(b)|dirty(c)|dirty(d) != 0 {
			break
		}
	}
	for ; len(p)-i >= 8; i += 8 {
		if w := dirty(binary.LittleEndian.Uint64(p[i:])); w != 0 {
			return i + bits.TrailingZeros64(w)/8
		}
	}
	for ; i < len(p); i++ {
		if b := p[i]; (b < 0x20 && b != '\t' && b != '\n') || b >= 0x7f {
			break
		}
	}
	return i
}

// shortLines returns the length of the longest beginning of p that consists of whole lines of at most limit bytes
// (newlines not counted). It looks for the last newline of each stretch of limit+1 bytes and goes on behind it, so
// that most of p is never looked at.
func shortLines(p []byte, limit int) int {
	at := 0
	for at < len(p) {
		i := bytes.LastIndexByte(p[at:min(at+limit+1, len(p))], '\n')
		if i < 0 {
			break
		}
		at += i + 1
	}
	return at
}
