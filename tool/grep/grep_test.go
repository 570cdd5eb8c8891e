package grep

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/tool/find"
	"github.com/agentrun/agentrun/tool/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func files(t testing.TB, content map[string]string) *workspace.Workspace {
	t.Helper()
	dir := t.TempDir()
	for name, data := range content {
		name = filepath.Join(dir, name)
		check(t, os.MkdirAll(filepath.Dir(name), 0o700))
		check(t, os.WriteFile(name, []byte(data), 0o600))
	}
	w, err := workspace.Open(workspace.Options{Dir: dir})
	check(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

func search(t testing.TB, w *workspace.Workspace, o Options, targets ...string) (string, Result) {
	t.Helper()
	var out bytes.Buffer
	res, err := Search(t.Context(), w, nil, o, &out, targets...)
	check(t, err)
	return out.String(), res
}

func TestLinesAreFound(t *testing.T) {
	w := files(t, map[string]string{
		"a.go":     "package a\n\nfunc Open() {}\nfunc Close() {}\n",
		"b.txt":    "one\r\ntwo\r\nthree",
		"dir/c":    "x\ny\nz\nfunc\nx\ny\n",
		"bin":      "func\x00\n",
		"wide":     "\xff\xfef\x00u\x00n\x00c\x00\n\x00",
		"bom":      "\xef\xbb\xbffunc\n",
		"empty":    "",
		"bad":      "caf\xe9 func\n",
		"-":        "dash func\n",
		"new\nlin": "func\n",
	})
	for _, c := range []struct {
		name    string
		o       Options
		targets []string
		want    string
	}{
		{"a literal", Options{Pattern: "func O"}, nil, "a.go:3:func Open() {}\n"},
		{"in any case", Options{Pattern: "OPEN", IgnoreCase: true}, nil, "a.go:3:func Open() {}\n"},
		{"an expression", Options{Pattern: `^func \w+\(`}, nil, "a.go:3:func Open() {}\na.go:4:func Close() {}\n"},
		{"the end of a line", Options{Pattern: `(o|e)$`}, []string{"b.txt"}, "b.txt:1:one\nb.txt:2:two\nb.txt:3:three\n"},
		{"empty lines", Options{Pattern: `^$`}, []string{"a.go", "b.txt", "empty"}, "a.go:2:\n"},
		{"context", Options{Pattern: `func`, Context: 1}, []string{"dir"}, "dir/c-3-z\ndir/c:4:func\ndir/c-5-x\n"},
		{"context that touches", Options{Pattern: `[xz]`, Context: 1}, []string{"dir"}, "dir/c:1:x\ndir/c-2-y\ndir/c:3:z\ndir/c-4-func\ndir/c:5:x\ndir/c-6-y\n"},
		{"context that does not", Options{Pattern: `^x`, Context: 1}, []string{"dir"}, "dir/c:1:x\ndir/c-2-y\n--\ndir/c-4-func\ndir/c:5:x\ndir/c-6-y\n"},
		{"a glob", Options{Pattern: "func", Options: find.Options{Globs: []string{"*.go"}}}, nil, "a.go:3:func Open() {}\na.go:4:func Close() {}\n"},
		{"all kinds of files", Options{Pattern: "^.*f.nc$"}, nil, "-:1:dash func\nbad:1:caf\xe9 func\nbin: binary content matches\nbom:1:func\ndir/c:4:func\nnew\nlin:1:func\nwide:1:func\n"},
		{"nothing", Options{Pattern: "nosuch"}, nil, ""},
	} {
		if c.name == "all kinds of files" {
			// A NUL is at the end of what binary content has there.
			c.o.Pattern = "^.*f.nc.?$"
		}
		for _, rg := range []string{None, ""} {
			c.o.Ripgrep, c.o.always = rg, true
			if got, _ := search(t, w, c.o, c.targets...); got != c.want {
				t.Errorf("%s (%s): %q, want %q", c.name, rg, got, c.want)
			}
		}
	}
	_, res := search(t, w, Options{Pattern: "func"})
	if res.Matches != 9 || res.Files != 8 || res.Searched != 10 || len(res.Problems) != 0 {
		t.Errorf("%+v", res)
	}
}

func TestWhatCannotBeSearchedIsAnError(t *testing.T) {
	w := files(t, map[string]string{"a": "a"})
	for _, c := range []struct {
		o      Options
		target string
		want   string
	}{
		{Options{Pattern: "a("}, ".", "no regular expression of Go: missing closing )"},
		{Options{Pattern: "a"}, "nosuch", "nosuch not found"},
		{Options{Pattern: "a"}, "..", "outside of the workspace"},
		{Options{Pattern: "a"}, "artifact://0", "cannot be listed here"},
		{Options{Pattern: "a", Context: -1}, ".", "lines of context"},
		{Options{Pattern: "a", Options: find.Options{Globs: []string{"[a"}}}, ".", "close its brackets"},
		{Options{Pattern: strings.Repeat("(a{1000})", 10) + "{1000}"}, ".", "pattern"},
	} {
		if res, err := Search(t.Context(), w, nil, c.o, io.Discard, c.target); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in %s: %+v, %v, want %q", c.o.Pattern, c.target, res, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Search(ctx, w, nil, Options{Pattern: "a"}, io.Discard); err == nil {
		t.Error("a cancelled search succeeded")
	}
}

// reference is grep in its simplest form.
func reference(expr string, fold bool, name, data string) string {
	if fold {
		expr = "(?i)" + expr
	}
	re := regexp.MustCompile(expr)
	var out strings.Builder
	n := 0
	for line := range strings.Lines(data) {
		n++
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if re.MatchString(line) {
			fmt.Fprintf(&out, "%s:%d:%s\n", name, n, line)
		}
	}
	return out.String()
}

var atoms = []string{"a", "b", "err", "or", "E", "k", "s", "é", "ß", "K", ".", ".*", "^", "$", `\w+`, `\d`, `\s`, `\S`, `\b`, `\B`, "[a-c]", "[^a]", "[[:upper:]]", `\pL`, `\x{fffd}`, "(a|bc)", "(?:x+)", "a?", "b{2,3}", `\.`, `\r`, `\x00`, "(?i:q)", "(?:err|bb|abc)", "(or|ERR)+", `\A`, `\z`, "(?s:.)", "[^\\n]", " "}

func expression(r *rand.Rand) string {
	for {
		var b strings.Builder
		for range 1 + r.IntN(4) {
			b.WriteString(atoms[r.IntN(len(atoms))])
			if r.IntN(6) == 0 {
				b.WriteString("|")
			}
		}
		if _, err := regexp.Compile(b.String()); err == nil {
			return b.String()
		}
	}
}

func randomText(r *rand.Rand) string {
	words := []string{"a", "b", "abc", "bbb", "err", "ERROR", "error", "K", "K", "é", "ß", "ſ", " ", ".", "\r", "\xe9", "\xc3", "\xff", "x", "xx", "q", "Q", "\t", "5", "�", "😀"}
	var b strings.Builder
	for range r.IntN(200) {
		if r.IntN(6) == 0 {
			b.WriteString([]string{"\n", "\n", "\r\n", "\n\n"}[r.IntN(4)])
		}
		b.WriteString(words[r.IntN(len(words))])
	}
	if r.IntN(20) == 0 {
		b.WriteString(strings.Repeat("long ", 3000) + "\x00 err\nabc")
	}
	return b.String()
}

// Random expressions over random texts: the engine, ripgrep and the simplest grep agree to
// the byte.
func TestAllEnginesAgree(t *testing.T) {
	_, err := exec.LookPath("rg")
	if err != nil {
		t.Log("ripgrep is not installed: only the engine of our own is compared")
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	rounds := 5
	if testing.Short() {
		rounds = 3
	}
	content := map[string]string{}
	for i := range 12 {
		content[fmt.Sprintf("f%02d", i)] = randomText(r)
	}
	w := files(t, content)
	for range rounds {
		o := Options{Pattern: expression(r), IgnoreCase: r.IntN(2) == 0, Ripgrep: None}
		var want strings.Builder
		for i := range 12 {
			name := fmt.Sprintf("f%02d", i)
			want.WriteString(reference(o.Pattern, o.IgnoreCase, name, content[name]))
		}
		ours, _ := search(t, w, o)
		if ours != want.String() {
			t.Fatalf("seed %d: %q, %t: %s", seed, o.Pattern, o.IgnoreCase, firstDifference(ours, want.String()))
		}
		for _, context := range []int{0, 2} {
			o.Context, o.Ripgrep, o.always = context, None, true
			ours, _ := search(t, w, o)
			o.Ripgrep = ""
			if rg, _ := search(t, w, o); rg != ours {
				t.Fatalf("seed %d: %q, %t, context %d: ripgrep %s", seed, o.Pattern, o.IgnoreCase, context, firstDifference(rg, ours))
			}
		}
	}
}

func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d is %q, want %q", i, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(a), len(b))
}

// However large a file is and wherever its buffer ends, the lines are the same.
func TestLargeFilesAreSearchedInPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var b strings.Builder
	for b.Len() < 2*block {
		b.WriteString(strings.Repeat("x", r.IntN(3000)))
		if r.IntN(5) == 0 {
			b.WriteString("needle")
		}
		b.WriteString("\n")
	}
	b.WriteString(strings.Repeat("y", 2*block) + "needle\nend needle")
	w := files(t, map[string]string{"f": b.String()})
	want := reference("needle", false, "f", b.String())
	for _, expr := range []string{"needle", "[n]eedl[e]", "(?i)NEEDLE"} {
		for _, rg := range []string{None, ""} {
			if got, _ := search(t, w, Options{Pattern: expr, Ripgrep: rg, always: true}); got != want {
				t.Errorf("%s (%s): %s", expr, rg, firstDifference(got, want))
			}
		}
	}
	one, _ := search(t, w, Options{Pattern: "needle", Context: 3, Ripgrep: None})
	two, _ := search(t, w, Options{Pattern: "[n]eedl[e]", Context: 3, always: true})
	if one != two {
		t.Error(firstDifference(two, one))
	}
}

func FuzzPattern(f *testing.F) {
	for _, a := range atoms {
		f.Add(a+"b", "a b\r\nerr", false)
		f.Add("b"+a, "ab\n\xff\n", true)
	}
	f.Fuzz(func(t *testing.T, expr, text string, fold bool) {
		if len(expr) > 50 || len(text) > 1000 {
			return
		}
		flags := ""
		if fold {
			flags = "(?i)"
		}
		if _, err := regexp.Compile(flags + expr); err != nil {
			return
		}
		p, err := compile(expr, fold)
		if err != nil {
			return
		}
		rust(p.tree)
		if strings.IndexByte(text, 0) >= 0 || strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") || strings.HasPrefix(text, "\xef\xbb\xbf") {
			return
		}
		var out bytes.Buffer
		s := &searcher{pattern: p}
		if _, err := s.search(t.Context(), strings.NewReader(text), "f", &out); err != nil {
			t.Fatal(err)
		}
		if want := reference(expr, fold, "f", text); out.String() != want {
			t.Errorf("%q in %q: %q, want %q", expr, text, out.String(), want)
		}
	})
}

func TestWhatIsNoFileIsToldWhenItIsNamed(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := workspace.Open(workspace.Options{Dir: dir, Roots: []string{"/"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	res, err := Search(t.Context(), w, nil, Options{Pattern: "x"}, io.Discard, "fifo")
	if err != nil || len(res.Problems) != 1 || res.Problems[0] != "fifo is no regular file: it was not searched" {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err := Search(t.Context(), w, nil, Options{Pattern: "x"}, io.Discard, "."); err != nil || len(res.Problems) != 0 {
		t.Errorf("one among others: %+v, %v", res, err)
	}
	// Files that the kernel makes while they are read.
	if res, err := Search(t.Context(), w, nil, Options{Pattern: "^Name:"}, io.Discard, "/proc/self/status"); err != nil || res.Matches != 1 {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestEachProcessorHasTwoCallsOfRipgrep(t *testing.T) {
	g := &ripgrep{}
	for _, procs := range []int{1, 2, 3, 16} {
		for _, files := range []int{1, 99, 100, 101, 799, 2000, 2001, 15_999} {
			calls := 0
			for left := files; left > 0; calls++ {
				n := min(g.batch(files, left, procs), left)
				if n < min(minBatch, left) || n > maxBatch {
					t.Fatalf("%d of %d files on %d processors: a call with %d", left, files, procs, n)
				}
				left -= n
			}
			if most := max(2*procs, files/maxBatch+2*procs); calls > most {
				t.Errorf("%d files on %d processors: %d calls", files, procs, calls)
			}
		}
	}
	if n := g.batch(2000, 2000, 2); n != 750 {
		t.Errorf("the first call has %d files", n)
	}
	if n := g.batch(2000, 500, 2); n != 250 {
		t.Errorf("the third call has %d files", n)
	}
}

func TestALineThatIsTooLongForOnePieceEnds(t *testing.T) {
	defer func(was int) { maxLine = was }(maxLine)
	maxLine = 512 << 10
	w := files(t, map[string]string{"long": "first\n" + strings.Repeat("x", 3*maxLine) + " needle\nbehind\nlast\n"})
	defer w.Close()
	for _, context := range []int{0, 1, 5} {
		res, err := Search(t.Context(), w, nil, Options{Pattern: "needle", Context: context, Ripgrep: None}, io.Discard)
		if err != nil || res.Matches != 1 {
			t.Errorf("%d lines of context: %+v, %v", context, res, err)
		}
	}
}

func TestALargeFileIsNotReadByRipgrep(t *testing.T) {
	rg, err := exec.LookPath("rg")
	if err != nil {
		t.Skip("ripgrep is not installed")
	}
	defer func(was int64) { maxRead = was }(maxRead)
	maxRead = 100
	line := "aa Bb\n"
	w := files(t, map[string]string{"a": line, "b": strings.Repeat(line, 100), "c": line, "d": strings.Repeat(line, 50) + "end"})
	defer w.Close()
	l, err := find.List(t.Context(), w, nil, find.Options{})
	check(t, err)
	defer l.Close()
	var items []*find.Item
	for i := range l.Items {
		items = append(items, &l.Items[i])
	}
	var calls []string
	for len(items) > 0 {
		n, reading := together(items)
		calls = append(calls, fmt.Sprint(n, reading))
		items = items[n:]
	}
	if got := strings.Join(calls, " "); got != "1--no-mmap 1--mmap 1--no-mmap 1--mmap" {
		t.Error(got)
	}
	var with, without bytes.Buffer
	for out, program := range map[*bytes.Buffer]string{&with: rg, &without: None} {
		_, err := Search(t.Context(), w, nil, Options{Pattern: "[A-Z][a-z]$", Context: 1, Ripgrep: program}, out)
		check(t, err)
	}
	if with.String() != without.String() || with.Len() < 100 {
		t.Errorf("%d and %d bytes", with.Len(), without.Len())
	}
}
