package transcript

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/outputsink"
)

// writeMarkdown tells the active branch and lists the rest.
func writeMarkdown(ctx context.Context, w *bufio.Writer, r *reader) error {
	m := markdown{w}
	m.head(r)
	for _, i := range r.path {
		if err := ctx.Err(); err != nil {
			return err
		}
		t, ok, err := r.turn(ctx, i)
		if err != nil {
			return err
		}
		if ok {
			m.turn(t)
		}
	}
	if err := m.branches(ctx, r); err != nil {
		return err
	}
	m.artifacts(r)
	return nil
}

type markdown struct{ *bufio.Writer }

func (m markdown) head(r *reader) {
	title := r.title
	if title == "" {
		title = "Session " + r.s.ID()
	}
	fmt.Fprintf(m, "# %s\n\n", line(title))
	for _, f := range facts(r) {
		fmt.Fprintf(m, "- %s: %s\n", f.name, line(f.value))
	}
}

// line is text for one line of Markdown outside of code.
func line(s string) string { return strings.Join(strings.Fields(clean(s)), " ") }

// fact is something that the head of a transcript says.
type fact struct{ name, value string }

func facts(r *reader) []fact {
	var all []fact
	add := func(name, value string) {
		if value != "" {
			all = append(all, fact{name, value})
		}
	}
	add("Session", r.s.ID())
	add("Directory", r.s.CWD())
	add("Forked from", r.s.Parent())
	add("Created", stamp(r.s.Created()))
	if r.leaf >= 0 {
		if e, err := r.tree.Entry(r.leaf); err == nil {
			add("Last entry", stamp(e.Time()))
		}
	}
	add("Entries", thousands(r.tree.Len()))
	if n := len(r.tree.Damage()); n > 0 {
		add("Damage", plural(n, "stretch of the log is", "stretches of the log are")+" damaged; agentrun doctor tells more")
	}
	return all
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}

func (m markdown) turn(t turn) {
	m.WriteString("\n## " + t.who)
	for _, aside := range []string{t.aside, stamp(t.time)} {
		if aside != "" {
			m.WriteString(" · " + line(aside))
		}
	}
	if t.label != "" {
		m.WriteString(" · label: " + line(t.label))
	}
	m.WriteString("\n")
	m.parts(t.parts)
}

func (m markdown) parts(parts []part) {
	for _, p := range parts {
		m.WriteString("\n")
		switch p := p.(type) {
		case prose:
			m.WriteString(strings.TrimRight(p.text, "\n") + "\n")
		case reasoning:
			m.WriteString("> " + strings.ReplaceAll(strings.TrimRight(p.text, "\n"), "\n", "\n> ") + "\n")
		case output:
			m.fence("", p.text)
			if p.notice != "" {
				m.WriteString("\n*" + line(p.notice) + "*\n")
			}
		case picture:
			m.WriteString(describePicture(p) + "\n")
		case call:
			m.call(p)
		case remark:
			m.WriteString("*" + line(p.text) + "*\n")
		case raw:
			m.WriteString("*" + line(p.what) + ":*\n\n")
			m.fence("json", p.text)
		}
	}
}

func describePicture(p picture) string {
	if p.why != "" {
		return fmt.Sprintf("*[image: %s]*", line(p.why))
	}
	return fmt.Sprintf("*[image: %s, %s; a transcript as HTML shows it]*", line(p.mime), outputsink.FormatBytes(int64(len(p.data))))
}

func (m markdown) call(c call) {
	m.WriteString("**" + line(c.name) + "**")
	if c.status != "" {
		m.WriteString(" (" + line(c.status) + ")")
	}
	m.WriteString("\n")
	if c.asked != "" && c.asked != "{}" {
		m.WriteString("\n")
		m.fence("", c.asked)
	}
	m.parts(c.parts)
	if c.artifact != nil {
		fmt.Fprintf(m, "\nAll of it: `artifact://%d`\n", *c.artifact)
	}
}

// fence writes text as a code block, whatever fences are in it.
func (m markdown) fence(language, text string) {
	longest, now := 2, 0
	for i := range len(text) {
		if text[i] == '`' {
			now++
			longest = max(longest, now)
		} else {
			now = 0
		}
	}
	ticks := strings.Repeat("`", longest+1)
	m.WriteString(ticks + language + "\n" + text)
	if !strings.HasSuffix(text, "\n") {
		m.WriteString("\n")
	}
	m.WriteString(ticks + "\n")
}

// branches lists what is not on the active branch.
func (m markdown) branches(ctx context.Context, r *reader) error {
	all := r.branches()
	if len(all) == 0 {
		return nil
	}
	m.WriteString("\n## Other branches\n\nNot told here: a transcript as HTML or JSON has them.\n\n")
	for _, path := range all {
		e, err := r.tree.Entry(path[len(path)-1])
		if err != nil {
			return err
		}
		fmt.Fprintf(m, "- %s, the last is `%s`", plural(len(path), "entry", "entries"), line(e.ID()))
		if parent := r.tree.Node(path[0]).Parent; parent >= 0 {
			fmt.Fprintf(m, ", behind `%s`", line(r.tree.Node(parent).ID))
		}
		if at := stamp(e.Time()); at != "" {
			m.WriteString(", " + at)
		}
		m.WriteString("\n")
	}
	return nil
}

// artifacts lists what is kept beside the log.
func (m markdown) artifacts(r *reader) {
	if len(r.arts)+len(r.agents) == 0 {
		return
	}
	m.WriteString("\n## Artifacts\n\nNone of them is in this file. `agentrun read URL` shows one.\n\n")
	for _, a := range r.arts {
		fmt.Fprintf(m, "- `artifact://%s/%d`: %s\n", r.s.ID(), a.ID, describeArtifact(a))
	}
	for _, a := range r.agents {
		fmt.Fprintf(m, "- `agent://%s/%s`: %s\n", r.s.ID(), a.ID, outputsink.FormatBytes(a.Bytes))
	}
}

func describeArtifact(a artifacts.Info) string {
	if a.State == artifacts.Missing {
		return "missing: " + line(a.Note)
	}
	s := a.Tool + ", " + outputsink.FormatBytes(a.Bytes)
	if a.Lines >= 0 {
		s += ", " + plural(int(a.Lines), "line", "lines")
	}
	if a.State != artifacts.Complete {
		s += ", " + string(a.State) + ": " + line(a.Note)
	}
	return s
}
