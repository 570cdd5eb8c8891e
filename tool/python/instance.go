package python

import (
	"context"
	_ "embed" // the program of the kernel
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/internal/pipe"
	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/internal/shim"
	"github.com/agentrun/agentrun/tool/bash"
)

//go:embed runner.py
var runner string

// boot is the program of the command line: it reads the runner from file 3, behind its length and the key.
const boot = `f=open(3,"rb",closefd=False);n,k=f.readline().split();` +
	`exec(compile(f.read(int(n)),"<agentrun kernel>","exec"),{"__name__":"agentrun_kernel","key":bytes.fromhex(k.decode())})`

// patience is how long to wait from one signal to the next.
const (
	untilTerm  = 2 * time.Second
	untilKill  = 2 * time.Second
	untilGone  = 10 * time.Second
	untilReady = 30 * time.Second // on a busy machine, through the scripts of pyenv
)

// instance is one process of a kernel.
type instance struct {
	single  bool
	shim    *shim.Shim
	control *channel
	bridge  *channel

	ends    chan end
	ready   chan string   // its executable
	foreign chan struct{} // closed when the control socket carries what is not of the kernel
	heard   chan struct{} // closed when the control socket has been read to its end
	reading sync.WaitGroup

	mu       sync.Mutex // orders the pieces of all outputs
	outputs  []*output
	late     late
	call     *call
	werr     error // why the output of the call is not passed on
	displays []Display
	shown    int // bytes of displays
	excess   int // displays that were left out
}

// call is a cell on its way.
type call struct {
	*Cell
	number int
	begun  chan struct{}   // closed when an interrupt finds the code
	ctx    context.Context // of what the code asks for
	cancel context.CancelFunc
	asks   sync.WaitGroup
}

// output is what is written for one cell.
type output struct {
	cell    int
	readers []*pipe.Reader
}

// start starts a process and waits until it is ready.
func (k *Kernel) start(ctx context.Context, kill <-chan struct{}) (_ *instance, err error) {
	environ, dir, err := bash.ScriptEnvironment(k.opts.Environ, k.opts.Dir, k.opts.Env)
	if err != nil {
		return nil, err
	}
	in, err := find(k.opts.Path, dir, environ)
	if err != nil {
		return nil, err
	}
	i := &instance{single: k.opts.Single, ends: make(chan end, 1), ready: make(chan string, 1), foreign: make(chan struct{}), heard: make(chan struct{})}
	defer func() {
		if err != nil {
			err = fmt.Errorf("starting Python (%s): %w", in.path, err)
			i.close()
		}
	}()
	secret, err := newKey()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	theirs := make([]*os.File, 3)
	defer func() {
		for _, f := range theirs {
			if f != nil {
				f.Close()
			}
		}
	}()
	if i.control, theirs[0], err = openChannel(secret); err != nil {
		return nil, err
	}
	if i.bridge, theirs[1], err = openChannel(secret); err != nil {
		return nil, err
	}
	if theirs[2], err = i.pipe(&output{}, false); err != nil { // what is printed before the first cell
		return nil, err
	}
	i.shim, err = shim.Start(shim.Command{
		Path: in.path, Argv: []string{in.path, "-c", boot}, Dir: dir, Env: in.environment(environ),
		Files: []*os.File{null, theirs[2], theirs[2], theirs[0], theirs[1]}, Box: k.box,
	})
	if err != nil {
		return nil, err
	}
	i.reading.Go(i.listen)
	i.reading.Go(i.answer)
	if _, err := fmt.Fprintf(i.control.conn, "%d %s\n%s", len(runner), hex.EncodeToString(secret[:]), runner); err != nil && !errors.Is(err, syscall.EPIPE) {
		return nil, err
	}
	executable, err := i.awaitReady(ctx, kill)
	if err == nil && in.name != "" && filepath.IsAbs(executable) {
		resolved.Store(in.name, executable)
	}
	return i, err
}

// awaitReady waits for the kernel's first word.
func (i *instance) awaitReady(ctx context.Context, kill <-chan struct{}) (string, error) {
	t := time.NewTimer(untilReady)
	defer t.Stop()
	select {
	case executable := <-i.ready:
		return executable, nil
	case <-ctx.Done():
		i.shim.Kill(untilGone)
		return "", ctx.Err()
	case <-kill:
		i.shim.Kill(untilGone)
		return "", context.Canceled
	case <-t.C:
		i.shim.Kill(untilGone)
		return "", fmt.Errorf("it is not ready after %v%s", untilReady, i.lastWords())
	case <-i.foreign:
		i.shim.Kill(untilGone)
		return "", errors.New("it is no Python that can be a kernel: 3.8 or later is needed" + i.lastWords())
	case <-i.shim.Exited():
		return "", fmt.Errorf("it ended at once, %s%s: name another interpreter, 3.8 or later", how(i.shim.Status().Wait), i.lastWords())
	}
}

// lastWords is the last line that was printed before there was a cell.
func (i *instance) lastWords() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sweep()
	lines := strings.Split(strings.TrimSpace(string(i.late.bytes())), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return fmt.Sprintf(", and said %.300q", last)
	}
	return ""
}

func how(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "by signal " + status.Signal().String()
	}
	return fmt.Sprintf("with status %d", status.ExitStatus())
}

// gone reports whether the process has ended, or can be told nothing.
func (i *instance) gone() bool {
	select {
	case <-i.shim.Exited():
		return true
	case <-i.foreign:
		return true
	default:
		return false
	}
}

// pipe opens another pipe for an output, and returns the end of the kernel.
func (i *instance) pipe(o *output, stderr bool) (*os.File, error) {
	ours, theirs, err := pipe.Open(true)
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	r := pipe.NewReader(ours, &i.mu, func(b []byte) { i.deliver(o.cell, b, stderr) })
	i.mu.Lock()
	o.readers = append(o.readers, r)
	if len(o.readers) == 1 {
		i.outputs = append(i.outputs, o)
	}
	i.mu.Unlock()
	r.Start()
	return theirs, nil
}

// deliver passes on what came for a cell. The caller holds mu.
func (i *instance) deliver(cell int, b []byte, stderr bool) {
	if i.call == nil || cell != i.call.number {
		i.late.Add(cell, b)
		return
	}
	w := i.call.Stdout
	if stderr {
		w = i.call.Stderr
	}
	i.write(w, b)
}

// write gives b to a writer of the call. The caller holds mu.
func (i *instance) write(w io.Writer, b []byte) {
	if w == nil || i.werr != nil {
		return
	}
	if _, err := w.Write(b); err != nil {
		i.werr = fmt.Errorf("passing on the output of the cell: %w", err)
	}
}

// sweep takes what is in the pipes. The caller holds mu.
func (i *instance) sweep() {
	for _, o := range i.outputs {
		for _, r := range o.readers {
			r.Sweep()
		}
	}
}

// prune lets go of outputs that nobody can write to any more.
func (i *instance) prune() {
	var over []*output
	i.mu.Lock()
	i.outputs = slices.DeleteFunc(i.outputs, func(o *output) bool {
		for _, r := range o.readers {
			select {
			case <-r.Ended():
			default:
				return false
			}
		}
		over = append(over, o)
		return true
	})
	i.mu.Unlock()
	for _, o := range over {
		for _, r := range o.readers {
			r.Close()
		}
	}
}

// request is a cell, as the kernel is told of it. Its output goes to the files that come with it.
type request struct {
	Cell int         `json:"cell"`
	Code string      `json:"code"`
	Dir  []byte      `json:"cwd,omitempty"` // a path need not be UTF-8, nor has a variable to
	Env  [][2][]byte `json:"env,omitempty"`
}

// send gives a cell to the kernel.
func (i *instance) send(c *Cell, number int) error {
	o := &output{cell: number}
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for n := range 2 {
		if n == 1 && !c.Separate {
			break
		}
		f, err := i.pipe(o, n == 1)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	q := request{Cell: number, Code: c.Text, Dir: []byte(c.Dir)}
	for _, kv := range c.Env {
		k, v, _ := strings.Cut(kv, "=")
		q.Env = append(q.Env, [2][]byte{[]byte(k), []byte(v)})
	}
	if err := i.control.send(q, files...); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) { // that it is gone is seen later
		return fmt.Errorf("giving the cell to the kernel: %w", err)
	}
	return nil
}

// run runs one cell and reports whether the kernel ended with it, or has to.
func (i *instance) run(ctx context.Context, c *Cell, number int) (exit bash.Exit, outcome Outcome, ended bool, err error) {
	exit.Began = time.Now()
	i.prune()
	running := &call{Cell: c, number: number, begun: make(chan struct{})}
	running.ctx, running.cancel = context.WithCancel(ctx)
	defer running.cancel()
	i.mu.Lock()
	i.sweep()
	i.call, i.werr, i.displays, i.shown, i.excess = running, nil, nil, 0, 0
	i.write(c.Stdout, i.late.take())
	i.mu.Unlock()
	if c.Started != nil {
		c.Started(i.shim.PID())
	}
	killed := oomKills()
	watch := process.WatchMemory(i.shim.Root())
	var e *end
	if err = i.send(c, number); err != nil {
		ended = true
	} else {
		e, ended = i.await(ctx, running, &exit)
	}
	exit.PeakMemory = watch.End()
	exit.Duration = time.Since(exit.Began)
	i.mu.Lock()
	i.sweep()
	i.call = nil // what comes from here on is late
	i.write(c.Stdout, i.late.take())
	outcome.Displays = i.displays
	i.displays = nil
	err = errors.Join(err, i.werr)
	if i.excess > 0 {
		exit.Notes = append(exit.Notes, fmt.Sprintf("%d of the things that the cell displayed were not kept: together they are more than %d MiB", i.excess, MaxDisplays>>20))
	}
	i.mu.Unlock()
	running.cancel()
	running.asks.Wait()
	if e != nil {
		exit.User, exit.System = time.Duration(e.User)*time.Microsecond, time.Duration(e.System)*time.Microsecond
		exit.SetStatus(syscall.WaitStatus((e.Code & 0xff) << 8))
		outcome.Result = e.Result
	}
	if e == nil && err == nil {
		why := i.ended(&exit, oomKills() > killed)
		outcome.Lost = &why
		exit.Notes = append(exit.Notes, why)
	}
	return exit, outcome, ended, err
}

// await waits for the end of the cell, and ends it where it has to. It returns what the kernel told, nil for nothing,
// and whether the kernel has ended.
func (i *instance) await(ctx context.Context, c *call, exit *bash.Exit) (*end, bool) {
	var expired <-chan time.Time
	if c.Timeout > 0 {
		t := time.NewTimer(c.Timeout)
		defer t.Stop()
		expired = t.C
	}
	select {
	case e := <-i.ends:
		return &e, false
	case <-i.foreign:
		return nil, true
	case <-i.shim.Exited():
		return i.last()
	case <-c.Kill:
		exit.Cancelled = true
		i.shim.Kill(untilGone)
		return i.last()
	case <-ctx.Done():
		exit.Cancelled = true
	case <-expired:
		exit.TimedOut = true
	case <-c.Limit:
		exit.OutputLimit = true
	case <-c.Feedback:
		exit.Feedback = true
	}
	c.cancel() // what the cell waits for
	return i.stop(c)
}

// stop asks, tells, and kills.
func (i *instance) stop(c *call) (*end, bool) {
	t := time.NewTimer(untilTerm)
	select {
	case <-c.begun:
	case <-t.C:
	case <-i.shim.Exited():
	case <-i.foreign:
	case e := <-i.ends:
		return &e, false
	}
	t.Stop()
	for _, rung := range []struct {
		sig  syscall.Signal
		wait time.Duration
	}{{syscall.SIGINT, untilTerm}, {syscall.SIGTERM, untilKill}} {
		i.shim.Signal(rung.sig)
		t := time.NewTimer(rung.wait)
		select {
		case e := <-i.ends:
			t.Stop()
			return &e, rung.sig != syscall.SIGINT // what it was told besides, nobody knows
		case <-i.shim.Exited():
			t.Stop()
			return i.last()
		case <-i.foreign:
			t.Stop()
		case <-c.Kill:
			t.Stop()
		case <-t.C:
			continue
		}
		break
	}
	i.shim.Kill(untilGone)
	return i.last()
}

// last is what the kernel told before it ended.
func (i *instance) last() (*end, bool) {
	i.control.conn.SetReadDeadline(time.Now().Add(untilGone)) // a child may hold the other end
	<-i.heard
	select {
	case e := <-i.ends:
		return &e, true
	default:
		return nil, true
	}
}

// ended says how the kernel went.
func (i *instance) ended(exit *bash.Exit, oom bool) string {
	why := "The cell wrote to the sockets of the kernel, which so can not go on"
	select {
	case <-i.shim.Exited():
		status := i.shim.Status().Wait
		exit.SetStatus(status)
		stopped := exit.TimedOut || exit.Cancelled || exit.Feedback || exit.OutputLimit
		switch {
		case status.Signaled() && stopped:
			why = "The kernel was ended by " + exit.Signal + ", because the cell did not end by KeyboardInterrupt"
		case status.Signaled() && status.Signal() == syscall.SIGKILL && oom:
			why = "The kernel was killed while the cell ran, and the system killed a process at that time for want of memory: it most likely used too much"
		case status.Signaled():
			why = "The kernel was killed by " + exit.Signal + " while the cell ran"
		case !stopped:
			why = fmt.Sprintf("The kernel ended with this cell, with status %d", status.ExitStatus())
		default:
			why = "The kernel ended with this cell"
		}
	default:
		exit.Code = bash.CodeFailure
		i.shim.Kill(untilGone)
	}
	if i.single {
		return why
	}
	return why + ": what cells had defined is gone; this cell is not run again, and how far it came is not known but by its output"
}

// close ends the kernel and everything below it.
func (i *instance) close() {
	if i.control != nil {
		i.control.close() // the kernel runs its exit functions and ends
	}
	if i.shim != nil {
		t := time.NewTimer(untilKill)
		select {
		case <-i.shim.Exited():
		case <-t.C:
		}
		t.Stop()
		i.shim.Kill(untilGone)
	}
	if i.bridge != nil {
		i.bridge.close()
	}
	i.reading.Wait()
	for _, o := range i.outputs {
		for _, r := range o.readers {
			r.Close()
		}
	}
}

// oomKills is how many processes the kernel of the system killed for want of memory since it runs, within limits of
// cgroups too: oom_kill of /proc/vmstat. 0 where that is not told.
func oomKills() (n int64) {
	b, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0
	}
	if _, rest, ok := strings.Cut(string(b), "\noom_kill "); ok {
		_, _ = fmt.Sscan(rest, &n)
	}
	return n
}
