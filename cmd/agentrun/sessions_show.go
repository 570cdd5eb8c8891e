package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"

	"github.com/agentrun/agentrun/outputsink"
)

func newSessionsShowCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "show [ID]",
		Short: "Show what a session is, what a model is sent, and damage",
		Long: `show describes a session: what it is, the context that a model call at its last
entry starts from, runs without an end, and every stretch of the file that is
damaged. The context is the one that resume gives, with its repairs; but images
and long texts stand there as the log has them, and what resume would repair of
those is told on stderr.

With --json it prints an object: id, path, cwd, title, version, entries
(number), leaf, context (id, role, text, images (number), toolCalls (ids; of a
result the one that it answers)), images (resolved, unresolved), damage (line,
offset, bytes, kind). What the file does not tell is null. Of a session with an
agent there is run too: running, interrupted (agentrun resume goes on), or how
its last run ended.`,
		Args: positional(0, 1, "at most one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.show(cmd.Context(), only(args, 0))
		},
	}
}

// sessionReport is what sessions show --json prints.
type sessionReport struct {
	ID      *string         `json:"id"`
	Path    string          `json:"path"`
	CWD     *string         `json:"cwd"`
	Title   *string         `json:"title"`
	Version int             `json:"version"`
	Entries int             `json:"entries"`
	Leaf    *string         `json:"leaf"`
	Context []messageReport `json:"context"`
	Images  imageReport     `json:"images"`
	Damage  []damageReport  `json:"damage"`
	Run     string          `json:"run,omitempty"`
}

type messageReport struct {
	ID        string   `json:"id"`
	Role      string   `json:"role"`
	Text      string   `json:"text"`
	Images    int      `json:"images"`
	ToolCalls []string `json:"toolCalls"`
}

type imageReport struct {
	Resolved   int `json:"resolved"`
	Unresolved int `json:"unresolved"`
}

type damageReport struct {
	Line   int          `json:"line"`
	Offset int64        `json:"offset"`
	Bytes  int64        `json:"bytes"`
	Kind   session.Kind `json:"kind"`
}

func (e *environment) show(ctx context.Context, arg string) (err error) {
	m, s, err := e.view(ctx, arg)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	report, err := e.report(ctx, s)
	if err != nil {
		return err
	}
	if file, err := m.Find(ctx, s.Path()); err == nil { // the log as it lies there now, maybe compressed
		report.Path = file.Path
	}
	runs, err := e.unfinished(ctx, s)
	if err != nil {
		return err
	}
	if report.Run, err = runState(ctx, s); err != nil {
		return err
	}
	if e.json {
		for _, run := range runs {
			e.remark("%s", aboutRun(run))
		}
		return printJSON(e.stdout, report)
	}
	return report.print(e.stdout, runs)
}

// report reads all that show tells of the log.
func (e *environment) report(ctx context.Context, s *session.Session) (*sessionReport, error) {
	tree, err := s.Tree(ctx)
	if err != nil {
		return nil, err
	}
	title, err := s.Title(ctx)
	if err != nil {
		return nil, err
	}
	leaf, err := s.Leaf(ctx)
	if err != nil {
		return nil, err
	}
	r := &sessionReport{
		ID: orNull(s.ID()), Path: s.Path(), Title: orNull(title), Version: s.Version(),
		Entries: tree.Len(), Leaf: orNull(leaf), Context: []messageReport{}, Damage: []damageReport{},
	}
	if r.ID != nil { // else there is no header that would tell
		r.CWD = orNull(s.CWD())
	}
	for _, d := range tree.Damage() {
		r.Damage = append(r.Damage, damageReport{d.Line, d.Offset, d.Bytes, d.Kind})
	}
	return r, e.addContext(ctx, s, r)
}

// restoredAtOnce bounds the messages whose images are in memory at the same time.
const restoredAtOnce = 64

// addContext tells the messages of the context, as a model would be sent them.
func (e *environment) addContext(ctx context.Context, s *session.Session, r *sessionReport) error {
	built, _, err := s.ContextWith(ctx, session.ContextOptions{Strict: true})
	if err != nil {
		return err
	}
	lost := map[blobref.Ref]bool{}
	for messages := built.Messages; len(messages) > 0; {
		part := messages[:min(len(messages), restoredAtOnce)]
		messages = messages[len(part):]
		entries := make([]entry.Entry, len(part))
		for i, m := range part {
			entries[i] = m.Entry()
		}
		missing, err := s.RestoreAll(ctx, entries)
		if err != nil {
			return err
		}
		for _, m := range missing {
			if !lost[m.Ref] {
				lost[m.Ref] = true
				e.remark("%s cannot be read, what refers to it stays unresolved: %v", m.Ref, m.Err)
			}
		}
		for i, m := range part {
			r.add(m, entries[i])
		}
	}
	if r.Images.Resolved+r.Images.Unresolved+len(lost) == 0 {
		return nil
	}
	return e.tellAttachments(ctx, s)
}

// tellAttachments tells what resume would repair of images and long texts.
func (e *environment) tellAttachments(ctx context.Context, s *session.Session) error {
	resumed, err := s.Resume(ctx, session.ResumeOptions{})
	if err != nil {
		return err
	}
	told := 0
	for _, repair := range resumed.Repairs {
		if repair.Kind != entry.RepairBlob && repair.Kind != entry.RepairImage {
			continue
		}
		if told++; told <= maxRepairLines {
			e.remark("resume repairs %s in %s: %s", repair.Kind, shortID(repair.EntryID), oneLine(repair.What()))
		}
	}
	if told > maxRepairLines {
		e.remark("resume repairs %d more: agentrun sessions resume --json lists all", told-maxRepairLines)
	}
	return nil
}

// add tells one message, which restored is the whole of.
func (r *sessionReport) add(m entry.ContextMessage, restored entry.Entry) {
	x := messageReport{ID: m.EntryID, Role: m.Role, ToolCalls: m.ToolCallIDs}
	if x.ToolCalls == nil {
		x.ToolCalls = []string{}
	}
	decode := restored.Message
	if m.Synthetic {
		decode = m.Message
	} else {
		for _, image := range restored.Images() {
			x.Images++
			if image.IsRef() {
				r.Images.Unresolved++
			} else {
				r.Images.Resolved++
			}
		}
	}
	// A message of another program may not have the form of the format; it is
	// there, and has no text to show.
	if msg, err := decode(); err == nil {
		x.Text = entry.Text(msg)
	}
	r.Context = append(r.Context, x)
}

// unfinished are the runs without an end.
func (e *environment) unfinished(ctx context.Context, s *session.Session) ([]bash.Unfinished, error) {
	var find bash.ArtifactFinder
	if dir := e.artifacts(s); dir != nil {
		find = dir
	}
	runs, err := bash.FindUnfinished(ctx, s.Entries(ctx), find)
	if err != nil && runs != nil { // only an artifact could not be looked up
		e.remark("%v", err)
		err = nil
	}
	return runs, err
}

// aboutRun is a sentence about a run without an end.
func aboutRun(u bash.Unfinished) string {
	about := fmt.Sprintf("%s: %s, since %s", u.Life, firstWords(u.Command, 60), localTime(u.Began))
	if u.Artifact != nil {
		about += fmt.Sprintf("; %s of output in %s", outputsink.FormatBytes(u.Artifact.Bytes), u.Artifact.URL())
	} else if u.Life == bash.Gone {
		about += "; its output was not kept"
	}
	return about
}

// maxDamageLines is how many damaged stretches are listed for a person.
const maxDamageLines = 20

// print writes the report for a person.
func (r *sessionReport) print(w io.Writer, runs []bash.Unfinished) error {
	out := table(w)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("session", "%s", orDash(r.ID))
	row("title", "%s", r.name())
	row("log", "%s", oneLine(r.Path))
	row("directory", "%s", orDash(r.CWD))
	row("format", "version %d", r.Version)
	row("entries", "%d, the last is %s", r.Entries, orDash(r.Leaf))
	row("context", "%s, %s", count(int64(len(r.Context)), "message", "messages"), r.Images.describe())
	switch r.Run {
	case "":
	case string(agent.Completed), runRunning:
		row("agent", "%s", r.Run)
	default:
		row("agent", "%s; agentrun resume goes on", r.Run)
	}
	for _, run := range runs {
		row("run", "%s", aboutRun(run))
	}
	if len(r.Damage) == 0 {
		row("damage", "none")
	}
	for i, d := range r.Damage {
		if i == maxDamageLines {
			row("damage", "and %d more: --json lists all", len(r.Damage)-i)
			break
		}
		row("damage", "%s in line %d: %s at offset %d", d.Kind, d.Line, count(d.Bytes, "byte", "bytes"), d.Offset)
	}
	return out.Flush()
}

// name is the title, or the first words of the first prompt, as sessions list has it.
func (r *sessionReport) name() string {
	if r.Title != nil {
		return oneLine(*r.Title)
	}
	for _, m := range r.Context {
		if m.Role == "user" {
			return cmp.Or(firstWords(m.Text, 60), "-")
		}
	}
	return "-"
}

func (i imageReport) describe() string {
	s := count(int64(i.Resolved+i.Unresolved), "image", "images")
	if i.Unresolved > 0 {
		s += fmt.Sprintf(" (%d cannot be read)", i.Unresolved)
	}
	return s
}

func orDash(s *string) string {
	if s == nil {
		return "-"
	}
	return oneLine(*s)
}
