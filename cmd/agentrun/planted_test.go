package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/rogpeppe/go-internal/testscript"
)

// planted DIR TEXT... fails unless one of the files below DIR, or their names, has one of the texts: as it is, in base64, in hexadecimal,
// escaped or within what is compressed. With ! it fails if one does.
func planted(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: planted DIR TEXT...")
	}
	var places []string
	files := 0
	ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, view := range [][]byte{[]byte(path), data, unpacked(data)} {
			for _, text := range args[1:] {
				for _, form := range formsOf(text) {
					if bytes.Contains(view, []byte(form)) {
						places = append(places, path+": "+form)
					}
				}
			}
		}
		return nil
	}))
	switch {
	case files == 0:
		ts.Fatalf("there is no file below %s", args[0])
	case neg && len(places) > 0:
		ts.Fatalf("in the clear:\n%s", strings.Join(places, "\n"))
	case !neg && len(places) == 0:
		ts.Fatalf("in none of %d files", files)
	}
}

// formsOf are the ways in which a text may stand in a file.
func formsOf(text string) []string {
	forms := []string{text, hex.EncodeToString([]byte(text)), strings.ReplaceAll(text, "/", `\/`), strings.ReplaceAll(text, "/", "%2F")}
	for before, skip := range []int{0, 2, 3} {
		b := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), text...))
		forms = append(forms, b[skip:8*(before+len(text))/6])
	}
	return forms
}

// unpacked is what is compressed, nil if nothing is.
func unpacked(data []byte) []byte {
	var r io.Reader
	switch {
	case bytes.HasPrefix(data, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil
		}
		r = z
	case bytes.HasPrefix(data, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil
		}
		defer z.Close()
		r = z
	default:
		return nil
	}
	out, _ := io.ReadAll(r) // as far as it goes
	return out
}
