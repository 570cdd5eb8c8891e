package bash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/agentrun/agentrun/outputsink"
)

// Moved is what is known of a run when it becomes a job.
type Moved struct {
	Start        // as it was recorded
	Entry string // the id of that entry

	// Output is the end of what the run has printed until now, sanitised and bounded as a view; Summary has the view
	// and what of it is known by then.
	Summary outputsink.Summary

	// Err is why the run could not be moved: it goes on as if nobody had asked. Nothing else is set then.
	Err error
}

// moves waits for Options.Move. The function that it returns ends the waiting, and a move that has begun.
func (r *run) moves(ctx context.Context, p *Process, where location, sink *outputsink.Sink, res *Result) func() {
	if r.Move == nil {
		return func() {}
	}
	over := make(chan struct{})
	var moving sync.WaitGroup
	moving.Go(func() {
		select {
		case <-over:
			return
		case <-r.Move:
		}
		m, err := r.move(context.WithoutCancel(ctx), p, where, sink, res)
		if err != nil {
			r.stayed = true
			m = Moved{Err: fmt.Errorf("moving %s to the background: %w", p.name(), err)}
		}
		if r.Moved != nil {
			r.Moved(m)
		}
	})
	return func() {
		close(over)
		moving.Wait()
	}
}

// move makes a job of the run: first its artifact, then its entry, so that a job has both.
func (r *run) move(ctx context.Context, p *Process, where location, sink *outputsink.Sink, res *Result) (Moved, error) {
	if err := sink.Spill(); err != nil {
		return Moved{}, err
	}
	number := r.artifact.ID()
	s := r.start(p, where)
	s.Job, s.Moved, s.Artifact, s.Session = true, true, &number, r.Session
	id, err := begin(ctx, r.Log, s)
	if err != nil {
		return Moved{}, err
	}
	if res.StartEntry == "" {
		res.StartEntry = id
	}
	sum, err := r.soFar(sink)
	if err != nil {
		sum = outputsink.Summary{View: fmt.Sprintf("[What it printed until now can not be shown: %v]", err)}
	}
	sum.Artifact = r.artifact.URL()
	return Moved{Start: s, Entry: id, Summary: sum}, nil
}

// soFar is the view of the last that has come.
func (r *run) soFar(sink *outputsink.Sink) (outputsink.Summary, error) {
	options := outputsink.DefaultOptions()
	if r.Sink != nil {
		options = *r.Sink
	}
	options.Open, options.Spill, options.HeadBytes = nil, false, 0
	if options.MaxBytes <= 0 {
		options.MaxBytes = outputsink.DefaultMaxBytes
	}
	live := sink.Live()
	defer live.Close()
	size := live.Size()
	b := make([]byte, min(size, int64(options.MaxBytes)))
	n, err := live.ReadAt(b, size-int64(len(b)))
	if err != nil && !errors.Is(err, io.EOF) {
		return outputsink.Summary{}, err
	}
	view := outputsink.New(options)
	_, _ = view.Stdout().Write(b[:n]) // gives no error before it is closed
	sum, _ := view.Close()            // without a file there is nothing to fail
	sum.Truncated = sum.Truncated || int64(n) < size
	sum.Notice, sum.TotalBytes = "", size
	if sum.View = sum.Text; sum.Truncated {
		sum.Notice = fmt.Sprintf("[Showing the last %s of %s until now: all of it is %s]", outputsink.FormatBytes(sum.ShownBytes), outputsink.FormatBytes(size), r.artifact.URL())
		sum.View = WithRemarks(sum.View, []string{sum.Notice})
	}
	return sum, nil
}
