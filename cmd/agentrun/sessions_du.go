package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/usage"
)

func newSessionsDuCommand(env *environment) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "du [ID]",
		Short: "Show where the bytes of the home are",
		Long: `du shows what the sessions of the home take: logs, artifacts, blobs, indexes and
the trash, each session, and each tool. With an ID it shows that session alone.
A blob is unique when one session cites it, shared when several do; removing a
session frees its unique ones with the next gc. Those that checkpoints alone
need are theirs: agentrun state forget gives them up.

Quotas that are configured in config.json of the home are shown beside what is
used of them.

With --json it is one object: home, bytes, classes (log, artifacts, blobs
(unique, shared, checkpoints, unreferenced), indexes, trash, other), tools
(tool, log, artifacts), sessions (session, path, cwd, title, bytes, log,
artifacts, artifactsShared, blobs (unique, shared), indexes, other, tools,
quotas), quotas (scope, class, used, limit), unreadable. With an ID it is that
element of sessions.

With --all it is about every home of this user that is known: a line each, with
--json an object each: home, bytes, classes, unreadable.`,
		Example: `  agentrun sessions du
  agentrun sessions du --json | jq '.sessions[0]'`,
		Args: positional(0, 1, "at most one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !all {
				return env.du(cmd.Context(), only(args, 0))
			}
			if len(args) > 0 || env.session != "" {
				return usagef("--all is about homes: leave the session out")
			}
			return env.duHomes(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every known home, a line each")
	return cmd
}

// duHome is one home of sessions du --all --json.
type duHome struct {
	Home       string        `json:"home"`
	Bytes      int64         `json:"bytes"`
	Classes    usage.Classes `json:"classes"`
	Unreadable []string      `json:"unreadable"`
}

// duHomes shows what each home takes. Files that several of them name, as hard links do,
// count in each.
func (e *environment) duHomes(ctx context.Context) error {
	m, err := e.manager()
	if err != nil {
		return err
	}
	homes, absent, err := m.KnownHomes()
	if err != nil {
		return err
	}
	e.absent(absent)
	out := table(e.stdout)
	if !e.quiet && !e.json {
		fmt.Fprintln(out, "HOME\tBYTES\tLOGS\tARTIFACTS\tBLOBS\tTRASH")
	}
	for _, home := range homes {
		p := e.progress("looking into the logs of " + home)
		r, err := usage.Measure(ctx, home, usage.MeasureOptions{Progress: p.step, Cited: new(checkpointNeeds).cited})
		p.end()
		if err != nil {
			return fmt.Errorf("measuring %s: %w", home, err)
		}
		for _, reason := range r.Unreadable {
			e.say("%s", reason)
		}
		if e.json {
			if err := printJSON(e.stdout, duHome{home, r.Bytes, r.Classes, r.Unreadable}); err != nil {
				return err
			}
			continue
		}
		c := r.Classes
		fmt.Fprintf(out, "%s", visible(home))
		for _, n := range []int64{r.Bytes, c.Log, c.Artifacts, c.Blobs.Bytes(), c.Trash} {
			fmt.Fprintf(out, "\t%s", outputsink.FormatBytes(n))
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

// duSession is one session of sessions du --json.
type duSession struct {
	ID    *string `json:"session"`
	Path  *string `json:"path"` // of the log; null for artifacts without one
	CWD   *string `json:"cwd"`
	Title *string `json:"title"`
	usage.Session
	Quotas []usage.Limit `json:"quotas"`
}

// duReport is what sessions du --json prints.
type duReport struct {
	*usage.Report
	Sessions []duSession   `json:"sessions"`
	Quotas   []usage.Limit `json:"quotas"`
}

func (e *environment) du(ctx context.Context, arg string) error {
	m, err := e.manager()
	if err != nil {
		return err
	}
	var one session.Info
	if arg = e.chosen(arg); arg != "" {
		if one, err = m.Find(ctx, arg); err != nil {
			return err
		}
	}
	settings, err := e.settings(m.Home())
	if err != nil {
		e.remark("quotas are not shown: %v", err)
	}
	found, err := m.List(ctx, "")
	if err != nil {
		return err
	}
	p := e.progress("looking into logs")
	report, err := usage.Measure(ctx, m.Home(), usage.MeasureOptions{Progress: p.step, Cited: new(checkpointNeeds).cited})
	p.end()
	if err != nil {
		return fmt.Errorf("measuring %s: %w", m.Home(), err)
	}
	for _, reason := range report.Unreadable {
		e.say("%s", reason)
	}
	full := duReport{Report: report, Sessions: describeSessions(report, found.Sessions, settings.Quota), Quotas: usage.Limits(settings.Quota, report)}
	if arg != "" {
		for i := range full.Sessions {
			if full.Sessions[i].Stem == stemOf(one.Path) {
				return e.printDuSession(&full.Sessions[i])
			}
		}
		return fmt.Errorf("%s lies outside of the home %s, which du is about", one.Path, m.Home())
	}
	if e.json {
		return printJSON(e.stdout, full)
	}
	return e.printDu(&full)
}

// stemOf is the path of a log without its ending.
func stemOf(path string) string {
	return strings.TrimSuffix(strings.TrimSuffix(path, ".zst"), ".jsonl")
}

// describeSessions adds to what was measured whose it is.
func describeSessions(r *usage.Report, infos []session.Info, q config.Quota) []duSession {
	known := map[string]session.Info{}
	for _, info := range infos {
		known[stemOf(info.Path)] = info
	}
	list := make([]duSession, 0, len(r.Sessions))
	for i := range r.Sessions {
		s := r.Sessions[i]
		info := known[s.Stem]
		list = append(list, duSession{
			ID: orNull(info.ID), Path: orNull(info.Path), CWD: orNull(info.CWD), Title: orNull(info.Title),
			Session: s, Quotas: usage.SessionLimits(q, &s),
		})
	}
	return list
}

// maxDuSessions is how many sessions are shown to a person.
const maxDuSessions = 20

// printDu prints a report for a person.
func (e *environment) printDu(r *duReport) error {
	c, b := &r.Classes, outputsink.FormatBytes
	out := newBars(e.stdout, r.Bytes)
	out.row("home", r.Bytes, oneLine(r.Home))
	out.row("logs", c.Log, "")
	out.row("artifacts", c.Artifacts, "")
	out.row("blobs", c.Blobs.Bytes(), fmt.Sprintf("%s unique, %s shared, %s of checkpoints, %s unreferenced",
		b(c.Blobs.Unique), b(c.Blobs.Shared), b(c.Blobs.Checkpoints), b(c.Blobs.Unreferenced)))
	out.row("indexes", c.Indexes, "")
	out.row("trash", c.Trash, "")
	out.row("other", c.Other, "")
	if len(r.Sessions) > 0 {
		out.head("session")
	}
	for i, s := range r.Sessions {
		if i == maxDuSessions {
			out.note(fmt.Sprintf("and %s: --json lists all", count(int64(len(r.Sessions)-i), "session more", "sessions more")))
			break
		}
		out.row(s.name(), s.Bytes, s.describe())
	}
	printTools(out, r.Tools)
	printLimits(out, r.Quotas)
	return out.flush()
}

// printDuSession prints one session.
func (e *environment) printDuSession(s *duSession) error {
	if e.json {
		return printJSON(e.stdout, s)
	}
	out := newBars(e.stdout, s.Bytes+s.Blobs.Shared)
	out.row("session", s.Bytes, s.describe())
	out.row("log", s.Log, "")
	out.row("artifacts", s.Artifacts, outputsink.FormatBytes(s.ArtifactsShared)+" of them shared with forks")
	out.row("blobs", s.Blobs.Unique, "cited by this session alone")
	out.row("shared", s.Blobs.Shared, "blobs that others cite too, not part of the sum")
	out.row("indexes", s.Indexes, "")
	printTools(out, s.Tools)
	printLimits(out, s.Quotas)
	return out.flush()
}

func (s *duSession) name() string {
	if s.ID != nil {
		return oneLine(*s.ID)
	}
	return "-"
}

// describe is the session in a few words.
func (s *duSession) describe() string {
	if s.Path == nil {
		return "no log: " + oneLine(s.Stem)
	}
	if s.Title != nil {
		return firstWords(*s.Title, 40)
	}
	return orDash(s.CWD)
}

// maxDuTools is how many tools are shown to a person.
const maxDuTools = 10

func printTools(out *bars, tools []usage.Tool) {
	if len(tools) > 0 {
		out.head("tool")
	}
	for i, t := range tools {
		if i == maxDuTools {
			out.note(fmt.Sprintf("and %s: --json lists all", count(int64(len(tools)-i), "tool more", "tools more")))
			break
		}
		out.row(firstWords(t.Name, 30), t.Log+t.Artifacts,
			fmt.Sprintf("%s in logs, %s in artifacts", outputsink.FormatBytes(t.Log), outputsink.FormatBytes(t.Artifacts)))
	}
}

func printLimits(out *bars, limits []usage.Limit) {
	if len(limits) > 0 {
		out.head("quota")
	}
	for _, l := range limits {
		out.share(fmt.Sprintf("%s of the %s", l.Class, l.Scope), l.Used, l.Limit, fmt.Sprintf("%d %% of %s", 100*l.Used/l.Limit, outputsink.FormatBytes(l.Limit)))
	}
}

// bars is a table of sizes; at a terminal each with a bar.
type bars struct {
	out   flusher
	cells int   // of a full bar; 0 where none are drawn
	whole int64 // what a full bar stands for
}

// Lengths of a full bar.
const (
	minBar = 8
	maxBar = 24
)

func newBars(w io.Writer, whole int64) *bars {
	b := &bars{out: table(w), whole: whole}
	if n := columns(w); n > 0 {
		b.cells = min(max(n/8, minBar), maxBar)
	}
	return b
}

func (b *bars) row(name string, size int64, about string) { b.share(name, size, b.whole, about) }

func (b *bars) share(name string, size, whole int64, about string) {
	fmt.Fprintf(b.out, "%s\t%s", name, outputsink.FormatBytes(size))
	if b.cells > 0 {
		fmt.Fprintf(b.out, "\t%s", bar(size, whole, b.cells))
	}
	if about != "" {
		fmt.Fprintf(b.out, "\t%s", about)
	}
	fmt.Fprintln(b.out)
}

func (b *bars) head(name string) {
	fmt.Fprintf(b.out, "\t\t\n%s\t\t\n", strings.ToUpper(name))
}

func (b *bars) note(text string) { fmt.Fprintf(b.out, "%s\t\t\n", text) }

func (b *bars) flush() error { return b.out.Flush() }

// bar draws a share in eighths of a cell.
func bar(size, whole int64, length int) string {
	if whole <= 0 {
		return strings.Repeat(" ", length)
	}
	eighths := int(float64(min(max(size, 0), whole)) / float64(whole) * float64(length) * 8)
	if eighths == 0 && size > 0 {
		eighths = 1
	}
	cells := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		cells += string([]rune(" ▏▎▍▌▋▊▉")[rest])
	}
	return cells + strings.Repeat(" ", length-len([]rune(cells)))
}
