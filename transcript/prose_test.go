package transcript

import (
	"strings"
	"testing"

	"golang.org/x/net/html"
)

func TestMarkdownIsLaidOutAsItsElements(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"headings and paragraphs":                  {"# a\n\nb\nc  \nd\n\ne\n===", "<h1>a</h1>\n<p>b\nc<br>\nd</p>\n<h1>e</h1>\n"},
		"emphasis of every kind":                   {"*a* **b** ~~c~~ `<d>` \\*", "<p><em>a</em> <strong>b</strong> <del>c</del> <code>&lt;d&gt;</code> *</p>\n"},
		"code with the name of its language":       {"```go x\n<a>\n```\n\n    b", "<pre><code class=\"language-go\">&lt;a&gt;\n</code></pre>\n<pre><code>b\n</code></pre>\n"},
		"a list without empty lines":               {"- a\n  - b\n- c", "<ul>\n<li>a\n<ul>\n<li>b</li>\n</ul>\n</li>\n<li>c</li>\n</ul>\n"},
		"a list with them, from its number":        {"3. a\n\n4. b", "<ol start=\"3\">\n<li>\n<p>a</p>\n</li>\n<li>\n<p>b</p>\n</li>\n</ol>\n"},
		"tasks":                                    {"- [x] a\n- [ ] b", "<ul>\n<li><input checked=\"\" disabled=\"\" type=\"checkbox\"> a</li>\n<li><input disabled=\"\" type=\"checkbox\"> b</li>\n</ul>\n"},
		"a quote and a rule":                       {"> a\n\n---", "<blockquote>\n<p>a</p>\n</blockquote>\n<hr>\n"},
		"a table":                                  {"| a | b |\n|:-:|---|\n| *c* | <d> |", "<table>\n<thead>\n<tr>\n<th align=\"center\">a</th>\n<th>b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td align=\"center\"><em>c</em></td>\n<td>&lt;d&gt;</td>\n</tr>\n</tbody>\n</table>\n"},
		"a table without rows":                     {"|a|\n|-|", "<table>\n<thead>\n<tr>\n<th>a</th>\n</tr>\n</thead>\n</table>\n"},
		"links that may be followed":               {"[a *b*](https://x.org/?a=1&b=2 \"t\") <https://y.org> <m@x.org> [z]\n\n[z]: mailto:a@b.c", `<p><a href="https://x.org/?a=1&amp;b=2" rel="noopener noreferrer nofollow">a <em>b</em></a> <a href="https://y.org" rel="noopener noreferrer nofollow">https://y.org</a> <a href="mailto:m@x.org" rel="noopener noreferrer nofollow">m@x.org</a> <a href="mailto:a@b.c" rel="noopener noreferrer nofollow">z</a></p>` + "\n"},
		"links that may not, with where they lead": {"[a](javascript:x) <ftp://y.org>", "<p>a <code>javascript:x</code> ftp://y.org</p>\n"},
		"images are named and not fetched":         {"![a *b*](http://x/y.png)", "<p>[image: a <em>b</em> <code>http://x/y.png</code>]</p>\n"},
		"tags are text":                            {"<div onclick=x>\n<b>\n</div>\n\na <b>c</b> &amp; &lt;", "<p class=\"plain\">&lt;div onclick=x&gt;\n&lt;b&gt;\n&lt;/div&gt;</p>\n<p>a &lt;b&gt;c&lt;/b&gt; &amp; &lt;</p>\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := proseHTML(c.text); !ok || got != c.want {
				t.Errorf("%q is laid out as\n%q, want\n%q", c.text, got, c.want)
			}
		})
	}
}

func FuzzProse(f *testing.F) {
	for _, text := range []string{
		"# a\n\n- *b* `c`\n\n> d", "<script>x</script>", "[x](javascript:x)", "[x](https://example.com \"title\")", "![x](http://x)", "<http://x>", "<a@b.c>",
		"| a |\n|:-:|\n| <b> |", "- [x] done", "~~a~~", "a[^1]", "<div\nonclick=x>", "[a]: javascript:x\n\n[a]", "&lt;script&gt;", "```x\"><script>\n```", "\\<script>",
	} {
		f.Add(text)
	}
	const allowed = " p em strong del code pre blockquote ul ol li h1 h2 h3 h4 h5 h6 br hr a table thead tbody tr th td input "
	f.Fuzz(func(t *testing.T, text string) {
		out, ok := proseHTML(text)
		if !ok {
			return
		}
		z := html.NewTokenizer(strings.NewReader(out))
		for tt := z.Next(); tt != html.ErrorToken; tt = z.Next() {
			token := z.Token()
			switch tt {
			case html.CommentToken, html.DoctypeToken:
				t.Errorf("%q makes %s", text, token)
			case html.StartTagToken, html.SelfClosingTagToken:
				if !strings.Contains(allowed, " "+token.Data+" ") {
					t.Errorf("%q makes an element %s", text, token.Data)
				}
				for _, a := range token.Attr {
					if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "src" || a.Key == "href" && safeLink(a.Val) == "" {
						t.Errorf("%q makes %s", text, token)
					}
				}
			}
		}
	})
}
