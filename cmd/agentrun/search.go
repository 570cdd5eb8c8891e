package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/search"
)

// searchCommand is the verb search.
type searchCommand struct {
	*environment
	regex   bool
	since   string
	cwd     string
	tool    string
	role    string
	limit   int64
	reindex bool
	noIndex bool
}

func newSearchCommand(env *environment) *cobra.Command {
	s := searchCommand{environment: env}
	cmd := &cobra.Command{
		Use:   "search QUERY...",
		Short: "Search what was said and put out in all sessions",
		Long: `search finds words in the sessions of every directory: in entries, in the output
that was kept, in what agents handed back. All words must be in one entry or, in
an output, in ten lines. Upper and lower case are the same. A word is found at
the beginning of a word or of a part of an identifier: pool and timeout are in
ConnectionPoolTimeout. No character has a meaning of its own; an argument with
spaces is looked for as it is.

Sessions come newest first; in each, lines of artifacts come before the entries
that cite them. With --json it is one object a line: session, entry, url, line,
role, snippet. The entry is null for a line of an output, and the line of an
entry is that of the log. Roles besides those of messages are the types of other
entries, artifact, agent and title.`,
		Example: `  agentrun search connection refused
  agentrun search ConnectionPool --tool bash --since 7d
  agentrun search --regex 'timeout after \d+ ms'`,
		RunE: func(cmd *cobra.Command, args []string) error { return s.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.BoolVar(&s.regex, "regex", false, "QUERY is a regular expression (RE2); upper and lower case differ")
	f.StringVar(&s.since, "since", "", "nothing older than `WHEN`: 90m, 12h, 7d, or a date such as 2026-01-31")
	f.StringVar(&s.cwd, "cwd", "", "the sessions of the working directory `DIR`")
	f.StringVar(&s.tool, "tool", "", "what the tool `NAME` was asked or put out")
	f.StringVar(&s.role, "role", "", "messages of this `ROLE` (user, assistant, toolResult, ...), or artifact")
	f.Int64Var(&s.limit, "limit", search.DefaultLimit, "at most `N` hits, a few of each artifact; 0 for all")
	f.BoolVar(&s.reindex, "reindex", false, "make the index anew first; needs no QUERY")
	f.BoolVar(&s.noIndex, "no-index", false, "search the files themselves")
	return cmd
}

// searchItem is one line of search --json.
type searchItem struct {
	Session string  `json:"session"`
	Entry   *string `json:"entry"` // null for a line of an output
	URL     string  `json:"url"`
	Line    *int64  `json:"line"` // null for a title
	Role    string  `json:"role"`
	Snippet string  `json:"snippet"`
}

func (s *searchCommand) run(ctx context.Context, words []string) error {
	if len(words) == 0 && !s.reindex {
		return usagef("search needs a QUERY: agentrun search connection refused")
	}
	if s.limit < 0 || s.limit > math.MaxInt32 {
		return usagef("--limit takes a number from 0 to 2147483647, not %d", s.limit)
	}
	since, err := parseSince(s.since, time.Now())
	if err != nil {
		return usagef("--since: %w", err)
	}
	m, err := s.manager()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt) // what was indexed until then is kept
	defer stop()
	indexing := s.progress("indexing, in MiB")
	x := search.New(m, search.Options{Progress: func(p search.Progress) {
		indexing.step(int(p.Done>>20), int(max(p.Total, p.Done)>>20))
	}})
	if s.reindex {
		err := x.Rebuild(ctx)
		indexing.end()
		if err != nil || len(words) == 0 {
			return err
		}
	}
	q := search.Query{
		Words: words, Regexp: s.regex, CWD: s.cwd, Since: since, Tool: s.tool, Role: s.role,
		Limit: int(s.limit), NoIndex: s.noIndex,
	}
	if s.limit == 0 {
		q.Limit = -1
	}
	if s.session != "" {
		info, err := m.Find(ctx, s.session)
		if err != nil {
			return err
		}
		q.Session, q.File = info.ID, info.Path
	}
	out := bufio.NewWriter(s.stdout)
	p := hitPrinter{searchCommand: s, out: out, grouped: columns(s.stdout) > 0, coloured: coloured(s.stdout)}
	var printed error
	res, err := x.Search(ctx, q, func(h search.Hit) bool {
		printed = p.print(h)
		return printed == nil
	})
	indexing.end()
	if err = errors.Join(err, printed, out.Flush()); err != nil {
		return err
	}
	for _, problem := range res.Problems {
		s.say("%v", problem)
	}
	if res.Scanned > 0 && res.Why != "" && !s.noIndex {
		s.remark("%s: searched %s in the files themselves", res.Why, outputsink.FormatBytes(res.Scanned))
	}
	if res.More || len(res.Capped) > 0 {
		s.remark("there is more than these %s: --limit 0 shows all", count(int64(res.Hits), "hit", "hits"))
	}
	if res.Hits == 0 {
		s.remark("nothing was found")
	}
	if res.Left > 0 && !s.noIndex {
		if cure := reindexing(res.Left); cure != "" {
			s.remark("%s", cure)
		}
		s.bringUpToDate(ctx, x)
		indexing.end()
	}
	return nil
}

// indexTime is how long a search goes on with indexing after it was answered. What
// is left then is for the next one.
const indexTime = 10 * time.Second

// indexRate is how many bytes a second are indexed at least on the machines that
// bench/search was run on.
const indexRate = 12 << 20

// reindexing says how to have an index when so much is left that bringUpToDate will not
// come to the end of it, and is "" otherwise.
func reindexing(left int64) string {
	seconds := (left + indexRate - 1) / indexRate
	if seconds <= int64(indexTime/time.Second) {
		return ""
	}
	return fmt.Sprintf("agentrun search --reindex makes the index (about %d s), searches take milliseconds then", seconds)
}

// bringUpToDate indexes for a while.
func (s *searchCommand) bringUpToDate(ctx context.Context, x *search.Searcher) {
	ctx, cancel := context.WithTimeout(ctx, indexTime)
	defer cancel()
	switch err := x.Update(ctx); {
	case err == nil, errors.Is(err, search.ErrBusy), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
	default: // the answer is right without it
		s.remark("searches stay slow: %v", err)
	}
}

// parseSince reads a time: an age such as 7d, or a date.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 100_000 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%q is neither an age nor a date: give 90m, 12h, 7d or 2026-01-31", text)
}

// hitPrinter prints hits: grouped at a terminal, a line each else.
type hitPrinter struct {
	*searchCommand
	out      *bufio.Writer
	grouped  bool
	coloured bool
	last     string // session of the hit before
}

func (p *hitPrinter) print(h search.Hit) error {
	if p.json {
		item := searchItem{Session: h.Session, Entry: orNull(h.Entry), URL: h.URL, Role: h.Role, Snippet: h.Snippet.Text}
		if h.Line > 0 {
			item.Line = &h.Line
		}
		return printJSON(p.out, item)
	}
	where := h.URL
	if h.Entry == "" && h.Line > 0 {
		where += ":" + strconv.FormatInt(h.Line, 10)
	}
	if !p.grouped {
		_, err := fmt.Fprintf(p.out, "%s\t%s\t%s\n", where, h.Role, visible(h.Snippet.Text))
		return err
	}
	if h.Session != p.last {
		if p.last != "" {
			fmt.Fprintln(p.out)
		}
		title := oneLine(h.Title)
		if title == "" {
			title = "session " + h.Session
		}
		fmt.Fprintf(p.out, "%s  %s\n", p.in(bold, title), p.in(faint, oneLine(h.CWD)))
		p.last = h.Session
	}
	_, err := fmt.Fprintf(p.out, "  %s  %s  %s\n    %s\n", where, h.Role, p.in(faint, localTime(h.Time)), p.highlighted(h.Snippet))
	return err
}

func (p *hitPrinter) in(st style, s string) string {
	if !p.coloured {
		return s
	}
	return st.in(s)
}

func (p *hitPrinter) highlighted(s search.Snippet) string {
	var b strings.Builder
	at := 0
	for _, m := range s.Marks {
		b.WriteString(visible(s.Text[at:m[0]]))
		b.WriteString(p.in(bold+";"+yellow, visible(s.Text[m[0]:m[1]])))
		at = m[1]
	}
	b.WriteString(visible(s.Text[at:]))
	return b.String()
}
