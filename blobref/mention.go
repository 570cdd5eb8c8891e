package blobref

// maxAmbiguous is the longest run of hexadecimal digits in which every digest that
// may stand in it counts: text around a reference may add some, an escape such as \b
// or \u00e9 in front of it, a word behind.
const maxAmbiguous = HexLen + 16

// AppendMentions appends every digest that b may mention, in any form: a reference,
// a blob://sha256/ URL, a file name, a bare digest in a list; within JSON strings,
// damaged lines, or anything else. It finds too much rather than too little: each
// run of 64 lower-case hexadecimal digits counts, and of a longer one its beginning
// and its end. A digest may come more than once.
//
// It reads about one byte in 64. What begins in b and goes on behind it is found only
// if all 64 digits are in b.
func AppendMentions(dst []Ref, b []byte) []Ref {
	for last := HexLen - 1; last < len(b); {
		// As Boyer and Moore do: the last byte of a window decides how far to go.
		i := last
		for i > last-HexLen && hexDigit[b[i]] {
			i--
		}
		if i > last-HexLen {
			last = i + HexLen
			continue
		}
		end := last + 1
		for end < len(b) && hexDigit[b[end]] {
			end++
		}
		dst = appendRun(dst, b[last+1-HexLen:end])
		last = end + HexLen
	}
	return dst
}

// appendRun appends what a run of at least 64 digits may mention.
func appendRun(dst []Ref, run []byte) []Ref {
	step := 1
	if len(run) > maxAmbiguous {
		step = len(run) - HexLen
	}
	for at := 0; at+HexLen <= len(run); at += step {
		var r Ref
		if decode(&r.sum, run[at:at+HexLen]) {
			dst = append(dst, r)
		}
	}
	return dst
}

var hexDigit = func() (set [256]bool) {
	for _, c := range []byte("0123456789abcdef") {
		set[c] = true
	}
	return set
}()
