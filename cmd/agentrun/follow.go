package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/follow"
	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

// followCommand is the command follow.
type followCommand struct {
	*environment

	since     string
	artifacts bool
	untilEnd  bool
}

func newFollowCommand(env *environment) *cobra.Command {
	f := followCommand{environment: env}
	cmd := &cobra.Command{
		Use:   "follow [ID]",
		Short: "Print what happens in a session while others work on it",
		Long: `follow prints every entry of a session, then those that come, and the output of
commands: as it grows where it is kept as an artifact, else when the command has
ended. It goes on when the log is rewritten, moved, compressed or restored, and
waits on network file systems too. It ends with Ctrl-C, or when who reads it is
gone; either way with status 0.

With --json it is one entry a line: its JSON as in the log, images and long
strings put back. Output that is no artifact is message.output of the entry with
which a command ends. --artifacts adds lines {artifact, offset, text} with the
output as it comes, base64 in data instead of text where it is no UTF-8.
--quiet prints entries alone.

Who prints its own session's output from a command of that session is stopped:
it would read what it prints.`,
		Example: `  agentrun follow
  agentrun follow --json --since 01a1fe48f8ed74b19826d95e | jq .message.role
  agentrun follow --until-end`,
		Args:              positional(0, 1, "at most one session"),
		ValidArgsFunction: completeSession(env),
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), only(args, 0)) },
	}
	cmd.Flags().StringVar(&f.since, "since", "", "begin behind this `ENTRY`: an id, its beginning, or a label")
	cmd.Flags().BoolVar(&f.artifacts, "artifacts", false, "with --json also print the output of commands as it comes")
	cmd.Flags().BoolVar(&f.untilEnd, "until-end", false, "end when no run is under way any more")
	return cmd
}

func (f *followCommand) run(ctx context.Context, arg string) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	_, s, err := f.view(ctx, arg)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	if f.since != "" {
		if f.since, err = s.FindEntry(ctx, f.since); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	whenReaderGoes(f.stdout, cancel)
	ends := &runsEnd{open: map[string]process.ID{}, cancel: cancel}
	if f.untilEnd {
		if err := ends.begin(ctx, s); err != nil {
			return err
		}
		defer ends.close()
	}
	o := follow.Options{Since: f.since, Artifacts: !f.quiet && (!f.json || f.artifacts)}
	view := newFollowView(f.environment)
	for ev, err := range follow.Session(ctx, s, o) {
		if err == nil {
			err = view.print(ev)
		}
		if errors.Is(err, syscall.EPIPE) {
			return nil
		}
		if err != nil {
			return err
		}
		if f.untilEnd && ev.Chunk == nil {
			ends.saw(ev.Entry)
		}
	}
	return view.finish()
}

// whenReaderGoes calls gone when the other end of a pipe was closed. Without that it
// would be found out with the next entry, which may never come. The goroutine stays
// until the process ends: nothing wakes it.
func whenReaderGoes(w io.Writer, gone func()) {
	out, ok := w.(*os.File)
	if !ok {
		return
	}
	signal.Ignore(syscall.SIGPIPE)
	fd := int32(out.Fd())
	if info, err := out.Stat(); err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return
	}
	go func() {
		for {
			poll := []unix.PollFd{{Fd: fd}} // errors and hang-ups are always told
			if n, err := unix.Poll(poll, -1); err == nil && n > 0 {
				gone()
				return
			} else if err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
}

// runsEnd finds out when no run is under way any more.
type runsEnd struct {
	cancel func()

	mu   sync.Mutex // guards all below
	open map[string]process.ID
	leaf string // the entry up to which nothing ends; "" once it was seen

	ticker  *time.Ticker
	stop    chan struct{}
	burying sync.WaitGroup
}

// deadAfter is how often it is looked whether the process of a run still lives.
const deadAfter = time.Second

func (r *runsEnd) begin(ctx context.Context, s *session.Session) error {
	leaf, err := s.Leaf(ctx)
	if err != nil {
		return err
	}
	runs, err := bash.FindUnfinished(ctx, s.Entries(ctx), nil)
	if err != nil {
		return err
	}
	for _, u := range runs {
		r.open[u.Run] = u.Owner
	}
	r.leaf = leaf
	r.ticker, r.stop = time.NewTicker(deadAfter), make(chan struct{})
	r.burying.Go(func() {
		for {
			select {
			case <-r.stop:
				return
			case <-r.ticker.C:
				r.bury()
			}
		}
	})
	if leaf == "" {
		r.cancel()
	}
	return nil
}

func (r *runsEnd) close() {
	r.ticker.Stop()
	close(r.stop)
	r.burying.Wait()
}

// saw takes an entry that was printed.
func (r *runsEnd) saw(e entry.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if start, ok := bash.StartOf(e); ok && r.leaf == "" {
		r.open[start.Run] = start.Owner
	} else if run, ok := bash.EndOf(e); ok {
		delete(r.open, run)
	}
	if e.ID() == r.leaf {
		r.leaf = ""
	}
	r.check()
}

// bury takes out the runs whose process is gone: nobody will write their end.
func (r *runsEnd) bury() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for run, owner := range r.open {
		if owner.Life() == process.Gone {
			delete(r.open, run)
		}
	}
	r.check()
}

func (r *runsEnd) check() {
	if r.leaf == "" && len(r.open) == 0 {
		r.cancel()
	}
}

// followView prints what is followed.
type followView struct {
	*environment
	columns int
	live    map[int64]*liveView
	last    *liveView // the one that printed last
}

func newFollowView(e *environment) *followView {
	return &followView{environment: e, columns: columns(e.stdout), live: map[int64]*liveView{}}
}

func (v *followView) print(ev follow.Event) error {
	switch {
	case v.json && ev.Chunk != nil:
		return printJSON(v.stdout, chunkItem(ev.Chunk))
	case v.json:
		return v.line(ev.Entry.Raw())
	case ev.Chunk != nil:
		return v.output(ev.Chunk)
	}
	return v.entry(ev.Entry)
}

// line prints JSON that is on one line already, with one write.
func (v *followView) line(raw []byte) error {
	w := bufio.NewWriterSize(v.stdout, len(raw)+1)
	_, _ = w.Write(raw)
	_ = w.WriteByte('\n') // Flush returns the first error
	return w.Flush()
}

// chunk is one line of output of follow --json --artifacts.
type chunk struct {
	Artifact string  `json:"artifact"`
	Offset   int64   `json:"offset"`
	Text     *string `json:"text,omitempty"`
	Data     []byte  `json:"data,omitempty"`
}

func chunkItem(c *follow.Chunk) chunk {
	item := chunk{Artifact: c.URL(), Offset: c.Offset}
	if utf8.Valid(c.Data) {
		text := string(c.Data)
		item.Text = &text
	} else {
		item.Data = c.Data
	}
	return item
}

// output prints a piece of an artifact.
func (v *followView) output(c *follow.Chunk) error {
	live := v.live[c.ID]
	if live == nil {
		live = newLiveView(v.stdout)
		v.live[c.ID] = live
	}
	if v.last != live {
		if err := v.finish(); err != nil {
			return err
		}
		v.last = live
	}
	_, err := live.Write(c.Data)
	return err
}

// finish ends the line of output that was printed last.
func (v *followView) finish() error {
	if v.last == nil {
		return nil
	}
	live := v.last
	v.last = nil
	if err := live.finish(); err != nil || !live.within {
		return err
	}
	live.within = false
	_, err := io.WriteString(v.stdout, "\n")
	return err
}

// entry prints an entry on one line.
func (v *followView) entry(e entry.Entry) error {
	if err := v.finish(); err != nil {
		return err
	}
	kind := e.Role()
	if kind == "" {
		kind = e.Type()
	}
	head := fmt.Sprintf("%s  %s  %s", localTime(e.Time()), shortID(e.ID()), oneLine(kind))
	room := 120
	if v.columns > 0 {
		room = max(v.columns-terminal.String(head)-3, 8)
	}
	said := words(e)
	if start, ok := bash.StartOf(e); ok {
		said = prompt(start) + start.Command
	}
	if _, err := fmt.Fprintln(v.stdout, strings.TrimRight(head+"  "+firstWords(said, room), " ")); err != nil {
		return err
	}
	return v.ran(e)
}

// ran prints the output of a run that ended: that in the entry, which is all there is of a
// run that made no artifact. Of one whose artifact was not followed it says where it is.
func (v *followView) ran(e entry.Entry) error {
	if v.quiet {
		return nil
	}
	var run struct {
		Output  string
		Details json.RawMessage
	}
	m, err := e.Message()
	switch m := m.(type) {
	case entry.BashExecutionMessage:
		run.Output, run.Details = m.Output, m.Details
	case entry.PythonExecutionMessage:
		run.Output, run.Details = m.Output, m.Details
	default:
		return nil // its line was printed
	}
	if err != nil {
		return nil
	}
	var f bash.Finish
	if len(run.Details) > 0 && json.Unmarshal(run.Details, &f) == nil && f.Artifact != nil {
		if v.live[f.Artifact.ID] != nil {
			return nil
		}
		_, err := fmt.Fprintf(v.stdout, "[%s in artifact://%d]\n", count(f.Artifact.Lines, "line", "lines"), f.Artifact.ID)
		return err
	}
	if run.Output == "" {
		return nil
	}
	v.last = newLiveView(v.stdout)
	if _, err := io.WriteString(v.last, run.Output); err != nil {
		return err
	}
	return v.finish()
}
