package persist

import "slices"

// span is a stretch of an entry's text.
type span struct{ start, end int }

func (s span) of(b []byte) []byte { return b[s.start:s.end] }
func (s span) empty() bool        { return s.start == s.end }

// edit replaces a stretch of the text. Two edits never overlap; one of length
// zero, which inserts, comes before another that starts at the same place.
type edit struct {
	span
	text []byte
}

// splice returns text with the edits made, text itself if there are none.
func splice(text []byte, edits []edit) []byte {
	if len(edits) == 0 {
		return text
	}
	slices.SortStableFunc(edits, func(a, b edit) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return a.end - b.end
	})
	size := len(text)
	for _, e := range edits {
		size += len(e.text) - (e.end - e.start)
	}
	out, done := make([]byte, 0, size), 0
	for _, e := range edits {
		out = append(append(out, text[done:e.start]...), e.text...)
		done = e.end
	}
	return append(out, text[done:]...)
}
