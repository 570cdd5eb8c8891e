package artifacts

import (
	"bytes"
	"strconv"
)

// ownLine reads a line of provenance as this package writes it: members in their
// order, no space, no escapes. encoding/json takes four times as long, which counts
// where a thousand of them are read. What is not written like this is no error; it is
// for encoding/json to read.
type ownLine struct {
	rest  []byte
	begun bool
	bad   bool
}

// readSidecar reads the members of s that follow.
func (c *ownLine) readSidecar(s *sidecar) {
	if c.member(`"run":`) {
		s.Run = string(c.text())
	}
	if c.member(`"tool":`) {
		s.Tool = string(c.text())
	}
	c.must(`"created":`)
	c.check(s.Created.UnmarshalText(c.text()))
	c.must(`"host":`)
	s.Host = string(c.text())
	c.must(`"bootId":`)
	s.BootID = string(c.text())
	c.must(`"pid":`)
	s.PID = int(c.number())
	c.must(`"pidStart":`)
	start := c.number()
	s.PIDStart, c.bad = uint64(start), c.bad || start < 0
	if c.member(`"state":`) {
		s.State = State(c.text())
	}
	if c.member(`"note":`) {
		s.Note = string(c.text())
	}
	c.must(`"bytes":`)
	s.Bytes = c.number()
	c.must(`"lines":`)
	s.Lines = c.number()
	if c.member(`"crc32c":`) {
		s.CRC32C = new(crcHex)
		c.check(s.CRC32C.UnmarshalText(c.text()))
	}
}

// parseOwn reads the content of a file of provenance.
func parseOwn(content []byte) (s sidecar, ok bool) {
	c := ownLine{rest: content}
	c.readSidecar(&s)
	return s, c.end()
}

// parseOwnPacked reads a line of a pack.
func parseOwnPacked(line []byte) (p packed, ok bool) {
	c := ownLine{rest: line}
	c.must(`"id":`)
	p.Number = c.number()
	c.readSidecar(&p.sidecar)
	return p, c.end()
}

// member reports whether the next member has that key, and goes behind it.
func (c *ownLine) member(key string) bool {
	before := byte('{')
	if c.begun {
		before = ','
	}
	if len(c.rest) == 0 || c.rest[0] != before {
		return false
	}
	rest, ok := bytes.CutPrefix(c.rest[1:], []byte(key))
	if ok {
		c.rest, c.begun = rest, true
	}
	return ok
}

func (c *ownLine) must(key string) { c.bad = !c.member(key) || c.bad }

func (c *ownLine) check(err error) { c.bad = c.bad || err != nil }

// text is a string of ASCII characters that stand for themselves.
func (c *ownLine) text() []byte {
	if len(c.rest) == 0 || c.rest[0] != '"' {
		c.bad = true
		return nil
	}
	for i, b := range c.rest[1:] {
		switch {
		case b == '"':
			text := c.rest[1 : i+1]
			c.rest = c.rest[i+2:]
			return text
		case b < ' ' || b > '~' || b == '\\':
			c.bad = true
			return nil
		}
	}
	c.bad = true
	return nil
}

// number is an integer, written as strconv does.
func (c *ownLine) number() int64 {
	end := 0
	for end < len(c.rest) && (isDigit(c.rest[end]) || c.rest[end] == '-') {
		end++
	}
	digits := string(c.rest[:end])
	n, err := strconv.ParseInt(digits, 10, 64)
	c.bad = c.bad || err != nil || strconv.FormatInt(n, 10) != digits
	c.rest = c.rest[end:]
	return n
}

// end reports whether that was all, and as it should be.
func (c *ownLine) end() bool { return !c.bad && string(c.rest) == "}\n" }
