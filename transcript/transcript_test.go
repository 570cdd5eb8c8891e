package transcript_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/transcript"
)

func quoted(s string) string { return string(must(json.Marshal(s))) }

func itoa(n int) string { return fmt.Sprint(n) }

func TestJSONHasAllOfTheLog(t *testing.T) {
	s := newSession(t)
	root := add(t, s, user(strings.Repeat("long ", 200_000)))
	left := add(t, s, entry.UserMessage{Content: entry.Blocks(image())})
	right := must(s.AppendUnder(t.Context(), root, user("right")))
	add(t, s, entry.Label{TargetID: right, Label: "here"})
	keep(t, s, 10)
	text, sum := written(t, transcript.JSON, s, transcript.Options{})
	var got struct {
		Session struct{ ID, CWD, Title string }
		Leaf    string
		Path    []string
		Labels  map[string]string
		Tree    []struct {
			ID       string
			Parent   *string
			Children []string
		}
		Entries   []json.RawMessage
		Artifacts []struct {
			ID    int64
			Bytes int64
		}
		Missing []any
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if got.Session.ID != s.ID() || got.Session.CWD != s.CWD() || got.Leaf != must(s.Leaf(t.Context())) || got.Labels[right] != "here" {
		t.Errorf("%+v", got.Session)
	}
	i := 0
	for e, err := range s.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if string(got.Entries[i]) != string(e.Raw()) {
			t.Errorf("entry %d is not as it was appended", i)
		}
		if got.Tree[i].ID != e.ID() {
			t.Errorf("the tree has %s where the log has %s", got.Tree[i].ID, e.ID())
		}
		i++
	}
	if len(got.Entries) != i || sum.Entries != i || sum.Images != 1 || len(got.Missing) != 0 || len(got.Artifacts) != 1 || got.Artifacts[0].Bytes != 71 {
		t.Errorf("%d entries, %+v, %+v", len(got.Entries), sum, got.Artifacts)
	}
	for _, n := range got.Tree {
		if n.ID == root && (len(n.Children) != 2 || n.Children[0] != left || n.Children[1] != right) {
			t.Errorf("%+v", n)
		}
	}
	must(0, os.RemoveAll(filepath.Join(s.Home(), "blobs")))
	text, sum = written(t, transcript.JSON, s, transcript.Options{})
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Missing) != 2 || sum.Missing != 2 {
		t.Errorf("%d missing, %v", len(got.Missing), err)
	}
}

func TestMarkdownFencesHoldWhateverIsInThem(t *testing.T) {
	s := newSession(t)
	add(t, s, entry.BashExecutionMessage{Command: "cat README.md", Output: "```go\nx\n```\n`````\n## not a heading\n"})
	text, _ := written(t, transcript.Markdown, s, transcript.Options{})
	has(t, text, "``````\n```go\nx\n```\n`````\n## not a heading\n``````\n", "# A <b>title</b>\n")
}

func TestAnEmptySessionIsToldInEveryFormat(t *testing.T) {
	m := must(session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{}))
	path := filepath.Join(m.Home(), "sessions", "-p", "s.jsonl")
	must(0, os.MkdirAll(filepath.Dir(path), 0o700))
	must(0, os.WriteFile(path, []byte(`{"type":"session","version":3,"id":"s1","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/p"}`+"\n"), 0o600))
	s := must(m.View(t.Context(), path))
	defer s.Close()
	for _, f := range []transcript.Format{transcript.Markdown, transcript.HTML, transcript.JSON} {
		text, sum := written(t, f, s, transcript.Options{})
		has(t, text, "s1")
		if sum.Entries != 0 {
			t.Errorf("%+v", sum)
		}
	}
}

type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if len(p) > f.left {
		return f.left, unix.ENOSPC
	}
	f.left -= len(p)
	return len(p), nil
}

func TestATranscriptThatCannotBeWrittenSaysSo(t *testing.T) {
	s := newSession(t)
	for range 50 {
		add(t, s, user(strings.Repeat("x", 10_000)))
	}
	for _, f := range []transcript.Format{transcript.Markdown, transcript.HTML, transcript.JSON} {
		if _, err := transcript.Write(t.Context(), &full{100_000}, f, s, dirOf(s), transcript.Options{}); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: %v", f, err)
		}
	}
	if _, err := transcript.Write(t.Context(), io.Discard, "pdf", s, nil, transcript.Options{}); err == nil {
		t.Error("a format that there is not was written")
	}
}

func TestEveryRecordedSessionIsTold(t *testing.T) {
	root := os.Getenv("AGENTRUN_TEST_DATA")
	for dir := must(os.Getwd()); root == "" && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "shared", "data")); err == nil {
			root = filepath.Join(dir, "shared", "data")
		}
	}
	files, _ := filepath.Glob(filepath.Join(root, "pi-sessions", "*.jsonl"))
	more, _ := filepath.Glob(filepath.Join(root, "pi-sessions", "*", "*.jsonl"))
	if files = append(files, more...); root == "" || len(files) == 0 {
		t.Skip("no recorded sessions: set AGENTRUN_TEST_DATA")
	}
	m := must(session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{}))
	for _, path := range files {
		s, err := m.View(t.Context(), path)
		if err != nil {
			t.Logf("%s does not open: %v", filepath.Base(path), err)
			continue
		}
		for _, f := range []transcript.Format{transcript.Markdown, transcript.HTML, transcript.JSON} {
			var b strings.Builder
			if _, err := transcript.Write(t.Context(), &b, f, s, nil, transcript.Options{}); err != nil {
				t.Errorf("%s as %s: %v", path, f, err)
			}
			if f == transcript.JSON && !json.Valid([]byte(b.String())) {
				t.Errorf("%s: no JSON", path)
			}
		}
		s.Close()
	}
}

// slowest are texts that layouts of Markdown are known to be slow or deep with.
var slowest = []string{
	">", "> ", "- ", "1. ", "* ", "[", "![", "[[", "**a ", "*a _b ", "`", "``a`", "<", "<!--", "&", "a](", "[a](", "|a", "~~a ", "\\", "(", "[a]: b\n", "- a\n  ", "> - ", "\t", "<a ", "a*", "_a", "***", "[x](<", "![a]([b](", "<?", "<![CDATA[",
}

func TestNoTextKeepsTheLayoutBusyForLong(t *testing.T) {
	for _, part := range slowest {
		for _, end := range []string{"", "\n", "a", "\n]"} {
			unit := part + end
			s := newSession(t)
			add(t, s, assistant(text(strings.Repeat(unit, 16<<10/len(unit)))))
			written(t, transcript.HTML, s, transcript.Options{}) // ends before the test's own time is up
		}
	}
}

func TestResultsStandUnderTheCallThatTheyAnswer(t *testing.T) {
	s := newSession(t)
	add(t, s, user("go"))
	root := add(t, s, assistant(toolCall("x", "first", `{}`)))
	add(t, s, assistant(toolCall("x", "second", `{}`)))
	add(t, s, result("x", "second", "of the second"))
	must(s.AppendUnder(t.Context(), root, user("another branch")))
	add(t, s, assistant(toolCall("x", "third", `{}`)))
	add(t, s, result("x", "third", "of the third"))
	page, _ := written(t, transcript.Markdown, s, transcript.Options{})
	first, third := strings.Index(page, "first"), strings.Index(page, "third")
	if at := strings.Index(page, "of the third"); at < third || third < first || strings.Contains(page[first:third], "of the") {
		t.Errorf("a result stands elsewhere:\n%s", page)
	}
	has(t, page[first:third], "no result")
	whole, _ := written(t, transcript.HTML, s, transcript.Options{})
	has(t, whole, "of the second")
}
