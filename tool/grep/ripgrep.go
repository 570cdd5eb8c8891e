package grep

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agentrun/agentrun/internal/textform"
	"github.com/agentrun/agentrun/tool/find"
)

// ripgrep is the program rg, for one search. What it says is believed only where it reads
// text as we do: every line that matches here matches there.
type ripgrep struct {
	*run
	program string
	expr    string
}

// ripgrep returns nil where rg is not there, not wanted, or not faster: with a literal we
// read files as fast, and what has the literal in it is little.
func (r *run) ripgrep() *ripgrep {
	if r.opts.Ripgrep == None || r.text == nil || (len(r.literal) > 1 || r.any != nil) && !r.opts.always || len(r.items) == 0 {
		return nil
	}
	program := r.opts.Ripgrep
	if program == "" {
		var err error
		if program, err = exec.LookPath("rg"); err != nil {
			return nil
		}
	}
	expr, ok := rust(r.tree)
	if !ok {
		return nil
	}
	return &ripgrep{r, program, expr}
}

// Bounds of one call of rg: what the kernel takes as arguments is 2 MiB less the
// environment, and each takes a pointer.
const (
	maxArgs  = 256 << 10
	maxBatch = 4000
)

// minBatch is how many files take about as long as it takes rg to start.
const minBatch = 100

// batch is how many files the next call gets, of those that are left. Each processor has one call
// for most of the files, and a short one, so that they end at about the same time.
func (g *ripgrep) batch(files, left, procs int) int {
	size := files * 3 / 4 / procs
	if files-left >= size*procs {
		size = (files - size*procs + procs - 1) / procs
	}
	return max(minBatch, min(maxBatch, size))
}

// search searches files in order.
func (g *ripgrep) search(s *searcher, items []*find.Item, out io.Writer) {
	for len(items) > 0 {
		n, reading := together(items)
		rest := items[:1]
		if n > 0 {
			rest = g.call(s, items[:n], reading, out)
		}
		for _, item := range rest {
			g.one(s, item, out)
		}
		items = items[max(n, 1):]
	}
}

// Ways in which rg reads.
const (
	noMmap = "--no-mmap"
	// mmap is for large files: rg reads a line into memory however long it is, if it does read.
	mmap = "--mmap"
)

// maxRead is the largest file that rg reads, in bytes. Tests change it.
var maxRead int64 = 32 << 20

// together is how many files, from the first on, one call of rg takes, and how it reads them.
// 0 is for one that rg is not given.
func together(items []*find.Item) (n int, reading string) {
	bytes := 0
	root, _ := items[0].File()
	for ; n < len(items); n++ {
		in, path := items[n].File()
		// A name with a newline would be read wrongly, and a URL is none of its files.
		if in == nil || in != root || strings.ContainsAny(path, "\n\x00") || bytes+len(path) > maxArgs {
			break
		}
		if in.Size(path) > maxRead {
			if n == 0 {
				return 1, mmap
			}
			break
		}
		bytes += len(path) + 16
	}
	return n, noMmap
}

// call has rg search files of one root, and returns those that it did not.
func (g *ripgrep) call(s *searcher, items []*find.Item, reading string, out io.Writer) (rest []*find.Item) {
	root, _ := items[0].File()
	args := []string{
		"--no-config", "--text", "--no-ignore", "--hidden", "--line-number", "--byte-offset", "--with-filename", "--null", "--no-heading",
		"--color=never", "--threads=1", "--no-messages", reading, "--context=" + strconv.Itoa(s.context), "--regexp=" + g.expr, "--",
	}
	for _, item := range items {
		_, path := item.File()
		args = append(args, here+path)
	}
	cmd := exec.CommandContext(g.ctx, g.program, args...)
	cmd.Dir = root.Name()
	var said bytes.Buffer
	cmd.Stderr = &limited{&said, 4 << 10}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return items
	}
	if err := cmd.Start(); err != nil {
		return items
	}
	reader := &rgReader{ripgrep: g, searcher: s, out: out, in: bufio.NewReaderSize(stdout, 256<<10), items: items, compare: &comparer{}}
	rerr := reader.read()
	if rerr != nil {
		_ = cmd.Process.Kill() // it has nothing more to say
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case g.ctx.Err() != nil:
		return nil
	case rerr != nil, said.Len() > 0, err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1):
		// It cannot read a file, or the expression: who can tells what is wrong. What went
		// out is of files that it had finished.
		return reader.items
	}
	reader.finish()
	return nil
}

// here stands before each path, of which one may be "-", the standard input.
const here = "./"

// limited keeps the beginning of what is written.
type limited struct {
	*bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	k := min(l.left, len(p))
	l.left -= k
	l.Buffer.Write(p[:k])
	return len(p), nil
}

// rgReader turns what rg says into results.
type rgReader struct {
	*ripgrep
	*searcher
	out   io.Writer
	in    *bufio.Reader
	items []*find.Item // from the one at hand on

	compare *comparer

	at    string // path of the file at hand; "" for none
	lines []rgLine
	held  int // bytes of lines
	doubt bool
}

type rgLine struct {
	number, offset int64
	match          bool
	text           []byte
}

// maxHeld is how much of one file's lines is held until they are looked at. A file with
// more is searched here.
const maxHeld = 8 << 20

// read takes path NUL number : offset : text, with - for : in context, and -- between
// stretches.
func (r *rgReader) read() error {
	for {
		line, err := r.in.ReadSlice('\n')
		full := err == bufio.ErrBufferFull
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil && err != io.EOF && !full {
			return err
		}
		if bytes.Equal(line, []byte("--\n")) {
			continue
		}
		path, rest, ok := bytes.Cut(line, []byte{0})
		if !ok {
			return errors.New("a line without a name")
		}
		if name := strings.TrimPrefix(string(path), here); name != r.at {
			if err := r.file(name); err != nil {
				return err
			}
		}
		if full {
			r.doubt = true // too long to be held
			for err == bufio.ErrBufferFull {
				_, err = r.in.ReadSlice('\n')
			}
			continue
		}
		l, ok := parseLine(rest)
		if !ok {
			return errors.New("a line without a number")
		}
		if r.held += len(rest) + 64; r.held > maxHeld {
			r.doubt, r.lines = true, nil
		}
		if !r.doubt {
			r.lines = append(r.lines, l)
		}
	}
}

func parseLine(rest []byte) (rgLine, bool) {
	var l rgLine
	i := bytes.IndexAny(rest, ":-")
	if i < 0 {
		return l, false
	}
	mark := rest[i]
	j := bytes.IndexByte(rest[i+1:], mark)
	if j < 0 {
		return l, false
	}
	j += i + 1
	var err1, err2 error
	l.number, err1 = strconv.ParseInt(string(rest[:i]), 10, 64)
	l.offset, err2 = strconv.ParseInt(string(rest[i+1:j]), 10, 64)
	l.match, l.text = mark == ':', bytes.Clone(rest[j+1:])
	return l, err1 == nil && err2 == nil
}

// file begins the next file of which rg has something.
func (r *rgReader) file(path string) error {
	r.finish()
	for len(r.items) > 0 {
		if _, p := r.items[0].File(); p == path {
			r.at = path
			return nil
		}
		r.items = r.items[1:] // nothing was found in it
	}
	return fmt.Errorf("%q is not what was asked for", path)
}

// finish writes the result of the file at hand.
func (r *rgReader) finish() {
	if r.at == "" {
		return
	}
	item := r.items[0]
	r.items = r.items[1:]
	if n, ok := r.checked(item); ok {
		r.note(n)
		r.result(item.Name)
	} else {
		r.one(r.searcher, item, r.out)
	}
	r.at, r.lines, r.held, r.doubt = "", r.lines[:0], 0, false
}

// checked looks whether the lines are those of the file that we mean, and match here too.
func (r *rgReader) checked(item *find.Item) (matches int64, ok bool) {
	if r.doubt {
		return 0, false
	}
	root, path := item.File()
	f, _, err := root.OpenFile(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	head := make([]byte, textform.Window)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return 0, false
	}
	if k, bom := sniff(head[:n]); k != text || bom > 0 {
		return 0, false
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, false
	}
	r.compare.reset(f)
	for _, l := range r.lines {
		if !r.compare.has(l.offset, l.text) {
			return 0, false
		}
		if l.match {
			if doubtful(l.text) && !r.searcher.pattern.matches(content(l.text)) {
				return 0, false
			}
			matches++
		}
	}
	return matches, true
}

// doubtful reports whether a line has anything in it that the two read otherwise.
func doubtful(text []byte) bool {
	text = bytes.TrimSuffix(text, newline)
	for _, b := range text {
		if b >= utf8.RuneSelf || b == '\r' || b == 0 {
			return true
		}
	}
	return false
}

// comparer looks whether a file has bytes at growing offsets.
type comparer struct {
	f   *os.File
	buf []byte
	at  int64 // of buf
}

// reset begins with a file; the memory of the one before is used again.
func (c *comparer) reset(f *os.File) { c.f, c.buf, c.at = f, c.buf[:0], 0 }

func (c *comparer) has(off int64, text []byte) bool {
	end := off + int64(len(text))
	if off < c.at || end > c.at+int64(len(c.buf)) {
		size := max(block, len(text))
		if cap(c.buf) < size {
			c.buf = make([]byte, size)
		}
		n, err := c.f.ReadAt(c.buf[:size], off)
		if err != nil && err != io.EOF {
			return false
		}
		c.buf, c.at = c.buf[:n], off
	}
	i := off - c.at
	if i+int64(len(text)) > int64(len(c.buf)) {
		// rg ends a last line that has no end.
		whole := bytes.TrimSuffix(text, newline)
		return i+int64(len(whole)) == int64(len(c.buf)) && bytes.Equal(c.buf[i:], whole)
	}
	return bytes.Equal(c.buf[i:i+int64(len(text))], text)
}

// result writes the lines of the file at hand.
func (r *rgReader) result(name string) {
	var b []byte
	last := int64(0)
	for _, l := range r.lines {
		mark := byte('-')
		if l.match {
			mark = ':'
		}
		if r.context > 0 && last > 0 && l.number > last+1 {
			b = r.searcher.appendGap(b)
		}
		last = l.number
		b = r.searcher.appendLine(b, name, l.number, mark, content(l.text))
		if len(b) > 64<<10 {
			_, _ = r.out.Write(b) // whose error the run has
			b = b[:0]
		}
	}
	_, _ = r.out.Write(b)
}

// rust writes an expression so that every line that matches here matches there: classes as
// ranges, for tables of Unicode differ, and a byte that is no UTF-8 beside what Go takes
// it for. ok is false for what cannot be said.
func rust(re *syntax.Regexp) (string, bool) {
	var b strings.Builder
	ok := writeRust(&b, re)
	return b.String(), ok && b.Len() < 100<<10
}

func writeRust(b *strings.Builder, re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEmptyMatch:
		b.WriteString("(?:)")
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			ranges := []rune{r, r}
			if re.Flags&syntax.FoldCase != 0 {
				for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
					ranges = append(ranges, f, f)
				}
			}
			if !writeClass(b, ranges) {
				return false
			}
		}
	case syntax.OpCharClass:
		return writeClass(b, without(re.Rune, '\n'))
	case syntax.OpAnyCharNotNL, syntax.OpAnyChar:
		b.WriteString(`(?:[^\n]|(?-u:[\x80-\xff]))`)
	case syntax.OpBeginLine, syntax.OpBeginText:
		b.WriteString(`(?m:^)`)
	case syntax.OpEndLine, syntax.OpEndText:
		b.WriteString(`(?:\r?(?m:$))`)
	case syntax.OpWordBoundary:
		b.WriteString(`(?-u:\b)`)
	case syntax.OpNoWordBoundary:
		b.WriteString(`(?-u:\B)`)
	case syntax.OpCapture, syntax.OpConcat:
		b.WriteString("(?:")
		for _, sub := range re.Sub {
			if !writeRust(b, sub) {
				return false
			}
		}
		b.WriteString(")")
	case syntax.OpAlternate:
		for i, sub := range re.Sub {
			b.WriteString([]string{"(?:", "|"}[min(i, 1)])
			if !writeRust(b, sub) {
				return false
			}
		}
		b.WriteString(")")
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		b.WriteString("(?:")
		if !writeRust(b, re.Sub[0]) {
			return false
		}
		b.WriteString(")")
		switch re.Op {
		case syntax.OpStar:
			b.WriteString("*")
		case syntax.OpPlus:
			b.WriteString("+")
		case syntax.OpQuest:
			b.WriteString("?")
		case syntax.OpRepeat:
			if re.Max < 0 {
				fmt.Fprintf(b, "{%d,}", re.Min)
			} else {
				fmt.Fprintf(b, "{%d,%d}", re.Min, re.Max)
			}
		}
	default:
		return false
	}
	return true
}

// writeClass writes ranges of runes as a class, with the bytes that Go reads as U+FFFD
// where that is among them.
func writeClass(b *strings.Builder, ranges []rune) bool {
	if len(ranges) == 0 {
		return false
	}
	broken := false
	b.WriteString("(?:[")
	for i := 0; i < len(ranges); i += 2 {
		lo, hi := ranges[i], ranges[i+1]
		if lo <= '\n' && hi >= '\n' {
			return false // a line never has it
		}
		broken = broken || lo <= unicode.ReplacementChar && hi >= unicode.ReplacementChar
		// Surrogates are no characters there.
		for _, part := range [][2]rune{{lo, min(hi, 0xd7ff)}, {max(lo, 0xe000), hi}} {
			if part[0] <= part[1] {
				fmt.Fprintf(b, `\x{%x}-\x{%x}`, part[0], part[1])
			}
		}
	}
	b.WriteString("]")
	if broken {
		b.WriteString(`|(?-u:[\x80-\xff])`)
	}
	b.WriteString(")")
	return true
}
