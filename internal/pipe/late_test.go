package pipe

import (
	"bytes"
	"strings"
	"testing"
)

func TestTheEndOfWhatCameLateIsKeptInOrderWithItsSource(t *testing.T) {
	var l Late[string]
	own := []byte("a")
	l.Add("x", own)
	own[0] = '!'
	l.Add("x", []byte("b"))
	l.Add("y", []byte("c"))
	l.Add("x", []byte("d"))
	var told strings.Builder
	for _, p := range l.Pieces {
		told.WriteString(p.From + ":" + string(p.Bytes) + " ")
	}
	if got := told.String(); got != "x:ab y:c x:d " || l.Dropped != 0 {
		t.Errorf("it keeps %q and dropped %d", got, l.Dropped)
	}
	l.Add("y", bytes.Repeat([]byte("e"), MaxLate-1))
	if l.Dropped != 3 || len(l.Pieces) != 2 || string(l.Pieces[0].Bytes) != "d" {
		t.Errorf("%d bytes were dropped, and %d pieces are there, the first of %d bytes", l.Dropped, len(l.Pieces), len(l.Pieces[0].Bytes))
	}
	l.Add("y", bytes.Repeat([]byte("f"), 3*MaxLate))
	if l.Dropped != 3+1+MaxLate-1+2*MaxLate || len(l.Pieces) != 1 || string(l.Pieces[0].Bytes) != strings.Repeat("f", MaxLate) {
		t.Errorf("%d bytes were dropped, and %d pieces are there", l.Dropped, len(l.Pieces))
	}
}
