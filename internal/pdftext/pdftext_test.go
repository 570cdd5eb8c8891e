package pdftext

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Main()
	goleak.VerifyTestMain(m)
}

// document puts objects together; those of streams are "<<...>> stream\n...".
func document(objects ...string) []byte {
	var b bytes.Buffer
	var at []int
	b.WriteString("%PDF-1.4\n")
	for i, o := range objects {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	xref := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(at)+1)
	for _, off := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", off)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(at)+1, xref)
	return b.Bytes()
}

func stream(content string) string {
	return fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", len(content), content)
}

// drawn is a page with that content, fonts F1 (widths are not known) and F2 (each letter is
// half as wide as high), and a form X1.
func drawn(content string) []byte {
	widths := strings.Repeat("500 ", 224)
	return document(
		"<< /Type /Catalog /Pages 2 0 R >>",
		"<< /Type /Pages /Kids [ 3 0 R ] /Count 1 >>",
		"<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F1 5 0 R /F2 6 0 R >> /XObject << /X1 7 0 R >> >> >>",
		stream(content),
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
		"<< /Type /Font /Subtype /TrueType /BaseFont /Own /Encoding /WinAnsiEncoding /FirstChar 32 /LastChar 255 /Widths [ "+widths+"] >>",
		"<< /Subtype /Form /Resources << /Font << /F9 6 0 R >> /XObject << /X1 7 0 R >> >> /Matrix [1 0 0 1 0 0] /Length 53 >>\nstream\nBT /F9 10 Tf 50 500 Td (in a form) Tj ET /X1 Do     \nendstream",
	)
}

func file(t testing.TB, data []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.pdf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func texts(t testing.TB, data []byte) (list []string, pages int, err error) {
	t.Helper()
	pages, err = Read(t.Context(), file(t, data), 1, 1000, func(p Page) bool {
		if p.Err != nil {
			list = append(list, p.Err.Error())
		} else {
			list = append(list, p.Text)
		}
		return true
	})
	return list, pages, err
}

func TestTextIsLaidOutAsItStands(t *testing.T) {
	if testing.Short() {
		t.Skip("lays out many pages; run without -short")
	}
	for _, c := range []struct{ name, content, want string }{
		{"lines", "BT /F2 10 Tf 14 TL 50 700 Td (one) Tj T* (two) Tj ET", "one\ntwo\n"},
		{"a paragraph", "BT /F2 10 Tf 50 700 Td (one) Tj 0 -30 Td (two) Tj ET", "one\n\ntwo\n"},
		{"words that are moved", "BT /F2 10 Tf 50 700 Td (one) Tj 18 0 Td (two) Tj ET", "one two\n"},
		{"a word in pieces", "BT /F2 10 Tf 50 700 Td (on) Tj 10 0 Td (e) Tj ET", "one\n"},
		{"kerning", "BT /F2 10 Tf 50 700 Td [(W) 80 (o) -20 (rd) -300 (next)] TJ ET", "Word next\n"},
		{"a matrix", "BT /F2 1 Tf 10 0 0 10 50 700 Tm (one) Tj 10 0 0 10 68 700 Tm (two) Tj ET", "one two\n"},
		{"a scaled page", "q 0.1 0 0 0.1 0 0 cm BT /F2 100 Tf 500 7000 Td (one) Tj 150 0 Td (two) Tj ET Q BT /F2 10 Tf 50 100 Td (x) Tj ET", "onetwo\n\nx\n"},
		{"quotes", "BT /F2 10 Tf 12 TL 50 700 Td (one) ' 1 0 (two) \" ET", "one\ntwo\n"},
		{"no widths", "BT /F1 10 Tf 50 700 Td (one two) Tj ET", "one two\n"},
		{"a raised letter", "BT /F2 10 Tf 50 700 Td (x) Tj 3 Ts (2) Tj ET", "x2\n"},
		{"characters of Windows", "BT /F2 10 Tf 50 700 Td (\\223gr\\374n\\224 \\200) Tj ET", "“grün” €\n"},
		{"a form that draws itself", "BT /F2 10 Tf 50 700 Td (before) Tj ET /X1 Do", "before\n\nin a form" + strings.Repeat(" in a form", maxForms-1) + "\n"},
		{"nothing", "0 0 10 10 re f", ""},
		{"no font", "BT /F7 10 Tf (x) Tj ET", ""},
		{"operators without operands", "BT Tf Td TJ Tj ' \" Tm cm Q Q Do TL Tc ET", ""},
	} {
		list, pages, err := texts(t, drawn(c.content))
		if err != nil || pages != 1 || len(list) != 1 || list[0] != c.want {
			t.Errorf("%s: %q, %d pages, %v", c.name, list, pages, err)
		}
	}
}

func TestWhatIsNoPDFIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("reads thousands of broken files; run without -short")
	}
	whole := drawn("BT /F2 10 Tf (x) Tj ET")
	for name, data := range map[string][]byte{
		"nothing": nil, "text": []byte("hello\n"), "half": whole[:len(whole)/2], "no pages": document("<< /Type /Catalog >>"),
		"too many pages": document("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [ ] /Count 99999999 >>"),
	} {
		if list, _, err := texts(t, data); !errors.Is(err, ErrDamaged) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q, %v", name, list, err)
		}
	}
	list, pages, err := texts(t, document("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [ 9 0 R ] /Count 2 >>"))
	if err != nil || pages != 2 || len(list) != 2 || !strings.Contains(list[0], "page 1 cannot be read: ") {
		t.Errorf("%q, %d, %v", list, pages, err)
	}
}

// A file that takes memory without end ends its own process, and nothing else.
func TestABombIsEnded(t *testing.T) {
	if testing.Short() {
		t.Skip("decompresses megabytes; run without -short")
	}
	defer func(most uint64) { memory = most }(memory)
	memory = 96 << 20
	var packed bytes.Buffer
	w := zlib.NewWriter(&packed)
	// One string that does not end.
	if _, err := w.Write(bytes.Repeat([]byte("("), 128<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	content := fmt.Sprintf("<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream", packed.Len(), packed.String())
	list, _, err := texts(t, document("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [ 3 0 R ] /Count 1 >>", "<< /Type /Page /Parent 2 0 R /Contents 4 0 R >>", content))
	if !errors.Is(err, ErrTooMuch) || len(list) > 0 {
		t.Errorf("%.100q, %v", list, err)
	}
}

func TestReadingEndsWhenThereIsEnoughOrNobodyWaits(t *testing.T) {
	var kids string
	objects := []string{"<< /Type /Catalog /Pages 2 0 R >>", ""}
	for i := range 500 {
		kids += fmt.Sprintf("%d 0 R ", 3+2*i)
		objects = append(objects, fmt.Sprintf("<< /Type /Page /Parent 2 0 R /Contents %d 0 R >>", 4+2*i), stream("BT ET"))
	}
	objects[1] = fmt.Sprintf("<< /Type /Pages /Kids [ %s] /Count 500 >>", kids)
	f := file(t, document(objects...))
	n := 0
	pages, err := Read(t.Context(), f, 7, 400, func(p Page) bool { n++; return p.Number < 9 })
	if err != nil || pages != 500 || n != 3 {
		t.Errorf("%d of %d pages, %v", n, pages, err)
	}
	if pages, err := Read(t.Context(), f, 501, 600, func(Page) bool { t.Error("a page"); return true }); err != nil || pages != 500 {
		t.Errorf("%d, %v", pages, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Read(ctx, f, 1, 500, func(Page) bool { cancel(); return true })
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The interpreter of pages takes any content; the parser is the library's, in a child.
func FuzzLayOut(f *testing.F) {
	f.Add("one", 1.0, 2.0, 3.0, 4.0, "two")
	f.Fuzz(func(t *testing.T, a string, x, y, end, size float64, b string) {
		text := layOut([]run{{x, y, end, size, a}, {y, x, size, end, b}})
		if strings.ContainsAny(text, "\r\x1b\x00") {
			t.Errorf("%q", text)
		}
	})
}
