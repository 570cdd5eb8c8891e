package edit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/charset"
	"github.com/agentrun/agentrun/tool/workspace"
)

func TestEditsAreMadeExactly(t *testing.T) {
	for _, c := range []struct {
		name, text string
		edits      []Edit
		want       string
	}{
		{"one", "a b c", []Edit{{Old: "b", New: "B"}}, "a B c"},
		{"several, in any order", "a b c", []Edit{{Old: "c", New: "C"}, {Old: "a", New: "A"}}, "A b C"},
		{"all", "a b a", []Edit{{Old: "a", New: "x", All: true}}, "x b x"},
		{"all of one that overlaps itself", "aaaa", []Edit{{Old: "aa", New: "b", All: true}}, "bb"},
		{"removed", "a b c", []Edit{{Old: " b", New: ""}}, "a c"},
		{"side by side", "abcd", []Edit{{Old: "ab", New: "1"}, {Old: "cd", New: "2"}}, "12"},
		{"what an edit brings is not edited", "a b", []Edit{{Old: "a", New: "b"}, {Old: "b", New: "c"}}, "b c"},
		{"lines with carriage returns", "a\r\nb\r\nc\r\n", []Edit{{Old: "a\nb\n", New: "x\ny\nz\n"}}, "x\r\ny\r\nz\r\nc\r\n"},
		{"carriage returns that are given", "a\r\nb\r\n", []Edit{{Old: "a\r\nb", New: "x\r\ny"}}, "x\r\ny\r\n"},
		{"a line more, in carriage returns", "a\r\nb\r\n", []Edit{{Old: "b", New: "b\nc"}}, "a\r\nb\r\nc\r\n"},
		{"ends that differ", "a\r\nb\nc\r\n", []Edit{{Old: "b\n", New: "x\ny\n"}}, "a\r\nx\ny\nc\r\n"},
		{"only a newline", "a\r\nb\r\n", []Edit{{Old: "a\nb", New: "a b"}}, "a b\r\n"},
		{"damaged UTF-8 stays", "\xff a \xfe", []Edit{{Old: "a", New: "b"}}, "\xff b \xfe"},
		{"no newline at the end", "a\nb", []Edit{{Old: "b", New: "c"}}, "a\nc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, spans, _, err := Apply([]byte(c.text), c.edits)
			if err != nil || string(got) != c.want {
				t.Fatalf("%q, %v", got, err)
			}
			checkSpans(t, c.text, string(got), spans)
		})
	}
}

func TestEditsThatAreNotClearAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, text string
		edits      []Edit
		want       string
	}{
		{"none", "a", nil, "there is no edit"},
		{"not there", "a\nb\n", []Edit{{Old: "a", New: "x"}, {Old: "q", New: "x"}}, "edit 2: the old text is not there: read"},
		{"there but for white space", "if x {\n\treturn\n}\n", []Edit{{Old: "if x {\n    return\n}", New: "x"}}, `at line 1, which begins "if x {"`},
		{"there but for its third line", "x\nif x {\n\tgo()\n\treturn 1\n}\nif x {\n", []Edit{{Old: "if x {\n\tgo()\n\treturn 2\n}", New: "x"}}, `from line 2 on the file has its first 2 lines, but then "\treturn 1" in place of "\treturn 2": read`},
		{"there but for more than the file has", "a\nif x {", []Edit{{Old: "if x {\n}\n", New: "x"}}, `from line 2 on the file has its first line, but then "" in place of "}": read`},
		{"twice", "a\nb\na\n", []Edit{{Old: "a", New: "x"}}, "there 2 times, at lines 1, 3:"},
		{"over itself", "aaa", []Edit{{Old: "aa", New: "x"}}, "there 2 times"},
		{"very often", strings.Repeat("a\n", 50), []Edit{{Old: "a", New: "x"}}, "50 times, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...:"},
		{"empty", "a", []Edit{{Old: "", New: "x"}}, "the old text is empty"},
		{"the same", "a", []Edit{{Old: "a", New: "a"}}, "are the same"},
		{"one over the other", "abc", []Edit{{Old: "ab", New: "x"}, {Old: "bc", New: "y"}}, "edits 1 and 2 are about the same text, at line 1"},
		{"too many", "a", make([]Edit, MaxEdits+1), "there are 1001 edits, and 1000 are the most"},
		{"of too many places", strings.Repeat("a", maxPlaces+1), []Edit{{Old: "a", New: "b", All: true}}, "more than 1000000 places"},
		{"too large an outcome", strings.Repeat("a", 1_000_000), []Edit{{Old: "a", New: strings.Repeat("b", 100_000), All: true}}, "it would have 93.1 GB, and 100MiB are the most"},
		{"half a line end", "a\r\nb\r\n", []Edit{{Old: "\nx", New: "y"}}, "not there"},
	} {
		got, _, _, err := Apply([]byte(c.text), c.edits)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

// checkSpans: what is outside of the spans is the same in both.
func checkSpans(t *testing.T, before, after string, spans any) {
	t.Helper()
	data, err := json.Marshal(spans)
	if err != nil {
		t.Fatal(err)
	}
	var list []struct{ OldStart, OldEnd, NewStart, NewEnd int }
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	oldAt, newAt := 0, 0
	for _, s := range append(list, struct{ OldStart, OldEnd, NewStart, NewEnd int }{len(before), len(before), len(after), len(after)}) {
		if before[oldAt:s.OldStart] != after[newAt:s.NewStart] {
			t.Fatalf("%q and %q differ outside of %v", before, after, list)
		}
		oldAt, newAt = s.OldEnd, s.NewEnd
	}
}

func FuzzEdits(f *testing.F) {
	f.Add("a\r\nb\n", "a\nb", "x\ny", true)
	f.Add("aaa", "aa", "a", false)
	f.Add("\xff\xfea\x00", "a", "é", false)
	f.Fuzz(func(t *testing.T, text, old, new string, all bool) {
		got, spans, n, err := Apply([]byte(text), []Edit{{Old: old, New: new, All: all}})
		if err != nil {
			return
		}
		checkSpans(t, text, string(got), spans)
		// Where no line end is involved it is what strings.Replace does.
		if !strings.Contains(text, "\r\n") {
			if want := strings.ReplaceAll(text, old, new); string(got) != want || n != strings.Count(text, old) {
				t.Errorf("%q, want %q", got, want)
			}
		}
	})
}

// files opens a workspace with files.
func files(t *testing.T, content map[string]string) *workspace.Workspace {
	t.Helper()
	dir := t.TempDir()
	for name, data := range content {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w, err := workspace.Open(workspace.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func holds(t *testing.T, w *workspace.Workspace, name, want string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(w.Dir(), name))
	if err != nil || string(data) != want {
		t.Errorf("%s holds %q, %v, want %q", name, data, err, want)
	}
}

func TestTheToolAnswersAModel(t *testing.T) {
	w := files(t, map[string]string{
		"a": "one\ntwo\n", "u": "\xff\xfeo\x00n\x00e\x00\n\x00", "l": "gr\xfcn\n", "bin": "a\x00b", "b": "\xef\xbb\xbfone\r\ntwo",
	})
	tool := Tool{Workspace: w}
	for _, c := range []struct {
		in, want string
		isError  bool
	}{
		{`{"path":"a","edits":[{"old":"two","new":"2"}]}`, "--- a\n+++ a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n", false},
		{`{"path":"a","edits":[{"old":"one","new":"1"},{"old":"nine","new":"9"}]}`, "a was not changed: edit 2: the old text is not there", true},
		{`{"path":"a","patch":"@@ -4,2 +4,2 @@\n-one\n+1\n 2\n"}`, "[Hunk 1 went to line 1, -3 from where it said]", false},
		{`{"path":"a","patch":"@@ -1,2 +1,2 @@\n-1\n+one\n three\n"}`, "with 1 lines of context that differ", false},
		{`{"path":"u","edits":[{"old":"one","new":"größer"}]}`, "-one\n+größer", false},
		{`{"path":"l","edits":[{"old":"grün","new":"blau, ü"}]}`, "-grün\n+blau, ü", false},
		{`{"path":"l","edits":[{"old":"blau","new":"✓"}]}`, "which has no '✓'", true},
		{`{"path":"b","edits":[{"old":"two","new":"2\n3"}]}`, "+2\n+3", false},
		{`{"path":"bin","edits":[{"old":"a","new":"c"}]}`, "it is binary", true},
		{`{"path":"none","edits":[{"old":"a","new":"c"}]}`, "none is not there", true},
		{`{"path":"../x","edits":[{"old":"a","new":"c"}]}`, "outside of the workspace", true},
		{`{"path":"a"}`, "give either edits or a patch", true},
		{`{"path":"a","patch":"x","edits":[{"old":"a","new":"b"}]}`, "give either", true},
		{`{"path":"a","nope":1}`, "not as the schema says", true},
		{`{"path":"a"}{}`, "something follows", true},
		{`[`, "not as the schema says", true},
	} {
		res, err := tool.Call(t.Context(), json.RawMessage(c.in))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(res.Text, c.want) || res.IsError != c.isError {
			t.Errorf("%s: error %t, %q", c.in, res.IsError, res.Text)
		}
	}
	holds(t, w, "a", "one\n2\n")
	holds(t, w, "u", "\xff\xfeg\x00r\x00\xf6\x00\xdf\x00e\x00r\x00\n\x00")
	holds(t, w, "l", "blau, \xfc\n")
	holds(t, w, "b", "\xef\xbb\xbfone\r\n2\r\n3")
	holds(t, w, "bin", "a\x00b")
	if !json.Valid(tool.Schema()) {
		t.Error("the schema is not JSON")
	}
}

func TestADiffThatIsTooLongIsKeptWhole(t *testing.T) {
	w := files(t, map[string]string{"a": strings.Repeat("old line\n", 20_000)})
	dir := artifacts.Open(filepath.Join(t.TempDir(), "artifacts"), artifacts.Options{})
	tool := Tool{Workspace: w, Output: Output{Artifacts: dir}}
	res, err := tool.Call(t.Context(), json.RawMessage(`{"path":"a","edits":[{"old":"old","new":"new","all":true}]}`))
	if err != nil || res.IsError || res.Artifact != "artifact://0" || !strings.Contains(res.Text, "artifact://0") {
		t.Fatalf("%+v, %v", res, err)
	}
	if len(res.Text) > 60_000 || !strings.Contains(string(res.Details), `"added":20000`) {
		t.Errorf("%d bytes, %s", len(res.Text), res.Details)
	}
}

func TestACancelledCallDoesNothing(t *testing.T) {
	w := files(t, map[string]string{"a": "one"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Tool{Workspace: w}).Call(ctx, json.RawMessage(`{"path":"a","edits":[{"old":"one","new":"2"}]}`)); err == nil {
		t.Error("a cancelled call answered")
	}
	holds(t, w, "a", "one")
}

// noAfter records what was before, and not what is behind.
type noAfter struct{}

func (noAfter) Before(context.Context, string) error { return nil }
func (noAfter) After(context.Context, string) error  { return errors.New("the log is full") }

func TestAChangeWithoutARecordIsToldWithItsDiff(t *testing.T) {
	w := files(t, map[string]string{"a": "one\n"})
	w2, err := workspace.Open(workspace.Options{Dir: w.Dir(), Recorder: noAfter{}})
	if err != nil {
		t.Fatal(err)
	}
	defer w2.Close()
	res, err := Tool{Workspace: w2}.Call(t.Context(), json.RawMessage(`{"path":"a","edits":[{"old":"one","new":"2"}]}`))
	var record *workspace.RecordError
	if !errors.As(err, &record) || !res.IsError || !strings.Contains(res.Text, "+2") {
		t.Errorf("%+v, %v", res, err)
	}
	holds(t, w, "a", "2\n")
}

func TestEditsAreMadeInTheEncodingOfTheFile(t *testing.T) {
	sjis := func(s string) []byte {
		out, err := charset.ShiftJIS.Encode([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	const text = "吾輩は猫である。\r\n名前はまだ無い。\r\nどこで生れたかとんと見当がつかぬ。\r\n"
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, sjis(text), 0o640); err != nil {
		t.Fatal(err)
	}
	w, err := workspace.Open(workspace.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	res, err := Do(t.Context(), w, Request{Path: "f", Edits: []Edit{{Old: "名前はまだ無い。\n", New: "名前はタマ。\n"}}}, Output{})
	if err != nil || res.Encoding != "Shift-JIS" {
		t.Fatalf("%+v, %v", res, err)
	}
	got, err := os.ReadFile(path)
	if want := sjis(strings.Replace(text, "まだ無い", "タマ", 1)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q, want %q, %v", got, want, err)
	}
	if _, err := Do(t.Context(), w, Request{Path: "f", Edits: []Edit{{Old: "タマ", New: "Zoë"}}}, Output{}); err == nil || !strings.Contains(err.Error(), "the file is Shift-JIS") {
		t.Errorf("%v", err)
	}
}
