package internalurl

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// step is one move into a value: to a member or to an element.
type step struct {
	key   string
	index int64
	kind  stepKind
}

type stepKind uint8

const (
	byKey    stepKind = iota // .key, ["key"], [word]: a member of an object
	byIndex                  // [n]: an element of an array
	byEither                 // digits in a path: an element of an array, a member of an object
)

// parseQuery reads a query: an optional '.', then identifiers of ASCII letters,
// digits, '_' and '-' joined by dots, and [n], ["key"], ['key'] or [word]. In
// quotes a backslash keeps the character after it. There are no wildcards, no
// functions and no expressions.
func parseQuery(q string) ([]step, error) {
	var steps []step
	invalid := func(why string) ([]step, error) {
		return nil, sentence(fmt.Sprintf("Invalid query: %s in %.200s", why, q))
	}
	rest := strings.TrimPrefix(q, ".")
	for first := true; rest != ""; first = false {
		switch {
		case rest[0] == '[':
			s, after, why := bracket(rest[1:])
			if why != "" {
				return invalid(why)
			}
			steps, rest = append(steps, s), after
			continue
		case rest[0] == '.' && !first:
			rest = rest[1:]
		case !first:
			return invalid("unexpected token " + token(rest))
		}
		n := wordLen(rest)
		if n == 0 {
			if rest == "" {
				return invalid("nothing after the last '.'")
			}
			return invalid("unexpected token " + token(rest))
		}
		steps, rest = append(steps, step{key: rest[:n]}), rest[n:]
	}
	return steps, nil
}

// token quotes the first character of s.
func token(s string) string {
	for _, r := range s {
		return fmt.Sprintf("%q", r)
	}
	return "end"
}

// wordLen is the length of the identifier that s begins with.
func wordLen(s string) int {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return i
		}
	}
	return len(s)
}

// bracket reads what follows a '[' up to its ']'. A reason instead of "" says
// what is wrong.
func bracket(s string) (st step, rest, why string) {
	if s == "" {
		return st, "", "missing ]"
	}
	if quote := s[0]; quote == '"' || quote == '\'' {
		var key strings.Builder
		for i := 1; i < len(s); i++ {
			switch s[i] {
			case '\\':
				if i++; i == len(s) {
					return st, "", "missing ]"
				}
				key.WriteByte(s[i])
			case quote:
				if rest, ok := strings.CutPrefix(s[i+1:], "]"); ok {
					return step{key: key.String()}, rest, ""
				}
				return st, "", "missing ]"
			default:
				key.WriteByte(s[i])
			}
		}
		return st, "", "missing closing quote"
	}
	word, rest, ok := strings.Cut(s, "]")
	switch {
	case !ok:
		return st, "", "missing ]"
	case word == "":
		return st, "", "empty []"
	case wordLen(word) != len(word):
		return st, "", "unexpected token " + token(word[wordLen(word):])
	}
	if strings.Trim(word, "0123456789") != "" {
		return step{key: word}, rest, ""
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return st, "", "index too large"
	}
	return step{index: n, kind: byIndex}, rest, ""
}

// pathSteps are the steps of agent://<id>/a/0/b: digits are an index where the
// value is an array, everything else is a key.
func pathSteps(path []string) []step {
	steps := make([]step, len(path))
	for i, s := range path {
		steps[i] = step{key: s}
		if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 && strconv.FormatInt(n, 10) == s {
			steps[i] = step{key: s, index: n, kind: byEither}
		}
	}
	return steps
}

// formatSteps writes steps as a query.
func formatSteps(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		switch {
		case s.kind != byKey:
			fmt.Fprintf(&b, "[%d]", s.index)
		case s.key != "" && wordLen(s.key) == len(s.key):
			b.WriteString("." + s.key)
		default:
			b.WriteString("['" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s.key) + "']")
		}
	}
	if b.Len() == 0 {
		return "."
	}
	return b.String()
}

// follow goes from doc, which must be valid JSON, along steps. Only members and
// elements that stand in the text count: there is no length, no constructor. It
// reports how many steps led somewhere; the value is meaningful when all did.
func follow(doc []byte, steps []step) (value ecmajson.Value, done int) {
	value = ecmajson.Value(trimSpace(doc))
	for i, s := range steps {
		var found ecmajson.Value
		switch kind := value.Kind(); {
		case kind == '{' && s.kind != byIndex:
			for k, v := range ecmajson.Object(value) {
				if name, err := ecmajson.Unquote(k); err == nil && string(name) == s.key {
					found = v // of several the last one counts, as in JSON.parse
				}
			}
		case kind == '[' && s.kind != byKey:
			for n, v := range ecmajson.Array(value) {
				if int64(n) == s.index {
					found = v
					break
				}
			}
		}
		if found == nil {
			return nil, i
		}
		value = found
	}
	return value, len(steps)
}

func trimSpace(b []byte) []byte {
	isSpace := func(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}
