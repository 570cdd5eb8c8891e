package textdiff

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func diff(t *testing.T, before, after string, spans []Span) string {
	t.Helper()
	var b bytes.Buffer
	if _, _, err := Write(&b, "a", "b", []byte(before), []byte(after), spans); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func numbers(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		b.WriteString("line ")
		b.WriteString(strings.Repeat("i", i%7))
		b.WriteByte(byte('a' + i%26))
		b.WriteByte('\n')
	}
	return b.String()
}

func TestADiffIsUnified(t *testing.T) {
	for _, c := range []struct{ name, before, after, want string }{
		{"nothing changed", "a\n", "a\n", ""},
		{"a line", "a\nb\nc\n", "a\nB\nc\n", "--- a\n+++ b\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"},
		{"a new file", "", "a\n", "--- a\n+++ b\n@@ -0,0 +1 @@\n+a\n"},
		{"an emptied one", "a\n", "", "--- a\n+++ b\n@@ -1 +0,0 @@\n-a\n"},
		{"a newline at the end", "a", "a\n", "--- a\n+++ b\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"},
		{"a newline less", "a\nb\n", "a\nb", "--- a\n+++ b\n@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline at end of file\n"},
		{"lines added", "a\nb\n", "a\nx\ny\nb\n", "--- a\n+++ b\n@@ -1,2 +1,4 @@\n a\n+x\n+y\n b\n"},
		{
			"two places far apart", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "one\n2\n3\n4\n5\n6\n7\n8\nnine\n",
			"--- a\n+++ b\n@@ -1,4 +1,4 @@\n-1\n+one\n 2\n 3\n 4\n@@ -6,4 +6,4 @@\n 6\n 7\n 8\n-9\n+nine\n",
		},
		{"two places nearby", "1\n2\n3\n", "one\n2\nthree\n", "--- a\n+++ b\n@@ -1,3 +1,3 @@\n-1\n+one\n 2\n-3\n+three\n"},
	} {
		if got := diff(t, c.before, c.after, nil); got != c.want {
			t.Errorf("%s:\n%s", c.name, got)
		}
	}
}

// text is a text of few different lines, so that much repeats.
func text(t *rapid.T, name string) string {
	lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "", "func", "\tx", "end"}), 0, 30).Draw(t, name)
	s := strings.Join(lines, "\n")
	if rapid.Bool().Draw(t, name+" ends") && s != "" {
		s += "\n"
	}
	if rapid.Bool().Draw(t, name+" CRLF") {
		s = strings.ReplaceAll(s, "\n", "\r\n")
	}
	return s
}

func TestADiffAppliesToWhatItIsOf(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		before := text(rt, "before")
		crlf := strings.Contains(before, "\r\n")
		after := strings.ReplaceAll(text(rt, "after"), "\r\n", "\n")
		if crlf { // of one kind: a patch has no word for the other
			after = strings.ReplaceAll(after, "\n", "\r\n")
		}
		if before == after || !crlf && strings.Contains(before, "\r") {
			return
		}
		d := diff(t, before, after, nil)
		p, err := ParsePatch([]byte(d))
		if err != nil {
			rt.Fatalf("%q to %q: %s%v", before, after, d, err)
		}
		got, _, applied, err := p.Apply([]byte(before))
		want := after
		if !strings.Contains(before, "\n") { // which end lines had is not told
			want, got = strings.ReplaceAll(want, "\r", ""), bytes.ReplaceAll(got, []byte("\r"), nil)
		}
		if err != nil || string(got) != want {
			rt.Fatalf("%q to %q: %s%q, %v", before, after, d, got, err)
		}
		for _, a := range applied {
			if a.Fuzz != 0 || a.Offset != 0 {
				rt.Fatalf("%+v", a)
			}
		}
	})
}

// The diff of known spans is as right as that of everything.
func TestSpansSpareTheComparison(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		before := []byte(text(rt, "before"))
		var after []byte
		spans := []Span{}
		for at := 0; at < len(before); {
			same := rapid.IntRange(0, len(before)-at).Draw(rt, "same")
			after = append(after, before[at:at+same]...)
			at += same
			gone := rapid.IntRange(0, min(5, len(before)-at)).Draw(rt, "gone")
			come := rapid.SampledFrom([]string{"", "x", "new\n", "\n", "two\nlines"}).Draw(rt, "come")
			spans = append(spans, Span{at, at + gone, len(after), len(after) + len(come)})
			at += gone
			after = append(after, come...)
		}
		d := diff(t, string(before), string(after), spans)
		if bytes.Equal(before, after) {
			if d != "" {
				rt.Fatal(d)
			}
			return
		}
		p, err := ParsePatch([]byte(d))
		if err != nil {
			rt.Fatalf("%s%v", d, err)
		}
		got, _, _, err := p.Apply(before)
		if err != nil || !bytes.Equal(bytes.ReplaceAll(got, []byte("\r"), nil), bytes.ReplaceAll(after, []byte("\r"), nil)) {
			rt.Fatalf("%q to %q by %v: %s%q, %v", before, after, spans, d, got, err)
		}
	})
}

func TestPatchReadsOurDiffs(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip("patch(1) is not installed")
	}
	for _, c := range [][2]string{{numbers(40), strings.Replace(numbers(50), "iii", "III", 3)}, {"a\nb", "a\nb\nc"}, {"", "x\n"}, {"a\n", "b"}} {
		dir := t.TempDir()
		file, patch := filepath.Join(dir, "f"), filepath.Join(dir, "p")
		for name, data := range map[string]string{file: c[0], patch: diff(t, c[0], c[1], nil)} {
			if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.Command("patch", file, patch).CombinedOutput()
		got, _ := os.ReadFile(file)
		if err != nil || string(got) != c[1] {
			t.Errorf("%s: %v, %q", out, err, got)
		}
	}
}

func TestAPatchFindsItsPlace(t *testing.T) {
	const file = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"
	for _, c := range []struct {
		name, file, patch, want string
		applied                 Applied
	}{
		{"where it says", file, "@@ -2,3 +2,3 @@\n two\n-three\n+THREE\n four\n", "one\ntwo\nTHREE\nfour\nfive\nsix\nseven\n", Applied{Line: 2}},
		{"further down", "zero\n" + file, "@@ -2,3 +2,3 @@\n two\n-three\n+THREE\n four\n", "zero\none\ntwo\nTHREE\nfour\nfive\nsix\nseven\n", Applied{Line: 3, Offset: 1}},
		{"further up", file, "@@ -5,3 +5,3 @@\n two\n-three\n+THREE\n four\n", "one\ntwo\nTHREE\nfour\nfive\nsix\nseven\n", Applied{Line: 2, Offset: -3}},
		{"with a line of context that changed", file, "@@ -2,3 +2,3 @@\n TWO\n-three\n+THREE\n four\n", "one\ntwo\nTHREE\nfour\nfive\nsix\nseven\n", Applied{Line: 2, Fuzz: 1}},
		{"with two", file, "@@ -1,5 +1,5 @@\n ONE\n TWO\n-three\n+THREE\n FOUR\n FIVE\n", "one\ntwo\nTHREE\nfour\nfive\nsix\nseven\n", Applied{Line: 1, Fuzz: 2}},
		{"without numbers", file, "@@\n two\n-three\n+THREE\n", "one\ntwo\nTHREE\nfour\nfive\nsix\nseven\n", Applied{Line: 2}},
		{"with wrong counts", file, "@@ -2,9 +2,1 @@\n two\n-three\n+THREE\n four\n", "one\ntwo\nTHREE\nfour\nfive\nsix\nseven\n", Applied{Line: 2}},
		{"with an empty line that lost its space", "a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+B\n", "a\n\nB\n", Applied{Line: 1}},
		{"with headers of git", file, "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -7 +7 @@ func x\n-seven\n+7\n", "one\ntwo\nthree\nfour\nfive\nsix\n7\n", Applied{Line: 7}},
		{"in a file with carriage returns", "a\r\nb\r\n", "@@ -1,2 +1,3 @@\n a\n-b\n+B\n+c\n", "a\r\nB\r\nc\r\n", Applied{Line: 1}},
		{"at the end, which has no newline", "a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n", "a\nB", Applied{Line: 1}},
		{"behind the end, which has no newline", "a", "@@ -1 +1,2 @@\n a\n+b\n", "a\nb", Applied{Line: 1}},
		{"at the beginning", "a\n", "@@ -0,0 +1 @@\n+new\n", "new\na\n", Applied{Line: 1}},
		{"in an empty file", "", "@@ -0,0 +1 @@\n+new\n", "new\n", Applied{Line: 1}},
		{"where a line looks like a header", "-- a\nb\n", "@@ -1,2 +1,2 @@\n--- a\n+++ A\n b\n", "++ A\nb\n", Applied{Line: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := ParsePatch([]byte(c.patch))
			if err != nil {
				t.Fatal(err)
			}
			got, _, applied, err := p.Apply([]byte(c.file))
			if err != nil || string(got) != c.want || len(applied) != 1 || applied[0] != c.applied {
				t.Errorf("%q, %+v, %v", got, applied, err)
			}
		})
	}
}

func TestAPatchThatDoesNotFitIsRefused(t *testing.T) {
	const file = "one\ntwo\nthree\nfour\none\ntwo\nthree\n"
	for _, c := range []struct{ patch, want string }{
		{"", "no hunk"},
		{"hello\n", "no hunk"},
		{"@@ -1 +1 @@\n one\n", "changes nothing"},
		{"@@ -x +1 @@\n-one\n", "no header of a hunk"},
		{"@@ -1 +1 @@\n-one\n?\n", "begins with none of"},
		{"--- a\n+++ b\n@@ -1 +1 @@\n-one\n+1\n--- c\n+++ d\n@@ -1 +1 @@\n-x\n+y\n", "another file"},
		{"@@ -1 +1 @@\n-nine\n+9\n", "hunk 1 of the patch does not fit anywhere"},
		{"@@ -1,2 +1,2 @@\n-one\n-nine\n+9\n", `nearest to it is line 1, but behind it comes "two" in place of "nine"`},
		{"@@\n-two\n+2\n", "fits at line 2 and at line 6"},
		{"@@\n+2\n", "no line to find its place by"},
		{"@@ -1 +1 @@\n-one\n+1\n@@ -2 +2 @@\n-nine\n+9\n", "hunk 2"},
		{"@@ -99,0 +100 @@\n+x\n", "adds behind line 99"},
	} {
		p, err := ParsePatch([]byte(c.patch))
		var got []byte
		if err == nil {
			got, _, _, err = p.Apply([]byte(file))
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %q, %v, want %q", c.patch, got, err, c.want)
		}
	}
}

func FuzzApply(f *testing.F) {
	f.Add("one\ntwo\n", "@@ -1,2 +1,2 @@\n one\n-two\n+2\n")
	f.Add("a\r\nb", "@@\n-b\n+B\n\\ No newline at end of file\n")
	f.Add("", "--- a\n+++ b\n@@ -0,0 +1 @@\n+x\n@@")
	f.Fuzz(func(t *testing.T, text, patch string) {
		p, err := ParsePatch([]byte(patch))
		if err != nil {
			return
		}
		got, spans, applied, err := p.Apply([]byte(text))
		if err != nil {
			return
		}
		if len(applied) != len(p.hunks) {
			t.Errorf("%d of %d hunks", len(applied), len(p.hunks))
		}
		// What is outside of the spans is as it was.
		oldAt, newAt := 0, 0
		for _, s := range append(spans, Span{len(text), len(text), len(got), len(got)}) {
			if text[oldAt:s.OldStart] != string(got[newAt:s.NewStart]) {
				t.Fatalf("%q by %q is %q, with %+v", text, patch, got, spans)
			}
			oldAt, newAt = s.OldEnd, s.NewEnd
		}
	})
}

func TestANameCannotForgeADiff(t *testing.T) {
	var b strings.Builder
	if _, _, err := Write(&b, "a\n+++ b", "\x1b[31m", []byte("x\n"), []byte("y\n"), nil); err != nil {
		t.Fatal(err)
	}
	if want := "--- \"a\\n+++ b\"\n+++ \"\\x1b[31m\"\n@@"; !strings.HasPrefix(b.String(), want) {
		t.Errorf("%q", b.String())
	}
}
