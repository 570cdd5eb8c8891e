package transcript

import (
	"strings"
	"testing"

	"golang.org/x/net/html"
)

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
