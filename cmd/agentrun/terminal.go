package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// columns is how wide the terminal behind w is, 0 when there is none.
func columns(w io.Writer) int {
	columns, _ := extent(w)
	return columns
}

// extent is the size of the terminal behind w, 0 when there is none.
func extent(w io.Writer) (columns, rows int) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	switch {
	case err != nil:
		return 0, 0
	case size.Col == 0 || size.Row == 0:
		return 80, 24 // a terminal that does not know its size
	}
	return int(size.Col), int(size.Row)
}

// style is an SGR sequence, or nothing where colours are not wanted.
type style string

const (
	plain  style = ""
	bold   style = "1"
	faint  style = "2"
	yellow style = "33"
)

// coloured reports whether what is written to w may have colours: a terminal that
// knows them, and no NO_COLOR (no-color.org).
func coloured(w io.Writer) bool {
	return columns(w) > 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// in puts s between the style and its end.
func (st style) in(s string) string {
	if st == plain || s == "" {
		return s
	}
	return "\x1b[" + string(st) + "m" + s + "\x1b[0m"
}
