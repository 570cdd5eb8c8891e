package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentrun/agentrun/session"
)

// recordEvery is how often the supervisor tries to record the end of a job that could not be recorded. Nobody is told
// when a disk has room again.
const recordEvery = 500 * time.Millisecond

// stuck is what is said of a job whose end is not in the log yet.
type stuck struct {
	is  chan struct{} // closed when it is so
	why error         // set before
}

// record tries to bring the end of a job to the log, until that works or the supervisor ends: without it the job would
// be one that runs. err is what bash.Run said; what is no matter of the log is returned as it is.
func (s *server) record(log *session.Session, j *job, err error) error {
	var pending *session.PendingError
	if !errors.As(err, &pending) {
		return err
	}
	j.stuck.why = fmt.Errorf("it has ended, and that can not be recorded: %w; it is tried again as long as its supervisor lives", pending.Err)
	close(j.stuck.is)
	ctx := context.WithoutCancel(s.ctx)
	for {
		t := time.NewTimer(recordEvery)
		var last bool
		select {
		case <-t.C:
		case <-s.ctx.Done():
			t.Stop()
			last = true
		}
		if err := log.Flush(ctx); err == nil || last {
			return err
		}
	}
}

// ended waits until a job has ended and that is recorded. It returns an error when it is not recorded.
func (j *job) ended(gone <-chan struct{}) error {
	select {
	case <-j.done:
		return nil
	case <-gone:
		return nil
	case <-j.stuck.is:
	}
	select {
	case <-j.done:
		return nil
	default:
		return j.stuck.why
	}
}

func newJob(stop context.CancelFunc) *job {
	return &job{kill: make(chan struct{}), stop: stop, done: make(chan struct{}), stuck: stuck{is: make(chan struct{})}}
}
