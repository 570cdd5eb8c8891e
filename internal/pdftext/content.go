package pdftext

import (
	"math"

	"github.com/ledongthuc/pdf"
)

// Bounds of what a page may draw.
const (
	maxRuns  = 1 << 20
	maxForms = 8 // that are drawn in each other
)

// run is a piece of text where it stands on the page, in points.
type run struct {
	x, y, end float64
	size      float64 // how high its letters are
	text      string
}

// matrix is a, b, c, d, e, f of an affine one.
type matrix [6]float64

func (m matrix) mul(n matrix) matrix {
	return matrix{
		m[0]*n[0] + m[1]*n[2], m[0]*n[1] + m[1]*n[3],
		m[2]*n[0] + m[3]*n[2], m[2]*n[1] + m[3]*n[3],
		m[4]*n[0] + m[5]*n[2] + n[4], m[4]*n[1] + m[5]*n[3] + n[5],
	}
}

func move(x, y float64) matrix { return matrix{1, 0, 0, 1, x, y} }

// font is a font with the widths of its codes, in parts of the size of a letter. The library
// knows them for codes of one byte only.
type font struct {
	decode  func(string) string
	two     bool // codes have two bytes
	widths  map[int]float64
	missing float64
}

func newFont(v pdf.Value) *font {
	f := &pdf.Font{V: v}
	t := &font{decode: f.Encoder().Decode, widths: map[int]float64{}}
	if v.Key("Subtype").Name() == "Type0" {
		t.two = true
		below := v.Key("DescendantFonts").Index(0)
		if t.missing = below.Key("DW").Float64() / 1000; t.missing == 0 {
			t.missing = 1
		}
		t.wide(below.Key("W"))
		return t
	}
	scale := 1000.0
	if v.Key("Subtype").Name() == "Type3" {
		if a := v.Key("FontMatrix").Index(0).Float64(); a > 0 {
			scale = 1 / a
		}
	}
	for i, w := range f.Widths() {
		t.widths[f.FirstChar()+i] = w / scale
	}
	if len(t.widths) == 0 {
		t.missing = 0.5 // one of the fonts that every program has
	}
	return t
}

// wide reads the widths of codes of two bytes: "first [w w ...]" and "first last w".
func (f *font) wide(w pdf.Value) {
	const codes = 1 << 16
	for i := 0; i+1 < w.Len() && len(f.widths) < codes; {
		first := int(w.Index(i).Int64())
		if list := w.Index(i + 1); list.Kind() == pdf.Array {
			for k := range min(list.Len(), codes) {
				f.widths[first+k] = list.Index(k).Float64() / 1000
			}
			i += 2
			continue
		}
		last, width := int(w.Index(i+1).Int64()), w.Index(i+2).Float64()/1000
		for code := max(first, 0); code <= min(last, codes); code++ {
			f.widths[code] = width
		}
		i += 3
	}
}

// advance is how wide a string is, and how many codes and spaces it has.
func (f *font) advance(s string) (width float64, codes, spaces int) {
	for i := 0; i < len(s); i++ {
		code := int(s[i])
		if f.two && i+1 < len(s) {
			i++
			code = code<<8 | int(s[i])
		} else if code == ' ' {
			spaces++
		}
		w, ok := f.widths[code]
		if !ok {
			w = f.missing
		}
		width += w
		codes++
	}
	return width, codes, spaces
}

// state is how text is drawn.
type state struct {
	ctm                                        matrix
	font                                       *font
	size, chars, words, scale, leading, raised float64
}

// page is a page that is being drawn.
type page struct {
	runs  []run
	fonts map[string]*font
	depth int
}

// draw follows the operators of a stream (PDF 32000-1, 9.4) as far as they are about text.
func (p *page) draw(content, resources pdf.Value, ctm matrix) {
	now := state{ctm: ctm, scale: 1}
	var stack []state
	var text, line matrix
	next := func(x, y float64) {
		line = move(x, y).mul(line)
		text = line
	}
	show := func(s string) {
		if now.font == nil || s == "" || len(p.runs) >= maxRuns {
			return
		}
		width, codes, spaces := now.font.advance(s)
		tx := (width*now.size + float64(codes)*now.chars + float64(spaces)*now.words) * now.scale
		at := move(0, now.raised).mul(text).mul(now.ctm)
		text = move(tx, 0).mul(text)
		end := move(0, now.raised).mul(text).mul(now.ctm)
		size := math.Abs(now.size) * math.Hypot(at[2], at[3])
		p.runs = append(p.runs, run{at[4], at[5], end[4], size, now.font.decode(s)})
	}
	pdf.Interpret(content, func(stk *pdf.Stack, op string) {
		args := make([]pdf.Value, stk.Len())
		for i := len(args) - 1; i >= 0; i-- {
			args[i] = stk.Pop()
		}
		arg := func(i int) pdf.Value {
			if i < len(args) {
				return args[i]
			}
			return pdf.Value{}
		}
		number := func(i int) float64 { return arg(i).Float64() }
		six := func() (m matrix) {
			for i := range m {
				m[i] = number(i)
			}
			return m
		}
		switch op {
		case "q":
			if len(stack) < 1000 {
				stack = append(stack, now)
			}
		case "Q":
			if n := len(stack) - 1; n >= 0 {
				now, stack = stack[n], stack[:n]
			}
		case "cm":
			now.ctm = six().mul(now.ctm)
		case "BT":
			text, line = move(0, 0), move(0, 0)
		case "Tc":
			now.chars = number(0)
		case "Tw":
			now.words = number(0)
		case "Tz":
			now.scale = number(0) / 100
		case "TL":
			now.leading = number(0)
		case "Ts":
			now.raised = number(0)
		case "Tf":
			now.font, now.size = p.font(resources, arg(0).Name()), number(1)
		case "Td":
			next(number(0), number(1))
		case "TD":
			now.leading = -number(1)
			next(number(0), number(1))
		case "Tm":
			line = six()
			text = line
		case "T*":
			next(0, -now.leading)
		case "'":
			next(0, -now.leading)
			show(arg(0).RawString())
		case "\"":
			now.words, now.chars = number(0), number(1)
			next(0, -now.leading)
			show(arg(2).RawString())
		case "Tj":
			show(arg(0).RawString())
		case "TJ":
			for i := range arg(0).Len() {
				if v := arg(0).Index(i); v.Kind() == pdf.String {
					show(v.RawString())
				} else {
					text = move(-v.Float64()/1000*now.size*now.scale, 0).mul(text)
				}
			}
		case "Do":
			p.form(resources.Key("XObject").Key(arg(0).Name()), resources, now.ctm)
		}
	})
}

// form draws what a page draws by its name.
func (p *page) form(v, resources pdf.Value, ctm matrix) {
	if v.Key("Subtype").Name() != "Form" || p.depth >= maxForms || len(p.runs) >= maxRuns {
		return
	}
	if own := v.Key("Resources"); own.Kind() == pdf.Dict {
		resources = own
	}
	if m := v.Key("Matrix"); m.Len() == 6 {
		var of matrix
		for i := range of {
			of[i] = m.Index(i).Float64()
		}
		ctm = of.mul(ctm)
	}
	outer := p.fonts
	p.fonts, p.depth = map[string]*font{}, p.depth+1
	p.draw(v, resources, ctm)
	p.fonts, p.depth = outer, p.depth-1
}

func (p *page) font(resources pdf.Value, name string) *font {
	f, ok := p.fonts[name]
	if !ok {
		if v := resources.Key("Font").Key(name); v.Kind() == pdf.Dict {
			f = newFont(v)
		}
		p.fonts[name] = f
	}
	return f
}
