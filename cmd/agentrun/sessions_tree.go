package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/checkpoint"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

func newSessionsTreeCommand(env *environment) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "tree [ID]",
		Short: "Draw the tree of a session's entries",
		Long: `tree draws the entries of a session in their order: id, type or role, time, size
of the line, [label], first words. A run that has ended is one line, that of its
end, unless its start has a label or a branch begins there. Where a session
branches, the branches are indented, and * marks entries on the way to the leaf,
which is the last entry of the file.

At a terminal, the middle of a long stretch without branches is folded.

With --json it is one object a line for every entry: id, parent, type, role,
time, line, leaf, size, label, active (whether the leaf descends from it).`,
		Args: positional(0, 1, "at most one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.drawTree(cmd.Context(), only(args, 0), all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "fold nothing")
	return cmd
}

func (e *environment) drawTree(ctx context.Context, arg string, all bool) (err error) {
	_, s, err := e.view(ctx, arg)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	tree, err := s.Tree(ctx)
	if err != nil {
		return err
	}
	labels, err := s.Labels(ctx)
	if err != nil {
		return err
	}
	if tree.Len() == 0 && !e.json {
		e.remark("%s has no entries", s.Path())
	}
	out := bufio.NewWriter(e.stdout)
	d := newDrawing(tree, labels, out)
	d.columns, d.coloured = columns(e.stdout), coloured(e.stdout)
	d.folding = d.columns > 0 && !all
	d.entries = s.Entries(ctx)
	draw := d.lines
	if e.json {
		draw = d.objects
	}
	return errors.Join(draw(ctx), out.Flush())
}

// drawing is a tree on its way to the page.
type drawing struct {
	tree     *session.Tree
	labels   map[string]string
	out      *bufio.Writer
	children [][]int
	roots    []int
	active   []bool // by entry: the leaf is it or descends from it
	branches bool   // the tree is more than one line of descent

	entries iter.Seq2[entry.Entry, error] // of the log, to look for ends of runs; nil for none
	ended   map[string]bool               // runs that have an end; nil before it was asked for

	columns  int // of the terminal, 0 without one
	coloured bool
	folding  bool
}

func newDrawing(tree *session.Tree, labels map[string]string, out *bufio.Writer) *drawing {
	d := &drawing{tree: tree, labels: labels, out: out, active: make([]bool, tree.Len())}
	d.children, d.roots = tree.Children()
	path := tree.Path(tree.Leaf())
	for _, i := range path {
		d.active[i] = true
	}
	d.branches = len(path) < tree.Len()
	return d
}

// treeItem is one line of sessions tree --json.
type treeItem struct {
	ID     string  `json:"id"`
	Parent *string `json:"parent"`
	Type   string  `json:"type"`
	Role   *string `json:"role"`
	Time   *string `json:"time"`
	Line   int     `json:"line"`
	Leaf   bool    `json:"leaf"`
	Size   int     `json:"size"`
	Label  *string `json:"label"`
	Active bool    `json:"active"`
}

// objects writes one object for each entry, in file order.
func (d *drawing) objects(ctx context.Context) error {
	for i, n := range d.tree.All() {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, err := d.tree.Entry(i)
		if err != nil {
			return err
		}
		item := treeItem{
			ID: n.ID, Type: e.Type(), Role: orNull(e.Role()), Time: timestamp(e.Time()), Line: n.Line,
			Leaf: i == d.tree.Leaf(), Size: n.Size, Label: orNull(d.labels[n.ID]), Active: d.active[i],
		}
		if n.Parent >= 0 {
			item.Parent = orNull(d.tree.Node(n.Parent).ID)
		}
		if err := printJSON(d.out, item); err != nil {
			return err
		}
	}
	return nil
}

// maxIndent is the length in bytes beyond which branches of branches are not
// indented any more. A line has to be read, and a file may branch at every entry.
const maxIndent = 150

// branch is an entry still to be drawn and how its line begins.
type branch struct {
	entry int
	lead  string // before the entry itself
	below string // before what follows it
}

// lines draws the tree, one stretch without branches after the other. It keeps a
// stack of its own: a session may branch at each of a million entries.
func (d *drawing) lines(ctx context.Context) error {
	var stack []branch
	push := func(entries []int, lead string) {
		for i := len(entries) - 1; i >= 0; i-- {
			b := branch{entries[i], lead + "├─ ", lead + "│  "}
			switch {
			case len(entries) == 1:
				b.lead, b.below = lead, lead
			case i == len(entries)-1:
				b.lead, b.below = lead+"└─ ", lead+"   "
			}
			if len(lead) > maxIndent {
				b.below = lead
			}
			stack = append(stack, b)
		}
	}
	push(d.roots, "")
	var run []int
	for len(stack) > 0 {
		b := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		run = append(run[:0], b.entry)
		last := b.entry
		for len(d.children[last]) == 1 {
			last = d.children[last][0]
			run = append(run, last)
		}
		if err := d.stretch(ctx, b, run); err != nil {
			return err
		}
		push(d.children[last], b.below)
	}
	return nil
}

// How much of a long stretch is drawn when its middle is folded.
const (
	foldedHead = 6
	foldedTail = 14
	foldedFrom = foldedHead + foldedTail + 10
)

// stretch draws entries that follow each other without a branch. Folded entries are
// not read, so a session of a million entries is drawn at once.
func (d *drawing) stretch(ctx context.Context, b branch, run []int) error {
	lead, folded := b.lead, 0
	unfold := func() {
		if folded > 0 {
			words := fmt.Sprintf("%s⋮ %s (--all shows them)", lead, count(int64(folded), "entry", "entries"))
			fmt.Fprintln(d.out, d.paint(faint, words))
			lead, folded = b.below, 0
		}
	}
	for i := 0; i < len(run); i++ {
		at := run[i]
		if d.folding && len(run) >= foldedFrom && i >= foldedHead && i < len(run)-foldedTail && d.labels[d.tree.Node(at).ID] == "" {
			folded++
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		unfold()
		e, err := d.tree.Entry(at)
		if err != nil {
			return err
		}
		if i+1 < len(run) {
			end, ok, err := d.endOf(e, run[i+1])
			if err != nil {
				return err
			}
			if ok {
				i++
				at, e = run[i], end
			} else if ok, err := d.endsElsewhere(e); err != nil {
				return err
			} else if ok {
				continue
			}
		}
		d.line(lead, at, e)
		lead = b.below
	}
	unfold()
	return nil
}

// endOf returns the entry next when it is the end of the run that e begins.
func (d *drawing) endOf(e entry.Entry, next int) (entry.Entry, bool, error) {
	start, ok := bash.StartOf(e)
	if !ok || d.labels[e.ID()] != "" {
		return e, false, nil
	}
	end, err := d.tree.Entry(next)
	if err != nil {
		return e, false, err
	}
	run, ok := bash.EndOf(end)
	return end, ok && run == start.Run, nil
}

// endsElsewhere reports whether e begins a run whose end stands further down: others
// began or ended between the two. The log is read for it once, and only then.
func (d *drawing) endsElsewhere(e entry.Entry) (bool, error) {
	start, ok := bash.StartOf(e)
	if !ok || d.labels[e.ID()] != "" || d.entries == nil {
		return false, nil
	}
	if d.ended == nil {
		d.ended = map[string]bool{}
		for e, err := range d.entries {
			if err != nil {
				return false, err
			}
			if run, ok := bash.EndOf(e); ok {
				d.ended[run] = true
			}
		}
	}
	return d.ended[start.Run], nil
}

// line draws one entry.
func (d *drawing) line(lead string, at int, e entry.Entry) {
	kind := e.Role()
	if kind == "" {
		kind = e.Type()
	}
	mark := ""
	if d.branches {
		mark = "  "
		if d.active[at] {
			mark = "* "
		}
	}
	look := plain
	leaf := at == d.tree.Leaf()
	switch {
	case leaf:
		look = bold
	case !d.active[at]:
		look = faint
	}
	head := fmt.Sprintf("%s%s  %s  %s  %s", mark, shortID(e.ID()), oneLine(kind), localTime(e.Time()), outputsink.FormatBytes(int64(d.tree.Node(at).Size)))
	label, tail := "", ""
	if name := d.labels[e.ID()]; name != "" {
		label = "  [" + firstWords(name, 40) + "]"
	}
	if leaf {
		tail = "  <- leaf"
	}
	room := 60
	if d.columns > 0 {
		room = d.columns - terminal.String(lead+head+label+tail) - 2
	}
	text := ""
	if room >= 8 {
		if text = firstWords(words(e), room); text != "" {
			text = "  " + text
		}
	}
	fmt.Fprintf(d.out, "%s%s%s%s\n", d.paint(faint, lead), d.paint(look, head), d.paint(yellow, label), d.paint(look, text+tail))
}

func (d *drawing) paint(look style, s string) string {
	if !d.coloured {
		return s
	}
	return look.in(s)
}

// shortID is an id as a person reads it and gives it to agentrun read: whole, as
// long as it is an id of this program (24 characters) or of pi and oh-my-pi (8).
// Foreign ones may be of any length.
func shortID(id string) string { return firstWords(id, 24) }

// words is what an entry says, for its line in the tree.
func words(e entry.Entry) string {
	if m, err := e.Message(); err == nil {
		switch m := m.(type) {
		case entry.BashExecutionMessage:
			return "$ " + firstWords(m.Command, 46) + exitWords(m.ExitCode, m.Cancelled)
		case entry.PythonExecutionMessage:
			return ">>> " + firstWords(m.Code, 44) + exitWords(m.ExitCode, m.Cancelled)
		case entry.AssistantMessage:
			words := m.Content.Text()
			for _, call := range m.Content.ToolCalls() {
				words += " -> " + call.Name
			}
			return words
		case entry.ToolResultMessage:
			return m.ToolName + ": " + m.Content.Text()
		}
		return entry.Text(m)
	}
	if title, _, ok := e.Title(); ok {
		return title
	}
	body, err := e.Body()
	if err != nil {
		return ""
	}
	switch b := body.(type) {
	case entry.Label:
		if b.Label == "" {
			return shortID(b.TargetID) + " has no label any more"
		}
		return shortID(b.TargetID) + " is " + b.Label
	case entry.ModelChange:
		return b.Selector()
	case entry.ModeChange:
		return b.Mode
	case entry.Custom:
		if start, ok := bash.StartOf(e); ok {
			return b.CustomType + ": " + start.Command
		}
		if name := checkpoint.Label(e); name != "" {
			return b.CustomType + ": " + name
		}
		return b.CustomType
	}
	return ""
}

// prompt is what stands before the command of a run.
func prompt(start bash.Start) string {
	if start.Language == "python" {
		return ">>> "
	}
	return "$ "
}

func exitWords(code *int, cancelled bool) string {
	switch {
	case cancelled:
		return " (cancelled)"
	case code != nil && *code != 0:
		return fmt.Sprintf(" (exit %d)", *code)
	}
	return ""
}
