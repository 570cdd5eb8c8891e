package process

import (
	"sync"
	"time"
)

// MemoryWatch looks from time to time how much memory the processes of a tree have, and misses those that are short.
type MemoryWatch struct {
	stop chan struct{}
	done sync.WaitGroup
	peak int64
}

// WatchMemory begins to look at what is below root, until End is called.
func WatchMemory(root int) *MemoryWatch { return watchMemory(root, false) }

// WatchMemoryFrom is WatchMemory for root and what is below it.
func WatchMemoryFrom(root int) *MemoryWatch { return watchMemory(root, true) }

func watchMemory(root int, too bool) *MemoryWatch {
	w := &MemoryWatch{stop: make(chan struct{})}
	w.done.Go(func() {
		for pause, cost := 50*time.Millisecond, time.Duration(0); ; pause = max(min(2*pause, time.Second), 50*cost) {
			t := time.NewTimer(pause)
			select {
			case <-w.stop:
				t.Stop()
				return
			case <-t.C:
			}
			began := time.Now()
			members, _ := Descendants(root)
			if too {
				w.peak = max(w.peak, PeakMemory(root))
			}
			for _, m := range members {
				w.peak = max(w.peak, PeakMemory(m.PID))
			}
			cost = time.Since(began) // of ten thousand processes it is near to a second
		}
	})
	return w
}

// End returns the most memory that one of the processes has had resident, in bytes; 0 when it never looked.
func (w *MemoryWatch) End() int64 {
	close(w.stop)
	w.done.Wait()
	return w.peak
}
