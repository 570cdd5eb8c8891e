package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/outputsink"
)

func TestUnfinishedLineIsShownOnATerminalAndTakenOffAgain(t *testing.T) {
	for _, tt := range []struct {
		name    string
		columns int
		writes  []string
		want    string
	}{
		{"a prompt", 80, []string{"Name: ", "Ann\n"}, "Name: \r\x1b[KName: Ann\n"},
		{"a progress bar", 80, []string{"10%", "\r20%", "\r30%\n"}, "10%\r\x1b[K20%\r\x1b[K30%\n"},
		{"what has no room in the row is left out", 5, []string{"abcdefgh", "i\n"}, "abcd\r\x1b[Kabcdefghi\n"},
		{"a wide character takes two columns", 4, []string{"한한", "\n"}, "한\r\x1b[K한한\n"},
		{"half a character waits", 80, []string{"a\xc3", "\xa9\n"}, "a\r\x1b[Ka\u00e9\n"},
		{"no terminal", 0, []string{"Name: ", "Ann\n"}, "Name: Ann\n"},
		{"the end of the output stays", 80, []string{"no newline"}, "no newline\r\x1b[Kno newline"},
		{"escape sequences of the command are not shown", 80, []string{"\x1b[2Jx\x1b[31m", "\n"}, "x\r\x1b[Kx\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			v := &liveView{w: &out, columns: tt.columns}
			for _, s := range tt.writes {
				if _, err := io.WriteString(v, s); err != nil {
					t.Fatal(err)
				}
			}
			if err := v.finish(); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != tt.want {
				t.Errorf("%q\nwant %q", got, tt.want)
			}
		})
	}
}

// Whatever was shown and taken off again: what stays is the sanitised output.
func TestWhatStaysOnTheTerminalIsTheOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.SampledFrom([]string{
			"a", "text ", "\n", "\r", "\r\n", "\t", "\x1b[31m", "\x1b[K", "é", "\xc3", "한", "\x00", strings.Repeat("long", 5000), "end\n",
		})).Draw(t, "pieces")
		columns := rapid.IntRange(0, 20).Draw(t, "columns")
		var out bytes.Buffer
		v := &liveView{w: &out, columns: columns}
		var clean outputsink.Sanitizer
		var want []byte
		for _, p := range pieces {
			if _, err := io.WriteString(v, p); err != nil {
				t.Fatal(err)
			}
			want = clean.Append(want, []byte(p))
		}
		if err := v.finish(); err != nil {
			t.Fatal(err)
		}
		want = clean.Flush(want)
		// A terminal clears from the last newline before an erasing on.
		var screen []byte
		for i, part := range strings.Split(out.String(), "\r\x1b[K") {
			if i > 0 {
				screen = screen[:bytes.LastIndexByte(screen, '\n')+1]
			}
			screen = append(screen, part...)
		}
		if !bytes.Equal(screen, want) {
			t.Fatalf("%q\nwant %q", screen, want)
		}
	})
}

func TestLiveViewGivesUpOnce(t *testing.T) {
	w := &brokenWriter{}
	v := &liveView{w: w}
	if _, err := io.WriteString(v, "a\n"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("error %v", err)
	}
	if err := v.finish(); err != nil {
		t.Errorf("the error is repeated: %v", err)
	}
	if w.calls != 1 {
		t.Errorf("written to %d times", w.calls)
	}
}

type brokenWriter struct{ calls int }

func (w *brokenWriter) Write([]byte) (int, error) {
	w.calls++
	return 0, io.ErrClosedPipe
}
