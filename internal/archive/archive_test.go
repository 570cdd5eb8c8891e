package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

var contents = map[string]string{"a.txt": "alpha\n", "dir/b.txt": strings.Repeat("beta\n", 10_000), "10-20": "digits\n", "": ""}

func zipped(t testing.TB, method uint16) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range []string{"a.txt", "dir/", "dir/b.txt", "10-20"} {
		m, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(m, contents[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func tarred(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Name: "./a.txt"},
		{Name: "dir/", Typeflag: tar.TypeDir, Mode: 0o700},
		{Name: "dir/b.txt"},
		{Name: "10-20"},
		{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "../../etc/passwd"},
		{Name: "fifo", Typeflag: tar.TypeFifo},
	} {
		content := contents[plain(h.Name)]
		h.Size, h.Mode = int64(len(content)), h.Mode|0o600
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, data []byte) []byte {
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

func zstded(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

func source(data []byte, name string) Source {
	return Source{bytes.NewReader(data), int64(len(data)), name, Detect(data[:min(len(data), Window)])}
}

func TestArchivesAreListedAndTheirMembersRead(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct {
		name   string
		data   []byte
		format Format
		list   string
	}{
		{"zip", zipped(t, zip.Deflate), Zip, "a.txt dir/ dir/b.txt 10-20"},
		{"zip, stored", zipped(t, zip.Store), Zip, "a.txt dir/ dir/b.txt 10-20"},
		{"tar", tarred(t), Tar, "./a.txt dir/ dir/b.txt 10-20 link fifo"},
		{"tar.gz", gzipped(t, tarred(t)), TarGzip, "./a.txt dir/ dir/b.txt 10-20 link fifo"},
		{"tar.zst", zstded(t, tarred(t)), TarZstd, "./a.txt dir/ dir/b.txt 10-20 link fifo"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := source(c.data, "x."+c.name)
			a, err := s.List(ctx)
			if err != nil || a.Cut != "" || a.Format != c.format {
				t.Fatalf("%+v, %v", a, err)
			}
			var names []string
			for _, m := range a.Members {
				names = append(names, m.Name)
			}
			if got := strings.Join(names, " "); got != c.list {
				t.Errorf("members %s", got)
			}
			if below := a.Below("dir"); len(below) != 1 || below[0].Name != "dir/b.txt" {
				t.Errorf("below dir: %+v", below)
			}
			for _, name := range []string{"a.txt", "/a.txt", "./dir/b.txt", "10-20"} {
				m, err := s.Open(ctx, name)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				data, err := io.ReadAll(io.NewSectionReader(m, 0, m.Size))
				if err != nil || string(data) != contents[plain(name)] {
					t.Errorf("%s: %.50q, %v", name, data, err)
				}
			}
			for _, name := range []string{"none", "dir", "dir/", "", "a"} {
				if _, err := s.Open(ctx, name); !errors.Is(err, ErrNoMember) {
					t.Errorf("%q: %v", name, err)
				}
			}
			if c.format == Zip {
				return
			}
			for _, name := range []string{"link", "fifo"} {
				if _, err := s.Open(ctx, name); err == nil {
					t.Errorf("%s was opened", name)
				}
			}
		})
	}
}

func TestACompressedFileIsOneMember(t *testing.T) {
	for _, c := range []struct {
		data   []byte
		name   string
		member string
	}{
		{gzipped(t, []byte("log\n")), "/x/app.log.gz", "app.log"},
		{zstded(t, []byte("log\n")), "app.log.zst", "app.log"},
		{gzipped(t, []byte("log\n")), "0", "content"},
	} {
		s := source(c.data, c.name)
		a, err := s.List(t.Context())
		if err != nil || len(a.Members) != 1 || a.Members[0].Name != c.member {
			t.Fatalf("%+v, %v", a, err)
		}
		m, err := s.Open(t.Context(), c.member)
		if err != nil || m.Size != 4 {
			t.Errorf("%d bytes, %v", m.Size, err)
		}
	}
}

// zeros never end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestABombIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("decompresses megabytes; run without -short")
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.CopyN(w, zeros{}, MaxMember+1); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := source(b.Bytes(), "bomb.gz").Open(t.Context(), "bomb"); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	// A member that claims less than it has.
	lie := bytes.Clone(zipped(t, zip.Deflate))
	at := bytes.LastIndex(lie, []byte("PK\x01\x02"))
	for i := range lie[:at] {
		if bytes.HasPrefix(lie[i:], []byte("PK\x01\x02")) {
			copy(lie[i+24:], "\x01\x00\x00\x00")
		}
	}
	if m, err := source(lie, "lie.zip").Open(t.Context(), "dir/b.txt"); err == nil {
		t.Errorf("%d bytes were read", m.Size)
	}
}

func TestADamagedArchiveIsToldAsSuch(t *testing.T) {
	for name, whole := range map[string][]byte{"zip": zipped(t, zip.Deflate), "tar": tarred(t), "tgz": gzipped(t, tarred(t)), "tzst": zstded(t, tarred(t))} {
		for _, n := range []int{len(whole) / 8, len(whole) / 2, len(whole) - 600} {
			if n <= 0 {
				continue
			}
			s := source(whole[:n], name)
			a, err := s.List(t.Context())
			if err == nil && a.Cut == "" && s.Format != "" {
				t.Errorf("%s, cut at %d of %d: %+v", name, n, len(whole), a)
			}
		}
	}
}

func TestACancelledScanEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := source(gzipped(t, tarred(t)), "x").List(ctx); err == nil {
		t.Error("it went on")
	}
}

// What tar makes of a file with holes, and of names of any length.
func TestArchivesOfTarAreRead(t *testing.T) {
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip("tar is not installed")
	}
	dir := t.TempDir()
	long := strings.Repeat("d/", 60) + strings.Repeat("x", 120)
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(long)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, long), []byte("long\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("end\n"), 10<<20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"gnu", "pax"} {
		out := filepath.Join(t.TempDir(), "a.tar")
		if text, err := exec.Command("tar", "-S", "--format="+format, "-C", dir, "-cf", out, ".").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		data, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{long: "long\n", "sparse": strings.Repeat("\x00", 10<<20) + "end\n"} {
			m, err := source(data, out).Open(t.Context(), name)
			if err != nil {
				t.Errorf("%s, %.20s: %v", format, name, err)
				continue
			}
			if got, err := io.ReadAll(io.NewSectionReader(m, 0, m.Size)); err != nil || string(got) != want {
				t.Errorf("%s, %.20s: %d bytes, %v", format, name, len(got), err)
			}
		}
	}
}

func FuzzArchive(f *testing.F) {
	for _, data := range [][]byte{zipped(f, zip.Deflate), zipped(f, zip.Store), tarred(f), gzipped(f, tarred(f)), zstded(f, tarred(f)), gzipped(f, []byte("x"))} {
		f.Add(data, "a.txt")
	}
	defer func(most int64) { scanLimit = most }(scanLimit)
	scanLimit = 4 << 20
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		s := source(data, "x.gz")
		if s.Format == "" {
			return
		}
		if a, err := s.List(t.Context()); err == nil {
			for _, m := range a.Members[:min(len(a.Members), 3)] {
				_ = m.Mode & fs.ModeType
				name = m.Name
			}
		}
		if m, err := s.Open(t.Context(), name); err == nil {
			if n, err := io.Copy(io.Discard, io.NewSectionReader(m, 0, m.Size)); err != nil || n != m.Size {
				t.Errorf("%d of %d bytes, %v", n, m.Size, err)
			}
		}
	})
}

func TestNamesHaveABound(t *testing.T) {
	defer func(was int) { maxNames = was }(maxNames)
	maxNames = 16 << 10
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range 20 {
		if err := w.WriteHeader(&tar.Header{Name: strings.Repeat("n", 1000) + string(rune('a'+i)), Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	a, err := source(gzipped(t, b.Bytes()), "names.tar.gz").List(t.Context())
	if err != nil || len(a.Members) != 16 || !strings.Contains(a.Cut, "for the names have more than 16 MiB") {
		t.Errorf("%d members, %q, %v", len(a.Members), a.Cut, err)
	}
}
