package screen

import (
	"strconv"

	"github.com/gdamore/tcell/v3/vt"
)

// row is a row of the screen.
type row struct {
	cells []vt.Cell
	wraps bool // it goes on in the next row, because the text reached the margin
	told  bool // its text was handed out already
}

func (r *row) clear() {
	clear(r.cells)
	r.wraps, r.told = false, false
}

// appendText appends the characters of a row. Behind the last one there is nothing.
func (r *row) appendText(b []byte) []byte {
	spaces := 0
	for x := 0; x < len(r.cells); x++ {
		c := &r.cells[x]
		if c.C == "" {
			spaces++
			continue
		}
		for ; spaces > 0; spaces-- {
			b = append(b, ' ')
		}
		b = append(b, c.C...)
		if c.W == 2 {
			x++ // its other half
		}
	}
	return b
}

func (r *row) blank() bool {
	for i := range r.cells {
		if c := r.cells[i].C; c != "" && c != " " {
			return false
		}
	}
	return true
}

// budgetSpent is the panic of an emulation that takes too long.
type budgetSpent struct{}

// cells is what the emulator draws on: two screens, of which the alternate one keeps nothing that scrolls off.
type cells struct {
	size   vt.Coord
	pos    vt.Coord
	rows   []row
	main   []row // while the alternate screen is shown
	mainAt vt.Coord
	alt    bool

	scrolled func(r *row) // told of what leaves the main screen at its top

	work  int64 // what is left of the budget
	still bool  // draw nothing

	// What the last byte did.
	printed bool   // put a character
	half    string // put half of a wide character at the margin, which is for the next row; "" for none
	touched bool   // did anything at all
	full    bool   // scrolled the whole screen
	shifts  int    // times the screen was scrolled up
	asked   vt.PrivateMode
	on      bool
}

var (
	_ vt.Backend = (*cells)(nil)
	_ vt.Blitter = (*cells)(nil)
)

func newCells(size vt.Coord, scrolled func(*row)) *cells {
	c := &cells{size: size, scrolled: scrolled, work: Budget}
	c.rows = c.blankRows()
	return c
}

func (c *cells) blankRows() []row {
	rows := make([]row, c.size.Y)
	for i := range rows {
		rows[i].cells = make([]vt.Cell, c.size.X)
	}
	return rows
}

// before forgets what the last byte did.
func (c *cells) before() {
	c.printed, c.half, c.touched, c.full, c.shifts, c.asked = false, "", false, false, 0, 0
	c.spend(1)
}

func (c *cells) spend(n int64) {
	if c.work -= n; c.work < 0 {
		panic(budgetSpent{})
	}
}

// GetPrivateMode implements [vt.Backend], here and below. Characters that belong together share a cell.
func (c *cells) GetPrivateMode(m vt.PrivateMode) vt.ModeStatus {
	switch m {
	case vt.PmGraphemeClusters:
		return vt.ModeOnLocked
	case vt.PmAltScreen, altScreen, altScreenClear, saveCursor:
		return vt.ModeOff // an application may set what is set
	}
	return vt.ModeNA
}

// Modes of xterm that mean a part of 1049.
const (
	altScreen      vt.PrivateMode = 47
	altScreenClear vt.PrivateMode = 1047
	saveCursor     vt.PrivateMode = 1048
)

// SetPrivateMode only notes what is asked for: it is done when the emulator has finished with its byte.
func (c *cells) SetPrivateMode(m vt.PrivateMode, s vt.ModeStatus) error {
	c.asked, c.on = m, s == vt.ModeOn
	return nil
}

func (c *cells) GetSize() vt.Coord     { return c.size }
func (c *cells) Colors() int           { return 0 }
func (c *cells) GetPosition() vt.Coord { return c.pos }

func (c *cells) SetPosition(p vt.Coord) {
	c.spend(1)
	c.touched = true
	c.pos.X = min(max(p.X, 0), c.size.X-1)
	c.pos.Y = min(max(p.Y, 0), c.size.Y-1)
}

func (c *cells) Put(p vt.Coord, cell vt.Cell) {
	c.spend(1)
	c.touched = true
	if c.still || p.X < 0 || p.Y < 0 || p.X >= c.size.X || p.Y >= c.size.Y {
		return
	}
	r := &c.rows[p.Y]
	if p.X == c.size.X-1 {
		r.wraps = false // until text goes on behind it
	}
	r.told = false
	cell.S = nil
	r.cells[p.X] = cell
	if cell.C != "" {
		c.printed = true
	}
	if cell.W > 0 && p.X > 0 && r.cells[p.X-1].W == 2 {
		r.cells[p.X-1] = vt.Cell{} // half a character is none
	}
	if cell.W != 2 {
		return
	}
	if p.X < c.size.X-1 {
		r.cells[p.X+1] = vt.Cell{}
	} else if c.half == "" && c.size.X > 1 {
		r.cells[p.X], c.half = vt.Cell{}, cell.C
	}
}

// Blit moves cells. What it leaves free the emulator erases.
func (c *cells) Blit(src, dst, dim vt.Coord) {
	c.spend(4 + int64(dim.X)*int64(dim.Y)/8)
	if c.still {
		return
	}
	if src.X == 0 && dst.X == 0 && dim.X == c.size.X && src.Y != dst.Y {
		c.shift(int(src.Y), int(dst.Y), int(dim.Y))
		return
	}
	move := func(y vt.Row) {
		if s, d := y+src.Y, y+dst.Y; s >= 0 && d >= 0 && s < c.size.Y && d < c.size.Y && src.X >= 0 && dst.X >= 0 && dim.X > 0 {
			copy(c.rows[d].cells[min(dst.X, c.size.X):min(dst.X+dim.X, c.size.X)], c.rows[s].cells[min(src.X, c.size.X):min(src.X+dim.X, c.size.X)])
			c.rows[d].wraps, c.rows[d].told = false, false
		}
	}
	if src.Y > dst.Y {
		for y := range dim.Y {
			move(y)
		}
	} else {
		for y := dim.Y - 1; y >= 0; y-- {
			move(y)
		}
	}
}

// shift moves n whole rows by one, which is all that the emulator asks for.
func (c *cells) shift(from, to, n int) {
	if n < 0 || from+n > len(c.rows) && n > 0 || to+n > len(c.rows) || from < 0 || to < 0 {
		return
	}
	if from < to { // down: the last row is lost, a free one comes in at the top
		lost := c.rows[to+n-1]
		copy(c.rows[to:to+n], c.rows[from:from+n])
		lost.clear()
		c.rows[from] = lost
		return
	}
	lost := c.rows[to]
	if to == 0 && !c.alt {
		c.scrolled(&lost)
	}
	c.shifts++
	c.full = to == 0 && n == len(c.rows)-1
	copy(c.rows[to:to+n], c.rows[from:from+n])
	lost.clear()
	c.rows[to+n] = lost
}

// place is the sequence that tells the emulator where the cursor is.
func (c *cells) place() string {
	return "\x1b[" + strconv.Itoa(int(c.pos.Y)+1) + ";" + strconv.Itoa(int(c.pos.X)+1) + "H"
}

// switchTo shows the other screen.
func (c *cells) switchTo(alt bool) {
	c.alt = alt
	if alt {
		c.main, c.mainAt = c.rows, c.pos
		c.rows = c.blankRows()
	} else {
		c.rows, c.main = c.main, nil
		c.pos = c.mainAt
	}
}

// resize makes the screens another size; what has no room at the right and at the top of one is gone from it.
func (c *cells) resize(size vt.Coord) {
	fit := func(rows []row, at vt.Coord, main bool) ([]row, vt.Coord) {
		for ; int(at.Y) >= int(size.Y); at.Y-- {
			if main {
				c.scrolled(&rows[0])
			}
			rows = rows[1:]
		}
		out := make([]row, size.Y)
		for i := range out {
			out[i].cells = make([]vt.Cell, size.X)
			if i < len(rows) {
				copy(out[i].cells, rows[i].cells)
				out[i].wraps, out[i].told = rows[i].wraps, rows[i].told
			}
		}
		at.X = min(at.X, size.X-1)
		return out, at
	}
	c.rows, c.pos = fit(c.rows, c.pos, !c.alt)
	if c.alt {
		c.main, c.mainAt = fit(c.main, c.mainAt, true)
	}
	c.size = size
}

// Reset is that of the whole terminal, which then shows the main screen.
func (c *cells) Reset() { c.asked, c.on = vt.PmAltScreen, false }

func (c *cells) RaiseResize()             {}
func (c *cells) Buffering(bool)           {}
func (c *cells) SetCursor(vt.CursorStyle) {}
