package transcript_test

import (
	"crypto/sha256"
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/transcript"
)

// hostile are texts that would do something if they were not text.
var hostile = []string{
	`<script>alert(1)</script>`, `</script><script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `"><svg onload=alert(1)>`,
	`[x](javascript:alert(1))`, `[x](JaVaScRiPt:alert(1))`, `[x](data:text/html,<script>alert(1)</script>)`, `[x](vbscript:x)`, `[x](file:///etc/passwd)`,
	`[x](//evil.example/x)`, `![x](http://evil.example/x.png)`, `<http://evil.example/"onmouseover="alert(1)>`, `<javascript:alert(1)>`,
	"<div\n\nonclick='x'>", "<!-- <script> -->", "<style>*{display:none}</style>", "</title><script>x</script>", "</div></details></article></main>",
	"<iframe src=http://evil.example></iframe>", "<base href=http://evil.example>", "<meta http-equiv=refresh content=0>", "&lt;script&gt;", "\x1b]8;;http://evil.example\x07x\x1b]8;;\x07", "\x00\x01\u2028",
	"[x]: http://evil.example/y\n\n![a][x]", "artifact://0\"><script>", "`<script>`", "```html\n<script>\n```", "| <script> | b |\n|---|---|\n| <img src=x> | [y](javascript:x) |",
}

func hostileSession(t *testing.T) (page string) {
	s := newSession(t)
	all := strings.Join(hostile, "\n\n")
	for _, h := range append(hostile, all) {
		add(t, s, user(h))
		add(t, s, assistant(text(h), entry.ThinkingBlock{Thinking: h}, toolCall("c"+h, h, `{"command":`+quoted(h)+`}`)))
		add(t, s, result("c"+h, h, h))
		add(t, s, entry.BashExecutionMessage{Command: h, Output: h})
		add(t, s, entry.Compaction{Summary: h})
		add(t, s, entry.CustomMessage{CustomType: h, Content: entry.PlainText(h), Display: true})
		add(t, s, entry.Raw{Type: "new_" + strings.Map(letters, h), Fields: []byte(`{"x":` + quoted(h) + `}`)})
		add(t, s, entry.ModelChange{Model: h})
		add(t, s, entry.FileMentionMessage{Files: []entry.MentionedFile{{Path: h, Content: h}}})
		add(t, s, assistant(entry.ImageBlock{Data: "AAAA", MIMEType: h}))
	}
	must(0, s.Rename(t.Context(), all, "user"))
	must(0, os.MkdirAll(s.ArtifactsDir(), 0o700))
	must(0, os.WriteFile(filepath.Join(s.ArtifactsDir(), "0.bash.log"), []byte(all), 0o600))
	must(0, os.WriteFile(filepath.Join(s.ArtifactsDir(), "0-A.md"), []byte(all), 0o600))
	page, _ = written(t, transcript.HTML, s, transcript.Options{})
	return page
}

func letters(r rune) rune {
	if r >= 'a' && r <= 'z' {
		return r
	}
	return -1
}

// elements that a page may have, with the attributes.
var elements = map[string]string{
	"html": "lang", "head": "", "body": "", "title": "", "style": "", "meta": "charset http-equiv content name",
	"header": "", "main": "", "footer": "", "article": "class id", "div": "class", "span": "class", "time": "datetime",
	"h1": "", "h2": "", "h3": "", "h4": "", "h5": "", "h6": "", "dl": "class", "dt": "", "dd": "", "p": "class",
	"details": "class id", "summary": "", "pre": "", "code": "class", "em": "", "strong": "", "del": "", "blockquote": "",
	"ul": "", "ol": "start", "li": "", "br": "", "hr": "", "a": "href rel", "figure": "", "figcaption": "",
	"img": "alt src", "table": "", "thead": "", "tbody": "", "tr": "", "th": "align", "td": "align", "input": "checked disabled type",
}

func TestAPageHoldsNothingButWhatAPageMayHold(t *testing.T) {
	page := hostileSession(t)
	depth := map[string]int{}
	z := html.NewTokenizer(strings.NewReader(page))
	for tt := z.Next(); tt != html.ErrorToken; tt = z.Next() {
		token := z.Token()
		switch tt {
		case html.EndTagToken:
			depth[token.Data]--
		case html.CommentToken:
			t.Errorf("a comment: %q", token.Data)
		case html.StartTagToken, html.SelfClosingTagToken:
			allowed, known := elements[token.Data]
			if !known {
				t.Errorf("an element %s: %s", token.Data, token)
			}
			if tt == html.StartTagToken {
				depth[token.Data]++
			}
			for _, a := range token.Attr {
				if !strings.Contains(" "+allowed+" ", " "+a.Key+" ") {
					t.Errorf("an attribute %s of %s: %s", a.Key, token.Data, token)
				}
				switch a.Key {
				case "src":
					if !strings.HasPrefix(a.Val, "data:image/") {
						t.Errorf("it fetches %s", a.Val)
					}
				case "href":
					if !regexp.MustCompile(`^(#[A-Za-z0-9-]+|https?://[^/]|mailto:)`).MatchString(a.Val) {
						t.Errorf("it links to %s", a.Val)
					}
				}
			}
		}
	}
	for _, name := range []string{"article", "details", "div", "main", "pre", "span", "a", "summary"} {
		if depth[name] != 0 {
			t.Errorf("%d elements %s are not closed", depth[name], name)
		}
	}
	hasNot(t, page, "\x1b", "\x00", "\x01")
}

func TestThePolicyNamesTheStyleAndNothingElse(t *testing.T) {
	s := newSession(t)
	add(t, s, user("x"))
	page, _ := written(t, transcript.HTML, s, transcript.Options{})
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(page)[1]
	sum := sha256.Sum256([]byte(style))
	has(t, page, `content="default-src 'none'; style-src 'sha256-`+base64.StdEncoding.EncodeToString(sum[:])+`'; img-src data:; base-uri 'none'; form-action 'none'"`)
	hasNot(t, style, "url(", "@import", "http")
	hasNot(t, page, "<script", "<link")
}

func TestAPageTellsCallsWithTheirResults(t *testing.T) {
	s := newSession(t)
	add(t, s, user("look at this"))
	add(t, s, assistant(entry.ThinkingBlock{Thinking: "hm"}, text("I **look**. See [it](https://example.com/a?b=1&c=2)."), toolCall("1", "bash", `{"command":"ls -la"}`), toolCall("2", "read", `{"path":"a.go","limit":3}`), toolCall("3", "late", `{}`)))
	add(t, s, result("2", "read", "package <a>"))
	add(t, s, result("1", "bash", "total 0\n"))
	add(t, s, entry.ToolResultMessage{ToolCallID: "none", ToolName: "stray", IsError: true, Content: entry.Blocks(text("nobody asked"))})
	add(t, s, entry.UserMessage{Content: entry.Blocks(text("an image:"), image())})
	code := 3
	add(t, s, entry.BashExecutionMessage{Command: "make\nit", Output: "bad\n", ExitCode: &code})
	add(t, s, entry.Label{TargetID: must(s.Leaf(t.Context())), Label: "the <end>"})
	page, sum := written(t, transcript.HTML, s, transcript.Options{})
	has(t, page,
		`<title>A &lt;b&gt;title&lt;/b&gt;</title>`,
		`<p>I <strong>look</strong>. See <a href="https://example.com/a?b=1&amp;c=2" rel="noopener noreferrer nofollow">it</a>.</p>`,
		`<summary>Reasoning</summary>`,
		`<span class="name">bash</span><span class="brief">ls -la</span></summary>`,
		`<pre>total 0</pre>`, `<pre>package &lt;a&gt;</pre>`,
		`<span class="name">late</span><span class="status bad">no result</span>`,
		`<span class="name">stray</span><span class="status bad">failed</span>`,
		`<span class="brief">make …</span><span class="status bad">exit 3</span>`,
		`<span class="label">the &lt;end&gt;</span>`,
		`src="data:image/png;base64,`+base64.StdEncoding.EncodeToString(picture)+`"`,
	)
	if strings.Index(page, "total 0") > strings.Index(page, "package &lt;a&gt;") {
		t.Error("results do not stand with their calls")
	}
	if strings.Count(page, "total 0") != 1 {
		t.Error("a result is told twice")
	}
	if sum.Images != 1 || sum.Missing != 0 {
		t.Errorf("%+v", sum)
	}
}

func TestAnImageThatIsNotThereIsSaid(t *testing.T) {
	s := newSession(t)
	add(t, s, entry.UserMessage{Content: entry.Blocks(image())})
	must(0, os.RemoveAll(filepath.Join(s.Home(), "blobs")))
	for _, f := range []transcript.Format{transcript.HTML, transcript.Markdown} {
		page, sum := written(t, f, s, transcript.Options{})
		has(t, page, "[image: it is not in this home: blob:sha256:")
		if sum.Missing != 1 || sum.Images != 0 {
			t.Errorf("%+v", sum)
		}
	}
}

func TestLongOutputIsCutWithTheExactRestNamed(t *testing.T) {
	s := newSession(t)
	var out strings.Builder
	for i := range 1000 {
		out.WriteString("line " + strings.Repeat("x", i%7) + "\n")
	}
	id := add(t, s, entry.BashExecutionMessage{Command: "x", Output: out.String()})
	page, _ := written(t, transcript.HTML, s, transcript.Options{MaxOutput: 200})
	m := regexp.MustCompile(`Not shown: (\S+ KB) in the middle, lines (\d+) to (\d+) of 1,000\. All of it: agentrun read session://\S+/` + id).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("nothing is said: %s", page[strings.Index(page, "<main>"):])
	}
	shown := regexp.MustCompile(`(?s)<pre>(line.*?)</pre>`).FindStringSubmatch(page)[1]
	head, tail, _ := strings.Cut(shown, "\n[…]\n")
	if got := strings.Count(head, "\n") + 1; m[2] != itoa(got+1) {
		t.Errorf("%d lines are shown, the next is said to be %s", got, m[2])
	}
	if got := 1000 - strings.Count(tail, "\n") - 1; m[3] != itoa(got) {
		t.Errorf("the last %d lines are shown, the last that is not is said to be %s", 1000-got, m[3])
	}

	s = newSession(t)
	add(t, s, entry.BashExecutionMessage{Command: "x", Output: strings.Repeat("é", 1000)})
	page, _ = written(t, transcript.HTML, s, transcript.Options{MaxOutput: 200})
	has(t, page, "Not shown: 1.8 KB in the middle. All of it:")
}

func TestArtifactsAreShownUpToALimitWithTheRestNamed(t *testing.T) {
	s := newSession(t)
	add(t, s, user("see artifact://0 and artifact://7"))
	keep(t, s, 10)
	keep(t, s, 5000)
	keep(t, s, 5000)
	must(0, dirOf(s).MarkMissing(t.Context(), 9, "left <behind>"))
	page, sum := written(t, transcript.HTML, s, transcript.Options{MaxArtifact: 1000})
	has(t, page,
		`see <a href="#artifact-0">artifact://0</a> and artifact://7`, `id="artifact-0"`, "line 10\n"[:7]+"</pre>",
		`Shown: lines 1 to 123 of 5,000 (999 of `, `agentrun read artifact://`+s.ID()+`/1:124-`, "left &lt;behind&gt;")
	hasNot(t, page, "line 124\n")
	if sum.Artifacts != 3 || sum.Cut != 2 {
		t.Errorf("%+v", sum)
	}
}

func TestAPageHasAllOfWhatIsNotHuge(t *testing.T) {
	s := newSession(t)
	var out strings.Builder
	for i := range 40_000 {
		out.WriteString("output " + itoa(i) + "\n")
	}
	add(t, s, entry.BashExecutionMessage{Command: "x", Output: out.String()})
	for range 40 {
		keep(t, s, 60_000) // 24 MB together
	}
	dir := dirOf(s)
	id := must(dir.Reserve(t.Context(), artifacts.AgentID{}, "Explore", artifacts.Provenance{}))
	for _, text := range []string{"first answer", "second answer"} {
		must(dir.WriteAgent(t.Context(), id, artifacts.Output{Text: []byte(text)}))
	}
	page, sum := written(t, transcript.HTML, s, transcript.Options{})
	for _, want := range []struct {
		text string
		n    int
	}{{"output 20000\n", 1}, {"line 59000\n", 40}, {"first answer", 1}, {"second answer", 1}} {
		if n := strings.Count(page, want.text); n != want.n {
			t.Errorf("%q is there %d times, want %d", want.text, n, want.n)
		}
	}
	if sum.Cut != 0 {
		t.Errorf("%+v", sum)
	}
	hasNot(t, page, "Not shown", "Shown: lines")
	md, sum := written(t, transcript.Markdown, s, transcript.Options{})
	has(t, md, "Not shown")
	if sum.Cut != 1 {
		t.Errorf("Markdown: %+v", sum)
	}
}

func TestEveryEntryOfEveryBranchIsToldOnce(t *testing.T) {
	s := newSession(t)
	root := add(t, s, user("the root"))
	for _, name := range []string{"first", "second", "third"} {
		a := must(s.AppendUnder(t.Context(), root, user("branch "+name)))
		must(s.AppendUnder(t.Context(), a, user("left of "+name)))
		must(s.AppendUnder(t.Context(), a, user("right of "+name)))
	}
	page, _ := written(t, transcript.HTML, s, transcript.Options{})
	for _, want := range []string{"the root", "branch first", "left of first", "right of first", "branch second", "left of second", "right of second", "branch third", "left of third", "right of third"} {
		if n := strings.Count(page, ">"+want+"<"); n != 1 {
			t.Errorf("%q is there %d times", want, n)
		}
	}
	before, after, _ := strings.Cut(page, "<h2>Other branches</h2>")
	has(t, before, "branch third", "right of third")
	has(t, after, "left of third", "branch first")
	md, _ := written(t, transcript.Markdown, s, transcript.Options{})
	has(t, md, "right of third", "## Other branches")
	hasNot(t, md, "left of third", "branch first")
	if n := strings.Count(md, "- 1 entry, the last is `") + strings.Count(md, "- 2 entries, the last is `"); n != 5 {
		t.Errorf("%d branches are listed", n)
	}
}
