package redact

import "bytes"

// keyBody are the bytes of a private key behind its first lines. A key that does not end is dropped for as long as these
// come.
var keyBody = newClass("A-Za-z0-9+/= \t\r\n\\")

// leastKey is how many bytes of base64 make what follows a first line a key: fewer are a text about keys.
const leastKey = 40

// privateKey finds the key in PEM or PGP armour that b begins with. It ends with its END line; where that does not
// come, with the last line that can be one of a key. Lines end with a newline, or with \n as in a string of JSON.
func privateKey(b []byte, whole bool) (find, verdict) {
	if v := startsWith(b, keyBegins, whole); v != found {
		return find{}, v
	}
	const maxTitle = 64
	title := b[len(keyBegins):min(len(b), len(keyBegins)+maxTitle)]
	end := bytes.Index(title, []byte("-----"))
	switch {
	case end < 0 && len(title) < maxTitle && !whole && !bytes.ContainsAny(title, "\r\n\\"):
		return find{}, unsure
	case end < 0 || !bytes.HasSuffix(title[:end], []byte("PRIVATE KEY")) && !bytes.HasSuffix(title[:end], []byte("PRIVATE KEY BLOCK")):
		return find{}, nothing
	}
	k := keyText{b: b, whole: whole, at: len(keyBegins) + end + 5}
	return k.read()
}

// keyText is a key that is being read, line by line.
type keyText struct {
	b      []byte
	whole  bool
	at     int // where the next line begins
	base64 int // bytes of it so far
	end    int // of what belongs to it
}

func (k *keyText) read() (find, verdict) {
	for {
		line, how := k.line()
		if how == cutOff && len(k.b) < maxKey && !k.whole {
			return find{}, unsure
		}
		if i := bytes.Index(line, []byte("-----END ")); i >= 0 && how != cutOff {
			if k.belongs(line[:i]) {
				k.end = k.at + len(line)
			}
			return k.done()
		}
		if !k.belongs(line) {
			return k.done()
		}
		if text := bytes.TrimRight(line, " \t\r"); len(text) > 0 {
			k.end = k.at + len(text)
		}
		switch k.at += len(line); {
		case k.at >= maxKey && k.base64 >= leastKey:
			return find{kind: KindPrivateKey, to: maxKey, rest: keyBody}, found
		case how == cutOff, how == quoted, k.at >= maxKey:
			return k.done()
		case how == escaped:
			k.at++
		}
		k.at++
	}
}

// lineEnd is how a line ends.
type lineEnd uint8

const (
	cutOff  lineEnd = iota // nothing more is known
	newline                // with its newline, or with the last dash of END
	escaped                // with \n or \r in two characters
	quoted                 // with a quote around the key
)

// line returns the line at k.at.
func (k *keyText) line() ([]byte, lineEnd) {
	left := k.b[k.at:max(k.at, min(len(k.b), maxKey))]
	for i, c := range left {
		switch {
		case c == '\n':
			return left[:i], newline
		case c == '\\' && i+1 < len(left) && (left[i+1] == 'n' || left[i+1] == 'r'):
			return left[:i], escaped
		case c == '-' && bytes.HasSuffix(left[:i], []byte("----")) && bytes.Contains(left[:i], []byte("-----END ")):
			return left[:i+1], newline
		case c == '"' || c == '\'' || c == '`' || c == '<' || c == 0:
			return left[:i], quoted
		}
	}
	return left, cutOff
}

// belongs reports whether a line is one of a key: base64, nothing, or a header before the base64.
func (k *keyText) belongs(line []byte) bool {
	text := bytes.Trim(line, " \t\r")
	for _, c := range text {
		if !base64c[c] {
			return k.base64 < leastKey && bytes.IndexByte(text, ':') > 0 && len(text) < 256
		}
	}
	k.base64 += len(text)
	return true
}

func (k *keyText) done() (find, verdict) {
	if k.base64 < leastKey {
		return find{}, nothing
	}
	return find{kind: KindPrivateKey, to: k.end}, found
}
