package pdftext

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"unicode"

	"github.com/ledongthuc/pdf"
	"golang.org/x/sys/unix"
)

// serve is the process that reads a PDF. Its result is the exit status.
func serve(args []string) int {
	if len(args) != 3 {
		return 1
	}
	first, err1 := strconv.Atoi(args[0])
	last, err2 := strconv.Atoi(args[1])
	memory, err3 := strconv.ParseInt(args[2], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || first < 1 || memory < 1 {
		return 1
	}
	for what, limit := range map[int]uint64{unix.RLIMIT_DATA: uint64(memory), unix.RLIMIT_CPU: 60, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_CORE: 0} {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return 1
		}
	}
	debug.SetMemoryLimit(memory / 4 * 3)
	out := bufio.NewWriter(os.Stdout)
	if err := write(out, os.NewFile(3, "pdf"), first, last); err != nil {
		message := firstLine(err)
		fmt.Fprintf(out, "failed 0 %d\n%s", len(message), message)
	}
	if out.Flush() != nil {
		return 1 // nobody reads it any more
	}
	return 0
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Sprintf("%.300s", line)
}

func write(out *bufio.Writer, f *os.File, first, last int) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	r, err := pdf.NewReader(f, info.Size())
	if err != nil {
		return err
	}
	n, err := count(r)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "pages %d\n", n)
	for i := first; i <= min(last, n); i++ {
		kind := "page"
		text, err := pageText(r, i)
		if err != nil {
			kind, text = "failed", firstLine(err)
		}
		fmt.Fprintf(out, "%s %d %d\n%s", kind, i, len(text), text)
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// recovered makes an error of a panic, which is how the library tells of damage.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%v", r)
	}
}

func count(r *pdf.Reader) (n int, err error) {
	defer recovered(&err)
	n = r.NumPage()
	if n <= 0 || n > 1_000_000 {
		return 0, fmt.Errorf("it says that it has %d pages", n)
	}
	return n, nil
}

func pageText(r *pdf.Reader, number int) (text string, err error) {
	defer recovered(&err)
	p := r.Page(number)
	if p.V.IsNull() {
		return "", fmt.Errorf("it is not there")
	}
	drawn := &page{fonts: map[string]*font{}}
	if contents := p.V.Key("Contents"); !contents.IsNull() {
		drawn.draw(contents, p.Resources(), matrix{1, 0, 0, 1, 0, 0})
	}
	text = layOut(drawn.runs)
	if len(text) > MaxPage {
		text = strings.ToValidUTF8(text[:MaxPage], "") + "\n[the rest of the page is left out]\n"
	}
	return text, nil
}

// layOut makes lines of the runs of a page, in the order in which it draws them.
func layOut(runs []run) string {
	var b strings.Builder
	var last run
	begun, space := false, true
	for _, r := range runs {
		text := printable(r.text)
		if text == "" {
			continue
		}
		if begun {
			high := max(r.size, last.size, 1)
			switch gap, down := r.x-last.end, abs(r.y-last.y); {
			case down > 0.5*high:
				b.WriteByte('\n')
				if down > 1.8*high {
					b.WriteByte('\n') // a paragraph
				}
				space = true
			case (gap > 0.15*high || gap < -high) && !space && !strings.HasPrefix(text, " "):
				b.WriteByte(' ')
			}
		}
		if space && (!begun || strings.HasSuffix(b.String(), "\n")) && strings.TrimSpace(text) == "" {
			last.x, last.end, begun = r.x, r.end, true
			continue
		}
		b.WriteString(text)
		space = strings.HasSuffix(text, " ")
		last, begun = r, true
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}

// printable leaves out what fonts call characters that nobody gave a name.
func printable(s string) string {
	return ligatures.Replace(strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\u00a0':
			return ' '
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
}

// ligatures are letters that a font draws as one.
var ligatures = strings.NewReplacer("\ufb00", "ff", "\ufb01", "fi", "\ufb02", "fl", "\ufb03", "ffi", "\ufb04", "ffl")

func abs(f float64) float64 { return max(f, -f) }
