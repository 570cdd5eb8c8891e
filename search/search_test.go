package search_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/search"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// home is a home with a way to fill it.
type home struct {
	testing.TB
	*session.Manager
	cwd string
}

func newHome(t testing.TB) *home {
	m, err := session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{Durability: session.Flush})
	if err != nil {
		t.Fatal(err)
	}
	return &home{t, m, t.TempDir()}
}

// session makes a session of messages of a user.
func (h *home) session(texts ...string) *session.Session {
	h.Helper()
	s, err := h.Create(context.Background(), h.cwd, session.CreateOptions{})
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { s.Close() })
	h.say(s, texts...)
	return s
}

func (h *home) say(s *session.Session, texts ...string) {
	h.Helper()
	for _, text := range texts {
		if _, err := s.Append(context.Background(), entry.UserText(text)); err != nil {
			h.Fatal(err)
		}
	}
}

// output keeps an artifact and returns its path.
func (h *home) output(s *session.Session, text string) string {
	h.Helper()
	f, err := artifacts.Open(s.ArtifactsDir(), artifacts.Options{}).Create(context.Background(), "bash", artifacts.Provenance{})
	if err != nil {
		h.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte(text)); err != nil {
		h.Fatal(err)
	}
	return f.Path()
}

func (h *home) searcher() *search.Searcher { return search.New(h.Manager, search.Options{}) }

// find returns the hits, each as where it is and its snippet.
func (h *home) find(q search.Query) ([]string, search.Result) {
	h.Helper()
	var got []string
	res, err := h.searcher().Search(context.Background(), q, func(hit search.Hit) bool {
		got = append(got, describe(hit))
		return true
	})
	if err != nil {
		h.Fatal(err)
	}
	for _, p := range res.Problems {
		h.Error(p)
	}
	return got, res
}

func describe(hit search.Hit) string {
	return fmt.Sprintf("%s %s:%d %s %q", hit.Role, hit.URL, hit.Line, hit.Entry, hit.Snippet.Text)
}

func (h *home) index() {
	h.Helper()
	if err := h.searcher().Update(context.Background()); err != nil {
		h.Fatal(err)
	}
}

// both asks with and without the index, which must agree, and returns the answer.
func (h *home) both(q search.Query) []string {
	h.Helper()
	h.index()
	with, res := h.find(q)
	if res.Scanned > 64<<10 {
		h.Errorf("%q: %d bytes were searched without the index: %s", q.Words, res.Scanned, res.Why)
	}
	q.NoIndex = true
	without, _ := h.find(q)
	if diff := cmp.Diff(without, with); diff != "" {
		h.Errorf("%q: without the index (-) and with it (+):\n%s", q.Words, diff)
	}
	return with
}

func TestWordsAreFound(t *testing.T) {
	const text = `func NewConnectionPoolTimeout(ctx) error { return HTTPServer_v2.fail("a-b-77", 0x7fff) }
utf8 error404 snake_case_name kebab-case-name fed77cb8a9e0 path/to/file_42.go:17:3
数据库连接失败，请重试。接続プールがタイムアウトしました。데이터베이스에 연결할 수 없습니다
Ｆｕｌｌ ｗｉｄｔｈ ﬁligree ÉCLAIR éclair Straße ΣΊΣΥΦΟΣ
AND OR NOT NEAR(a b) "quoted" pool* col:x ^start {a b} 100% a+b -- ' ; DROP
$HOME/.config --flag=value C:\dir\file key:=value`
	for _, tt := range []struct {
		word string
		want bool
	}{
		{"pool", true},
		{"Pool", true},
		{"timeout", true},
		{"ConnectionPoolTimeout", true},
		{"connectionpool", true},
		{"newconnectionpooltimeout", true},
		{"time", true},
		{"tim", true},
		{"ool", false},
		{"imeout", false},
		{"server", true},
		{"http", true},
		{"httpserver", true},
		{"v2", true},
		{"HTTPServer_v2.fail", true},
		{"a-b-77", true},
		{"b-77", true},
		{"77", true},
		{"a-b", true},
		{"a b 77", false},
		{"a-b-7", false},
		{"404", true},
		{"error404", true},
		{"error", true},
		{"utf", true},
		{"8", true},
		{"snake_case", true},
		{"case_name", true},
		{"snake", true},
		{"kebab-case-name", true},
		{"nake_case", false},
		{"fed77cb8", true},
		{"fed77cb8a9e0", true},
		{"77cb", false},
		{"file_42.go:17", true},
		{"to/file", true},
		{"数据库", true},
		{"据库连", true},
		{"库", true},
		{"数据库连接失败", true},
		{"失败，请", true},
		{"库数", false},
		{"试", true},
		{"プール", true},
		{"接続プール", true},
		{"タイムアウト", true},
		{"ました", true},
		{"데이터베이스", true},
		{"이스에", true},
		{"연결할", true},
		{"full", true},
		{"width", true},
		{"filigree", true},
		{"éclair", true},
		{"ÉCLAIR", true},
		{"eclair", false},
		{"σίσυφος", true},
		{"straße", true},
		{"AND", true},
		{"NEAR(a", true},
		{`"quoted"`, true},
		{"pool*", true},
		{"*", true},
		{"col:x", true},
		{"^start", true},
		{"{a", true},
		{"100%", true},
		{"a+b", true},
		{"--", true},
		{"'", true},
		{";", true},
		{"->", false},
		{`dir\file`, true},
		{"$HOME/.config", true},
		{"--flag=value", true},
		{":=", true},
		{"quoted pool", false},
		{"NOT NEAR", true},
	} {
		t.Run(tt.word, func(t *testing.T) {
			h := newHome(t)
			s := h.session(text)
			h.output(s, text+"\n")
			for _, noIndex := range []bool{true, false} {
				if !noIndex {
					h.index()
				}
				got, _ := h.find(search.Query{Words: []string{tt.word}, NoIndex: noIndex})
				if want := 2; tt.want && len(got) < want || !tt.want && len(got) > 0 {
					t.Errorf("without the index %v: found %q, want %v", noIndex, got, tt.want)
				}
			}
		})
	}
}

func TestAllWordsAreNearEachOther(t *testing.T) {
	h := newHome(t)
	s := h.session("alpha here", "and beta there", "alpha and beta")
	lines := make([]string, 100)
	for i := range lines {
		lines[i] = fmt.Sprintf("line %d", i+1)
	}
	lines[9], lines[18], lines[28], lines[49], lines[59] = "alpha", "beta", "alpha beta", "alpha", "beta"
	h.output(s, strings.Join(lines, "\n")+"\n")
	got := h.both(search.Query{Words: []string{"beta", "alpha"}})
	if len(got) != 3 || !strings.Contains(got[0], "/0:10 ") || !strings.Contains(got[1], "/0:29 ") || !strings.Contains(got[2], "alpha and beta") {
		t.Errorf("got %q", got)
	}
}

func TestOutputsComeBeforeTheEntriesThatCiteThem(t *testing.T) {
	h := newHome(t)
	older := h.session("needle in the older session")
	time.Sleep(2 * time.Millisecond)
	s := h.session("needle one")
	h.output(s, "hay\nhay needle\n")
	h.say(s, "see artifact://0 for the needle", "needle three")
	got := h.both(search.Query{Words: []string{"needle"}})
	want := []string{
		fmt.Sprintf("artifact artifact://%s/0:2", s.ID()), "needle three", "see artifact", "needle one", "older session",
	}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("hit %d is %s, want %s", i, got[i], want[i])
		}
	}
	_ = older
}

func TestAnIndexFollowsItsFiles(t *testing.T) {
	h := newHome(t)
	s := h.session("first needle")
	path := h.output(s, "needle\n")
	h.index()
	appendTo := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	count := func(what string, want int) {
		t.Helper()
		if got := h.both(search.Query{Words: []string{"needle"}}); len(got) != want {
			t.Errorf("%s: %d hits, want %d: %q", what, len(got), want, got)
		}
	}
	count("at first", 2)
	appendTo("more\nneedle in an unfinished")
	count("a line without its end", 3)
	appendTo(" line\nneedle\n")
	count("appended", 4)
	h.say(s, "second needle")
	count("a log that grew", 5)
	if err := os.WriteFile(path, []byte("nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	count("cut", 2)
	if err := h.Compress(context.Background(), s.Path()); err != nil {
		t.Fatal(err)
	}
	count("compressed", 2)
	if _, err := h.Trash(context.Background(), s.Path()); err != nil {
		t.Fatal(err)
	}
	count("in the trash", 0)
}

func TestASearchIsRightWhateverTheIndexIs(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, h *home, db string){
		"absent":       func(t *testing.T, _ *home, db string) { must(t, os.Remove(db)) },
		"empty":        func(t *testing.T, _ *home, db string) { must(t, os.Truncate(db, 0)) },
		"cut in two":   func(t *testing.T, _ *home, db string) { must(t, os.Truncate(db, 20_000)) },
		"another file": func(t *testing.T, _ *home, db string) { must(t, os.WriteFile(db, []byte("no database"), 0o600)) },
		"a directory":  func(t *testing.T, _ *home, db string) { must(t, os.Remove(db)); must(t, os.Mkdir(db, 0o700)) },
		"without a stamp": func(t *testing.T, _ *home, db string) {
			must(t, os.Remove(filepath.Join(filepath.Dir(db), "search.stamp")))
		},
		"bytes changed in the middle": func(t *testing.T, _ *home, db string) {
			b, err := os.ReadFile(db)
			must(t, err)
			for i := len(b) / 3; i < len(b); i += 7 {
				b[i] ^= 0x55
			}
			must(t, os.WriteFile(db, b, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			s := h.session("needle one", "hay")
			h.output(s, strings.Repeat("hay\n", 20_000)+"a needle\n")
			h.index()
			spoil(t, h, filepath.Join(h.Home(), "search.db"))
			got, res := h.find(search.Query{Words: []string{"needle"}})
			if len(got) != 2 {
				t.Errorf("found %q", got)
			}
			if res.Why == "" || res.Scanned == 0 || res.Left == 0 {
				t.Errorf("it is not said that the index is no good: %+v", res)
			}
			h.index()
			if got, res := h.find(search.Query{Words: []string{"needle"}}); len(got) != 2 || res.Scanned != 0 {
				t.Errorf("made anew, it finds %q and %+v", got, res)
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
