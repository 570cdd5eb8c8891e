package persist

import (
	"bytes"
	"strconv"
	"strings"
)

// maxPointer is the longest JSON pointer that is written. What lies deeper is
// not looked into, which bounds the list for hostile data, and the stack.
const maxPointer = 64 << 10

// appendToken appends one reference token of a JSON pointer (RFC 6901, 3).
func appendToken(dst, name []byte) []byte {
	dst = append(dst, '/')
	if bytes.IndexByte(name, '~') < 0 && bytes.IndexByte(name, '/') < 0 {
		return append(dst, name...)
	}
	for _, c := range name {
		switch c {
		case '~':
			dst = append(dst, '~', '0')
		case '/':
			dst = append(dst, '~', '1')
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// tokenLen is how many bytes appendToken appends.
func tokenLen(name []byte) int {
	return 1 + len(name) + bytes.Count(name, []byte{'~'}) + bytes.Count(name, []byte{'/'})
}

var unescapeToken = strings.NewReplacer("~1", "/", "~0", "~")

// pointers is a tree of JSON pointers, so that one walk over an entry finds all
// that they name. A nil tree is empty.
type pointers struct {
	item int // 1 + index of the item whose pointer ends here, or 0
	next map[string]*pointers
}

// add enters the pointer of an item. Text that is no pointer names nothing; of
// two items with one pointer the first has it.
func (p *pointers) add(pointer string, item int) {
	if !strings.HasPrefix(pointer, "/") {
		return
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = unescapeToken.Replace(token)
		child := p.next[token]
		if child == nil {
			child = new(pointers)
			if p.next == nil {
				p.next = make(map[string]*pointers)
			}
			p.next[token] = child
		}
		p = child
	}
	if p.item == 0 {
		p.item = item + 1
	}
}

func (p *pointers) member(name []byte) *pointers {
	if p == nil {
		return nil
	}
	return p.next[string(name)]
}

func (p *pointers) element(index int) *pointers {
	if p == nil {
		return nil
	}
	var buf [20]byte
	return p.next[string(strconv.AppendInt(buf[:0], int64(index), 10))]
}
