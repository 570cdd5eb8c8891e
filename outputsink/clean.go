package outputsink

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

const (
	eachByte = 0x0101010101010101
	highBits = 0x8080808080808080
)

// classify returns two words: the highest bit of a byte of good is set where that byte of x is a tab, a newline or
// from 0x20 on, that of bad where it is from 0x7f on. From the first byte that is not ASCII on they may be wrong,
// because sums carry out of it.
func classify(x uint64) (good, bad uint64) {
	return (x + from20) ^ (x + from09) ^ (x + from0b), (x + eachByte) | x
}

const (
	from20 = eachByte * (0x80 - 0x20)
	from09 = eachByte * (0x80 - 0x09)
	from0b = eachByte * (0x80 - 0x0b)
)

// The same in variables, which the compiler keeps in registers over the loop below:
// constants of 64 bits it loads anew for every use, and the loop takes a tenth longer.
var add20, add09, add0b, add01 uint64 = from20, from09, from0b, eachByte

// dirty returns a word whose lowest set bit is the highest bit of the first byte of x that is not clean; 0 if all
// are.
func dirty(x uint64) uint64 {
	good, bad := classify(x)
	return (^good | bad) & highBits
}

// cleanLen returns how many bytes at the beginning of p are clean: printable ASCII, tab and newline, which a view
// shows as they are. Nearly all output is, so this is the loop the sink's speed hangs on: eight bytes a step.
func cleanLen(p []byte) int {
	i := 0
	if len(p) >= 8 { // between escape sequences and accents there is often no more
		if w := dirty(binary.LittleEndian.Uint64(p)); w != 0 {
			return bits.TrailingZeros64(w) / 8
		}
		i = 8
	}
	c20, c09, c0b, c01 := add20, add09, add0b, add01
	for ; len(p)-i >= 32; i += 32 {
		q := p[i : i+32 : i+32]
		x1, x2 := binary.LittleEndian.Uint64(q), binary.LittleEndian.Uint64(q[8:])
		x3, x4 := binary.LittleEndian.Uint64(q[16:]), binary.LittleEndian.Uint64(q[24:])
		good := ((x1 + c20) ^ (x1 + c09) ^ (x1 + c0b)) & ((x2 + c20) ^ (x2 + c09) ^ (x2 + c0b)) &
			((x3 + c20) ^ (x3 + c09) ^ (x3 + c0b)) & ((x4 + c20) ^ (x4 + c09) ^ (x4 + c0b))
		bad := (x1 + c01) | x1 | (x2 + c01) | x2 | (x3 + c01) | x3 | (x4 + c01) | x4
		if (^good|bad)&highBits != 0 {
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

// textLen returns the length of the beginning of p that is text: clean ASCII and whole, valid characters, which
// C1 controls are not.
func textLen(p []byte) int {
	i := 0
	for {
		i += cleanLen(p[i:])
		start := i
		for i < len(p) && p[i] >= utf8.RuneSelf {
			n := runeLen(p[i:])
			if n == 0 {
				return i
			}
			i += n
		}
		if i == start {
			return i
		}
	}
}

// runeLen returns the length of the character that p begins with, which is not ASCII; 0 if it is invalid, cut or a
// C1 control. It is utf8.DecodeRune for the two and three bytes that nearly all have, without decoding them.
func runeLen(p []byte) int {
	if len(p) >= 3 {
		switch b := p[0]; {
		case b < 0xc2:
			return 0
		case b < 0xe0:
			if p[1]&0xc0 == 0x80 && (b > 0xc2 || p[1] >= 0xa0) {
				return 2
			}
			return 0
		case b > 0xe0 && b < 0xf0 && b != 0xed:
			if p[1]&0xc0 == 0x80 && p[2]&0xc0 == 0x80 {
				return 3
			}
			return 0
		}
	}
	r, n := utf8.DecodeRune(p)
	if n == 1 || r < 0xa0 {
		return 0
	}
	return n
}

// lastNewline returns the index of the last newline in p, or -1. It is bytes.LastIndexByte, eight bytes a step.
func lastNewline(p []byte) int {
	const low = highBits - eachByte // 0x7f in each byte
	for len(p) >= 8 {
		x := binary.LittleEndian.Uint64(p[len(p)-8:]) ^ eachByte*'\n'
		if zero := ^((x&low + low) | x | low); zero != 0 {
			return len(p) - 1 - bits.LeadingZeros64(zero)/8
		}
		p = p[:len(p)-8]
	}
	return bytes.LastIndexByte(p, '\n')
}

// shortLines returns the length of the longest beginning of p that consists of whole lines of at most limit bytes
// (newlines not counted). It looks for the last newline of each stretch of limit+1 bytes and goes on behind it, so
// that most of p is never looked at.
func shortLines(p []byte, limit int) int {
	at := 0
	for at < len(p) {
		i := lastNewline(p[at:min(at+limit+1, len(p))])
		if i < 0 {
			break
		}
		at += i + 1
	}
	return at
}
