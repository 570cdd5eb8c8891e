package redact

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
)

// matcher finds where something may begin by the first three bytes of all prefixes and values: one multiplication and one
// look at a table of 8 KiB for each byte of a stream. What stands there is then compared.
type matcher struct {
	grams  [1 << 11]uint32       // a bit for each hash of three bytes
	starts map[uint32][]beginner // by three bytes, in the order in which they are tried
	first  class                 // first bytes
	pairs  map[[2]byte]bool      // first two bytes
}

// beginner is something that begins with three bytes.
type beginner struct {
	form  *form // of a value; else shape
	shape *shape
	url   bool
	key   bool
}

func gram(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
}

func hash(g uint32) uint32 { return g * 0x9e3779b1 >> 16 }

const (
	urlBegins = "://"
	keyBegins = "-----BEGIN "
)

// ruled is the matcher of the rules alone. It is made when it is first needed.
var ruled = sync.OnceValue(func() *matcher {
	m := &matcher{starts: map[uint32][]beginner{}, pairs: map[[2]byte]bool{}}
	m.add(keyBegins, beginner{key: true})
	m.add(urlBegins, beginner{url: true})
	for i := range shapes() {
		s := &shapes()[i]
		m.add(s.prefix, beginner{shape: s})
	}
	return m
})

func newMatcher(values []string) *matcher {
	values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return len(v) < MinSecret || inMark(v) })
	if len(values) == 0 {
		return ruled()
	}
	slices.Sort(values)
	var all []*form
	for _, v := range slices.Compact(values) {
		all = append(all, forms(v)...)
	}
	// The longest first, so that of two that begin alike the whole one is replaced.
	slices.SortFunc(all, func(a, b *form) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), cmp.Compare(a.text, b.text))
	})
	m := &matcher{starts: map[uint32][]beginner{}, pairs: map[[2]byte]bool{}}
	for _, f := range all {
		for _, begins := range f.begins() {
			m.add(begins, beginner{form: f})
		}
	}
	rules := ruled()
	for g, list := range rules.starts {
		m.starts[g] = append(m.starts[g], list...)
	}
	for i, bits := range rules.grams {
		m.grams[i] |= bits
	}
	for i, in := range rules.first {
		m.first[i] = m.first[i] || in
	}
	for p := range rules.pairs {
		m.pairs[p] = true
	}
	return m
}

// inMark reports whether a value stands in what takes the place of secrets, which would be replaced for ever.
func inMark(value string) bool {
	return slices.ContainsFunc(Kinds(), func(kind string) bool { return strings.Contains("[redacted:"+kind+":", value) })
}

func (m *matcher) add(begins string, b beginner) {
	g := gram([]byte(begins[:3]))
	h := hash(g)
	m.grams[h>>5] |= 1 << (h & 31)
	m.starts[g] = append(m.starts[g], b)
	m.first[begins[0]] = true
	m.pairs[[2]byte{begins[0], begins[1]}] = true
}

// next returns where in b, from i on, something may begin. At the end of b, where there are fewer than three bytes, it returns
// where they may be the beginning of one, and else len(b).
func (m *matcher) next(b []byte, i int) int {
	for ; i+4 <= len(b); i++ {
		h := hash(binary.LittleEndian.Uint32(b[i:]) & 0xffffff)
		if m.grams[h>>5&(1<<11-1)]&(1<<(h&31)) != 0 {
			return i
		}
	}
	for ; i < len(b); i++ {
		switch left := b[i:]; {
		case len(left) >= 3:
			h := hash(gram(left))
			if m.grams[h>>5&(1<<11-1)]&(1<<(h&31)) != 0 {
				return i
			}
		case len(left) == 2 && m.pairs[[2]byte{left[0], left[1]}], len(left) == 1 && m.first[left[0]]:
			return i
		}
	}
	return len(b)
}

// verdict is what can be said of a place.
type verdict uint8

const (
	nothing verdict = iota
	unsure          // it depends on what comes
	found
)

// find is a secret.
type find struct {
	kind     string
	from, to int    // of the secret, in the text that was looked at
	rest     *class // what follows of these bytes belongs to it too
	form     *form  // of a value
}

// at says what begins at i. before are the two bytes before b, for an i of 0 or 1. whole says that nothing comes behind b.
func (m *matcher) at(b []byte, i int, before [2]byte, whole bool) (find, verdict) {
	left := b[i:]
	if len(left) < 3 {
		if whole {
			return find{}, nothing
		}
		return find{}, unsure
	}
	for _, c := range m.starts[gram(left)] {
		var f find
		var v verdict
		switch {
		case c.form != nil:
			f = find{kind: KindVariable, form: c.form}
			f.to, v = c.form.match(left, whole)
		case !bounded(b, i, before, c):
		case c.url:
			f, v = urlPassword(left, whole)
		case c.key:
			f, v = privateKey(left, whole)
		default:
			f, v = c.shape.match(left, whole)
		}
		if v != nothing {
			f.from += i
			f.to += i
			return f, v
		}
	}
	return find{}, nothing
}

// startsWith compares the beginning of b.
func startsWith(b []byte, with string, whole bool) verdict {
	n := min(len(b), len(with))
	switch {
	case string(b[:n]) != with[:n]:
		return nothing
	case n == len(with):
		return found
	case whole:
		return nothing
	}
	return unsure
}

// bounded reports whether what is before i lets a token, a URL or a key begin there. A token is no part of a longer word, where an
// escape such as \n ends one.
func bounded(b []byte, i int, before [2]byte, c beginner) bool {
	look := func(k int) byte { // k bytes before i
		if i >= k {
			return b[i-k]
		}
		return before[2+i-k]
	}
	prev := look(1)
	switch {
	case c.key:
		return true
	case c.url:
		return alnum[prev]
	case !word[c.shape.prefix[0]]:
		return true
	case !word[prev]:
		return true
	}
	return look(2) == '\\' && (prev == 'n' || prev == 't' || prev == 'r')
}

// match matches a shape at the beginning of b.
func (s *shape) match(b []byte, whole bool) (find, verdict) {
	if v := startsWith(b, s.prefix, whole); v != found {
		return find{}, v
	}
	at := len(s.prefix)
	var rest *class
	for k, p := range s.parts {
		if p.class == nil {
			if v := startsWith(b[at:], p.text, whole); v != found {
				return find{}, v
			}
			at += len(p.text)
			continue
		}
		n := 0
		for n < p.most && at+n < len(b) && p.class[b[at+n]] {
			n++
		}
		switch {
		case n < p.most && at+n == len(b) && !whole:
			return find{}, unsure
		case n < p.least:
			return find{}, nothing
		}
		at += n
		if k < len(s.parts)-1 {
			continue
		}
		switch {
		case p.open():
			if n == p.most {
				rest = p.class
			}
		case at < len(b) && word[b[at]]: // a longer word than there are tokens
			return find{}, nothing
		case at == len(b) && !whole:
			return find{}, unsure
		}
	}
	if !genuine(b[len(s.prefix):at]) {
		return find{}, nothing
	}
	return find{kind: s.kind, to: at, rest: rest}, found
}

// notInUser and notInPassword end a user and a password; both are short of what RFC 3986 allows, and wide enough for what people
// write.
var (
	notInUser     = notIn("/?#[]@:\"'<>`\\(){}|,; \t\r\n")
	notInPassword = notIn("/?#[]@\"'<>`\\{}| \t\r\n")
)

func notIn(chars string) *class {
	var c class
	for b := range c {
		c[b] = b > ' ' && b != 0x7f && !bytes.Contains([]byte(chars), []byte{byte(b)})
	}
	return &c
}

// urlPassword finds the password of a URL whose :// b begins with.
func urlPassword(b []byte, whole bool) (find, verdict) {
	more := unsure
	if whole {
		more = nothing
	}
	run := func(at int, in *class) int {
		for n := 0; ; n++ {
			if n > maxURL || at+n == len(b) || !in[b[at+n]] {
				return at + n
			}
		}
	}
	if v := startsWith(b, urlBegins, whole); v != found {
		return find{}, v
	}
	at := run(len(urlBegins), notInUser)
	switch {
	case at-len(urlBegins) > maxURL:
		return find{}, nothing
	case at == len(b):
		return find{}, more
	case b[at] != ':':
		return find{}, nothing
	}
	from := at + 1
	to := run(from, notInPassword)
	switch {
	case to-from > maxURL:
		return find{}, nothing
	case to >= len(b)-1: // the @ and the first byte of the host
		if to < len(b) && b[to] != '@' {
			return find{}, nothing
		}
		return find{}, more
	case b[to] != '@' || !alnum[b[to+1]] && b[to+1] != '[' || !password(b[from:to]):
		return find{}, nothing
	}
	return find{kind: KindURL, from: from, to: to}, found
}
