package search

import (
	"bytes"
	"math/bits"
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Sizes of tokens. They are part of the index's format: see formatVersion.
const (
	maxToken = 24 // bytes of a run that its token keeps
	longRun  = 64 // bytes beyond which a run is data (a hash, base64) and has no parts
	shortRun = 2  // characters up to which a word is found whole only, not as a beginning
	// maxChanges is how often letters and digits may change in a run for numbers to
	// be parts of it.
	maxChanges = 2
)

// folded is a text as it is compared: in Unicode's compatibility form (NFKC), case
// folded, with the places where a word may begin.
//
// Words are found at the beginning of a run of letters and digits, and at the
// beginning of its parts: Pool and Timeout in ConnectionPoolTimeout, Server in
// HTTPServer, 404 in error404. In scripts written without spaces every character
// is such a place.
type folded struct {
	text   []byte
	begins []uint64 // a bit for each byte of text
	runs   []run
	plain  bool // the text was ASCII

	classes []class // for foldUnicode
	places  []int32
}

// run is a stretch of letters and digits, or one of CJK characters.
type run struct {
	from, to int32
	cjk      bool
	cut      bool // the text begins in the middle of it
}

type class uint8

const (
	separator class = iota
	lower           // and letters without case, and marks
	upper
	digit
	cjk
)

var asciiClass, asciiFold = func() (c [256]class, f [256]byte) {
	for i := range 256 {
		f[i] = byte(i)
		switch {
		case 'a' <= i && i <= 'z':
			c[i] = lower
		case 'A' <= i && i <= 'Z':
			c[i], f[i] = upper, byte(i)+'a'-'A'
		case '0' <= i && i <= '9':
			c[i] = digit
		}
	}
	return c, f
}()

func classOf(r rune) class {
	switch {
	case r < utf8.RuneSelf:
		return asciiClass[r]
	case r == utf8.RuneError:
		return separator
	case unicode.IsLetter(r) || unicode.IsMark(r):
		switch {
		case isCJK(r):
			return cjk
		case unicode.IsUpper(r):
			return upper
		}
		return lower
	case unicode.IsNumber(r):
		if isCJK(r) {
			return cjk
		}
		return digit
	}
	return separator
}

// isCJK reports whether r is of a script that is written without spaces between
// words, or, as Korean, with words inside of words.
func isCJK(r rune) bool {
	switch {
	case r < 0x0E00:
		return false
	case r <= 0x0EFF, // Thai, Lao
		0x1000 <= r && r <= 0x109F,   // Myanmar
		0x1100 <= r && r <= 0x11FF,   // Hangul Jamo
		0x1780 <= r && r <= 0x17FF,   // Khmer
		0x2E80 <= r && r <= 0xA4CF,   // Han, Kana, Bopomofo, Yi
		0xA960 <= r && r <= 0xA97F,   // Hangul Jamo, extended
		0xAC00 <= r && r <= 0xD7FF,   // Hangul
		0xF900 <= r && r <= 0xFAFF,   // Han, for compatibility
		0x1AFF0 <= r && r <= 0x1B16F, // Kana, extended
		0x20000 <= r && r <= 0x3FFFF: // Han, extended
		return true
	}
	return false
}

// foldRune folds the case of one character. No character outside of ASCII becomes
// one inside it, so what is looked for in ASCII is found in the bytes of a file.
func foldRune(r rune) rune {
	if r < utf8.RuneSelf {
		return rune(asciiFold[r])
	}
	if f := unicode.ToLower(unicode.ToUpper(r)); f >= utf8.RuneSelf {
		return f
	}
	return r
}

// fold analyses src. cut says that src begins in the middle of a line. The slices
// of f are used again.
func (f *folded) fold(src []byte, cut bool) {
	f.text, f.runs = slices.Grow(f.text[:0], len(src)), f.runs[:0]
	f.plain, f.begins = true, f.begins[:0]
	// Lines that are all ASCII are most, and folded in a fraction of the time.
	for len(src) > 0 {
		n := asciiLen(src)
		if n < len(src) {
			n = bytes.LastIndexByte(src[:n], '\n') + 1
		}
		if n > 0 {
			f.foldASCII(src[:n], cut && len(f.text) == 0)
			src = src[n:]
			continue
		}
		f.plain = false
		if n = bytes.IndexByte(src, '\n') + 1; n == 0 {
			n = len(src)
		}
		f.foldUnicode(src[:n], cut && len(f.text) == 0)
		src = src[n:]
	}
}

// foldASCII appends the folded form of lines.
func (f *folded) foldASCII(src []byte, cut bool) {
	base := len(f.text)
	f.text = slices.Grow(f.text, len(src))[:base+len(src)]
	text := f.text[base:]
	f.reserve(len(f.text))
	for i := 0; i < len(src); {
		if asciiClass[src[i]] == separator {
			text[i] = src[i]
			i++
			continue
		}
		from := i
		kinds := 0
		for i < len(src) {
			c := asciiClass[src[i]]
			if c == separator {
				break
			}
			kinds |= 1 << c
			text[i] = asciiFold[src[i]]
			i++
		}
		f.addRun(run{from: int32(base + from), to: int32(base + i), cut: cut && from == 0})
		if i-from <= longRun && kinds&(kinds-1) != 0 { // a part begins where the kind changes
			for parts := asciiParts(src[from:i]); parts != 0; parts &= parts - 1 {
				f.mark(base + from + bits.TrailingZeros64(parts))
			}
		}
	}
}

// asciiLen is how many bytes b has before the first one outside of ASCII.
func asciiLen(b []byte) int {
	n := 0
	for ; len(b)-n >= 8; n += 8 {
		if high := le64(b[n:]) & 0x8080808080808080; high != 0 {
			return n + bits.TrailingZeros64(high)/8
		}
	}
	for n < len(b) && b[n] < utf8.RuneSelf {
		n++
	}
	return n
}

// reserve makes room for the bits of n bytes of text.
func (f *folded) reserve(n int) {
	old, words := len(f.begins), (n+63)/64
	f.begins = slices.Grow(f.begins, max(words-old, 0))[:max(words, old)]
	clear(f.begins[old:])
}

func (f *folded) mark(i int)       { f.begins[i>>6] |= 1 << (i & 63) }
func (f *folded) begin(i int) bool { return f.begins[i>>6]&(1<<(i&63)) != 0 }
func (f *folded) ends(i int) bool  { return i >= len(f.text) || f.begin(i) || f.separates(i) }
func (f *folded) of(r run) []byte  { return f.text[r.from:r.to] }

func (f *folded) addRun(r run) {
	f.runs = append(f.runs, r)
	if !r.cut {
		f.mark(int(r.from))
	}
}

// separates reports whether the character at i belongs to no run.
func (f *folded) separates(i int) bool {
	if c := f.text[i]; c < utf8.RuneSelf {
		return asciiClass[c] == separator
	}
	r, _ := utf8.DecodeRune(f.text[i:])
	return classOf(r) == separator
}

// asciiParts has a bit for each place in a run, behind its first character, where a
// part of it begins. The run has at most longRun bytes.
func asciiParts(run []byte) uint64 {
	var parts, numbers uint64
	changes := 0 // between letters and digits: an identifier has few, a hash many
	prev := asciiClass[run[0]]
	for i := 1; i < len(run); i++ {
		c := asciiClass[run[i]]
		if c == prev {
			continue
		}
		switch {
		case c == digit || prev == digit:
			changes++
			numbers |= 1 << i
			if c == upper {
				parts |= 1 << i
			}
		case c == upper:
			parts |= 1 << i
		case i > 1:
			parts |= 1 << (i - 1) // the S of HTTPServer
		}
		prev = c
	}
	if changes <= maxChanges {
		parts |= numbers
	}
	return parts
}

// foldUnicode appends the folded form of lines that are not all ASCII.
func (f *folded) foldUnicode(src []byte, cut bool) {
	base := len(f.text)
	if !norm.NFKC.IsNormal(src) {
		src = norm.NFKC.Bytes(src) // up to eleven times as long
	}
	f.reserve(base + 2*len(src)) // no character's other case is more than twice as long
	var (
		classes = f.classes[:0] // of the characters of the run
		places  = f.places[:0]  // where they are in text
		from    = -1
		kind    class
	)
	flush := func() {
		if from < 0 {
			return
		}
		r := run{from: int32(from), to: int32(len(f.text)), cjk: kind == cjk, cut: cut && from == base}
		f.addRun(r)
		switch {
		case r.cjk:
			for _, p := range places {
				f.mark(int(p))
			}
		case int(r.to-r.from) <= longRun:
			f.markPlaces(classes, places)
		}
		from, classes, places = -1, classes[:0], places[:0]
	}
	for len(src) > 0 {
		r, size := utf8.DecodeRune(src)
		c := classOf(r)
		if r == utf8.RuneError && size == 1 {
			c = separator
		}
		if from >= 0 && (c == separator || (kind == cjk) != (c == cjk)) {
			flush()
		}
		if c != separator {
			if from < 0 {
				from, kind = len(f.text), lower
				if c == cjk {
					kind = cjk
				}
			}
			classes, places = append(classes, c), append(places, int32(len(f.text)))
		}
		if r == utf8.RuneError && size == 1 {
			f.text = append(f.text, src[0])
		} else {
			f.text = utf8.AppendRune(f.text, foldRune(r))
		}
		src = src[size:]
	}
	flush()
	f.classes, f.places = classes[:0], places[:0]
}

// markPlaces is asciiParts for characters of any length.
func (f *folded) markPlaces(classes []class, places []int32) {
	changes := 0
	for i := 1; i < len(classes); i++ {
		c, prev := classes[i], classes[i-1]
		if (c == digit) != (prev == digit) {
			changes++
		}
		if c == upper && prev != upper {
			f.mark(int(places[i]))
		}
		if c == lower && prev == upper && i > 1 {
			f.mark(int(places[i-1]))
		}
	}
	if changes > maxChanges {
		return
	}
	for i := 1; i < len(classes); i++ {
		if (classes[i] == digit) != (classes[i-1] == digit) {
			f.mark(int(places[i]))
		}
	}
}

// cutToken is as much of a token as the index keeps, in whole characters.
func cutToken(b []byte) []byte {
	if len(b) <= maxToken {
		return b
	}
	n := maxToken
	for n > 0 && !utf8.RuneStart(b[n]) {
		n--
	}
	return b[:n]
}

// tokens hands every token of the text to each. A token is what follows a place
// where a word may begin: to the end of its run, or, of CJK, two characters. Where a
// part of one or two characters ends before its run does, it is a token too.
func (f *folded) tokens(each func(token []byte)) {
	for _, r := range f.runs {
		if r.cjk {
			f.cjkTokens(r, each)
			continue
		}
		text := f.of(r)
		if !r.cut {
			each(cutToken(text))
		}
		if len(text) > longRun {
			continue
		}
		begins := f.beginsOf(r)
		if begins&^1 == 0 {
			continue // it has no parts
		}
		for left := begins; left != 0; left &= left - 1 {
			i := bits.TrailingZeros64(left)
			if i > 0 {
				each(cutToken(text[i:]))
			}
			for n, end := 0, i; n < shortRun; n++ {
				_, size := utf8.DecodeRune(text[end:])
				if end += size; end >= len(text) {
					break
				}
				if begins&(1<<end) != 0 {
					each(text[i:end])
				}
			}
		}
	}
}

// beginsOf has a bit for each place in a run of at most longRun bytes where a word may
// begin.
func (f *folded) beginsOf(r run) uint64 {
	word, bit := r.from>>6, r.from&63
	b := f.begins[word] >> bit
	if bit > 0 && int(word)+1 < len(f.begins) {
		b |= f.begins[word+1] << (64 - bit)
	}
	if n := r.to - r.from; n < 64 {
		b &= 1<<n - 1
	}
	return b
}

func (f *folded) cjkTokens(r run, each func(token []byte)) {
	text := f.of(r)
	for len(text) > 0 {
		_, size := utf8.DecodeRune(text)
		next := 0
		if size < len(text) {
			_, next = utf8.DecodeRune(text[size:])
		}
		each(text[:size+next])
		text = text[size:]
	}
}

// index finds a literal from the byte at on, where it may begin, or -1.
func (f *folded) index(l *literal, at int) int {
	for at <= len(f.text)-len(l.text) {
		i := bytes.Index(f.text[at:], l.text)
		if i < 0 {
			return -1
		}
		at += i
		if (!l.anchored || f.begin(at)) && (!l.short || f.ends(at+len(l.text))) {
			return at
		}
		at++
	}
	return -1
}
