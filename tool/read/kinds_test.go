package read

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/unicode"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/internal/picture"
	"github.com/agentrun/agentrun/internalurl"
)

func TestMain(m *testing.M) {
	Main()
	goleak.VerifyTestMain(m)
}

func put(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func zipOf(t testing.TB, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, data := range files {
		m, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// storedOf is a zip archive with a member that is not compressed, and others around it.
func storedOf(t testing.TB, name string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range []struct {
		name string
		data []byte
	}{{"before", []byte("before")}, {name, data}, {"behind", []byte("behind")}} {
		f, err := w.CreateHeader(&zip.FileHeader{Name: m.name, Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(m.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func pngOf(t testing.TB, w, h int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// pdfOf is a PDF with a text on each page.
func pdfOf(pages ...string) []byte {
	var b bytes.Buffer
	var at []int
	object := func(format string, args ...any) {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", len(at), fmt.Sprintf(format, args...))
	}
	b.WriteString("%PDF-1.4\n")
	var kids strings.Builder
	for i := range pages {
		fmt.Fprintf(&kids, "%d 0 R ", 4+2*i)
	}
	object("<< /Type /Catalog /Pages 2 0 R >>")
	object("<< /Type /Pages /Kids [ %s] /Count %d >>", kids.String(), len(pages))
	object("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
	for i, text := range pages {
		var content strings.Builder
		content.WriteString("BT /F1 12 Tf 14 TL 50 800 Td\n")
		for line := range strings.Lines(text) {
			fmt.Fprintf(&content, "(%s) Tj T*\n", strings.TrimSpace(line))
		}
		content.WriteString("ET")
		object("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 850] /Contents %d 0 R /Resources << /Font << /F1 3 0 R >> >> >>", 5+2*i)
		object("<< /Length %d >>\nstream\n%s\nendstream", content.Len(), content.String())
	}
	xref := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(at)+1)
	for _, off := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", off)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(at)+1, xref)
	return b.Bytes()
}

// notebookOf has n cells with a picture each.
func notebookOf(t testing.TB, n int) []byte {
	t.Helper()
	picture := base64.StdEncoding.EncodeToString(pngOf(t, 20, 10))
	var cells []any
	for i := range n {
		cells = append(cells, map[string]any{
			"cell_type": "code", "execution_count": i, "source": []string{fmt.Sprintf("plot(%d)\n", i), strings.Repeat("# x\n", 50)},
			"outputs": []any{map[string]any{"output_type": "display_data", "data": map[string]any{"image/png": picture, "text/plain": "<Figure>"}}},
		})
	}
	data, err := json.Marshal(map[string]any{"nbformat": 4, "cells": cells, "metadata": map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func encoded(t testing.TB, e encoding.Encoding, text string) []byte {
	t.Helper()
	data, err := e.NewEncoder().Bytes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestTextIsShownWhateverItsEncodingIs(t *testing.T) {
	const german = "Grüße aus Köln\nund später\n"
	const nippon = "吾輩は猫である。名前はまだ無い。\nどこで生れたかとんと見当がつかぬ。\n"
	far := strings.Repeat("plain\n", 20_000)
	for _, c := range []struct {
		name       string
		data       []byte
		text, want string
	}{
		{"UTF-8", []byte(german), german, ""},
		{"UTF-8 with a mark", []byte("\xef\xbb\xbf" + german), german, "UTF-8 with a byte order mark"},
		{"Latin-1", encoded(t, charmap.ISO8859_1, german), german, "ISO-8859-1"},
		{"UTF-16 with a mark", encoded(t, unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), german), german, "UTF-16LE with a byte order mark"},
		{"UTF-16, the other order", encoded(t, unicode.UTF16(unicode.BigEndian, unicode.UseBOM), nippon), nippon, "UTF-16BE with a byte order mark"},
		{"UTF-16 without a mark", encoded(t, unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM), german), german, "UTF-16LE"},
		{"Shift-JIS", encoded(t, japanese.ShiftJIS, nippon), nippon, "Shift-JIS"},
		{"Latin-1 far behind the beginning", encoded(t, charmap.ISO8859_1, far+german), far + german, "ISO-8859-1"},
		{"nothing", nil, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := put(t, "f", c.data)
			p, err := Read(t.Context(), nil, path+":-2", Options{})
			lines := strings.SplitAfter(strings.TrimSuffix(c.text, "\n"), "\n")
			want := strings.Join(lines[max(len(lines)-2, 0):], "")
			if err != nil || strings.TrimSuffix(p.Text, "\n") != want || p.Encoding != c.want || p.Size != int64(len(c.data)) {
				t.Errorf("%q, %s, %d bytes, %v", p.Text, p.Encoding, p.Size, err)
			}
			var raw bytes.Buffer
			if _, err := Copy(t.Context(), &raw, nil, path, Options{}); err != nil || !bytes.Equal(raw.Bytes(), c.data) {
				t.Errorf("raw: %d bytes, %v", raw.Len(), err)
			}
		})
	}
}

// follow reads pages as each advises, and returns their texts.
func follow(t *testing.T, o Opener, target string, opt Options) (text string, pages, pictures int) {
	t.Helper()
	var got strings.Builder
	for ; target != ""; pages++ {
		if pages > 2000 {
			t.Fatal("no end")
		}
		p, err := Read(t.Context(), o, target, opt)
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		if len(p.Text) > MaxBytes || strings.Count(p.Text, "\n") > MaxLines || len(p.Images) > maxPictures {
			t.Fatalf("%s: %d bytes, %d pictures", target, len(p.Text), len(p.Images))
		}
		got.WriteString(p.Text)
		pictures += len(p.Images)
		target = ""
		for _, n := range p.Notes {
			if rest, ok := strings.CutSuffix(n, " to continue"); ok {
				target = rest[strings.LastIndex(rest, "Use ")+4:]
			}
		}
	}
	return got.String(), pages, pictures
}

// Pages that follow each other are the whole, once, whatever it is.
func TestPagesOfEveryKindAreTheWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var mixed strings.Builder // lines of all lengths, some of many pages
	for i := range 400 {
		size := r.IntN(300)
		if i%100 == 50 {
			size = 120_000
		}
		mixed.WriteString(strings.Repeat([]string{"é", "x", "日", "😀"}[i%4], size/4) + "\n")
	}
	var pdfPages []string
	var pdfText strings.Builder
	for i := range 60 {
		lines := 40
		if i == 30 {
			lines = 7000 // more than a page of text
		}
		var page strings.Builder
		for l := range lines {
			fmt.Fprintf(&page, "page %d line %d of the document\n", i+1, l)
		}
		pdfPages = append(pdfPages, page.String())
		fmt.Fprintf(&pdfText, "--- page %d ---\n%s", i+1, page.String())
	}
	many := map[string][]byte{}
	for i := range 9000 {
		many[fmt.Sprintf("dir/file-%04d.txt", i)] = nil
	}
	dir := t.TempDir()
	for i := range 5000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := mixed.String()
	for _, c := range []struct {
		name, target string
		data         []byte
		want         string // "" is only counted
		pages        int    // at least
	}{
		{"text", "a.txt", []byte(text), text, 9},
		{"text without a last newline", "a.txt", []byte(strings.TrimSuffix(text, "\n")), strings.TrimSuffix(text, "\n"), 9},
		{"one line", "a.js", []byte(strings.Repeat("日本", 100_000)), strings.Repeat("日本", 100_000), 10},
		{"UTF-16", "a.txt", encoded(t, unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), text), text, 9},
		{"a member of an archive", "a.zip:dir/x.txt", zipOf(t, map[string][]byte{"dir/x.txt": []byte(text), "y": nil}), text, 9},
		{"a member in another encoding", "a.zip:/10-20", zipOf(t, map[string][]byte{"10-20": encoded(t, unicode.UTF16(unicode.BigEndian, unicode.UseBOM), text)}), text, 9},
		{"a member that is stored as it is", "a.zip:x.txt", storedOf(t, "x.txt", []byte(text)), text, 9},
		{"a member of a tar archive", "a.tar:dir/x.txt", slices.Concat(tarOf(t, "dir/x.txt", int64(len(text))), []byte(text), make([]byte, 2048)), text, 9},
		{"an archive", "a.zip", zipOf(t, many), "", 3},
		{"a directory of an archive", "a.zip:dir/", zipOf(t, many), "", 3},
		{"a PDF", "a.pdf", pdfOf(pdfPages...), pdfText.String(), 4},
		{"a PDF in an archive", "a.zip:x.pdf", zipOf(t, map[string][]byte{"x.pdf": pdfOf(pdfPages...)}), pdfText.String(), 4},
		{"some pages of a PDF", "a.pdf:p2-40", pdfOf(pdfPages...), between(pdfText.String(), "--- page 2 ---", "--- page 41 ---"), 4},
		{"a notebook", "a.ipynb", notebookOf(t, 100), "", 8},
		{"a directory", "", nil, "", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			target := dir
			if c.target != "" {
				name, rest, _ := strings.Cut(c.target, ":")
				target = put(t, name, c.data)
				if rest != "" {
					target += ":" + rest
				}
			}
			got, pages, pictures := follow(t, nil, target, Options{})
			if pages < c.pages || c.want != "" && got != c.want {
				t.Errorf("%d pages, %d bytes, want %d", pages, len(got), len(c.want))
			}
			switch c.name {
			case "an archive", "a directory of an archive":
				if n := strings.Count(got, "\n"); n != 9000 {
					t.Errorf("%d members", n)
				}
			case "a notebook":
				if pictures != 100 || strings.Count(got, "image/png of ") != 100 || !strings.Contains(got, "plot(99)") {
					t.Errorf("%d pictures", pictures)
				}
			case "a directory":
				if n := strings.Count(got, "\n"); n != 5000 {
					t.Errorf("%d files", n)
				}
			}
			// With numbers it is the same text.
			numbered, _, _ := follow(t, nil, target, Options{Numbers: true})
			if !strings.HasPrefix(numbered, "1\t") || len(numbered) <= len(got) {
				t.Errorf("numbers: %.30q", numbered)
			}
		})
	}
}

func between(s, from, to string) string {
	return s[strings.Index(s, from):strings.Index(s, to)]
}

func TestPicturesAreShownFromWhereverTheyAre(t *testing.T) {
	large, small := pngOf(t, 4000, 10), pngOf(t, 20, 10)
	store := memory.New(blobstore.Verified)
	ref, err := blobstore.Put(t.Context(), store, small)
	if err != nil {
		t.Fatal(err)
	}
	urls := internalurl.NewRouter(internalurl.Sources{Blobs: store})
	archived := put(t, "a.zip", zipOf(t, map[string][]byte{"p.png": large}))
	for _, c := range []struct {
		target   string
		width    int
		original blobref.Ref
	}{
		{put(t, "p.png", large), picture.MaxSide, blobref.Of(large)},
		{put(t, "noname", small), 20, blobref.Ref{}},
		{archived + ":p.png", picture.MaxSide, blobref.Of(large)},
		{"blob://sha256/" + ref.Hex(), 20, ref},
	} {
		p, err := Read(t.Context(), urls, c.target, Options{Blobs: store})
		if err != nil || len(p.Images) != 1 || p.ContentType != "image/png" {
			t.Fatalf("%s: %+v, %v", c.target, p, err)
		}
		cfg, err := png.DecodeConfig(bytes.NewReader(p.Images[0].Data))
		if err != nil || cfg.Width != c.width {
			t.Errorf("%s: %d wide, %v", c.target, cfg.Width, err)
		}
		original := ""
		if !c.original.IsZero() {
			original = c.original.String()
			if _, err := store.Get(t.Context(), c.original); err != nil {
				t.Errorf("%s: the original is not kept: %v", c.target, err)
			}
		}
		if p.Images[0].Original != original {
			t.Errorf("%s: the original is %q", c.target, p.Images[0].Original)
		}
	}
}

func TestWhatCannotBeShownIsDescribed(t *testing.T) {
	pdf := pdfOf("text")
	for _, c := range []struct {
		name   string
		data   []byte
		sel    string
		want   string // in the notes
		refuse string // in the error
	}{
		{"x", []byte("\x7fELF\x02\x01\x01\x00\x00\x00"), "", "begins with 7f 45 4c 46 02 01 01 00 00 00", ""},
		{"damaged.png", pngOf(t, 20, 10)[:40], "", "which cannot be shown: it is damaged", ""},
		{"damaged.zip", zipOf(t, map[string][]byte{"a": []byte("b")})[:50], "", "It begins as zip does, but", ""},
		{"damaged.pdf", pdf[:len(pdf)/2], "", "It is a PDF, but: it cannot be read as PDF", ""},
		{"damaged.pdf", pdf[:len(pdf)/2], ":p1", "", "it cannot be read as PDF"},
		{"a.pdf", pdf, ":p2", "", "page 2 is beyond the end"},
		{"a.txt", []byte("text\n"), ":p2", "", "it has no pages"},
		{"a.txt", []byte("text\n"), ":dir/x", "", "is no archive"},
		{"a.zip", zipOf(t, map[string][]byte{"a": nil}), ":b", "", `has no member "b": it has a`},
		{"no.ipynb", []byte(`{"cells": 1}`), "", "", ""},
	} {
		p, err := Read(t.Context(), nil, put(t, c.name, c.data)+c.sel, Options{})
		if c.refuse != "" {
			if err == nil || !strings.Contains(err.Error(), c.refuse) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s%s: %+v, %v", c.name, c.sel, p, err)
			}
			continue
		}
		if err != nil || !strings.Contains(strings.Join(p.Notes, "\n"), c.want) {
			t.Errorf("%s%s: %q, %v", c.name, c.sel, p.Notes, err)
		}
	}
}

func TestWhatCommandsPrintIsNotGuessedAt(t *testing.T) {
	urls := fixture(t, map[string]string{"0.bash.log": "gr\xfcn\n", "1.bash.log": "\xff\xfeh\x00i\x00", "2.bash.log": string(zipOf(t, map[string][]byte{"d/x": []byte("in\n")}))})
	for target, want := range map[string]string{"artifact://0": "gr\uFFFDn\n", "artifact://1": "hi", "artifact://2": "d/x  3 B\n", "artifact://2:/d/x": "in\n", "artifact://2:/d/x:1": "in\n"} {
		p, err := Read(t.Context(), urls, target, Options{})
		if err != nil || p.Text != want {
			t.Errorf("%s: %q, %v", target, p.Text, err)
		}
	}
}

// Whatever a file holds, it is shown or refused in one sentence.
func FuzzRead(f *testing.F) {
	f.Add(zipOf(f, map[string][]byte{"a": []byte("b")}), "a")
	f.Add(notebookOf(f, 1), "")
	f.Add(pngOf(f, 3, 2), "")
	f.Add([]byte("\xff\xfea\x00"), "1@1")
	f.Add([]byte("gr\xfcn\n"), "raw")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, sel string) {
		if bytes.HasPrefix(data, []byte("%PDF-")) {
			return // a process for each takes too long
		}
		path := filepath.Join(dir, "f.ipynb")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(sel, "/\x00") {
			return
		}
		p, err := Read(t.Context(), nil, path+":"+sel, Options{Numbers: len(data)%2 == 0})
		if err == nil && len(p.Text) > MaxBytes && !strings.Contains(sel, "raw") {
			t.Errorf("%d bytes", len(p.Text))
		}
	})
}

// Pages of a large file, of which no more is read than it takes, are the whole too.
func TestPagesOfLargeFilesAreTheWhole(t *testing.T) {
	defer func(from int64) { lazyFrom = from }(lazyFrom)
	lazyFrom = 100
	short, long := numbered(20_000), strings.Repeat("日本 ", 50_000)
	many := numbered(200_000)
	latin := strings.Repeat("Grüße aus Köln, später mehr\n", 10_000)
	for _, c := range []struct {
		name, text string
		data       []byte
		sel        string
		note       string
	}{
		{"short lines", short, []byte(short), "", "Showing lines 1-3000 of 20000."},
		{"many lines", many, []byte(many), "", "Showing lines 1-3000 of 2.2 MB."},
		{"a range of many lines", between(many, "line 10\n", "line 9001\n"), []byte(many), ":10-9000", "Showing lines 10-3009 of 2.2 MB."},
		{"many lines to the end", many[strings.Index(many, "line 190000\n"):], []byte(many), ":190000", ""},
		{"without a last newline", short + "end", []byte(short + "end"), "", ""},
		{"one long line", long, []byte(long), "", ""},
		{"long lines", long + "\n" + long + "\n" + short, []byte(long + "\n" + long + "\n" + short), "", ""},
		{"Latin-1", latin, encoded(t, charmap.ISO8859_1, latin), "", "It is ISO-8859-1"},
		{"UTF-16", latin, encoded(t, unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), latin), "", "of 10000"},
		{"a range", between(short, "line 10\n", "line 9001\n"), []byte(short), ":10-9000", ""},
		{"to the end", short[strings.Index(short, "line 10\n"):], []byte(short), ":10", ""},
		{"beyond the end", short[strings.Index(short, "line 19990\n"):], []byte(short), ":19990-30000", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := put(t, "f", c.data)
			if got, _, _ := follow(t, nil, path+c.sel, Options{}); got != c.text {
				t.Errorf("%d bytes, want %d", len(got), len(c.text))
			}
			p, err := Read(t.Context(), nil, path+c.sel, Options{})
			if err != nil || !strings.Contains(strings.Join(p.Notes, "\n"), c.note) {
				t.Errorf("%q, %v", p.Notes, err)
			}
		})
	}
	path := put(t, "f", []byte(short))
	if p, err := Read(t.Context(), nil, path+":30000", Options{}); err == nil || !strings.Contains(err.Error(), "(20000 lines total)") {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := Read(t.Context(), nil, path+":1-2,19999-20000", Options{}); err != nil || !strings.HasSuffix(p.Text, "line 20000\n") {
		t.Errorf("%q, %v", p.Text, err)
	}
	if p, err := Read(t.Context(), nil, path+":-1", Options{}); err != nil || p.Text != "line 20000\n" || p.Lines != 20_000 {
		t.Errorf("%q, %v", p.Text, err)
	}
}

// A page takes what it shows, and what it takes to count lines, whatever the size of the file is.
func TestMemoryIsThatOfAPage(t *testing.T) {
	const size = 5 << 30
	for _, c := range []struct{ name, head, want string }{
		{"text", strings.Repeat("line\n", 4000), "line\n"},
		{"binary", "\x7fELF\x00", ""},
		{"a tar", string(tarOf(t, "hole", size-1024)), "hole"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := put(t, "f", []byte(c.head))
			if err := os.Truncate(path, size); err != nil {
				t.Skipf("no sparse file of %d bytes: %v", int64(size), err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p, err := Read(t.Context(), nil, path, Options{})
			runtime.ReadMemStats(&after)
			if err != nil || !strings.HasPrefix(p.Text, c.want) || p.Size != size {
				t.Fatalf("%.50q, %d bytes, %q, %v", p.Text, p.Size, p.Notes, err)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
				t.Errorf("it allocated %d bytes", took)
			}
		})
	}
}

// tarOf is the beginning of an archive with one file of that size.
func tarOf(t testing.TB, name string, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What a page of a file does not show of its lines is told.
func TestControlSequencesThatAreLeftOutAreTold(t *testing.T) {
	for _, c := range []struct {
		name, data, text, note string
		opt                    Options
	}{
		{"plain text", "a\tb\n", "a\tb\n", "", Options{}},
		{"carriage returns at the ends of lines", "a\r\nb\r\n", "a\nb\n", "", Options{}},
		{"such a line end between two blocks", strings.Repeat("x", 32<<10-1) + "\r\n", strings.Repeat("x", 32<<10-1) + "\n", "", Options{}},
		{"a byte order mark", "\ufeffa\n", "a\n", "", Options{}},
		{"carriage returns instead of line ends", "one\rtwo\rthree", "three", "8 bytes of control", Options{}},
		{"colours", "\x1b[31mred\x1b[0m\r\n", "red\n", "9 bytes of control", Options{}},
		{"with numbers", "\x1b[31mred\x1b[0m\nx\n", "1\tred\n2\tx\n", "9 bytes of control", Options{Numbers: true}},
		{"on lines that are not shown", "\x1b[31mred\x1b[0m\nx\n", "x\n", "", Options{Offset: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Read(t.Context(), nil, put(t, "f.txt", []byte(c.data)), c.opt)
			notes := strings.Join(p.Notes, "; ")
			if err != nil || p.Text != c.text || !strings.Contains(notes, c.note) || strings.Contains(notes, "control") != (c.note != "") {
				t.Errorf("%q, %q, %v", p.Text, p.Notes, err)
			}
		})
	}
}
