package gitignore

import "strings"

// outcome of a match. The last two say that longer texts do not match either.
type outcome int8

const (
	match outcome = iota
	noMatch
	abortAll
	abortToStarStar
)

// at is a byte of s, 0 behind its end, as C has it. Neither patterns nor names hold 0.
func at(s string, i int) byte {
	if i >= 0 && i < len(s) {
		return s[i]
	}
	return 0
}

// wild is dowild of git's wildmatch.c; path is its WM_PATHNAME.
func wild(p, text string, path bool) outcome {
	t := 0
	for i := 0; i < len(p); i, t = i+1, t+1 {
		c, pc := at(text, t), p[i]
		if c == 0 && pc != '*' {
			return abortAll
		}
		switch pc {
		case '?':
			if path && c == '/' {
				return noMatch
			}
		case '*':
			var done bool
			var out outcome
			if i, t, out, done = star(p, i, text, t, path); done {
				return out
			}
		case '[':
			end, matched, ok := class(p, i, c)
			if !ok {
				return abortAll
			}
			if !matched || path && c == '/' {
				return noMatch
			}
			i = end
		case '\\':
			i++
			pc = at(p, i)
			fallthrough
		default:
			if c != pc {
				return noMatch
			}
		}
	}
	if t < len(text) {
		return noMatch
	}
	return match
}

// star matches stars at p[i]. When it is not done the pattern goes on behind p[i], and
// the text behind text[t], a slash.
func star(p string, i int, text string, t int, path bool) (int, int, outcome, bool) {
	begin := i
	i++
	slash := !path // it matches slashes too
	if at(p, i) == '*' {
		for at(p, i) == '*' {
			i++
		}
		if path && (begin == 0 || p[begin-1] == '/') && (i == len(p) || p[i] == '/' || p[i] == '\\' && at(p, i+1) == '/') {
			if at(p, i) == '/' && wild(p[i+1:], text[t:], path) == match {
				return i, t, match, true
			}
			slash = true
		}
	}
	if i == len(p) {
		if !slash && strings.IndexByte(text[t:], '/') >= 0 {
			return i, t, abortToStarStar, true
		}
		return i, t, match, true
	}
	if !slash && p[i] == '/' {
		k := strings.IndexByte(text[t:], '/')
		if k < 0 {
			return i, t, abortAll, true
		}
		return i, t + k, match, false
	}
	for t < len(text) {
		if pc := p[i]; strings.IndexByte(`*?[\`, pc) < 0 {
			for t < len(text) && (slash || text[t] != '/') && text[t] != pc {
				t++
			}
			if at(text, t) != pc {
				if slash {
					return i, t, abortAll, true
				}
				return i, t, abortToStarStar, true
			}
		}
		switch out := rest(p, i, text[t:], path); {
		case out != noMatch:
			if !slash || out != abortToStarStar {
				return i, t, out, true
			}
		case !slash && text[t] == '/':
			return i, t, abortToStarStar, true
		}
		t++
	}
	return i, t, abortAll, true
}

// rest is wild for the pattern from i on, which knows what is before it no more, as in
// git.
func rest(p string, i int, text string, path bool) outcome { return wild(p[i:], text, path) }

// class matches a byte with the bracket expression at p[i] and returns where it ends; ok is
// false for one without an end.
func class(p string, i int, c byte) (end int, matched, ok bool) {
	i++
	negated := at(p, i) == '!' || at(p, i) == '^'
	if negated {
		i++
	}
	prev := byte(0)
	for first := true; first || at(p, i) != ']'; first = false {
		pc := at(p, i)
		switch {
		case pc == 0:
			return i, false, false
		case pc == '\\':
			i++
			if pc = at(p, i); pc == 0 {
				return i, false, false
			}
			matched = matched || c == pc
		case pc == '-' && prev != 0 && at(p, i+1) != 0 && at(p, i+1) != ']':
			i++
			if pc = at(p, i); pc == '\\' {
				i++
				if pc = at(p, i); pc == 0 {
					return i, false, false
				}
			}
			matched = matched || c <= pc && c >= prev
			pc = 0
		case pc == '[' && at(p, i+1) == ':':
			k := strings.IndexByte(p[i+2:], ']')
			if k < 0 {
				return i, false, false
			}
			if k < 1 || p[i+2+k-1] != ':' {
				matched = matched || c == '['
				break
			}
			in, known := posix(p[i+2:i+2+k-1], c)
			if !known {
				return i, false, false
			}
			matched = matched || in
			i += 2 + k
			pc = 0
		default:
			matched = matched || c == pc
		}
		prev = pc
		i++
	}
	return i, matched != negated, true
}

// posix reports whether a byte is in a class such as alpha, in the C locale.
func posix(name string, c byte) (in, known bool) {
	lower, upper, digit := c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9'
	alnum, graph := lower || upper || digit, c > ' ' && c < 0x7f
	switch name {
	case "alnum":
		return alnum, true
	case "alpha":
		return lower || upper, true
	case "blank":
		return c == ' ' || c == '\t', true
	case "cntrl":
		return c < ' ' || c == 0x7f, true
	case "digit":
		return digit, true
	case "graph":
		return graph, true
	case "lower":
		return lower, true
	case "print":
		return graph || c == ' ', true
	case "punct":
		return graph && !alnum, true
	case "space":
		return c == ' ' || c >= '\t' && c <= '\r', true
	case "upper":
		return upper, true
	case "xdigit":
		return digit || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F', true
	}
	return false, false
}
