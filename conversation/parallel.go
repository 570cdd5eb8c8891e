package conversation

import (
	"sync"
	"sync/atomic"
)

// parallel calls do for each of [0, n) from at most so many goroutines at once, and
// returns when all are done.
func parallel(most, n int, do func(i int)) {
	if most = min(most, n); most <= 1 {
		for i := range n {
			do(i)
		}
		return
	}
	var next atomic.Int64
	var group sync.WaitGroup
	for range most {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	group.Wait()
}
