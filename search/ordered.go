package search

import (
	"context"
	"runtime"
	"sync"
)

// busyAhead is as many results as keep the workers busy.
func busyAhead() int { return 2 * runtime.GOMAXPROCS(0) }

// scratches are those of workers that ended: most files are small, and a worker's
// tables are larger.
var scratches = sync.Pool{New: func() any { return new(scratch) }}

// ordered runs jobs on every core and hands their results to each in the order of
// the jobs. jobs yields them one after the other; at most ahead results wait for each.
// It stops at the first false or error of each, and returns after every goroutine has
// ended.
func ordered[J, R any](ctx context.Context, ahead int, jobs func(yield func(J) bool), work func(context.Context, J, *scratch) R, each func(R) (bool, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workers := runtime.GOMAXPROCS(0)
	type task struct {
		job J
		out chan R
	}
	queue := make(chan task)
	order := make(chan chan R, ahead)
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
			s := scratches.Get().(*scratch)
			for t := range queue {
				t.out <- work(ctx, t.job, s)
			}
			scratches.Put(s)
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
