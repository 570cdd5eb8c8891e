package transcript

import (
	"bufio"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/outputsink"
)

//go:embed style.css
var style string

// policy lets the browser load nothing: the one style is named by its hash, images are
// in the page.
var policy = sync.OnceValue(func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; img-src data:; base-uri 'none'; form-action 'none'"
})

// writeHTML writes one page.
func writeHTML(ctx context.Context, w *bufio.Writer, r *reader) error {
	p := &page{Writer: w, r: r, ids: map[string]bool{}}
	for _, a := range r.arts {
		p.ids[fmt.Sprintf("artifact-%d", a.ID)] = true
	}
	p.head()
	if err := p.turns(ctx, r.path); err != nil {
		return err
	}
	if err := p.branches(ctx); err != nil {
		return err
	}
	if err := p.kept(ctx); err != nil {
		return err
	}
	p.foot()
	return nil
}

type page struct {
	*bufio.Writer
	r   *reader
	ids map[string]bool // of elements
}

func (p *page) head() {
	title := p.r.title
	if title == "" {
		title = "Session " + p.r.s.ID()
	}
	title = html.EscapeString(line(title))
	fmt.Fprintf(p, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="%s">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="agentrun">
<title>%s</title>
<style>%s</style>
</head>
<body>
<header>
<h1>%s</h1>
<dl class="facts">
`, policy(), title, style, title)
	for _, f := range facts(p.r) {
		fmt.Fprintf(p, "<dt>%s</dt><dd>%s</dd>\n", html.EscapeString(f.name), html.EscapeString(line(f.value)))
	}
	p.WriteString("</dl>\n</header>\n<main>\n")
}

func (p *page) foot() {
	fmt.Fprintf(p, "</main>\n<footer>%s, %s, %s. Made by agentrun export --format html.</footer>\n</body>\n</html>\n",
		plural(p.r.sum.Entries, "entry", "entries"), plural(p.r.sum.Artifacts, "artifact", "artifacts"), plural(p.r.sum.Images, "image", "images"))
}

func (p *page) turns(ctx context.Context, path []int) error {
	for _, i := range path {
		if err := ctx.Err(); err != nil {
			return err
		}
		t, ok, err := p.r.turn(ctx, i)
		if err != nil {
			return err
		}
		if ok {
			p.turn(t)
		}
	}
	return nil
}

// plainID is what an entry id must be to be the name of a place in the page.
var plainID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`) })

func (p *page) turn(t turn) {
	fmt.Fprintf(p, `<article class="turn %s"`, t.kind)
	id := "e-" + t.id
	named := plainID().MatchString(t.id) && !p.ids[id]
	if named {
		p.ids[id] = true
		fmt.Fprintf(p, ` id="%s"`, id)
	}
	fmt.Fprintf(p, `><header><span class="who">%s</span>`, html.EscapeString(t.who))
	if t.aside != "" {
		fmt.Fprintf(p, `<span>%s</span>`, html.EscapeString(line(t.aside)))
	}
	if t.label != "" {
		fmt.Fprintf(p, `<span class="label">%s</span>`, html.EscapeString(line(t.label)))
	}
	if !t.time.IsZero() {
		at := fmt.Sprintf(`<time datetime="%s">%s</time>`, t.time.UTC().Format("2006-01-02T15:04:05Z"), stamp(t.time))
		if named {
			at = fmt.Sprintf(`<time datetime="%s"><a href="#%s">%s</a></time>`, t.time.UTC().Format("2006-01-02T15:04:05Z"), id, stamp(t.time))
		}
		p.WriteString(at)
	}
	p.WriteString("</header>\n<div class=\"body\">\n")
	p.parts(t.parts)
	p.WriteString("</div></article>\n")
}

func (p *page) parts(parts []part) {
	for _, x := range parts {
		switch x := x.(type) {
		case prose:
			p.prose(x)
		case reasoning:
			p.WriteString(`<details class="reasoning"><summary>Reasoning</summary><div class="inside"><div class="plain">`)
			p.text(strings.Trim(x.text, "\n"))
			p.WriteString("</div></div></details>\n")
		case output:
			p.output(x)
		case picture:
			p.picture(x)
		case call:
			p.call(x)
		case remark:
			fmt.Fprintf(p, "<div class=\"remark\">%s</div>\n", html.EscapeString(x.text))
		case raw:
			fmt.Fprintf(p, `<details><summary><span class="name">%s</span></summary><div class="inside"><pre>`, html.EscapeString(line(x.what)))
			p.text(x.text)
			p.WriteString("</pre></div></details>\n")
		}
	}
}

func (p *page) prose(x prose) {
	if x.markdown {
		if out, ok := proseHTML(x.text); ok {
			p.WriteString(`<div class="prose">` + p.linked(out) + "</div>\n")
			return
		}
	}
	p.WriteString(`<div class="prose plain">`)
	p.text(strings.Trim(x.text, "\n"))
	p.WriteString("</div>\n")
}

// artifactURL finds artifacts in text that is HTML already: no tag and no entity looks
// like one.
var artifactURL = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`artifact://(\d{1,18})\b`) })

// linked makes links of the artifacts that escaped text names and the page has.
func (p *page) linked(escaped string) string {
	if !strings.Contains(escaped, "artifact://") || strings.Contains(escaped, `="artifact://`) {
		return escaped
	}
	return artifactURL().ReplaceAllStringFunc(escaped, func(url string) string {
		id := "artifact-" + strings.TrimPrefix(url, "artifact://")
		if !p.ids[id] {
			return url
		}
		return `<a href="#` + id + `">` + url + `</a>`
	})
}

// text writes text.
func (p *page) text(s string) { p.WriteString(p.linked(html.EscapeString(s))) }

func (p *page) output(x output) {
	if strings.TrimSpace(x.text) != "" {
		p.WriteString("<pre>")
		p.text(strings.TrimRight(x.text, "\n"))
		p.WriteString("</pre>\n")
	}
	p.notice(x.notice)
}

func (p *page) notice(text string) {
	if text != "" {
		fmt.Fprintf(p, "<div class=\"notice\">%s</div>\n", html.EscapeString(text))
	}
}

// shown are the types of images that browsers show in an img.
var shown = map[string]bool{
	"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true, "image/svg+xml": true, "image/avif": true, "image/bmp": true,
}

func (p *page) picture(x picture) {
	size := outputsink.FormatBytes(int64(len(x.data)))
	switch {
	case x.why != "":
		fmt.Fprintf(p, "<div class=\"remark\">[image: %s]</div>\n", html.EscapeString(x.why))
	case !shown[strings.ToLower(x.mime)]:
		fmt.Fprintf(p, "<div class=\"remark\">[image of type %s, %s, which browsers do not show]</div>\n", html.EscapeString(line(x.mime)), size)
	default:
		fmt.Fprintf(p, `<figure><img alt="" src="data:%s;base64,`, strings.ToLower(x.mime))
		enc := base64.NewEncoder(base64.StdEncoding, p.Writer)
		enc.Write(x.data)
		enc.Close()
		fmt.Fprintf(p, "\"><figcaption>%s, %s</figcaption></figure>\n", strings.ToLower(x.mime), size)
	}
}

func (p *page) call(c call) {
	p.WriteString("<details class=\"call\"><summary>")
	fmt.Fprintf(p, `<span class="name">%s</span>`, html.EscapeString(line(c.name)))
	if c.brief != "" {
		fmt.Fprintf(p, `<span class="brief">%s</span>`, html.EscapeString(c.brief))
	}
	if c.status != "" {
		class := "status"
		if c.bad {
			class += " bad"
		}
		fmt.Fprintf(p, `<span class="%s">%s</span>`, class, html.EscapeString(line(c.status)))
	}
	p.WriteString("</summary><div class=\"inside\">\n")
	if c.asked != "" && c.asked != "{}" && c.asked != c.brief {
		p.output(output{text: c.asked})
	}
	p.parts(c.parts)
	if c.artifact != nil {
		p.WriteString(`<div class="notice">All of the output: `)
		p.text(fmt.Sprintf("artifact://%d", *c.artifact))
		p.WriteString("</div>\n")
	}
	p.WriteString("</div></details>\n")
}

func (p *page) branches(ctx context.Context) error {
	all := p.r.branches()
	if len(all) == 0 {
		return nil
	}
	p.WriteString("<h2>Other branches</h2>\n")
	for _, path := range all {
		last, err := p.r.tree.Entry(path[len(path)-1])
		if err != nil {
			return err
		}
		fmt.Fprintf(p, `<details class="branch"><summary><span class="name">%s</span><span class="brief">`, plural(len(path), "entry", "entries"))
		if parent := p.r.tree.Node(path[0]).Parent; parent >= 0 {
			p.WriteString("behind " + html.EscapeString(line(p.r.tree.Node(parent).ID)))
		}
		fmt.Fprintf(p, `</span><span class="size">%s</span></summary><div class="inside">`, stamp(last.Time()))
		if parent := p.r.tree.Node(path[0]).Parent; parent >= 0 && p.ids["e-"+p.r.tree.Node(parent).ID] {
			fmt.Fprintf(p, `<div class="notice">It leaves the other one behind <a href="#e-%s">this entry</a>.</div>`, p.r.tree.Node(parent).ID)
		}
		if err := p.turns(ctx, path); err != nil {
			return err
		}
		p.WriteString("</div></details>\n")
	}
	return nil
}

// kept shows what is kept beside the log.
func (p *page) kept(ctx context.Context) error {
	if len(p.r.arts)+len(p.r.agents) == 0 {
		return nil
	}
	p.WriteString("<h2>Artifacts</h2>\n")
	for _, a := range p.r.arts {
		if err := ctx.Err(); err != nil {
			return err
		}
		fmt.Fprintf(p, `<details class="kept" id="artifact-%d"><summary><span class="name">artifact://%[1]d</span><span class="size">%s</span></summary><div class="inside">`,
			a.ID, html.EscapeString(describeArtifact(a)))
		if a.State != artifacts.Missing {
			rd, err := p.r.dir.Open(ctx, a.ID)
			if err == nil {
				err = p.beginning(ctx, rd, fmt.Sprintf("artifact://%s/%d", p.r.s.ID(), a.ID))
			}
			if err != nil {
				p.notice("It cannot be read: " + err.Error())
			}
		}
		p.WriteString("</div></details>\n")
	}
	for _, a := range p.r.agents {
		for _, version := range slices.Backward(a.Versions) {
			if err := p.agent(ctx, a.ID, version); err != nil {
				return err
			}
		}
	}
	return nil
}

// agent shows a version of what a subagent handed back.
func (p *page) agent(ctx context.Context, id artifacts.AgentID, version int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rd, a, err := p.r.dir.OpenAgent(ctx, id, version)
	name, size := "agent://"+id.String(), ""
	if err == nil {
		name, size = a.URL(), outputsink.FormatBytes(a.Bytes)
	}
	fmt.Fprintf(p, `<details class="kept"><summary><span class="name">%s</span><span class="size">%s</span></summary><div class="inside">`,
		html.EscapeString(name), size)
	if err == nil {
		err = p.beginning(ctx, rd, "agent://"+p.r.s.ID()+"/"+strings.TrimPrefix(name, "agent://"))
	}
	if err != nil {
		p.notice("It cannot be read: " + err.Error())
	}
	p.WriteString("</div></details>\n")
	return nil
}

// beginning shows an artifact, of a large one the first lines, and says what is not
// shown. It closes the reader.
func (p *page) beginning(ctx context.Context, rd *artifacts.Reader, url string) error {
	defer rd.Close()
	size, err := rd.Size()
	if err != nil {
		return err
	}
	buf := make([]byte, min(size, int64(p.r.o.MaxArtifact)))
	n, err := rd.ReadAt(buf, 0)
	if err != nil && err != io.EOF {
		return err
	}
	text := string(buf[:n])
	if int64(n) < size {
		text = cutLines(text, true)
		p.r.sum.Cut++
	}
	p.output(output{text: clean(text)})
	switch rest := "The rest: agentrun read " + url; {
	case int64(len(text)) == size:
	case strings.HasSuffix(text, "\n"):
		ix, err := rd.Index(ctx)
		if err != nil {
			return err
		}
		shown := strings.Count(text, "\n")
		p.notice(fmt.Sprintf("Shown: lines 1 to %s of %s (%s of %s bytes). %s:%d-", thousands(shown), thousands(int(ix.Lines)),
			thousands(len(text)), thousands(int(size)), rest, shown+1))
	default:
		p.notice(fmt.Sprintf("Shown: %s of %s bytes of one long line. %s", thousands(len(text)), thousands(int(size)), rest))
	}
	return nil
}
