package supervisor

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/internal/quantity"
)

// stoppedError is about a supervisor that somebody has stopped (SIGSTOP), and that answers nobody.
type stoppedError struct {
	pid  int
	long time.Duration
}

func (e *stoppedError) Error() string {
	return fmt.Sprintf("process %d, which owns the jobs and shells of the session, has been stopped for %s: kill -CONT %[1]d has it go on; kill -KILL %[1]d ends it with all that it runs", e.pid, quantity.Time(e.long))
}

// stopWatch closes a client's connection to a supervisor that was found stopped at each of several looks, so that nobody waits
// for it for ever. A supervisor that works may be waited for as long as that takes.
type stopWatch struct {
	conn *conn
	pid  int
	long time.Duration

	mu    sync.Mutex
	timer *time.Timer
	looks int
	err   error
	over  bool
}

// looksUntilStopped is how many looks in startWait have to find a supervisor stopped.
const looksUntilStopped = 4

// watch begins to look at who is at the other side.
func (c *conn) watch() {
	peer, err := peer(c.Conn.(*net.UnixConn))
	if err != nil {
		return
	}
	w := &stopWatch{conn: c, pid: int(peer.Pid), long: startWait}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.long/looksUntilStopped, w.look)
	c.stopped = w
}

func (w *stopWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.looks++
	if s, err := process.ReadStat(w.pid); err != nil || !s.Stopped() {
		w.looks = 0
	}
	if w.looks > looksUntilStopped {
		w.err = &stoppedError{w.pid, w.long}
		w.conn.Conn.Close()
		return
	}
	w.timer.Reset(w.long / looksUntilStopped)
}

// end ends the looking, and returns why the connection was closed, if it was for that.
func (w *stopWatch) end() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
	return w.err
}

// Close closes the connection.
func (c *conn) Close() error {
	_ = c.stopped.end()
	return c.Conn.Close()
}
