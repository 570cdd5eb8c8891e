package diskkv_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/diskkv"
)

const foreignSchema = "CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)"

// foreignRow is a value as a program stores it.
type foreignRow struct {
	name  string
	ref   blobref.Ref
	value any
	want  []byte
	err   error
}

func foreignRows() []foreignRow {
	of := func(text string) (blobref.Ref, []byte) { return blobref.Of([]byte(text)), []byte(text) }
	row := func(name, text string, value func(data []byte) any) foreignRow {
		ref, data := of(text)
		return foreignRow{name: name, ref: ref, value: value(data), want: data}
	}
	odd, _ := of("refused")
	return []foreignRow{
		row("bytes", "plain bytes", func(d []byte) any { return d }),
		row("hexadecimal text", "in hex", func(d []byte) any { return fmt.Sprintf("%x", d) }),
		row("hexadecimal text of upper case with space", "in upper hex\xff\xab", func(d []byte) any { return fmt.Sprintf(" %X\n", d) }),
		row("base64 text", "in base64 ", func(d []byte) any { return base64.StdEncoding.EncodeToString(d) }),
		row("unpadded base64 text", "in base64 too ", func(d []byte) any { return base64.RawStdEncoding.EncodeToString(d) }),
		row("url-safe base64 text", "\xff\xfe\xfd\xfb\xef url", func(d []byte) any { return base64.URLEncoding.EncodeToString(d) }),
		row("unpadded url-safe base64 text", "\xff\xfe\xfd\xfb\xef url!", func(d []byte) any { return base64.RawURLEncoding.EncodeToString(d) }),
		row("text that is the blob", "the text itself", func(d []byte) any { return string(d) }),
		row("text that is the blob and looks like hex", "deadbeef", func(d []byte) any { return string(d) }),
		row("base64 that looks like hex", "\x75\xe6\x9d\x6d\xe7\x9f", func(d []byte) any { return base64.StdEncoding.EncodeToString(d) }),
		row("bytes that are hexadecimal text", "hex in bytes", func(d []byte) any { return fmt.Appendf(nil, "%x", d) }),
		row("the empty blob as 0x00", "", func([]byte) any { return []byte{0} }),
		row("one byte 0x00 as such", "\x00", func([]byte) any { return []byte{0} }),
		{name: "0x00 for another id", ref: blobref.Of([]byte("not zero")), value: []byte{0}, err: blobstore.ErrCorrupt},
		{name: "other bytes", ref: blobref.Of([]byte("right")), value: []byte("wrong"), err: blobstore.ErrCorrupt},
		{name: "hexadecimal of other bytes", ref: blobref.Of([]byte("right hex")), value: "abcdef", err: blobstore.ErrCorrupt},
		{name: "hexadecimal of odd length", ref: odd, value: fmt.Sprintf("%x", "refused")[1:], err: blobstore.ErrCorrupt},
		{name: "a number", ref: blobref.Of([]byte("7")), value: int64(7), err: blobstore.ErrCorrupt},
		{name: "null", ref: blobref.Of([]byte("null")), value: nil, err: blobstore.ErrNotFound},
	}
}

// foreign makes a file as another program does.
func foreign(t testing.TB, path string, rows []foreignRow) {
	t.Helper()
	if err := execute(t, path, foreignSchema); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if err := execute(t, path, "INSERT INTO cursorDiskKV VALUES(?, ?)", "agentKv:blob:"+r.ref.Hex(), r.value); err != nil {
			t.Fatal(err)
		}
	}
}

// snapshot is what stands in a directory: names, sizes, times and hashes.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %v %v %x\n", e.Name(), info.Mode(), info.ModTime(), sha256.Sum256(data))
	}
	return b.String()
}

func TestEveryFormOfAValueIsReadAndNothingIsGuessed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.vscdb")
	rows := foreignRows()
	// The empty blob has one key.
	foreign(t, path, rows)
	before := snapshot(t, filepath.Dir(path))
	s := open(t, path, diskkv.Options{})
	for _, r := range rows {
		got, err := s.Get(t.Context(), r.ref)
		if !errors.Is(err, r.err) || (r.err == nil) != (err == nil) || !bytes.Equal(got, r.want) {
			t.Errorf("%s: Get = %q, %v; want %q, %v", r.name, got, err, r.want, r.err)
			continue
		}
		part, err := s.GetRange(t.Context(), r.ref, 0, 3)
		if !errors.Is(err, r.err) || !bytes.Equal(part, r.want[:min(3, len(r.want))]) {
			t.Errorf("%s: GetRange = %q, %v", r.name, part, err)
		}
		if info, err := s.Stat(t.Context(), r.ref); r.err == nil && r.name != "bytes that are hexadecimal text" && (err != nil || info.Size != int64(len(r.want))) {
			t.Errorf("%s: Stat = %d, %v; want %d", r.name, info.Size, err, len(r.want))
		}
	}
	if !s.ReadOnly() {
		t.Error("another program's file can be written to")
	}
	refusesWrites(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if after := snapshot(t, filepath.Dir(path)); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
}

func isReadOnly(err error) bool { return errors.Is(err, blobstore.ErrReadOnly) }

// refusesWrites tries everything that writes.
func refusesWrites(t *testing.T, s *diskkv.Store) {
	t.Helper()
	ctx, data := t.Context(), []byte("new")
	ref := blobref.Of(data)
	_, putErr := s.PutBytes(ctx, data)
	_, _, streamErr := s.Put(ctx, bytes.NewReader(data))
	_, allErr := s.PutAll(ctx, [][]byte{data})
	for name, err := range map[string]error{
		"Set":                 s.Set(ctx, ref, data),
		"SetLocal":            s.SetLocal(ctx, ref, data),
		"SetStream":           s.SetStream(ctx, ref, bytes.NewReader(data), int64(len(data))),
		"PutBytes":            putErr,
		"Put":                 streamErr,
		"PutAll":              allErr,
		"SetAll":              s.SetAll(ctx, []diskkv.Blob{{Ref: ref, Data: data}}),
		"Delete":              s.Delete(ctx, ref),
		"SetCheckpoint":       s.SetCheckpoint(ctx, "c", blobref.Ref{}, ref),
		"SetBubbleCheckpoint": s.SetBubbleCheckpoint(ctx, "c", "b", blobref.Ref{}, ref),
		"RemoveCheckpoint":    s.RemoveCheckpoint(ctx, "c", ""),
		"SetMetadata":         s.SetMetadata(ctx, "bc", data),
		"SetUnverified":       s.SetUnverified(ctx, ref, data),
		"DeleteUnverified":    s.DeleteUnverified(ctx, ref),
		"SetComposerState":    s.SetComposerState(ctx, "c", data),
	} {
		if !isReadOnly(err) {
			t.Errorf("%s = %v, want ErrReadOnly", name, err)
		}
	}
	if err := s.Flush(ctx); err != nil {
		t.Errorf("Flush: %v", err)
	}
}

func TestTheLogOfAnotherProgramIsReadAndLeftAlone(t *testing.T) {
	inFile := []byte("this is in the file")
	have := func(t *testing.T, s *diskkv.Store, want ...[]byte) {
		t.Helper()
		for _, data := range want {
			if got, err := s.Get(t.Context(), blobref.Of(data)); err != nil || !bytes.Equal(got, data) {
				t.Errorf("Get(%q) = %q, %v", data, got, err)
			}
		}
		n := 0
		for _, err := range s.Walk(t.Context()) {
			if n++; err != nil {
				t.Error(err)
			}
		}
		if n != len(want) {
			t.Errorf("Walk yielded %d blobs, want %d", n, len(want))
		}
		refusesWrites(t, s)
	}
	makeWAL := func(t *testing.T) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "state.vscdb")
		foreign(t, path, []foreignRow{{ref: blobref.Of(inFile), value: inFile}})
		if err := execute(t, path, "PRAGMA journal_mode = WAL"); err != nil {
			t.Fatal(err)
		}
		return path
	}
	unchanged := func(t *testing.T, path string, do func()) {
		t.Helper()
		before := snapshot(t, filepath.Dir(path))
		do()
		if after := snapshot(t, filepath.Dir(path)); after != before {
			t.Errorf("before:\n%safter:\n%s", before, after)
		}
	}
	t.Run("that is closed", func(t *testing.T) {
		path := makeWAL(t)
		unchanged(t, path, func() {
			s := open(t, path, diskkv.Options{})
			have(t, s, inFile)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("that runs", func(t *testing.T) {
		path := makeWAL(t)
		cmd, in, out := owner(t, path)
		var s *diskkv.Store
		unchanged(t, path, func() {
			s = open(t, path, diskkv.Options{})
			have(t, s, inFile, inLog)
		})
		later := []byte("written while the store was open")
		fmt.Fprintf(in, "%s\n", later)
		if !out.Scan() {
			t.Fatal("the owner ended")
		}
		have(t, s, inFile, inLog, later)
		fmt.Fprintln(in, "close")
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		have(t, s, inFile, inLog, later)
		unchanged(t, path, func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		have(t, open(t, path, diskkv.Options{}), inFile, inLog, later)
	})
	t.Run("that starts later", func(t *testing.T) {
		path := makeWAL(t)
		s := open(t, path, diskkv.Options{})
		have(t, s, inFile)
		cmd, in, _ := owner(t, path)
		have(t, s, inFile, inLog)
		fmt.Fprintln(in, "close")
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		have(t, s, inFile, inLog)
	})
	t.Run("that was killed", func(t *testing.T) {
		path := makeWAL(t)
		cmd, _, _ := owner(t, path)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		unchanged(t, path, func() {
			s := open(t, path, diskkv.Options{})
			have(t, s, inFile, inLog)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("that was copied without the index of the log", func(t *testing.T) {
		path := makeWAL(t)
		owner(t, path)
		copied := filepath.Join(t.TempDir(), "state.vscdb")
		for _, suffix := range []string{"", "-wal"} {
			data, err := os.ReadFile(path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(copied+suffix, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("TMPDIR", t.TempDir())
		unchanged(t, copied, func() {
			s := open(t, copied, diskkv.Options{})
			have(t, s, inFile, inLog)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
			t.Errorf("temporaries were left: %v, %v", left, err)
		}
	})
}

// owner starts another program that has the file open.
func owner(t *testing.T, path string) (cmd *exec.Cmd, in io.Writer, out *bufio.Scanner) {
	t.Helper()
	c, s, w := other(t, "owner", path)
	if !s.Scan() || s.Text() != "ready" {
		t.Fatal("the owner did not start")
	}
	return c, w, s
}

func TestTablesOfOtherDeclarationsAreRead(t *testing.T) {
	for _, schema := range []string{
		"CREATE TABLE cursorDiskKV (key TEXT PRIMARY KEY, value TEXT)", // seen in the wild
		"CREATE TABLE cursorDiskKV (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID",
		"CREATE TABLE CursorDiskKV (Key TEXT, more INTEGER, Value DATETIME)",
	} {
		path := temp(t)
		state := base64.StdEncoding.EncodeToString(inLog)
		err := errors.Join(execute(t, path, schema),
			execute(t, path, "INSERT INTO cursorDiskKV(key, value) VALUES('composerData:c1', ?)", `{"conversationState":"~`+state+`"}`),
			execute(t, path, "INSERT INTO cursorDiskKV(key, value) VALUES('bubbleId:c1:b1', '{}')"),
			execute(t, path, "INSERT INTO cursorDiskKV(key, value) VALUES(?, ?)", "agentKv:blob:"+blobref.Of(inLog).Hex(), fmt.Sprintf("%x", inLog)))
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, path, diskkv.Options{})
		var ids []string
		for id, err := range s.Composers(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		if len(ids) != 1 || ids[0] != "c1" {
			t.Errorf("%s: Composers yielded %q", schema, ids)
		}
		if got, err := s.ComposerState(t.Context(), "c1"); err != nil || !bytes.Equal(got, inLog) {
			t.Errorf("%s: ComposerState = %q, %v", schema, got, err)
		}
		if got, err := s.Get(t.Context(), blobref.Of(inLog)); err != nil || !bytes.Equal(got, inLog) {
			t.Errorf("%s: Get = %q, %v", schema, got, err)
		}
		refusesWrites(t, s)
	}
}

func TestAFileOfOursOpenedForReadingIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.vscdb")
	w := open(t, path, diskkv.Options{})
	ref, err := w.PutBytes(t.Context(), inLog)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.SetCheckpoint(t.Context(), "c", blobref.Ref{}, ref); err != nil {
		t.Fatal(err)
	}
	// Connections of one process share the index of the log, and one of them may write.
	but := func(snapshot string) string {
		return regexp.MustCompile(`(?m)^\S+-shm .*\n`).ReplaceAllString(snapshot, "")
	}
	for _, when := range []string{"while another writes", "when it is closed"} {
		before := but(snapshot(t, filepath.Dir(path)))
		s := open(t, path, diskkv.Options{ReadOnly: true})
		if got, err := s.Get(t.Context(), ref); err != nil || !bytes.Equal(got, inLog) {
			t.Errorf("%s: Get = %q, %v", when, got, err)
		}
		if p, err := s.Checkpoint(t.Context(), "c"); err != nil || p.Ref != ref || p.Time.IsZero() {
			t.Errorf("%s: Checkpoint = %+v, %v", when, p, err)
		}
		refusesWrites(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if after := but(snapshot(t, filepath.Dir(path))); after != before {
			t.Errorf("%s: before:\n%safter:\n%s", when, before, after)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	none := open(t, filepath.Join(t.TempDir(), "none"), diskkv.Options{ReadOnly: true})
	refusesWritesOfNone(t, none)
}

func refusesWritesOfNone(t *testing.T, s *diskkv.Store) {
	t.Helper()
	if err := s.Set(t.Context(), blobref.Of(inLog), inLog); !isReadOnly(err) {
		t.Errorf("Set = %v, want ErrReadOnly", err)
	}
	if _, err := os.Lstat(s.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made: %v", err)
	}
}
