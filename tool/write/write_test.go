package write

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/tool/edit"
	"github.com/agentrun/agentrun/tool/workspace"
)

func open(t *testing.T) *workspace.Workspace {
	t.Helper()
	w, err := workspace.Open(workspace.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func TestAFileKeepsItsForm(t *testing.T) {
	for _, c := range []struct {
		name, old, content, want, kept string
		exact                          bool
	}{
		{"plain", "old\n", "new\n", "new\n", "", false},
		{"a newline at the end", "old\n", "new", "new\n", "final newline", false},
		{"no newline at the end", "old", "new\n", "new\n", "", false},
		{"carriage returns", "a\r\nb\r\n", "x\ny\n", "x\r\ny\r\n", "CRLF", false},
		{"carriage returns that the text has", "a\r\nb\r\n", "x\r\ny\r\n", "x\r\ny\r\n", "", false},
		{"a byte order mark", "\xef\xbb\xbfold\n", "new\n", "\xef\xbb\xbfnew\n", "BOM", false},
		{"UTF-16", "\xff\xfea\x00\n\x00", "ü\n", "\xff\xfe\xfc\x00\n\x00", "UTF-16LE,BOM", false},
		{"Latin-1", "gr\xfcn\n", "gelb ü\n", "gelb \xfc\n", "ISO-8859-1", false},
		{"exactly", "a\r\nb\r\n", "x\ny", "x\ny", "", true},
		{"nothing", "old\n", "", "", "", false},
		{"binary", "old\n", "a\x00b", "a\x00b", "", false},
		{"over something binary", "a\x00b", "x", "x", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t)
			name := filepath.Join(w.Dir(), "f")
			if err := os.WriteFile(name, []byte(c.old), 0o600); err != nil {
				t.Fatal(err)
			}
			res, err := Do(t.Context(), w, Request{Path: "f", Content: []byte(c.content), Exact: c.exact}, edit.Output{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(name)
			if err != nil || string(got) != c.want || strings.Join(res.Kept, ",") != c.kept {
				t.Errorf("%q, kept %v, %v", got, res.Kept, err)
			}
		})
	}
}

func TestANewFileHasTheVeryBytes(t *testing.T) {
	w := open(t)
	for i, content := range []string{"", "a", "a\r\nb\n", "\xff\xfe", "\x00"} {
		name := "dir/" + strings.Repeat("f", i+1)
		res, err := Do(t.Context(), w, Request{Path: name, Content: []byte(content)}, edit.Output{})
		if err != nil || !res.Made || res.Bytes != int64(len(content)) {
			t.Fatalf("%+v, %v", res, err)
		}
		if got, err := os.ReadFile(filepath.Join(w.Dir(), name)); err != nil || string(got) != content {
			t.Errorf("%q, %v", got, err)
		}
	}
}

func TestTheToolAnswersAModel(t *testing.T) {
	w := open(t)
	tool := Tool{Workspace: w}
	for _, c := range []struct {
		in, want string
		isError  bool
	}{
		{`{"path":"a/b","content":"one\n"}`, "[Made a/b, 4 bytes]", false},
		{`{"path":"a/b","content":"two"}`, "--- a/b\n+++ a/b\n@@ -1 +1 @@\n-one\n+two\n[Wrote a/b, 4 bytes; kept final newline]", false},
		{`{"path":"a/b","content":"two"}`, "[a/b holds that already: it was not written; kept final newline]", false},
		{`{"path":"/etc/agentrun","content":""}`, "outside of the workspace", true},
		{`{"path":"a","content":""}`, "directory", true},
		{`{"path":"a/b"}x`, "something follows", true},
		{`{"path":1}`, "not as the schema says", true},
	} {
		res, err := tool.Call(t.Context(), json.RawMessage(c.in))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(res.Text, c.want) || res.IsError != c.isError {
			t.Errorf("%s: error %t, %q", c.in, res.IsError, res.Text)
		}
	}
	if !json.Valid(tool.Schema()) {
		t.Error("the schema is not JSON")
	}
}
