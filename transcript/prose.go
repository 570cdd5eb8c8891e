package transcript

import (
	"html"
	"net/url"
	"strconv"
	"strings"

	md "rsc.io/markdown"
)

// maxProse is the longest text, in bytes, that is laid out as Markdown: more is no
// message to a person, and hostile text can make the layout slow. Longer text is shown
// as it is.
const maxProse = 64 << 10

// maxNesting is how many quotes and lists may begin on one line. A tree as deep as
// its text is long costs the square of it.
const maxNesting = 32

// proseHTML is Markdown as HTML, ok false when it is not to be laid out. Only the parser is the library's: what a page
// may hold is written here, element by element, so that text can not make a page do something.
func proseHTML(text string) (out string, ok bool) {
	if len(text) > maxProse || nests(text) {
		return "", false
	}
	defer func() {
		if recover() != nil { // the library panics where its own bookkeeping is wrong: the text is shown as it is
			out, ok = "", false
		}
	}()
	p := md.Parser{Table: true, Strikethrough: true, TaskList: true}
	var l layout
	l.blocks(p.Parse(text).Blocks)
	return l.String(), true
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

// layout is HTML that is made of parsed Markdown.
type layout struct{ strings.Builder }

func (l *layout) write(pieces ...string) {
	for _, s := range pieces {
		l.WriteString(s)
	}
}

func (l *layout) text(s string) { l.WriteString(html.EscapeString(s)) }

func (l *layout) blocks(blocks []md.Block) {
	for i, b := range blocks {
		l.block(b)
		if _, tight := b.(*md.Text); tight && i+1 < len(blocks) {
			l.WriteByte('\n')
		}
	}
}

func (l *layout) block(b md.Block) {
	switch b := b.(type) {
	case *md.Text: // of a list without empty lines
		l.inlines(b.Inline)
	case *md.Paragraph:
		l.write("<p>")
		l.inlines(b.Text.Inline)
		l.write("</p>\n")
	case *md.Heading:
		level := strconv.Itoa(min(max(b.Level, 1), 6))
		l.write("<h", level, ">")
		l.inlines(b.Text.Inline)
		l.write("</h", level, ">\n")
	case *md.CodeBlock:
		l.code(b)
	case *md.Quote:
		l.write("<blockquote>\n")
		l.blocks(b.Blocks)
		l.write("</blockquote>\n")
	case *md.List:
		l.list(b)
	case *md.Table:
		l.table(b)
	case *md.ThematicBreak:
		l.write("<hr>\n")
	case *md.HTMLBlock: // tags are shown as text
		l.write(`<p class="plain">`)
		l.text(strings.Join(b.Text, "\n"))
		l.write("</p>\n")
	}
}

func (l *layout) code(b *md.CodeBlock) {
	l.write("<pre><code")
	if words := strings.Fields(b.Info); len(words) > 0 {
		l.write(` class="language-`, html.EscapeString(words[0]), `"`)
	}
	l.write(">")
	for _, line := range b.Text {
		l.text(line)
		l.WriteByte('\n')
	}
	l.write("</code></pre>\n")
}

func (l *layout) list(b *md.List) {
	name, start := "ul", ""
	if b.Bullet == '.' || b.Bullet == ')' {
		name = "ol"
		if b.Start != 1 {
			start = ` start="` + strconv.Itoa(b.Start) + `"`
		}
	}
	l.write("<", name, start, ">\n")
	for _, b := range b.Items {
		item, ok := b.(*md.Item)
		if !ok {
			continue
		}
		l.write("<li>")
		if len(item.Blocks) > 0 {
			if _, tight := item.Blocks[0].(*md.Text); !tight {
				l.WriteByte('\n')
			}
		}
		l.blocks(item.Blocks)
		l.write("</li>\n")
	}
	l.write("</", name, ">\n")
}

func (l *layout) table(t *md.Table) {
	row := func(name string, cells []*md.Text) {
		l.write("<tr>\n")
		for i, cell := range cells {
			align := ""
			if i < len(t.Align) && t.Align[i] != "" {
				align = ` align="` + html.EscapeString(t.Align[i]) + `"`
			}
			l.write("<", name, align, ">")
			l.inlines(cell.Inline)
			l.write("</", name, ">\n")
		}
		l.write("</tr>\n")
	}
	l.write("<table>\n<thead>\n")
	row("th", t.Header)
	l.write("</thead>\n")
	if len(t.Rows) > 0 {
		l.write("<tbody>\n")
		for _, cells := range t.Rows {
			row("td", cells)
		}
		l.write("</tbody>\n")
	}
	l.write("</table>\n")
}

func (l *layout) inlines(inlines md.Inlines) {
	for _, x := range inlines {
		l.inline(x)
	}
}

func (l *layout) inline(x md.Inline) {
	within := func(name string, inner md.Inlines) {
		l.write("<", name, ">")
		l.inlines(inner)
		l.write("</", name, ">")
	}
	switch x := x.(type) {
	case md.Inlines:
		l.inlines(x)
	case *md.Plain:
		l.text(x.Text)
	case *md.Escaped:
		l.text(x.Text)
	case *md.Code:
		l.write("<code>", html.EscapeString(x.Text), "</code>")
	case *md.Strong:
		within("strong", x.Inner)
	case *md.Emph:
		within("em", x.Inner)
	case *md.Del:
		within("del", x.Inner)
	case *md.Link:
		l.link(x)
	case *md.AutoLink:
		if safe := safeLink(x.URL); safe != "" {
			l.write(anchor(safe), html.EscapeString(x.Text), "</a>")
		} else {
			l.text(x.Text)
		}
	case *md.Image: // it lies elsewhere: it is named
		l.write("[image: ")
		l.inlines(x.Inner)
		l.write(" <code>", html.EscapeString(x.URL), "</code>]")
	case *md.HTMLTag:
		l.text(x.Text)
	case *md.Task:
		checked := ""
		if x.Checked {
			checked = `checked="" `
		}
		l.write("<input ", checked, `disabled="" type="checkbox"> `)
	case *md.HardBreak:
		l.write("<br>\n")
	case *md.SoftBreak:
		l.WriteByte('\n')
	}
}

// link makes a link, or shows where it would have led.
func (l *layout) link(x *md.Link) {
	if safe := safeLink(x.URL); safe != "" {
		l.write(anchor(safe))
		l.inlines(x.Inner)
		l.write("</a>")
		return
	}
	l.inlines(x.Inner)
	if x.URL != "" {
		l.write(" <code>", html.EscapeString(x.URL), "</code>")
	}
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
