package persist

import (
	"bytes"
	"strconv"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/ecmajson"
)

// listMember is the name of the member that holds the list of items.
const listMember = "externalized"

// form says how the string that an item names comes back.
type form uint8

const (
	formCut form = iota
	formBase64
	formLiteral
	formOwn
)

var forms = map[string]form{"base64": formBase64, "literal": formLiteral, "own": formOwn}

// item is one element of the list. The package comment shows their text.
type item struct {
	form      form
	path      []byte // JSON pointer, WTF-8
	ref       blobref.Ref
	bytes     int
	lineCount []byte // number literal, formCut only
	encoding  encoding
	value     span   // of the entry's own member, formOwn only
	text      []byte // as it stands in the line
}

// append appends the item's text.
func (it *item) append(dst []byte) []byte {
	dst = ecmajson.QuoteWTF8(append(dst, `{"path":`...), it.path)
	if it.form != formLiteral {
		dst = append(it.ref.AppendTo(append(dst, `,"ref":"`...)), '"')
		dst = strconv.AppendInt(append(dst, `,"bytes":`...), int64(it.bytes), 10)
	}
	switch it.form {
	case formLiteral:
		dst = append(dst, `,"form":"literal"`...)
	case formBase64:
		dst = it.encoding.appendMembers(append(dst, `,"form":"base64"`...))
	case formCut:
		if it.lineCount != nil {
			dst = append(append(dst, `,"lineCount":`...), it.lineCount...)
		}
	}
	return append(dst, '}')
}

func (e encoding) appendMembers(dst []byte) []byte {
	if e.url {
		dst = append(dst, `,"alphabet":"url"`...)
	}
	if e.unpadded {
		dst = append(dst, `,"padding":false`...)
	}
	if e.newline != "" {
		dst = strconv.AppendInt(append(dst, `,"wrap":`...), int64(e.wrap), 10)
		dst = ecmajson.AppendString(append(dst, `,"newline":`...), e.newline)
	}
	if e.trailing {
		dst = append(dst, `,"trailing":true`...)
	}
	return dst
}

// list is the member externalized of an entry.
type list struct {
	member span // with the comma that goes with it; empty if there is none
	value  span
	items  []item
	own    *item // the entry has such a member of its own, and this is it
}

// findList finds the member externalized. ours tells whether it is a list of
// items, as far as its shape can tell.
func findList(entry []byte) (l list, ours bool) {
	kept := bytes.IndexByte(entry, '{') + 1 // end of the member before
	for k, v := range ecmajson.Object(entry) {
		from, start := offset(entry, k), offset(entry, v)
		end := start + len(v)
		if k.Is(listMember) {
			l = list{member: span{kept, end}, value: span{start, end}}
			if next := skipSpace(entry, end); next < len(entry) && entry[next] == ',' {
				l.member = span{from, skipSpace(entry, next+1)}
			}
		}
		kept = end
	}
	if l.value.empty() {
		return list{}, false
	}
	return l, l.parse(entry)
}

// offset is where part, a plain reslice of whole, begins in it.
func offset(whole, part []byte) int { return cap(whole) - cap(part) }

// parse reads the items and reports whether all of them are such.
func (l *list) parse(entry []byte) bool {
	text := l.value.of(entry)
	if text[0] != '[' {
		return false
	}
	for _, v := range ecmajson.Array(text) {
		it, ok := parseItem(v, entry)
		if !ok || it.form == formOwn && l.own != nil {
			return false
		}
		if it.form == formOwn {
			l.own = &it
		} else {
			l.items = append(l.items, it)
		}
	}
	return l.own != nil || len(l.items) > 0
}

func parseItem(text, entry []byte) (it item, ok bool) {
	if text[0] != '{' {
		return it, false
	}
	it.text = text
	var hasPath, hasRef bool
	ok = true
	for k, v := range ecmajson.Object(text) {
		s, err := ecmajson.Unquote(v)
		isText := err == nil
		switch {
		case k.Is("path"):
			it.path, hasPath = s, isText
		case k.Is("ref"):
			it.ref, hasRef = parseRef(v)
		case k.Is("bytes"):
			it.bytes, err = strconv.Atoi(string(v))
			ok = ok && err == nil && it.bytes >= 0
		case k.Is("form"):
			var known bool
			it.form, known = forms[string(s)]
			ok = ok && isText && known
		case k.Is("lineCount"):
			it.lineCount = v
			ok = ok && v.Kind() == '0'
		case k.Is("value"):
			start := offset(entry, v)
			it.value = span{start, start + len(v)}
		case k.Is("alphabet"):
			it.encoding.url = string(s) == "url"
			ok = ok && it.encoding.url
		case k.Is("padding"):
			it.encoding.unpadded = string(v) == "false"
			ok = ok && it.encoding.unpadded
		case k.Is("wrap"):
			it.encoding.wrap, err = strconv.Atoi(string(v))
			ok = ok && err == nil && it.encoding.wrap > 0
		case k.Is("newline"):
			it.encoding.newline = string(s)
			ok = ok && (string(s) == "\n" || string(s) == "\r\n")
		case k.Is("trailing"):
			it.encoding.trailing = string(v) == "true"
			ok = ok && it.encoding.trailing
		default:
			ok = false
		}
	}
	if it.form == formOwn {
		return it, ok && !it.value.empty()
	}
	ok = ok && it.value.empty()
	if it.form == formLiteral {
		return it, ok && hasPath
	}
	return it, ok && hasPath && hasRef && (it.encoding.wrap > 0) == (it.encoding.newline != "")
}
