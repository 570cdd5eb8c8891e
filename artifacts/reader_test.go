package artifacts

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/internal/lineindex"
)

func open(t testing.TB, d *Dir, id int64) *Reader {
	t.Helper()
	r, err := d.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func text(t testing.TB, s Section, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// numbered is n lines that tell their numbers.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d some text to make a line of\n", i+1)
	}
	return b.String()
}

func TestLinesAreTheSameWithAndWithoutAKeptIndex(t *testing.T) {
	content := numbered(20_000)
	for _, c := range []struct {
		name string
		make func(t *testing.T, d *Dir)
		kept bool
	}{
		{"kept when finished", func(t *testing.T, d *Dir) { write(t, d, "bash", content) }, true},
		{"of another program", func(t *testing.T, d *Dir) { put(t, d.join("0.bash.log"), content) }, true},
		{"removed", func(t *testing.T, d *Dir) {
			write(t, d, "bash", content)
			if err := os.RemoveAll(d.join(indexDir)); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"damaged", func(t *testing.T, d *Dir) {
			write(t, d, "bash", content)
			put(t, d.indexName(0), "LNIX?")
		}, true},
		{"of a file that was replaced since", func(t *testing.T, d *Dir) {
			write(t, d, "bash", strings.Repeat("\n", len(content)))
			put(t, d.join("0.bash.log"), content)
			later := time.Now().Add(time.Hour)
			if err := os.Chtimes(d.join("0.bash.log"), later, later); err != nil {
				t.Fatal(err)
			}
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, _ := tempDir(t)
			c.make(t, d)
			for range 2 { // the second time from what the first one kept
				r := open(t, d, 0)
				s, err := r.Lines(t.Context(), 19_999, 30_000)
				if got := text(t, s, err); !strings.HasPrefix(got, "19999 ") || s.First != 19_999 || s.Last != 20_000 {
					t.Errorf("%q, %d to %d", got, s.First, s.Last)
				}
				s, err = r.Tail(t.Context(), 1)
				if got := text(t, s, err); got != "20000 some text to make a line of\n" {
					t.Errorf("tail %q", got)
				}
				if _, err := r.Lines(t.Context(), 20_001, 20_001); !errors.Is(err, lineindex.ErrRange) {
					t.Errorf("beyond the end: %v", err)
				}
				info, err := os.Stat(d.indexName(0))
				if c.kept != (err == nil) {
					t.Errorf("kept index: %v, %v", info, err)
				}
				at, err := r.f.Identify()
				if err != nil {
					t.Fatal(err)
				}
				if _, ok := d.keptIndex(0, at); !ok {
					t.Error("the kept index does not fit the file")
				}
			}
		})
	}
}

func TestBytesThatChangedAfterTheEndAreNoticed(t *testing.T) {
	d, _ := tempDir(t)
	f := write(t, d, "bash", "abc\n")
	put(t, f.Path(), "abd\n")
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(f.Path(), later, later); err != nil {
		t.Fatal(err)
	}
	r := open(t, d, 0)
	if _, err := r.Index(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info := r.Info(); info.State != Changed || !strings.Contains(info.Note, "checksum") {
		t.Errorf("%s (%s)", info.State, info.Note)
	}
}

func TestAnEmptyFileHasNoLines(t *testing.T) {
	d, path := tempDir(t)
	put(t, path+"/0.bash.log", "")
	r := open(t, d, 0)
	s, err := r.Tail(t.Context(), 5)
	if got := text(t, s, err); got != "" || s.First <= s.Last {
		t.Errorf("%q, %d to %d", got, s.First, s.Last)
	}
	if _, err := r.Lines(t.Context(), 1, 1); !errors.Is(err, lineindex.ErrRange) {
		t.Errorf("line 1: %v", err)
	}
}

func TestADirectoryThatCannotBeWrittenIsRead(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root writes everywhere")
	}
	d, path := tempDir(t)
	put(t, path+"/0.bash.log", numbered(10_000))
	if err := os.Chmod(path, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(path, 0o700) })
	s, err := open(t, d, 0).Tail(t.Context(), 1)
	if got := text(t, s, err); !strings.HasPrefix(got, "10000 ") {
		t.Errorf("%q", got)
	}
}

// What a reader of a growing file sees is what a fresh reader of the file sees.
func TestAGrowingFileIsReadAsItStands(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d, _ := tempDir(t)
		f := create(t, d, "", "")
		defer f.Close()
		if _, err := io.WriteString(f, "start"); err != nil {
			t.Fatal(err)
		}
		r, err := d.Open(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		content := "start"
		for _, part := range rapid.SliceOfN(rapid.StringMatching(`[ab\n]{0,40}`), 1, 10).Draw(rt, "parts") {
			part = strings.Repeat(part, rapid.IntRange(1, 600).Draw(rt, "times"))
			if _, err := io.WriteString(f, part); err != nil {
				t.Fatal(err)
			}
			content += part
			ix, err := r.Index(t.Context())
			if err != nil {
				rt.Fatal(err)
			}
			want := indexOf(t, content)
			if ix.Size != want.Size || ix.Lines != want.Lines || ix.CRC32C != want.CRC32C {
				rt.Fatalf("%d bytes, %d lines; want %d, %d", ix.Size, ix.Lines, want.Size, want.Lines)
			}
			line := rapid.Int64Range(1, ix.Lines).Draw(rt, "line")
			s, err := r.Lines(t.Context(), line, line)
			if got := text(t, s, err); got != strings.SplitAfter(content, "\n")[line-1] {
				rt.Fatalf("line %d is %q", line, got)
			}
		}
	})
}
