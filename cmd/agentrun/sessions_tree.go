package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

func newSessionsTreeCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "tree [ID]",
		Short: "Draw the tree of a session's entries",
		Long: `tree draws the entries of a session in their order, with id, type or role, time
and first words. A run that has ended is one line, that of its end. Where a
session branches, the branches are indented; the last entry is marked.

With --json it is one object a line for every entry: id, parent, type, role,
time, line, leaf.`,
		Args: positional(0, 1, "at most one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.drawTree(cmd.Context(), only(args, 0))
		},
	}
}

func (e *environment) drawTree(ctx context.Context, arg string) (err error) {
	_, s, err := e.view(ctx, arg)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	tree, err := s.Tree(ctx)
	if err != nil {
		return err
	}
	if tree.Len() == 0 && !e.json {
		e.remark("%s has no entries", s.Path())
	}
	out := bufio.NewWriter(e.stdout)
	d := drawing{s: s, tree: tree, out: out}
	draw := d.lines
	if e.json {
		draw = d.objects
	}
	if err := draw(ctx); err != nil {
		return errors.Join(err, out.Flush())
	}
	return out.Flush()
}

// drawing is a tree on its way to the page.
type drawing struct {
	s    *session.Session
	tree *session.Tree
	out  *bufio.Writer
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
}

// objects writes one object for each entry, in file order.
func (d *drawing) objects(ctx context.Context) error {
	for i, n := range d.tree.All() {
		e, err := d.s.EntryAt(ctx, d.tree, i)
		if err != nil {
			return err
		}
		item := treeItem{ID: n.ID, Type: e.Type(), Role: orNull(e.Role()), Time: timestamp(e.Time()), Line: n.Line, Leaf: i == d.tree.Leaf()}
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

// lines draws the tree. It keeps a stack of its own: a session may be a million
// entries deep.
func (d *drawing) lines(ctx context.Context) error {
	children, roots := d.tree.Children()
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
	push(roots, "")
	for len(stack) > 0 {
		b := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		e, err := d.s.EntryAt(ctx, d.tree, b.entry)
		if err != nil {
			return err
		}
		if b.entry, e, err = d.fold(ctx, b.entry, e, children); err != nil {
			return err
		}
		d.line(b, e)
		push(children[b.entry], b.below)
	}
	return nil
}

// fold returns the end of a run in place of a start that nothing but its end follows.
func (d *drawing) fold(ctx context.Context, at int, e entry.Entry, children [][]int) (int, entry.Entry, error) {
	start, ok := bash.StartOf(e)
	if !ok || len(children[at]) != 1 {
		return at, e, nil
	}
	next := children[at][0]
	end, err := d.s.EntryAt(ctx, d.tree, next)
	if err != nil {
		return 0, entry.Entry{}, err
	}
	if run, ok := bash.EndOf(end); ok && run == start.Run {
		return next, end, nil
	}
	return at, e, nil
}

// line draws one entry.
func (d *drawing) line(b branch, e entry.Entry) {
	kind := e.Role()
	if kind == "" {
		kind = e.Type()
	}
	fmt.Fprintf(d.out, "%s%s  %s  %s", b.lead, shortID(e.ID()), oneLine(kind), localTime(e.Time()))
	if words := words(e); words != "" {
		fmt.Fprintf(d.out, "  %s", firstWords(words, 60))
	}
	if b.entry == d.tree.Leaf() {
		fmt.Fprint(d.out, "  <- last entry")
	}
	fmt.Fprintln(d.out)
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
		case entry.AssistantMessage:
			words := m.Content.Text()
			for _, call := range m.Content.ToolCalls() {
				words += " -> " + call.Name
			}
			return words
		}
		return entry.Text(m)
	}
	if title, _, ok := e.Title(); ok {
		return title
	}
	var custom struct {
		CustomType string     `json:"customType"`
		Data       bash.Start `json:"data"`
	}
	if e.Type() == entry.TypeCustom && e.Decode(&custom) == nil {
		if custom.CustomType == bash.StartType {
			return custom.CustomType + ": " + custom.Data.Command
		}
		return custom.CustomType
	}
	return ""
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
