package transcript

import (
	"bytes"
	"html"
	"net/url"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

// maxProse is the longest text, in bytes, that is laid out as Markdown: more is no
// message to a person, and hostile text can make the layout slow. Longer text is shown
// as it is.
const maxProse = 64 << 10

// maxNesting is how many quotes and lists may begin on one line. A tree as deep as
// its text is long costs the square of it.
const maxNesting = 32

// layout makes HTML of Markdown. It is safe for concurrent use.
var layout = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), extension.Strikethrough, extension.TaskList),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(guarded{}, 1))),
	)
})

// proseHTML is Markdown as HTML, ok false when it is not to be laid out.
func proseHTML(text string) (out string, ok bool) {
	if len(text) > maxProse || nests(text) {
		return "", false
	}
	var b bytes.Buffer
	if err := layout().Convert([]byte(text), &b); err != nil {
		return "", false
	}
	return b.String(), true
}

// nests reports whether a line begins more containers than anybody writes, or has more
// marks of emphasis, brackets and the like than prose does.
func nests(text string) bool {
	for line := range strings.Lines(text) {
		containers := 0
		for rest := strings.TrimLeft(line, " \t"); rest != "" && strings.IndexByte(">-*+0123456789", rest[0]) >= 0; containers++ {
			rest = strings.TrimLeft(strings.TrimLeft(rest[1:], ".)"), " \t")
		}
		if containers > maxNesting && strings.Trim(line, "-*_= \t\r\n") != "" || strings.Count(line, "[") > 512 || strings.Count(line, "*")+strings.Count(line, "_") > 2048 {
			return true
		}
	}
	return false
}

// guarded renders the nodes that could make a page do something.
type guarded struct{}

func (g guarded) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindRawHTML, rawHTML)
	r.Register(ast.KindHTMLBlock, htmlBlock)
	r.Register(ast.KindLink, link)
	r.Register(ast.KindAutoLink, autoLink)
	r.Register(ast.KindImage, image)
}

// rawHTML shows tags as text.
func rawHTML(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		segments := n.(*ast.RawHTML).Segments
		for i := range segments.Len() {
			s := segments.At(i)
			w.WriteString(html.EscapeString(string(s.Value(source))))
		}
	}
	return ast.WalkSkipChildren, nil
}

func htmlBlock(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	block := n.(*ast.HTMLBlock)
	if entering {
		w.WriteString(`<p class="plain">`)
		for i := range block.Lines().Len() {
			s := block.Lines().At(i)
			w.WriteString(html.EscapeString(string(s.Value(source))))
		}
		if block.HasClosure() {
			w.WriteString(html.EscapeString(string(block.ClosureLine.Value(source))))
		}
		w.WriteString("</p>\n")
	}
	return ast.WalkSkipChildren, nil
}

// safeLink returns a link that may be followed, "" for all others.
func safeLink(to string) string {
	u, err := url.Parse(to)
	if err != nil {
		return ""
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "https":
		if u.Host == "" {
			return ""
		}
		return u.String()
	case "mailto":
		return u.String()
	}
	return ""
}

func anchor(to string) string {
	return `<a href="` + html.EscapeString(to) + `" rel="noopener noreferrer nofollow">`
}

// link makes a link, or shows where it would have led.
func link(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	to := string(n.(*ast.Link).Destination)
	safe := safeLink(to)
	switch {
	case safe != "" && entering:
		w.WriteString(anchor(safe))
	case safe != "":
		w.WriteString("</a>")
	case !entering && to != "":
		w.WriteString(" <code>" + html.EscapeString(to) + "</code>")
	}
	return ast.WalkContinue, nil
}

func autoLink(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	a := n.(*ast.AutoLink)
	to, text := string(a.URL(source)), html.EscapeString(string(a.Label(source)))
	if a.AutoLinkType == ast.AutoLinkEmail && !strings.HasPrefix(strings.ToLower(to), "mailto:") {
		to = "mailto:" + to
	}
	if safe := safeLink(to); safe != "" {
		w.WriteString(anchor(safe) + text + "</a>")
	} else {
		w.WriteString(text)
	}
	return ast.WalkContinue, nil
}

// image names an image that lies elsewhere.
func image(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		w.WriteString("[image: ")
	} else {
		w.WriteString(" <code>" + html.EscapeString(string(n.(*ast.Image).Destination)) + "</code>]")
	}
	return ast.WalkContinue, nil
}
