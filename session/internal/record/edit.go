package record

import "fmt"

// Edit returns a line, given without its newline, with other values for members
// of its object, each a JSON literal by name; a crc is made anew if there is one.
// Everything else stays to the byte. Of a name that stands twice the last one, which
// counts, is changed; a member that is not there is added behind the others.
func Edit(line []byte, values map[string][]byte) ([]byte, error) {
	b := Trim(line)
	body, sealed := Unseal(b)
	type place struct{ from, to int }
	places := make(map[string]place, len(values))
	var m member
	w := walker{obj: b}
	end := 1
	for w.next(&m) {
		if sealed && m.start > len(body) {
			continue
		}
		from := skipSpace(b, skipSpace(b, m.start+len(m.key))+len(":"))
		end = from + len(m.value)
		if name := string(m.name()); values[name] != nil {
			places[name] = place{from, end}
		}
	}
	if !w.valid {
		return nil, fmt.Errorf("changing a line: %w", ErrSyntax)
	}
	out := make([]byte, 0, len(b)+64)
	for at := 0; at < end; {
		next, name := place{end, end}, ""
		for n, p := range places {
			if p.from >= at && p.from < next.from {
				next, name = p, n
			}
		}
		out = append(out, b[at:next.from]...)
		if name != "" {
			out = append(out, values[name]...)
		}
		at = next.to
	}
	for _, name := range []string{"id", "parentId", "targetId", "firstKeptEntryId", "fromId"} {
		if _, there := places[name]; values[name] != nil && !there {
			out = append(append(append(append(out, `,"`...), name...), `":`...), values[name]...)
		}
	}
	if sealed {
		out = Seal(out, 0)
		return out[:len(out)-1], nil
	}
	return append(out, b[end:]...), nil
}
