package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"sync"
	"text/tabwriter"
)

// flusher is a table in the making: lines of cells with tabs between them.
type flusher interface {
	io.Writer
	Flush() error
}

// table aligns columns separated by tabs. Flush it. At a terminal no line is longer than
// that: ids become prefixes that are as good, times lose
// their seconds, then the widest columns are cut.
func table(w io.Writer) flusher {
	if n := columns(w); n > 0 {
		return &grid{w: w, columns: n}
	}
	return tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
}

// grid is a table that fits a terminal. It goes by the columns that characters take.
type grid struct {
	w       io.Writer
	columns int
	text    bytes.Buffer
}

const (
	gap = 2 // columns between cells
	// narrowest is what a column is cut to at most.
	narrowest = 16
	// shortest is how much of an id is shown: of ours, the millisecond that it was made.
	shortest = 13
)

func (g *grid) Write(p []byte) (int, error) { return g.text.Write(p) }

func (g *grid) Flush() error {
	var rows [][]string
	for line := range strings.Lines(g.text.String()) {
		rows = append(rows, strings.Split(strings.TrimRight(line, "\t\n"), "\t"))
	}
	g.text.Reset()
	widths := widthsOf(rows)
	if over(widths, g.columns) > 0 {
		shortenIDs(rows)
		dropSeconds(rows)
		widths = widthsOf(rows)
	}
	for over(widths, g.columns) > 0 {
		widest := -1
		for c, n := range widths {
			if c > 0 && n > narrowest && (widest < 0 || n >= widths[widest]) {
				widest = c
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	var out strings.Builder
	for _, row := range rows {
		pad := 0
		for c, cell := range row {
			if c < len(widths) && len(row) > 1 {
				cell = cut(cell, widths[c])
			}
			out.WriteString(strings.Repeat(" ", pad) + cell)
			pad = gap
			if c < len(widths) {
				pad += max(0, widths[c]-terminal.String(cell))
			}
		}
		out.WriteString("\n")
	}
	_, err := io.WriteString(g.w, out.String())
	return err
}

// widthsOf are the widths of the columns. A line of one cell is a note, and may be as
// long as it is.
func widthsOf(rows [][]string) (widths []int) {
	for _, row := range rows {
		if len(row) < 2 {
			continue
		}
		for c, cell := range row {
			if c == len(widths) {
				widths = append(widths, 0)
			}
			widths[c] = max(widths[c], terminal.String(cell))
		}
	}
	return widths
}

// over is how much too wide the table is.
func over(widths []int, columns int) int {
	sum := gap * (len(widths) - 1)
	for _, n := range widths {
		sum += n
	}
	return sum - columns
}

var uuidCell = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`) })

// shortenIDs cuts the ids in the first column to what tells them apart.
func shortenIDs(rows [][]string) {
	ids := map[string]bool{}
	for _, row := range rows {
		if uuidCell().MatchString(row[0]) {
			ids[row[0]] = true
		}
	}
	for _, row := range rows {
		id := row[0]
		if !ids[id] {
			continue
		}
		n := shortest
		for other := range ids {
			for other != id && n < len(id) && strings.HasPrefix(other, id[:n]) {
				n++
			}
		}
		row[0] = id[:n]
	}
}

var timeCell = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$`) })

func dropSeconds(rows [][]string) {
	for _, row := range rows {
		for c, cell := range row {
			if timeCell().MatchString(cell) {
				row[c] = cell[:len("2006-01-02 15:04")]
			}
		}
	}
}

// cut is as much of a cell as fits: the end of a path, the beginning of anything else.
func cut(cell string, n int) string {
	if terminal.String(cell) <= n || strings.ContainsRune(cell, '\x1b') {
		return cell
	}
	if !strings.HasPrefix(cell, "/") {
		return firstWords(cell, n)
	}
	runes := []rune(cell)
	from := len(runes)
	for from > 0 && terminal.String(string(runes[from-1:])) < n {
		from--
	}
	return "…" + string(runes[from:])
}
