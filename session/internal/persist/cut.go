package persist

import (
	"bytes"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// cutLiteral gives the cut form of a string literal that is longer than limit
// UTF-16 units: as much of it as leaves room for the notice, and the notice.
func cutLiteral(lit []byte, limit int) []byte {
	head := ecmajson.CutUTF16(lit, max(0, limit-len(notice)))
	cut := make([]byte, 0, len(head)+len(noticeLiteral)+1)
	return append(append(append(cut, head...), noticeLiteral...), '"')
}

// countLines is JavaScript's split("\n").length for a string literal.
func countLines(lit []byte) int {
	text, err := ecmajson.Unquote(lit)
	if err != nil {
		return 1
	}
	return 1 + bytes.Count(text, []byte{'\n'})
}

// sameString reports whether two literals stand for the same string.
func sameString(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	s, errA := ecmajson.Unquote(a)
	t, errB := ecmajson.Unquote(b)
	return errA == nil && errB == nil && bytes.Equal(s, t)
}
