package read

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func tarWith(t testing.TB, name string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(data)), Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipOf(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchivesInArchivesAreRead(t *testing.T) {
	inner := tarWith(t, "in/x.txt", []byte("one\ntwo\n"))
	path := put(t, "n.zip", zipOf(t, map[string][]byte{
		"dir/a.tar": inner, "a.tar.gz": gzipOf(t, inner), "log.gz": gzipOf(t, []byte("log\n")),
		"b:c.tar": inner, "j.jar": zipOf(t, map[string][]byte{"META-INF/MANIFEST.MF": []byte("m\n"), "10-20": []byte("digits\n")}),
		"three.tar": tarWith(t, "two.zip", zipOf(t, map[string][]byte{"one.tar.gz": gzipOf(t, inner)})),
	}))
	for _, c := range []struct{ name, text, url string }{
		{":dir/a.tar", "in/x.txt  8 B\n", ":dir/a.tar"},
		{":dir/a.tar:in", "in/x.txt  8 B\n", ":dir/a.tar:in/"},
		{":dir/a.tar:in/x.txt", "one\ntwo\n", ":dir/a.tar:in/x.txt"},
		{":/dir/a.tar:/in/x.txt:2", "two\n", ":dir/a.tar:in/x.txt"},
		{":a.tar.gz:in/x.txt", "one\ntwo\n", ":a.tar.gz:in/x.txt"},
		{":log.gz:log", "log\n", ":log.gz:log"},
		{":b:c.tar:in/x.txt", "one\ntwo\n", ":b:c.tar:in/x.txt"},
		{":j.jar:META-INF/MANIFEST.MF", "m\n", ":j.jar:META-INF/MANIFEST.MF"},
		{":j.jar:/10-20", "digits\n", ":j.jar:/10-20"},
		{":three.tar:two.zip:one.tar.gz:in/x.txt:1-1", "one\n", ":three.tar:two.zip:one.tar.gz:in/x.txt"},
	} {
		p, err := Read(t.Context(), nil, path+c.name, Options{})
		if err != nil || p.Text != c.text || p.URL != path+c.url {
			t.Errorf("%s: %q at %s, %v", c.name, p.Text, p.URL, err)
			continue
		}
		// What a page is called is a way to it.
		if again, err := Read(t.Context(), nil, p.URL, Options{}); err != nil || !strings.Contains(again.Text, p.Text) {
			t.Errorf("%s: %q, %v", p.URL, again.Text, err)
		}
	}
	for name, want := range map[string]string{
		":dir/a.tar:nope":                  path + `:dir/a.tar has no member "nope": it has in/x.txt`,
		":nope:in/x.txt":                   path + ` has no member "nope:in/x.txt"`,
		":dir/a.tar:in/x.txt:xyz":          "reading " + path + ":dir/a.tar:in/x.txt: Invalid selector ':xyz'",
		":dir/a.tar:in/x.txt:y/z":          path + `:dir/a.tar:in/x.txt is no archive, so there is no "y/z" in it`,
		strings.Repeat(":", 100_000) + "x": "has no member",
	} {
		if _, err := Read(t.Context(), nil, path+name, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: %.200v", name, err)
		}
	}
}

func TestArchivesInEachOtherHaveABound(t *testing.T) {
	data := []byte("deep\n")
	name := ""
	for i := range maxNesting + 1 {
		data = tarWith(t, fmt.Sprint(i), data)
		name = fmt.Sprintf(":/%d", i) + name
	}
	path := put(t, "deep.tar", data)
	if _, err := Read(t.Context(), nil, path+name, Options{}); err == nil || !strings.Contains(err.Error(), "is the last of 4 archives in each other that are read") {
		t.Error(err)
	}
	if p, err := Read(t.Context(), nil, path+strings.TrimSuffix(name, ":/0"), Options{}); err != nil || !strings.Contains(p.Text, "0  5 B") {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestWhatStandsBehindAPlainFileIsToldForWhatItIs(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, data := range map[string][]byte{"plain.txt": []byte("one\n"), "n.zip": zipOf(t, map[string][]byte{"a": nil})} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join("d"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"plain.txt:xyz":   "reading plain.txt: Invalid selector ':xyz'. Use :N",
		"plain.txt:-0":    "reading plain.txt: Tail selector -0 is invalid; use :-1 for the last line.",
		"plain.txt:5-2":   "reading plain.txt: Invalid range 5-2",
		"plain.txt:a/b":   `plain.txt is no archive, so there is no "a/b" in it: select lines, as in plain.txt:10-20`,
		"plain.txt/x":     "plain.txt is a file, not a directory, so there is nothing below it: read plain.txt",
		"plain.txt/x/y:3": "plain.txt is a file, not a directory, so there is nothing below it: read plain.txt",
		"n.zip/a":         "n.zip is an archive, not a directory: its member is read as n.zip:a",
		"d:xyz":           `d is a directory, and "xyz" selects no lines of its list: read d/NAME for what is in it`,
	} {
		if _, err := Read(t.Context(), nil, name, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
