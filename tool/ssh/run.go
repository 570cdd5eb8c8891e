package ssh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/tool/bash"
)

// patience is how long to wait for whom.
const (
	untilTerm = 2 * time.Second        // from SIGINT to SIGTERM
	untilKill = 2 * time.Second        // from SIGTERM to SIGKILL
	untilGone = 10 * time.Second       // from SIGKILL, or from when the host told that it is at it, until nothing more is expected
	untilLeft = time.Minute            // from SIGKILL until no host is waited for, whatever it tells
	untilHeld = 250 * time.Millisecond // from the end of a script until the host is asked something else, and from its answer until who holds the output is not waited for
)

// run is one script on its way.
type run struct {
	*Remote
	s    *bash.Script
	ctx  context.Context
	exit bash.Exit

	expired <-chan time.Time
	log     *os.File // ssh's own words
	orders  *os.File // to the host
	events  *events
	kill    chan struct{} // ends the client
	done    chan struct{} // closed when the client has ended
	last    bash.Exit     // of the client
	err     error         // of the client, or of who takes the output
}

// RunScript implements [bash.Runner]. Started is not called: nothing runs here.
func (r *Remote) RunScript(ctx context.Context, s *bash.Script) (bash.Exit, error) {
	if s.Stdin != "" {
		return bash.Exit{}, errors.New("running a script on a host: its standard input is empty there")
	}
	if err := CheckScript(s.Text); err != nil {
		var url *URLError
		if !errors.As(err, &url) { // who calls this may mean the text
			return bash.Exit{}, fmt.Errorf("running a script on %s: %w", r.host, err)
		}
	}
	x := &run{Remote: r, s: s, ctx: ctx, exit: bash.Exit{Began: time.Now()}, events: newEvents(), kill: make(chan struct{}), done: make(chan struct{})}
	if s.Timeout > 0 {
		t := time.NewTimer(s.Timeout)
		defer t.Stop()
		x.expired = t.C
	}
	err := x.run()
	x.exit.Duration = time.Since(x.exit.Began)
	return x.exit, err
}

func (x *run) run() error {
	lines, err := x.lines()
	if err != nil {
		return x.refuse(err)
	}
	w, err := x.client.way(x.host)
	if err != nil {
		return x.refuse(err)
	}
	if ok, err := x.connect(w); !ok {
		return err
	}
	return x.talk(w, lines)
}

// lines are what the host is sent to begin with, less the number that only the streams know.
func (x *run) lines() (func(nonce string) []byte, error) {
	dir := x.dir
	if x.s.Dir != "" {
		dir = x.s.Dir
	}
	if strings.IndexByte(dir, 0) >= 0 {
		return nil, errors.New("the directory on the host contains a NUL byte")
	}
	before, err := before(append(bash.Quiet(), x.s.Env...), dir)
	if err != nil {
		return nil, err
	}
	return func(nonce string) []byte { return protocol(nonce, secret(), x.s.Separate, before, x.s.Text) }, nil
}

// refuse makes an error the end of a script that was not started.
func (x *run) refuse(err error) error {
	var known *Error
	if !errors.As(err, &known) {
		known = &Error{Host: x.host, Kind: err, Code: bash.CodeFailure, Text: err.Error()}
	}
	x.exit.Start, x.exit.Code = known, known.Code
	return nil
}

// await waits until something is done, or a reason to end the script comes first, which goes into the exit.
func (x *run) await(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-x.ctx.Done():
		x.exit.Cancelled = !is(done)
	case <-x.s.Kill:
		x.exit.Cancelled = !is(done)
	case <-x.expired:
		x.exit.TimedOut = !is(done)
	case <-x.s.Limit:
		x.exit.OutputLimit = !is(done)
	case <-x.s.Feedback:
		x.exit.Feedback = !is(done)
	}
	return is(done)
}

// connect reports whether the script can be sent.
func (x *run) connect(w *way) (bool, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.ctx))
	defer cancel()
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = w.connect(ctx, x.client.o.Persist)
	}()
	if !x.await(done) {
		cancel()
		<-done
		x.exit.Notes = append(x.exit.Notes, fmt.Sprintf("The script was not started: there was no connection to %s yet", x.host))
		x.exit.SetStatus(bash.CodeFailure << 8) // or that of a timeout
		return false, nil
	}
	if err != nil {
		return false, x.refuse(err)
	}
	return true, nil
}

// talk runs the script and waits for its end.
func (x *run) talk(w *way, lines func(nonce string) []byte) error {
	var err error
	if x.log, err = memoryFile(); err != nil {
		return err
	}
	defer x.log.Close()
	in, orders, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("running a script on %s: making a pipe: %w", x.host, err)
	}
	defer in.Close()
	x.orders = orders
	defer orders.Close()

	nonce := secret()
	out := x.stream(nonce, false)
	noise := x.stream(nonce, x.s.Separate)
	client := &bash.Process{
		Argv: append(w.argv(x.log, "ControlMaster=no"), boot), Dir: "/", Env: environment,
		Stdin: in, Stdout: out, Stderr: noise, Kill: x.kill,
	}
	go func() {
		defer close(x.done)
		x.last, x.err = client.Run(context.WithoutCancel(x.ctx))
	}()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = x.orders.Write(lines(nonce)) // that it failed is seen by what does not come
	}()
	x.follow(w, sent)
	<-x.done
	orders.Close()
	<-sent
	x.conclude()
	return errors.Join(x.err, out.flush(), noise.flush())
}

// stream is one stream of the client.
func (x *run) stream(nonce string, apart bool) *stream {
	to := x.s.Stdout
	if apart {
		to = x.s.Stderr
	}
	return &stream{events: x.events, marker: []byte("\x1e" + nonce + " "), to: func(b []byte) error {
		_, err := to.Write(b)
		return err
	}}
}

// follow waits for the end of the script, or ends it.
func (x *run) follow(w *way, sent <-chan struct{}) {
	over := make(chan struct{})
	stop := make(chan struct{})
	defer close(stop)
	go func() { // until both streams are here, or the client has ended
		defer close(over)
		for _, c := range []chan struct{}{x.events.ended, x.events.complete} {
			select {
			case <-c:
			case <-x.done:
				return
			case <-stop:
				return
			}
		}
	}()
	if x.await(over) {
		x.release(w)
		return
	}
	x.end(sent)
}

// release lets go of a client whose script has ended. It ends by itself as soon as the host has seen that nobody holds
// the output. How long that takes is the load's to say, so the host is asked to do something else meanwhile: once it has,
// somebody holds the output.
func (x *run) release(w *way) {
	if x.within(untilHeld) {
		return
	}
	ctx, cancel := context.WithTimeout(x.ctx, untilGone)
	defer cancel()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		w.ask(ctx, x.log)
	}()
	select {
	case <-x.done:
	case <-x.s.Kill:
	case <-asked:
	}
	cancel()
	<-asked
	if !x.within(untilHeld) {
		x.exit.HeldOpen = true
		close(x.kill)
	}
}

// within reports whether the client ends in a while.
func (x *run) within(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-x.done:
		return true
	case <-t.C:
		return is(x.done)
	}
}

// end asks the host to end the script, and ends the client where the host does not answer.
func (x *run) end(sent <-chan struct{}) {
	defer close(x.kill)
	select {
	case <-sent:
	case <-x.done:
		return
	case <-time.After(untilTerm): // it does not even take the script
		return
	}
	impatient := x.s.Kill
	for _, rung := range []struct {
		order string
		wait  time.Duration
	}{{"INT", untilTerm}, {"TERM", untilKill}} {
		if is(impatient) {
			break
		}
		x.order(rung.order)
		t := time.NewTimer(rung.wait)
		select {
		case <-x.done:
			t.Stop()
			return
		case <-x.events.ended:
		case <-impatient:
		case <-t.C:
		}
		t.Stop()
		if is(x.events.ended) {
			break
		}
	}
	x.order("KILL") // also what the script has left
	t := time.NewTimer(untilGone)
	defer t.Stop()
	all := time.NewTimer(untilLeft)
	defer all.Stop()
	for {
		select {
		case <-x.done:
			return
		case <-all.C:
			return
		case <-x.events.ending:
			t.Reset(untilGone)
		case <-t.C:
			return
		}
	}
}

// order tells the host what to do. A client that does not take it is ended later.
func (x *run) order(word string) {
	_ = x.orders.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = x.orders.WriteString(word + "\n")
}

// conclude says how the script ended. The client has ended.
func (x *run) conclude() {
	e := x.events
	forced := x.exit.TimedOut || x.exit.Cancelled || x.exit.OutputLimit || x.exit.Feedback
	switch {
	case is(e.ended):
		for _, w := range e.words {
			switch w {
			case "leftover":
				x.exit.Leftover = true
			case "cwd":
				dir := x.dir
				if x.s.Dir != "" {
					dir = x.s.Dir
				}
				_ = x.refuse(&Error{Host: x.host, Kind: ErrDirectory, Code: bash.CodeFailure, Text: fmt.Sprintf("%s has no directory %s, or it may not be entered: name another", x.host, dir)})
				return
			}
		}
		x.exit.SetStatus(syscall.WaitStatus(e.status << 8))
		if forced && len(e.left) > 0 {
			x.exit.Notes = append(x.exit.Notes, fmt.Sprintf("Processes of the script could not be ended on %s: %s", x.host, strings.Join(e.left, " ")))
		}
		if forced && !is(e.finished) {
			x.exit.Notes = append(x.exit.Notes, fmt.Sprintf("%s did not confirm that all processes of the script have ended", x.host))
		}
	case x.last.Start != nil:
		x.exit.Start, x.exit.Code = x.last.Start, x.last.Code
	case !is(e.begun) && !forced && x.last.Signal == "" && x.last.Code != lost:
		_ = x.refuse(&Error{Host: x.host, Kind: ErrNoShell, Code: bash.CodeFailure, Text: fmt.Sprintf(
			"%s did not run the script, but ended with status %d: agentrun needs a login there that runs commands, and sh", x.host, x.last.Code)})
	case !is(e.begun) && !forced && x.last.Signal == "" && !established(said(x.log)):
		_ = x.refuse(x.client.explain(x.host, said(x.log)))
	default:
		x.exit.SetStatus(bash.CodeFailure << 8)
		text := said(x.log)
		why := ""
		if text != "" {
			why = " (" + last(text) + ")"
		}
		x.exit.Notes = append(x.exit.Notes, fmt.Sprintf("The connection to %s was lost%s: how the script ended is not known; it is ended there when the host notices, and may run until then", x.host, why))
	}
}

// lost is the status of ssh itself, when it is not that of the script.
const lost = 255

// established reports whether ssh had a connection when it gave up.
func established(log string) bool {
	for _, words := range []string{"mux_client", "closed by remote host", "client_loop", "Timeout, server", "Connection reset"} {
		if strings.Contains(log, words) {
			return true
		}
	}
	return log == ""
}
