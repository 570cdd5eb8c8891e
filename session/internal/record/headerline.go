package record

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// How long a header line is, its '\n' included.
const (
	// headerSize is what a header is padded to when it fits: pi's session picker
	// reads the first 512 bytes of a file and wants the whole line in them.
	headerSize = 511
	// headerStep is what the length of a longer one is a multiple of.
	headerStep = 256
	// titleRoom is the least room for a title, in bytes of its literal, that a line
	// longer than headerSize has.
	titleRoom = 128
)

// ErrNoRoom is returned by [Retitle] when the title cannot be written in place.
// The caller rewrites the file with the line of [Header.AppendLine].
var ErrNoRoom = errors.New("no room for a title in the header line")

// AppendLine appends the header as a line, '\n' included, that ends with a pad
// and a crc. The line is 511 bytes long if it can be without its title; the title
// is then cut, by whole code points, to what fits, down to nothing, unless KeepTitle
// is set. A longer one (a long cwd, many directories) has a length that is a multiple
// of 256 and holds the whole title and room for one of 128 bytes.
//
// The title stands behind all other members, right before the pad: what changes when
// it is written over in place is then only the end of the line, and a write that was
// cut short has harmed nothing else, see [ParseTornHeader].
func (h *Header) AppendLine(dst []byte) []byte {
	l := headerLine{sealed: true}
	for _, m := range h.render() {
		if m.name == "pad" {
			// A pad that is not ours is a member like any other, and then there is
			// none of ours: a name stands once.
			l.foreignPad = true
		}
		l.members = append(l.members, m)
	}
	title, source := l.take()
	if !l.foreignPad {
		l.members = append(l.members, headerMember{"pad", []byte(`"pad"`), nil})
	}
	size := headerSize
	switch bare := l.size(); {
	case l.foreignPad:
		size = l.size() + l.titleSize(title, source)
	case bare > headerSize, h.KeepTitle && bare+l.titleSize(title, source) > headerSize:
		room := max(l.titleSize(title, source), l.titleSize(make([]byte, titleRoom), nil))
		size = (bare + room + headerStep - 1) / headerStep * headerStep
	}
	l.put(title, source, size)
	return l.appendTo(dst, max(size, l.size()))
}

// CutsTitle reports whether [Header.AppendLine] cuts the title.
func (h *Header) CutsTitle() bool {
	cut, whole := *h, *h
	cut.KeepTitle, whole.KeepTitle = false, true
	return !bytes.Equal(cut.AppendLine(nil), whole.AppendLine(nil))
}

// Retitle returns a header line with another title and the same length, so that
// it can be written over the old one. title is cut, by whole code points, to the
// room there is; an empty one removes both members. The bytes of all other
// members stay, and come before the title; pad takes or gives the difference, and a
// crc is made anew if there was one. line may end with its '\n' and is not changed.
//
// The error is [ErrNoRoom] when the line has no pad, or when not even one
// character fits, and wraps [ErrHeader] when it is no header.
func Retitle(line []byte, title, source string) ([]byte, error) {
	l, value, err := openLine(line)
	if err != nil {
		return nil, err
	}
	l.take()
	size := len(value) + len("\n")
	if title == "" {
		l.put(nil, nil, size)
	} else {
		var sourceLit []byte
		if source != "" {
			sourceLit = ecmajson.AppendString(nil, source)
		}
		if !l.put(ecmajson.AppendString(nil, title), sourceLit, size) {
			return nil, ErrNoRoom
		}
	}
	return l.over(line, size)
}

// Rewrite returns line, from which h was parsed, with the fields of h that were
// changed since. The bytes of all other members stay. The new line is as long as the
// old one where its pad has the room, so that it can be written over it; else it is
// longer or shorter and the file has to be written anew: as [Header.AppendLine] makes
// it for a line that had a pad or was torn, and as plain as it was for one of another
// program. line may end with its '\n', and then so does the result.
//
// The error wraps [ErrHeader] when line is no header.
func (h *Header) Rewrite(line []byte) ([]byte, error) {
	l, value, err := openLine(line)
	switch {
	case err == nil:
		for _, name := range headerNames {
			if now := h.literal(name); string(now) != string(h.parsed.literal(name)) {
				l.set(name, now)
			}
		}
		if out, err := l.over(line, len(value)+len("\n")); err == nil {
			return out, nil
		}
	case !errors.Is(err, ErrNoRoom) && !h.Torn:
		return nil, err
	}
	var out []byte
	if h.Padded || h.Torn {
		out = h.AppendLine(nil)
	} else {
		l := headerLine{members: h.render(), sealed: h.CRC != CRCNone}
		out = l.appendTo(nil, l.size())
	}
	if len(line) == 0 || line[len(line)-1] != '\n' {
		out = out[:len(out)-len("\n")]
	}
	return out, nil
}

// openLine takes a header line with a pad apart, to be put together at the same
// length. The error is [ErrNoRoom] when it has none, and wraps [ErrHeader] when it is
// no header.
func openLine(line []byte) (l headerLine, value []byte, err error) {
	h, err := ParseHeader(line)
	switch {
	case err != nil:
		return l, nil, err
	case !h.Padded:
		return l, nil, ErrNoRoom
	}
	value = Trim(line)
	l.sealed = h.CRC != CRCNone
	var m member
	w := walker{obj: value}
	for w.next(&m) {
		name := string(m.name())
		switch {
		case l.sealed && name == "crc" && m.start > len(value)-sealLen:
			continue
		case name == "pad":
			// Of several only the last, which is ours, has ever been in force.
			l.members = slices.DeleteFunc(l.members, func(m headerMember) bool { return m.name == "pad" })
			m.value = nil
		}
		l.members = append(l.members, headerMember{name, m.key, m.value})
	}
	return l, value, nil
}

// over returns line with its object replaced by l, size bytes long.
func (l *headerLine) over(line []byte, size int) ([]byte, error) {
	if l.size() > size {
		return nil, fmt.Errorf("%w: its members need %d bytes of %d", ErrNoRoom, l.size(), size)
	}
	made := l.appendTo(make([]byte, 0, size), size)
	made = made[:len(made)-len("\n")]
	out := slices.Clone(line)
	copy(out[len(line)-len(trimStart(line)):], made)
	return out, nil
}

// set gives a member another value, or adds it before the pad; nil removes it.
func (l *headerLine) set(name string, value []byte) {
	at := -1
	kept := l.members[:0]
	for _, m := range l.members {
		if m.name == name {
			if at >= 0 || value == nil {
				continue // a name stands once
			}
			at, m.value = len(kept), value
		}
		kept = append(kept, m)
	}
	l.members = kept
	if at >= 0 || value == nil {
		return
	}
	end := slices.IndexFunc(kept, func(m headerMember) bool {
		return m.name == "pad" || name != "titleSource" && (m.name == "title" || m.name == "titleSource")
	})
	l.members = slices.Insert(kept, end, headerMember{name, ecmajson.AppendString(nil, name), value})
}

// headerLine is a header on its way to a line of a fixed length.
type headerLine struct {
	members    []headerMember // the value of pad is nil until it is written
	titleAt    int            // where in members a title goes
	sealed     bool
	foreignPad bool
}

// take removes title and titleSource and returns their literals.
func (l *headerLine) take() (title, source []byte) {
	kept := l.members[:0]
	for _, m := range l.members {
		switch m.name {
		case "title":
			title = m.value
		case "titleSource":
			source = m.value
		default:
			kept = append(kept, m)
		}
	}
	l.members = kept
	if l.titleAt = slices.IndexFunc(kept, func(m headerMember) bool { return m.name == "pad" }); l.titleAt < 0 || l.foreignPad {
		l.titleAt = len(kept)
	}
	return title, source
}

const (
	titleKey  = `"title"`
	sourceKey = `"titleSource"`
)

// titleSize is what the literals of title and source add to a line.
func (l *headerLine) titleSize(title, source []byte) (n int) {
	if title != nil {
		n += len(`,:`) + len(titleKey) + len(title)
	}
	if source != nil {
		n += len(`,:`) + len(sourceKey) + len(source)
	}
	return n
}

// put inserts a title, cut so that the line has at most size bytes. It inserts
// nothing and returns false when no character fits.
func (l *headerLine) put(title, source []byte, size int) bool {
	if title != nil && title[0] == '"' {
		room := size - l.size() - l.titleSize([]byte(`""`), source)
		inner := cutLiteral(title[1:len(title)-1], room)
		if len(inner) == 0 {
			return false
		}
		title = append(append([]byte{'"'}, inner...), '"')
	}
	var add []headerMember
	if title != nil {
		add = append(add, headerMember{"title", []byte(titleKey), title})
	}
	if source != nil {
		add = append(add, headerMember{"titleSource", []byte(sourceKey), source})
	}
	l.members = slices.Insert(l.members, l.titleAt, add...)
	return true
}

// size is the length of the line with an empty pad, '\n' included.
func (l *headerLine) size() int {
	n := len("{}\n")
	for i, m := range l.members {
		if i > 0 {
			n++
		}
		n += len(m.key) + len(":") + len(m.value)
		if m.value == nil {
			n += len(`""`)
		}
	}
	if l.sealed {
		n += sealLen - len("}")
	}
	return n
}

func (l *headerLine) appendTo(dst []byte, size int) []byte {
	start := len(dst)
	pad := size - l.size()
	dst = append(dst, '{')
	for i, m := range l.members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, m.key...)
		dst = append(dst, ':')
		if m.value != nil {
			dst = append(dst, m.value...)
			continue
		}
		dst = append(dst, '"')
		for range pad {
			dst = append(dst, ' ')
		}
		dst = append(dst, '"')
	}
	if l.sealed {
		return Seal(dst, start)
	}
	return append(dst, "}\n"...)
}

// cutLiteral returns the longest beginning of the inside of a valid string
// literal that has at most n bytes and splits no character, no escape and no
// pair of surrogates.
func cutLiteral(inner []byte, n int) []byte {
	if len(inner) <= n {
		return inner
	}
	end := 0
	for end < len(inner) {
		next := end + 1
		switch c := inner[end]; {
		case c == '\\' && inner[end+1] == 'u':
			next = end + len(`\u0000`)
			if isSurrogate(inner[end:], "89aAbB") && isSurrogate(inner[next:], "cCdDeEfF") {
				next += len(`\u0000`)
			}
		case c == '\\':
			next = end + len(`\n`)
		default:
			for next < len(inner) && inner[next]&0xc0 == 0x80 {
				next++
			}
		}
		if next > n {
			break
		}
		end = next
	}
	return inner[:end]
}

// isSurrogate reports whether b begins with an escape \uD?.. whose third digit
// is one of kind.
func isSurrogate(b []byte, kind string) bool {
	return len(b) >= len(`\u0000`) && b[0] == '\\' && b[1] == 'u' && (b[2] == 'd' || b[2] == 'D') &&
		slices.Contains([]byte(kind), b[3])
}
