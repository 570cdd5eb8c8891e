package search

import (
	"context"
	"runtime"
)

// ordered runs jobs on every core and hands their results to each in the order of
// the jobs. jobs yields them one after the other; it is not called ahead further
// than keeps the workers busy. It stops at the first false or error of each, and
// returns after every goroutine has ended.
func ordered[J, R any](ctx context.Context, jobs func(yield func(J) bool), work func(context.Context, J, *scratch) R, each func(R) (bool, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workers := runtime.GOMAXPROCS(0)
	type task struct {
		job J
		out chan R
	}
	queue := make(chan task)
	order := make(chan chan R, 2*workers)
	done := make(chan struct{}, workers+1)
	go func() {
		defer func() { close(queue); close(order); done <- struct{}{} }()
		jobs(func(j J) bool {
			t := task{j, make(chan R, 1)}
			select {
			case order <- t.out:
			case <-ctx.Done():
				return false
			}
			select {
			case queue <- t:
				return true
			case <-ctx.Done():
				close(t.out)
				return false
			}
		})
	}()
	for range workers {
		go func() {
			defer func() { done <- struct{}{} }()
			var s scratch
			for t := range queue {
				t.out <- work(ctx, t.job, &s)
			}
		}()
	}
	var err error
	going := true
	for out := range order {
		r, ok := <-out
		if !going || !ok {
			continue // let everybody end
		}
		if going, err = each(r); err != nil {
			going = false
		}
		if !going {
			cancel()
		}
	}
	for range workers + 1 {
		<-done
	}
	if err == nil && going {
		err = ctx.Err()
	}
	return err
}
