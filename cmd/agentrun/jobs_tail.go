package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/internal/notify"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/supervisor"
	"github.com/agentrun/agentrun/tool/read"
)

func newJobsTailCommand(env *environment) *cobra.Command {
	var (
		lines  int64
		follow bool
		screen bool
	)
	cmd := &cobra.Command{
		Use:   "tail ID",
		Short: "Show the end of a job's output",
		Long: `tail shows the last lines of what a job has printed until now, as many as fit
into a page (3,000 lines, 50 KiB); a notice tells where those before them are.
With --follow it shows all of it, and what comes, until the job has ended.

With --screen it shows the screen of a running job that has a terminal (jobs
start --pty) as it is now.

With --json it prints the object of the job with one more member, output, and
with notes where that is less than was asked for.`,
		Args: positional(1, 1, "the id of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case lines < 1:
				return usagef("--lines %d: give a positive number", lines)
			case follow && screen:
				return usagef("--follow and --screen exclude each other: give one")
			case follow && env.json:
				return usagef("--follow prints output alone: leave --json out, or use agentrun follow --json --artifacts")
			}
			return env.withJob(cmd.Context(), args[0], func(ctx context.Context, s *session.Session, j supervisor.Job) error {
				switch {
				case screen:
					return env.showScreen(ctx, s, j)
				case follow:
					return env.followJob(ctx, s, j)
				}
				return env.tailJob(ctx, j, lines)
			})
		},
	}
	cmd.Flags().BoolVar(&screen, "screen", false, "show what the terminal of a job shows now")
	cmd.Flags().Int64VarP(&lines, "lines", "n", 50, "show the last `N` lines")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job has ended")
	return cmd
}

func (e *environment) tailJob(ctx context.Context, j supervisor.Job, lines int64) error {
	o := &lazyOpener{env: e}
	page, err := lastPage(ctx, o, j.Artifact, lines)
	if err = errors.Join(err, o.close()); err != nil {
		return err
	}
	var notes []string
	for _, note := range page.Notes {
		// That there is nothing yet shows, and what became of the command is not the question.
		if (page.Lines > 0 || page.Data != nil) && !strings.HasPrefix(note, fmt.Sprintf("Artifact %d is ", j.Number)) {
			notes = append(notes, note)
		}
	}
	if shown := page.LastLine - page.FirstLine + 1; page.FirstLine > 1 && shown < lines {
		notes = append(notes, fmt.Sprintf("Showing lines %d-%d of %d. Those before them are %s:%d-%d", page.FirstLine, page.LastLine, page.Lines, j.Artifact, max(page.Lines-lines, 0)+1, page.FirstLine-1))
	}
	if e.json {
		return printJSON(e.stdout, struct {
			supervisor.Job
			Output string   `json:"output"`
			Notes  []string `json:"notes,omitempty"`
		}{j, page.Text, notes})
	}
	text := page.Text
	if len(notes) > 0 && !e.quiet {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += "[" + strings.Join(notes, ". ") + "]\n"
	}
	_, err = io.WriteString(e.stdout, text)
	return err
}

// lastPage reads as many of the last lines of an artifact as are wanted and fit into a page, whose limits are
// those of read; a page of read begins with the first of the lines that it is asked for.
func lastPage(ctx context.Context, o read.Opener, artifact string, lines int64) (read.Page, error) {
	page, err := read.Read(ctx, o, fmt.Sprintf("%s:-%d", artifact, min(lines, read.MaxLines)), read.Options{})
	if err != nil || page.LastLine == 0 || page.LastLine == page.Lines {
		return page, err
	}
	end := page.Lines // more may come meanwhile
	ending := func(n int64) (read.Page, error) {
		return read.Read(ctx, o, fmt.Sprintf("%s:%d-%d", artifact, end-n+1, end), read.Options{})
	}
	tooMany := sort.Search(int(end-page.FirstLine), func(i int) bool {
		p, failed := ending(int64(i) + 1)
		err = errors.Join(err, failed)
		return failed != nil || p.LastLine < end
	})
	if err != nil {
		return page, err
	}
	return ending(max(int64(tooMany), 1)) // the end of a line that is longer than a page is not shown, and it says so
}

// followJob prints the output of a job from its beginning until its end.
func (e *environment) followJob(ctx context.Context, s *session.Session, j supervisor.Job) error {
	dir := e.artifacts(s)
	if dir == nil {
		return errNoArtifacts
	}
	r, err := dir.Open(ctx, j.Number)
	if err != nil {
		return err
	}
	defer r.Close()
	watch, stop := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer stop()
	waiting.Go(func() {
		defer stop()
		_ = e.supervisorOf(s).Wait(watch, j.Number) // an error is that nobody owns it: it has ended
	})
	w := notify.Open(false)
	defer w.Close()
	w.Add(dir.Path())
	out := newLiveView(e.stdout)
	buf := make([]byte, 64<<10)
	for off, last := int64(0), false; ; {
		n, err := r.ReadAt(buf, off)
		off += int64(n)
		if _, err := out.Write(buf[:n]); err != nil {
			return nil // who read it has seen enough
		}
		switch {
		case n > 0:
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case last:
			return errors.Join(out.finish(), ctx.Err())
		}
		last = w.Wait(watch, func(path string) bool { return strings.HasSuffix(path, ".log") }) != nil // what came before the end is read once more
	}
}
