package main

import (
	"strings"
	"testing"
)

func TestFirstWordsFitTheirColumns(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		columns    int
		want       string
	}{
		{"short text stays", "short", 10, "short"},
		{"as long as the line", "0123456789", 10, "0123456789"},
		{"longer than the line", "0123456789a", 10, "012345678…"},
		{"no space before the dots", "01234567  9ab", 10, "01234567…"},
		{"wide characters take two columns", "日本語日本語", 10, "日本語日…"},
		{"lines become one", "a\n\tb", 10, "a b"},
		{"escapes lose what makes them such", "a\x1b[31mb", 10, "a [31mb"},
		{"marks take no column", strings.Repeat("e\u0301", 10), 10, strings.Repeat("e\u0301", 10)},
		{"white space in front", strings.Repeat(" ", 60) + "word", 10, "word"},
		{"nothing", "", 10, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := firstWords(tt.text, tt.columns); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
