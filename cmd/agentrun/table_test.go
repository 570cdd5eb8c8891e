package main

import (
	"io"
	"strings"
	"testing"
)

func TestATableFitsATerminal(t *testing.T) {
	list := "ID\tSIZE\tDIRECTORY\tTITLE\n" +
		"01a1ff08-2388-7bc3-8c3c-3d6792d32d7a\t665 B\t/home/ann/a rather long name of a project\t-\n" +
		"01a1ff08-2388-7bc4-8c3c-3d6792d32d7a\t1.8 KB\t/home/ann\t長い題 of the session that goes on and on and on\n" +
		"2b\t9 KB\t/\tshort\n"
	for _, tt := range []struct {
		name    string
		columns int
		text    string
		want    string
	}{
		{"what fits is as it is", 200, "a\tbb\tc\naaa\tb\tc\n", "a    bb  c\naaa  b   c\n"},
		{"wide characters take two columns", 200, "長い\tx\nab\ty\n", "長い  x\nab    y\n"},
		{"ids that fit stay whole", 200, "01a1ff08-2388-7bc3-8c3c-3d6792d32d7a\tx\n", "01a1ff08-2388-7bc3-8c3c-3d6792d32d7a  x\n"},
		{"else as much of them as tells them apart, then the widest columns are cut", 80, list, strings.Join([]string{
			"ID                  SIZE    DIRECTORY                  TITLE",
			"01a1ff08-2388-7bc3  665 B   …r long name of a project  -",
			"01a1ff08-2388-7bc4  1.8 KB  /home/ann                  長い題 of the session th…",
			"2b                  9 KB    /                          short", "",
		}, "\n")},
		{"times lose their seconds", 30, "a\t2026-11-21 16:57:48\tsome words\n", "a  2026-11-21 16:57  some words\n"},
		{"no column is cut to nothing", 20, "a\t" + strings.Repeat("b", 30) + "\t" + strings.Repeat("c", 30) + "\n", "a  bbbbbbbbbbbbbbb…  ccccccccccccccc…\n"},
		{"a line of one cell is a note", 20, "and 12 sessions more, of which nothing is shown here\na\tb\n", "and 12 sessions more, of which nothing is shown here\na  b\n"},
		{"empty cells at the end take no room", 20, "\t\t\nHEAD\t\t\na\tb\tc\n", "\nHEAD\na  b  c\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			g := &grid{w: &out, columns: tt.columns}
			if _, err := io.WriteString(g, tt.text); err != nil {
				t.Fatal(err)
			}
			if err := g.Flush(); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != tt.want {
				t.Errorf("%q\nwant %q", got, tt.want)
			}
		})
	}
}
