package ecmajson

import (
	"bytes"
	"math"
	"strconv"
)

// AppendNumber appends f as ECMAScript's Number::toString writes it. What JSON
// has no number for, NaN and the infinities, becomes null, as in JSON.stringify.
func AppendNumber(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	var buf [32]byte
	d := parseDecimal(strconv.AppendFloat(buf[:0], f, 'e', -1, 64))
	return d.append(dst)
}

// appendNumber appends the number literal lit as JSON.stringify(JSON.parse(lit))
// would print it if that denotes the same decimal number, else lit itself.
func appendNumber(dst, lit []byte) []byte {
	if normalNumber(lit) {
		return append(dst, lit...)
	}
	var out [32]byte
	if n, ok := doubleForm(out[:0], lit); ok {
		return append(dst, n...)
	}
	return append(dst, lit...)
}

// normalNumber reports whether lit is in normal form already.
//
// A decimal of at most 15 significant digits, well inside the range of a
// double, is the shortest one that gives its double: no two such decimals share
// a double. Written without an exponent or superfluous zeros it is therefore
// what ECMAScript prints, and no arithmetic is needed to know it.
func normalNumber(lit []byte) bool {
	digits, rest := 0, lit
	if rest[0] == '-' {
		rest = rest[1:]
		if len(rest) == 1 && rest[0] == '0' {
			return false // prints as 0
		}
	}
	whole := skipDigits(rest, 0)
	if whole == len(rest) {
		if whole <= 15 {
			return true
		}
	} else if rest[whole] == '.' && rest[len(rest)-1] != '0' {
		digits = len(rest) - 1
		if rest[0] == '0' {
			digits-- // more leading zeros would only make it fewer
		}
		small := rest[0] == '0' && len(rest) > 7 && string(rest[2:8]) == "000000"
		if digits <= 15 && !small && skipDigits(rest, whole+1) == len(rest) {
			return true
		}
	}
	var out [32]byte
	n, ok := doubleForm(out[:0], lit)
	return !ok || bytes.Equal(n, lit)
}

// doubleForm appends what ECMAScript prints for the double nearest to lit; ok
// is false when that is a different decimal number.
func doubleForm(dst, lit []byte) (_ []byte, ok bool) {
	f, err := strconv.ParseFloat(string(lit), 64)
	if err != nil {
		return dst, false // out of range: JSON.stringify would write null
	}
	var buf [32]byte
	got := parseDecimal(strconv.AppendFloat(buf[:0], f, 'e', -1, 64))
	if !got.equal(parseDecimal(lit)) {
		return dst, false
	}
	return got.append(dst), true
}

// decimal is a number literal taken apart: its value is 0.d1d2d3... × 10^point,
// where the digits are those of whole and frac in a row, without the zeros
// before and behind them.
type decimal struct {
	negative    bool
	whole, frac []byte // significant digits before and after the literal's point
	point       int
}

func parseDecimal(lit []byte) (d decimal) {
	if lit[0] == '-' {
		d.negative, lit = true, lit[1:]
	}
	n := skipDigits(lit, 0)
	d.whole, lit = lit[:n], lit[n:]
	if len(lit) > 0 && lit[0] == '.' {
		n = skipDigits(lit, 1)
		d.frac, lit = lit[1:n], lit[n:]
	}
	if len(lit) > 0 {
		d.point = exponent(lit[1:])
	}
	d.whole = bytes.TrimLeft(d.whole, "0")
	d.point += len(d.whole)
	if len(d.whole) == 0 {
		frac := bytes.TrimLeft(d.frac, "0")
		d.point -= len(d.frac) - len(frac)
		d.frac = frac
	}
	d.frac = bytes.TrimRight(d.frac, "0")
	if len(d.frac) == 0 {
		d.whole = bytes.TrimRight(d.whole, "0")
	}
	if d.len() == 0 {
		return decimal{} // zero; -0 prints as 0
	}
	return d
}

// exponent reads a signed integer, limited to what no double comes near.
func exponent(s []byte) int {
	const limit = 1 << 26
	negative := s[0] == '-'
	if negative || s[0] == '+' {
		s = s[1:]
	}
	e := 0
	for _, c := range s {
		e = min(e*10+int(c-'0'), limit)
	}
	if negative {
		return -e
	}
	return e
}

func (d decimal) len() int { return len(d.whole) + len(d.frac) }

func (d decimal) digit(i int) byte {
	if i < len(d.whole) {
		return d.whole[i]
	}
	return d.frac[i-len(d.whole)]
}

func (d decimal) equal(e decimal) bool {
	if d.negative != e.negative || d.point != e.point || d.len() != e.len() {
		return false
	}
	for i := range d.len() {
		if d.digit(i) != e.digit(i) {
			return false
		}
	}
	return true
}

// append is Number::toString (ECMA-262, 6.1.6.1.20) for digits already known.
func (d decimal) append(dst []byte) []byte {
	k, n := d.len(), d.point
	if k == 0 {
		return append(dst, '0')
	}
	if d.negative {
		dst = append(dst, '-')
	}
	switch {
	case 0 < n && n <= 21:
		for i := range max(k, n) {
			if i == n {
				dst = append(dst, '.')
			}
			if i < k {
				dst = append(dst, d.digit(i))
			} else {
				dst = append(dst, '0')
			}
		}
	case -6 < n && n <= 0:
		dst = append(dst, "0.000000"[:2-n]...)
		for i := range k {
			dst = append(dst, d.digit(i))
		}
	default:
		dst = append(dst, d.digit(0))
		for i := 1; i < k; i++ {
			if i == 1 {
				dst = append(dst, '.')
			}
			dst = append(dst, d.digit(i))
		}
		dst = append(dst, 'e')
		if n > 0 {
			dst = append(dst, '+')
		}
		dst = strconv.AppendInt(dst, int64(n-1), 10)
	}
	return dst
}
