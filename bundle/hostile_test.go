package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/session"
)

// entry of a hand-made bundle. A Size of -1 is that of the text.
type crafted struct {
	tar.Header
	text string
}

func file(name, text string) crafted {
	return crafted{tar.Header{Typeflag: tar.TypeReg, Name: name, Size: -1, Mode: 0o600}, text}
}

func special(name string, typ byte, to string) crafted {
	return crafted{tar.Header{Typeflag: typ, Name: name, Linkname: to, Mode: 0o600}, ""}
}

const (
	aboutText = `{"format":"agentrun bundle","version":1,"session":"s1","cwd":"/p/x"}`
	logText   = `{"type":"session","version":3,"id":"s1","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/p/x"}` + "\n"
)

// ground is a whole bundle that is in order, without its manifest.
func ground(more ...crafted) []crafted {
	return append([]crafted{file(aboutName, aboutText), file(logName, logText)}, more...)
}

// listed appends the manifest of members.
func listed(members []crafted, change ...func(*manifest)) []crafted {
	var m manifest
	for _, c := range members {
		m.Members = append(m.Members, member{c.Name, int64(len(c.text)), sha256.Sum256([]byte(c.text))})
		m.Bytes += int64(len(c.text))
	}
	for _, c := range change {
		c(&m)
	}
	return append(members, file(manifestName, string(must(json.Marshal(m)))))
}

// archived is the tar of members.
func archived(t testing.TB, members []crafted) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, c := range members {
		if c.Size < 0 {
			c.Size = int64(len(c.text))
		}
		if err := w.WriteHeader(&c.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, c.text); err != nil {
			t.Fatal(err)
		}
	}
	must(0, w.Close())
	return b.Bytes()
}

// framed compresses an archive.
func framed(t testing.TB, archive []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := must(newFrameWriter(&b))
	must(w.Write(archive))
	must(0, w.Close())
	return b.Bytes()
}

func bundled(t testing.TB, members []crafted) []byte { return framed(t, archived(t, members)) }

// refused imports data and wants it refused, with nothing written.
func refused(t *testing.T, data []byte, want string, o ImportOptions) {
	t.Helper()
	m := newManager(t)
	_, err := Import(t.Context(), m, bytes.NewReader(data), o)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want one of %q", err, want)
	}
	if _, err := os.Lstat(m.Home()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was written: %v, %v", err, tree(t, m.Home()))
	}
}

func TestAHandMadeBundleThatIsInOrderIsImported(t *testing.T) {
	m := newManager(t)
	data := bundled(t, listed(ground(file("artifacts/0.bash.log", "x\n"))))
	if _, err := Import(t.Context(), m, bytes.NewReader(data), ImportOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestHostileBundlesAreRefusedBeforeAnythingIsWritten(t *testing.T) {
	long := strings.Repeat("n", 300)
	other := file("blobs/"+strings.Repeat("0", 64), "not what its name says")
	for _, tt := range []struct {
		name    string
		members []crafted
		want    string
	}{
		{"a name that leads up", listed(ground(file("artifacts/../../x", "x"))), "leads elsewhere"},
		{"a name that leads up and down again", listed(ground(file("artifacts/a/../b", "x"))), "leads elsewhere"},
		{"a name that leads out", listed(ground(file("../x", "x"))), "is none of a bundle"},
		{"an absolute name", listed(ground(file("/etc/passwd", "x"))), "is none of a bundle"},
		{"an absolute name among artifacts", listed(ground(file("artifacts//etc/passwd", "x"))), "leads elsewhere"},
		{"a name with a NUL", listed(ground(crafted{tar.Header{Typeflag: tar.TypeReg, Name: "artifacts/a\tb", Size: -1}, "x"})), "control characters"},
		{"a name that is no UTF-8", listed(ground(file("artifacts/a\xffb", "x"))), "no UTF-8"},
		{"a name of dots", listed(ground(file("artifacts/.", "x"))), "leads elsewhere"},
		{"a name that is too long", listed(ground(file("artifacts/"+long, "x"))), "longer than 255 bytes"},
		{"a name that is too deep", listed(ground(file("artifacts/"+strings.Repeat("d/", 40)+"x", "x"))), "deeper than 32"},
		{"a lock", listed(ground(file("artifacts/.index/lock", ""))), "a lock, a temporary"},
		{"another lock", listed(ground(file("artifacts/0-A.lock", ""))), "a lock, a temporary"},
		{"a temporary", listed(ground(file("artifacts/.tmp-import", ""))), "a lock, a temporary"},
		{"a directory of temporaries", listed(ground(file("artifacts/.tmp-x/y", ""))), "a lock, a temporary"},
		{"a line index", listed(ground(file("artifacts/.index/0.idx", "x"))), "a lock, a temporary"},
		{"a symbolic link", listed(ground(special("artifacts/a", tar.TypeSymlink, "/etc/passwd"))), "is a symbolic link"},
		{"a hard link", listed(ground(special("artifacts/a", tar.TypeLink, "session.jsonl"))), "is a hard link"},
		{"a device", listed(ground(special("artifacts/a", tar.TypeChar, ""))), "is a device"},
		{"a block device", listed(ground(special("artifacts/a", tar.TypeBlock, ""))), "is a device"},
		{"a FIFO", listed(ground(special("artifacts/a", tar.TypeFifo, ""))), "is a FIFO"},
		{"a directory", listed(ground(special("artifacts/a/", tar.TypeDir, ""))), "is a directory"},
		{"something of an unknown type", listed(ground(special("artifacts/a", 'Z', ""))), "of a type that no bundle has"},
		{"extended attributes", listed(ground(crafted{tar.Header{Typeflag: tar.TypeReg, Name: "artifacts/a", Size: -1, PAXRecords: map[string]string{"SCHILY.xattr.user.x": "y"}}, "x"})), "described by SCHILY.xattr.user.x"},
		{"a name twice", listed(ground(file("artifacts/a", "x"), file("artifacts/a", "y"))), "stands there twice"},
		{"the log twice", listed(ground(file(logName, logText))), "stands there twice"},
		{"a file that is a directory too", listed(ground(file("artifacts/a", "x"), file("artifacts/a/b", "y"))), "a file and a directory"},
		{"a directory that is a file too", listed(ground(file("artifacts/a/b", "x"), file("artifacts/a", "y"))), "a file and a directory"},
		{"a blob that is not what its name says", listed(ground(other)), "is not what its name says"},
		{"a blob under no hash", listed(ground(file("blobs/x", "x"))), "is none of a bundle"},
		{"a blob under a hash in capitals", listed(ground(file("blobs/"+strings.Repeat("A", 64), "x"))), "is none of a bundle"},
		{"an unknown member", listed(ground(file("credentials.json", "x"))), "is none of a bundle"},
		{"a wrong hash", listed(ground(), func(m *manifest) { m.Members[1].SHA256[0] ^= 1 }), "has not the SHA-256"},
		{"a wrong size", listed(ground(), func(m *manifest) { m.Members[1].Bytes++ }), "bytes, and"},
		{"a wrong total", listed(ground(), func(m *manifest) { m.Bytes++ }), "totals"},
		{"negative counts", listed(ground(), func(m *manifest) { m.Entries = -1 }), "totals"},
		{"a member that the manifest does not list", listed(ground(file("artifacts/a", "x")), func(m *manifest) { m.Members = m.Members[:2] }), "is not in its manifest"},
		{"a member that is only in the manifest", listed(ground(), func(m *manifest) { m.Members = append(m.Members, member{Name: "artifacts/a"}) }), "is in its manifest and not there"},
		{"a member under another name", listed(ground(), func(m *manifest) { m.Members[1].Name = "artifacts/a" }), "where its manifest lists"},
		{"members in another order", listed([]crafted{file(aboutName, aboutText), file("artifacts/a", "x"), file(logName, logText)}), "does not stand where it has to"},
		{"something before bundle.json", listed([]crafted{file(logName, logText), file(aboutName, aboutText)}), "does not stand where it has to"},
		{"something behind the manifest", append(listed(ground()), file("artifacts/a", "x")), "does not stand where it has to"},
		{"two manifests", append(listed(ground()), file(manifestName, "{}")), "twice"},
		{"no manifest", ground(), "ends too early"},
		{"no log", listed([]crafted{file(aboutName, aboutText)}), "it holds no log"},
		{"nothing at all", []crafted{}, "ends too early"},
		{"a manifest that is no JSON", append(ground(), file(manifestName, "{")), "cannot be read"},
		{"a hash that is none", append(ground(), file(manifestName, `{"members":[{"name":"x","sha256":"12"}]}`)), "is no SHA-256"},
		{"a newer version", listed([]crafted{file(aboutName, strings.Replace(aboutText, `"version":1`, `"version":2`, 1)), file(logName, logText)}), "import it with a newer agentrun"},
		{"a version of nothing", listed([]crafted{file(aboutName, strings.Replace(aboutText, `"version":1`, `"version":0`, 1)), file(logName, logText)}), "version 0"},
		{"another format", listed([]crafted{file(aboutName, `{"format":"zip","version":1}`), file(logName, logText)}), "it is no bundle"},
		{"bundle.json that is no JSON", listed([]crafted{file(aboutName, `x`), file(logName, logText)}), "it is no bundle"},
		{"a large bundle.json", listed([]crafted{file(aboutName, strings.Repeat(" ", maxAbout+1)), file(logName, logText)}), "is too large"},
	} {
		t.Run(tt.name, func(t *testing.T) { refused(t, bundled(t, tt.members), tt.want, ImportOptions{}) })
	}
}

func TestALogThatIsNoneIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	for _, log := range []string{"", "\n\n", "no json\n", `{"type":"message"}` + "\n", strings.Repeat(" ", session.MaxHeadBytes+10) + logText} {
		refused(t, bundled(t, listed([]crafted{file(aboutName, aboutText), file(logName, log)})), "session header", ImportOptions{})
	}
}

func TestADirectoryThatCannotBeIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	m := newManager(t)
	log := strings.Replace(logText, "/p/x", `/p\u0000x`, 1)
	_, err := Import(t.Context(), m, bytes.NewReader(bundled(t, listed([]crafted{file(aboutName, aboutText), file(logName, log)}))), ImportOptions{})
	if _, serr := os.Lstat(m.Home()); err == nil || serr == nil {
		t.Errorf("the error is %v", err)
	}
}

func TestAHeaderMayHoldAnything(t *testing.T) {
	for _, header := range []string{
		`{"type":"session","version":3,"id":"s1","timestamp":"never","cwd":"relative/../.."}`,
		`{"type":"session","version":3,"id":"s1","cwd":""}`,
		`{"type":"session","version":3,"id":"s1","timestamp":"9999999-11-20T20:17:07.977Z","cwd":"/` + strings.Repeat("d/", 4000) + `"}`,
		`{"type":"session","version":3,"id":"` + strings.Repeat("i", 10_000) + `","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/../../etc"}`,
		`{"type":"session","version":"x","id":".hidden","timestamp":7,"cwd":["/p"],"parentSession":{},"previousSessionFiles":"x"}`,
	} {
		m := newManager(t)
		got, err := Import(t.Context(), m, bytes.NewReader(bundled(t, listed([]crafted{file(aboutName, aboutText), file(logName, header+"\n")}))), ImportOptions{})
		if err != nil {
			t.Errorf("%.80s: %v", header, err)
			continue
		}
		sessions := filepath.Join(m.Home(), "sessions")
		if rel, err := filepath.Rel(sessions, got.Path); err != nil || strings.Count(rel, "/") != 1 || !filepath.IsLocal(rel) {
			t.Errorf("%.80s: it is in %s", header, got.Path)
		}
		if list := must(m.List(t.Context(), "")); len(list.Sessions) != 1 || len(list.Unreadable) > 0 {
			t.Errorf("%.80s: %+v", header, list)
		}
	}
}

func TestBombsAreRefusedBeforeAnythingIsWritten(t *testing.T) {
	const mega = 1 << 20
	zeros := strings.Repeat("\x00", 64*mega)
	small := bundled(t, listed(ground(file("artifacts/a", zeros))))
	if len(small) > mega {
		t.Fatalf("the bomb has %d bytes", len(small))
	}
	refused(t, small, "unpacks to more than 1048576 bytes", ImportOptions{MaxBytes: mega})

	// A size that is only claimed.
	claim := archived(t, []crafted{file(aboutName, aboutText)})
	claim = claim[:len(claim)-1024]
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(0, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: logName, Size: math.MaxInt64 / 2, Format: tar.FormatPAX}))
	refused(t, framed(t, append(claim, b.Bytes()...)), "unpacks to more than", ImportOptions{})

	// A frame of more than a block, which claims to be one.
	enc := must(zstd.NewWriter(nil))
	defer enc.Close()
	frame := enc.EncodeAll(make([]byte, 2*blockSize), nil)
	refused(t, append(appendLength(nil, uint32(len(frame))), frame...), errFrame.Error(), ImportOptions{})

	// Two frames under one length.
	frame = enc.EncodeAll(make([]byte, blockSize/2), nil)
	frame = append(frame, frame...)
	refused(t, append(appendLength(nil, uint32(len(frame))), frame...), errFrame.Error(), ImportOptions{})

	// A frame that does not state its size.
	var stream bytes.Buffer
	sw := must(zstd.NewWriter(&stream))
	must(sw.Write(make([]byte, 1000)))
	must(0, sw.Flush())
	must(sw.Write(make([]byte, 1000)))
	must(0, sw.Close())
	refused(t, append(appendLength(nil, uint32(stream.Len())), stream.Bytes()...), errFrame.Error(), ImportOptions{})

	// A length that would take all memory.
	refused(t, appendLength(nil, math.MaxUint32), errFrame.Error(), ImportOptions{})
}

func TestHeadersWithoutAnEndAreNoWayAroundTheLimit(t *testing.T) {
	// Extended headers, of a megabyte each, that describe a member which never comes.
	var h [512]byte
	copy(h[:], "x")
	copy(h[100:], "0000600\x000000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00", 512))
	copy(h[136:], "00000000000\x00")
	copy(h[148:], "        ")
	h[156] = 'x'
	copy(h[257:], "ustar\x0000")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	record := "512 comment=" + strings.Repeat("y", 512-len("512 comment=")-1) + "\n"
	one := append(h[:], record...)
	block := bytes.Repeat(one, blockSize/len(one))
	a, err := openArchive(io.MultiReader(bytes.NewReader(framed(t, archived(t, ground())[:2048])), endless(framed(t, block))), nil, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	a.tar = tar.NewReader(io.LimitReader(a.plain, 64<<20)) // as openArchive does, sooner
	if _, err := verify(t.Context(), a); err == nil {
		t.Error("it has an end")
	}
}

// endless repeats b.
func endless(b []byte) io.Reader {
	var r io.Reader
	return readerFunc(func(p []byte) (int, error) {
		for {
			if r == nil {
				r = bytes.NewReader(b)
			}
			if n, err := r.Read(p); err == nil {
				return n, nil
			}
			r = nil
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestABundleThatIsCutOffIsRefused(t *testing.T) {
	m := newManager(t)
	r, _ := export(t, m, rich(t, m), ExportOptions{})
	data := must(readAll(r))
	for n := 0; n < len(data); n += max(1, len(data)/60) {
		refused(t, data[:n], "", ImportOptions{})
	}
	refused(t, data[:len(data)-1], "ends too early", ImportOptions{})
	refused(t, append(bytes.Clone(data), 0), "ends too early", ImportOptions{})
	refused(t, append(bytes.Clone(data), data...), "something stands behind its end", ImportOptions{})
	// Whole frames are missing at the end.
	first := lengthSize + int(binary.LittleEndian.Uint32(data[8:]))
	if first < len(data) {
		refused(t, data[:first], "ends too early", ImportOptions{})
	}
}

func TestABitThatFlippedIsFoundOrChangesNothing(t *testing.T) {
	from := newManager(t)
	s := rich(t, from)
	r, _ := export(t, from, s, ExportOptions{})
	data, want := must(readAll(r)), entries(t, from, s.Path())
	found, rounds := 0, 150
	if testing.Short() {
		rounds = 30
	}
	for i := range rounds {
		bit := i * 7919 * 31 % (8 * len(data))
		data[bit/8] ^= 1 << (bit % 8)
		to := newManager(t)
		got, err := Import(t.Context(), to, bytes.NewReader(data), ImportOptions{})
		data[bit/8] ^= 1 << (bit % 8)
		if err != nil {
			found++
			if !errors.Is(err, ErrRefused) {
				t.Errorf("bit %d: %v", bit, err)
			}
			if _, err := os.Lstat(to.Home()); err == nil {
				t.Errorf("bit %d: something was written", bit)
			}
			continue
		}
		if after := entries(t, to, got.Path); len(after) != len(want) {
			t.Errorf("bit %d was not found, and changes something", bit)
		}
	}
	if found < rounds*9/10 {
		t.Errorf("%d of %d flipped bits were found", found, rounds)
	}
}

func TestABundleThatChangesBetweenTheReadingsLeavesNothing(t *testing.T) {
	m := newManager(t)
	one := bundled(t, listed(ground(file("artifacts/a", "one"), file("blobs/"+digestOf("blob"), "blob"))))
	two := bundled(t, listed(ground(file("artifacts/a", "two"), file("blobs/"+digestOf("blob"), "blob"))))
	_, err := Import(t.Context(), m, &fickle{first: bytes.NewReader(one), then: bytes.NewReader(two)}, ImportOptions{})
	if !errors.Is(err, errChanged) {
		t.Errorf("the error is %v", err)
	}
	if list := must(m.List(t.Context(), "")); len(list.Sessions) > 0 {
		t.Error("there is a session")
	}
	for name := range tree(t, m.Home()) {
		if strings.Contains(name, "artifacts") || strings.HasSuffix(name, "log") {
			t.Errorf("%s is left", name)
		}
	}
}

func digestOf(text string) string {
	d := digest(sha256.Sum256([]byte(text)))
	return string(must(d.MarshalText()))
}

// fickle is a file that another one is written over, behind the first reading.
type fickle struct {
	first, then io.ReadSeeker
	seeks       int
}

func (f *fickle) Read(p []byte) (int, error) { return f.first.Read(p) }

func (f *fickle) Seek(off int64, whence int) (int64, error) {
	if whence == io.SeekStart {
		if f.seeks++; f.seeks == 2 {
			f.first = f.then
		}
	}
	return f.first.Seek(off, whence)
}

func TestPassphrases(t *testing.T) {
	from := newManager(t)
	s := rich(t, from)
	r, _ := export(t, from, s, ExportOptions{Passphrase: "correct horse", WorkFactor: 10})
	data := must(readAll(r))
	if bytes.Contains(data, []byte("session.jsonl")) || bytes.Contains(data, appendLength(nil, 0)[:8]) {
		t.Error("it is not encrypted")
	}
	with := func(p string) ImportOptions { return ImportOptions{Passphrase: p} }
	refused(t, data, "it is encrypted: give --passphrase-file", with(""))
	refused(t, data, "the passphrase does not open it", with("wrong horse"))
	open, _ := export(t, from, s, ExportOptions{})
	refused(t, must(readAll(open)), "it is not encrypted", with("correct horse"))
	for _, n := range []int{30, 200, len(data) / 2, len(data) - 1} {
		refused(t, data[:n], "", with("correct horse"))
	}
	for _, at := range []int{25, 150, 400, len(data) / 2, len(data) - 1} {
		changed := bytes.Clone(data)
		changed[at] ^= 1
		refused(t, changed, "", with("correct horse"))
	}
	costly := bytes.Replace(data, []byte(" 10\n"), []byte(" 30\n"), 1)
	refused(t, costly, "", with("correct horse"))
	to := newManager(t)
	got, err := Import(t.Context(), to, bytes.NewReader(data), with("correct horse"))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := entries(t, from, s.Path()), entries(t, to, got.Path); strings.Join(a, "") != strings.Join(b, "") {
		t.Error("the entries are not the same")
	}
}

func TestAPassphraseIsAFileWithoutItsLastNewline(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{"secret": "secret", "secret\n": "secret", "secret\r\n": "secret", "two\nlines\n\n": "two\nlines\n", " spaces ": " spaces "} {
		name := filepath.Join(dir, "p")
		write(t, name, text)
		if got, err := ReadPassphrase(name); err != nil || got != want {
			t.Errorf("%q gives %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "\n", strings.Repeat("secret", maxPassphrase)} {
		name := filepath.Join(dir, "p")
		write(t, name, text)
		if _, err := ReadPassphrase(name); err == nil || strings.Contains(err.Error(), "secretsecret") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if _, err := ReadPassphrase(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestACancelledImportLeavesNothing(t *testing.T) {
	from := newManager(t)
	r, _ := export(t, from, rich(t, from), ExportOptions{})
	m := newManager(t)
	for _, after := range []int64{0, r.Size() / 2, r.Size() + 1, 2*r.Size() - 1} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Import(ctx, m, r, ImportOptions{Progress: func(done, _ int64) {
			if done > after {
				cancel()
			}
		}})
		if err == nil {
			t.Errorf("cancelled after %d bytes of %d, it was imported", after, 2*r.Size())
		}
		cancel()
		if list := must(m.List(t.Context(), "")); len(list.Sessions) > 0 {
			t.Fatal("there is a session")
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add(archived(f, listed(ground(file("artifacts/0.bash.log", "x\n")))))
	f.Add(archived(f, listed(ground(special("artifacts/a", tar.TypeSymlink, "/etc")))))
	f.Add(archived(f, listed(ground(file("artifacts/"+strings.Repeat("n", 200), "x\n")))))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := verify(t.Context(), newArchive(bytes.NewReader(data), 1<<24))
		if err != nil {
			return
		}
		for _, m := range c.manifest.Members {
			if k, rel, err := parseName(m.Name); err != nil || k == kindArtifact && !filepath.IsLocal(rel) {
				t.Errorf("%q was let through", m.Name)
			}
		}
	})
}

func FuzzFrames(f *testing.F) {
	f.Add(framed(f, []byte("some text, some text, some text")))
	f.Add(framed(f, make([]byte, 1000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := newFrameReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		n, err := io.Copy(io.Discard, struct{ io.Reader }{r})
		if most := int64(len(data)/lengthSize+1) * blockSize; n > most {
			t.Errorf("%d bytes became %d, %v", len(data), n, err)
		}
	})
}

func FuzzParseName(f *testing.F) {
	for _, name := range []string{"session.jsonl", "artifacts/0.bash.log", "artifacts/../x", "blobs/" + strings.Repeat("0", 64), "artifacts/.index/next", "/x", "artifacts/a/./b"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		k, rel, err := parseName(name)
		if err != nil || k != kindArtifact {
			return
		}
		root := "/root/of/it"
		joined := filepath.Join(root, rel)
		if !filepath.IsLocal(rel) || !strings.HasPrefix(joined, root+"/") || filepath.Base(joined) == "lock" && strings.Contains(rel, ".index") {
			t.Errorf("%q leads to %s", name, joined)
		}
	})
}

func FuzzRefs(f *testing.F) {
	f.Add([]byte(`"data":"blob:sha256:`+strings.Repeat("a", 64)+`"`), 3)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		whole := refFinder{found: map[blobref.Ref]bool{}}
		must(whole.Write(data))
		parts := refFinder{found: map[blobref.Ref]bool{}}
		for rest, n := data, max(1, min(cut, len(data))); len(rest) > 0; rest = rest[min(n, len(rest)):] {
			must(parts.Write(rest[:min(n, len(rest))]))
		}
		if len(whole.order) != len(parts.order) {
			t.Errorf("in pieces of %d: %v, whole: %v", cut, parts.order, whole.order)
		}
	})
}
