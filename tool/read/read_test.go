package read

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/internalurl"
)

const sid = "01a1fa9b-9d2c-7c3e-8a4f-0123456789ab"

type view struct{ dir string }

func (view) ID() string                                        { return sid }
func (v view) ArtifactsDir() string                            { return v.dir }
func (view) Metadata(context.Context) ([]byte, error)          { return []byte(`{"id":1}`), nil }
func (view) EntryJSON(context.Context, string) ([]byte, error) { return nil, internalurl.ErrNoEntry }

// numbered is lines "line 1" to "line n".
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	return b.String()
}

func fixture(t testing.TB, files map[string]string) *internalurl.Router {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "s")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	store := memory.New(blobstore.Verified)
	if _, err := blobstore.Put(t.Context(), store, []byte("\x00\x01\x02")); err != nil {
		t.Fatal(err)
	}
	return internalurl.NewRouter(internalurl.Sources{Session: view{dir}, Blobs: store})
}

func TestPages(t *testing.T) {
	long := strings.Repeat("é", 40_000) // 80,000 bytes
	wide := strings.Repeat(strings.Repeat("x", 1023)+"\n", 100)
	r := fixture(t, map[string]string{
		"0.bash.log": numbered(10_000),
		"1.bash.log": "short\nunterminated",
		"2.bash.log": "before\n" + long + "\nafter\n",
		"3.bash.log": wide,
		"4.bash.log": "",
		"5.bash.log": "a\x1b[31mred\x1b[0m\r\n10%\r100%\n\xff\xfe\n",
		"6.bash.log": "\x00binary",
		"Big.md":     `{"k":"` + strings.Repeat("v", 60_000) + `","l":[1,2]}`,
	})
	binary := blobref.Of([]byte("\x00\x01\x02")).Hex()
	cases := []struct {
		name, target string
		opt          Options
		text         string // "" with first == 0: not looked at
		first, last  int64
		note         string
	}{
		{"the first page has 3,000 lines", "artifact://0", Options{}, numbered(3000), 1, 3000, "Showing lines 1-3000 of 10000. Use artifact://0:3001 to continue"},
		{"the next page", "artifact://0:3001", Options{}, strings.TrimPrefix(numbered(6000), numbered(3000)), 3001, 6000, "Use artifact://0:6001 to continue"},
		{"the last page", "artifact://0:9001", Options{}, strings.TrimPrefix(numbered(10_000), numbered(9000)), 9001, 10_000, ""},
		{"a range", "artifact://0:10-11", Options{}, "line 10\nline 11\n", 10, 11, ""},
		{"a range that ends beyond the end", "artifact://0:10000-20000", Options{}, "line 10000\n", 10_000, 10_000, ""},
		{"a count", "artifact://0:10+1", Options{}, "line 10\n", 10, 10, ""},
		{"a tail", "artifact://0:-2", Options{}, "line 9999\nline 10000\n", 9999, 10_000, ""},
		{"a tail of more than there is", "artifact://1:-99", Options{}, "short\nunterminated", 1, 2, ""},
		{"a list", "artifact://0:1-2,9-10", Options{}, "line 1\nline 2\n[lines 3-8 not shown]\nline 9\nline 10\n", 1, 10, ""},
		{"a list that ends beyond the end", "artifact://1:1+1,9-10", Options{}, "short\n", 1, 1, "There is no line 9: the last is 2"},
		{"a range longer than a page", "artifact://0:1-5000", Options{}, numbered(3000), 1, 3000, "Use artifact://0:3001-5000 to continue"},
		{"a list longer than a page", "artifact://0:1-3000,5000-5001", Options{}, numbered(3000), 1, 3000, "Use artifact://0:5000-5001 to continue"},
		{"offset and limit", "artifact://0", Options{Offset: 5, Limit: 2}, "line 5\nline 6\n", 5, 6, "Showing lines 5-6 of 10000. Use artifact://0:7 to continue"},
		{"limit alone", "artifact://0", Options{Limit: 1}, "line 1\n", 1, 1, "Showing line 1 of 10000. Use artifact://0:2 to continue"},
		{"offset alone", "artifact://0", Options{Offset: 9999}, "line 9999\nline 10000\n", 9999, 10_000, ""},
		{"no newline at the end", "artifact://1", Options{}, "short\nunterminated", 1, 2, ""},
		{"a page of 50 KiB", "artifact://3", Options{}, strings.Repeat(strings.Repeat("x", 1023)+"\n", 50), 1, 50, "Showing lines 1-50 of 100. Use artifact://3:51 to continue"},
		{"a page stops before a line that is too long", "artifact://2", Options{}, "before\n", 1, 1, "Showing line 1 of 3. Use artifact://2:2 to continue"},
		{"a line longer than a page", "artifact://2:2", Options{}, strings.Repeat("é", MaxBytes/2), 2, 2, "Line 2 is 78.1 KB long and shown in part\nShowing line 2 of 3. Use artifact://2:2@51200 to continue"},
		{"and how it goes on within it", "artifact://2:2@51200", Options{}, strings.Repeat("é", 40_000-MaxBytes/2) + "\nafter\n", 2, 3, ""},
		{"only the rest of a line", "artifact://2:2@79998+1", Options{}, "é\n", 2, 2, ""},
		{"in the middle of a character", "artifact://2:2@79997+1", Options{}, "é\n", 2, 2, ""},
		{"behind the end of a line", "artifact://2:2@99999999", Options{}, "\nafter\n", 2, 3, ""},
		{"raw in the middle of a line", "artifact://2:raw:1@3+1", Options{}, "ore\n", 1, 1, ""},
		{"raw that goes on in the middle of a line", "artifact://2:raw:2", Options{MaxRaw: 10}, strings.Repeat("é", 5), 2, 2, "Use artifact://2:raw:2@10 to continue"},
		{"and once more", "artifact://2:raw:2@10", Options{MaxRaw: 10}, strings.Repeat("é", 5), 2, 2, "Use artifact://2:raw:2@20 to continue"},
		{"numbers", "artifact://0:9-10", Options{Numbers: true}, "9\tline 9\n10\tline 10\n", 9, 10, ""},
		{"an empty artifact", "artifact://4", Options{}, "", 0, 0, "The artifact is empty"},
		{"control sequences are left out", "artifact://5", Options{}, "ared\n100%\n\uFFFD\uFFFD\n", 1, 3, ""},
		{"raw text that is no UTF-8", "artifact://5:raw", Options{}, "", 0, 0, ""},
		{"raw lines", "artifact://5:raw:1-2", Options{}, "a\x1b[31mred\x1b[0m\r\n10%\r100%\n", 1, 2, ""},
		{"raw by option", "artifact://5:1-2", Options{Raw: true}, "a\x1b[31mred\x1b[0m\r\n10%\r100%\n", 1, 2, ""},
		{"raw is not paged", "artifact://0:raw", Options{}, numbered(10_000), 1, 10_000, ""},
		{"raw is bounded", "artifact://0:raw", Options{MaxRaw: 14}, "line 1\nline 2\n", 1, 2, "Showing the first 14 bytes of 96.6 KB"},
		{"binary content", "artifact://6", Options{}, "", 0, 0, "It is application/octet-stream and begins with 00 62 69 6e 61 72 79\nBinary content of 7 bytes. Use artifact://6:raw for its bytes"},
		{"a binary blob", "blob://sha256/" + binary, Options{}, "", 0, 0, "Binary content of 3 bytes"},
		{"an extraction is whole", "agent://Big?q=.k", Options{}, strings.Repeat("v", 60_000), 1, 1, "Extracted: .k"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, err := Read(t.Context(), r, c.target, c.opt)
			if err != nil {
				t.Fatal(err)
			}
			if c.first != 0 && (p.Text != c.text || p.FirstLine != c.first || p.LastLine != c.last) {
				t.Errorf("lines %d-%d: %.80q... (%d bytes), want %d-%d: %.80q... (%d bytes)",
					p.FirstLine, p.LastLine, p.Text, len(p.Text), c.first, c.last, c.text, len(c.text))
			}
			notes := strings.Join(p.Notes, "\n")
			if !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}

func TestWhatCannotBeReadIsASentence(t *testing.T) {
	r := fixture(t, map[string]string{"0.bash.log": numbered(3), "1.bash.log": "", "J.md": `{"a":1}`})
	for _, c := range []struct {
		target string
		opt    Options
		want   string
	}{
		{"artifact://0:9999999", Options{}, "Line 9999999 is beyond end of artifact (3 lines total). Use artifact://0:1 to read from the start, or artifact://0:3 to read the last line."},
		{"artifact://0", Options{Offset: 4}, "Line 4 is beyond end of artifact (3 lines total)."},
		{"artifact://0:raw:4-5", Options{}, "Line 4 is beyond end of artifact"},
		{"artifact://1:1", Options{}, "Line 1 is beyond end of artifact (0 lines total). The artifact is empty."},
		{"artifact://0:1-2", Options{Offset: 1}, "cannot combine offset or limit"},
		{"artifact://0", Options{Offset: -1}, "use positive numbers"},
		{"agent://J?q=.a", Options{Limit: 5}, "Cannot combine query extraction with line selectors"},
		{"agent://J/a", Options{Raw: true}, "Cannot combine query extraction with line selectors"},
		{"artifact://7", Options{}, "Artifact 7 not found. Available: 0, 1"},
		{filepath.Join(t.TempDir(), "none"), Options{}, "not found: name a file, or a URL"},
		{"/dev/null", Options{}, "is a device: name a regular file"},
	} {
		if p, err := Read(t.Context(), r, c.target, c.opt); err == nil {
			t.Errorf("%s: read %+v", c.target, p)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.target, err, c.want)
		}
	}
}

func TestFilesAreReadByName(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"log": numbered(5), "odd:2": "odd\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("log", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"log": numbered(5), "log:2-3": "line 2\nline 3\n", "log:-1": "line 5\n", "odd:2": "odd\n", "link:1+1": "line 1\n",
		"odd:2:1": "odd\n", "log:raw:5": "line 5\n",
	} {
		p, err := Read(t.Context(), nil, filepath.Join(dir, target), Options{})
		if err != nil || p.Text != want {
			t.Errorf("%s: %q, %v", target, p.Text, err)
		}
	}
}

func TestCopyWritesEveryByte(t *testing.T) {
	binary := strings.Repeat("\x00\xff\r\x1b[2J\n", 100_000)
	r := fixture(t, map[string]string{"0.bash.log": binary, "1.bash.log": numbered(10)})
	for target, want := range map[string]string{
		"artifact://0": binary, "artifact://0:raw": binary, "artifact://0:raw:2+1": "\x00\xff\r\x1b[2J\n",
		"artifact://1:1+1,-": "", "artifact://1:1+1,9-99": "line 1\nline 9\nline 10\n", "artifact://1:-1": "line 10\n",
	} {
		var got bytes.Buffer
		n, err := Copy(t.Context(), &got, r, target, Options{})
		if want == "" {
			if err == nil {
				t.Errorf("%s: copied %d bytes", target, n)
			}
			continue
		}
		if err != nil || got.String() != want || n != int64(len(want)) {
			t.Errorf("%s: %d bytes, %v", target, n, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Copy(ctx, io.Discard, r, "artifact://0", Options{}); err == nil {
		t.Error("a cancelled copy succeeded")
	}
}

// Pages followed by what they advise are the whole, once.
func TestFollowingTheAdviceReadsEverythingOnce(t *testing.T) {
	var content strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&content, "%d %s\n", i, strings.Repeat("y", i%97))
	}
	r := fixture(t, map[string]string{"0.bash.log": content.String()})
	var got strings.Builder
	for target, pages := "artifact://0", 0; target != ""; pages++ {
		if pages > 100 {
			t.Fatal("no end")
		}
		p, err := Read(t.Context(), r, target, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString(p.Text)
		target = ""
		for _, n := range p.Notes {
			if _, use, ok := strings.Cut(n, "Use "); ok {
				target = strings.TrimSuffix(use, " to continue")
			}
		}
	}
	if got.String() != content.String() {
		t.Errorf("%d bytes, want %d", got.Len(), content.Len())
	}
}

func TestJSONHasTextOrData(t *testing.T) {
	r := fixture(t, map[string]string{"0.bash.log": "a\n", "1.bash.log": "\x00"})
	for target, want := range map[string]string{
		"artifact://0": `{"url":"artifact://0","contentType":"text/plain","size":2,"lines":1,"firstLine":1,"lastLine":1,"text":"a\n","notes":[]}`,
		"artifact://1": `{"url":"artifact://1","contentType":"application/octet-stream","size":1,"lines":1,"firstLine":1,"lastLine":1,"data":"AA==","notes":["It is application/octet-stream and begins with 00","Binary content of 1 byte. Use artifact://1:raw for its bytes"]}`,
	} {
		p, err := Read(t.Context(), r, target, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(p)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", target, got, err)
		}
	}
}

func TestTheToolAnswersAModel(t *testing.T) {
	r := fixture(t, map[string]string{"0.bash.log": numbered(4000), "J.md": `{"k":"` + strings.Repeat("é", 40_000) + `"}`})
	tool := Tool{Router: r}
	for _, c := range []struct {
		in, want string
		isError  bool
	}{
		{`{"path":"artifact://0:1-2"}`, "line 1\nline 2\n", false},
		{`{"path":"artifact://0","offset":2,"limit":1}`, "line 2\n\n[Showing line 2 of 4000. Use artifact://0:3 to continue]", false},
		{`{"path":"artifact://9"}`, "Artifact 9 not found. Available: 0", true},
		{`{"path":"/etc/passwd"}`, "is not a URL", true},
		{`{"path":"artifact://0","limit":0}`, "limit must be 1 or more", true},
		{`{"path":""}`, "path is missing", true},
		{`{"url":"artifact://0"}`, "invalid input", true},
		{`{"path":"artifact://0"}{}`, "something follows", true},
		{`[`, "invalid input", true},
		{`{"path":"agent://J?q=.k"}`, "[Extracted: .k. Showing the first 50.0 KB of 78.1 KB. Narrow the query for the rest]", false},
		{`{"path":"artifact://0:raw"}`, "", false},
	} {
		res, err := tool.Call(t.Context(), json.RawMessage(c.in))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(res.Text, c.want) || res.IsError != c.isError || len(res.Text) > MaxBytes+500 {
			t.Errorf("%s: error %t, %.300q", c.in, res.IsError, res.Text)
		}
	}
	if !json.Valid(tool.Schema()) {
		t.Error("the schema is not JSON")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tool.Call(ctx, json.RawMessage(`{"path":"artifact://0"}`)); err == nil {
		t.Error("a cancelled call answered")
	}
}
