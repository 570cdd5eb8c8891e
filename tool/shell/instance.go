package shell

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/internal/pipe"
	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/internal/shim"
	"github.com/agentrun/agentrun/tool/bash"
)

// maxState bounds the state that is carried over, in bytes.
const maxState = 64 << 20

// patience is how long to wait from one signal to the next.
const (
	untilTerm = 2 * time.Second
	untilKill = 2 * time.Second
	untilGone = 10 * time.Second
)

// instance is one process of a shell.
type instance struct {
	shell *Shell
	shim  *shim.Shim

	terminal  bool         // it has one, and runs one script
	reload    bool         // the next call begins with the last state
	in        *os.File     // where calls are announced
	text      *os.File     // the script of the call
	names     [2]string    // of the script, and of where the loop tells, in the exchange
	control   *pipe.Reader // what the loop tells
	told      *os.File     // its writing end: the loop opens it by its path, for as long as the shell lives
	out, err  *pipe.Reader
	ends      chan end
	calls     int
	slot      int   // of the state that is written at the end of the call
	used      times // by the shell and its children, up to the last call
	remainder []byte

	mu   sync.Mutex // orders the pieces of both outputs
	call *bash.Script
	held held
	werr error
}

// end is what the loop tells about a call.
type end struct {
	call   int
	nonce  string
	exited bool // the shell ends with it
	status int
	used   times
}

type times struct{ user, system time.Duration }

// start starts a process with the last state. With a terminal that is the process's. The outputs of a trap
// that runs when all scripts have ended are separate or not as those of the first script.
func (s *Shell) start(ctx context.Context, kill <-chan struct{}, terminal *bash.Terminal, separate bool) (_ *instance, err error) {
	i := &instance{shell: s, ends: make(chan end, 4), terminal: terminal != nil}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			i.release()
		}
	}()
	open := func(reader bool) (ours, other *os.File) {
		if err != nil {
			return nil, nil
		}
		if ours, other, err = pipe.Open(reader); err == nil {
			theirs = append(theirs, other)
		}
		return ours, other
	}
	d := s.dialect
	files := make([]*os.File, d.in+1)
	if d.err >= len(files) {
		files = make([]*os.File, d.err+1)
	}
	for fd := range 3 {
		if files[fd], err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
			return nil, fmt.Errorf("starting a shell: %w", err)
		}
		theirs = append(theirs, files[fd])
	}
	i.in, files[d.in] = open(false)
	var r, control *os.File
	r, control = open(true)
	telling := ""
	if err == nil {
		theirs = theirs[:len(theirs)-1]
		if r, control, telling, err = s.exchange.telling(r, control); err != nil {
			return nil, err
		}
		i.told = control // the loop opens it by its path
	}
	i.control = pipe.NewReader(r, nil, i.listen)
	if terminal == nil {
		r, files[d.out] = open(true)
	} else if err == nil {
		if r, files[d.out], err = terminal.OpenTerminal(); err != nil {
			return nil, err
		}
		theirs = append(theirs, files[d.out])
		files[0], files[1], files[2] = files[d.out], files[d.out], files[d.out]
	}
	i.out = pipe.NewReader(r, &i.mu, func(b []byte) { i.deliver(b, false) })
	r, files[d.err] = open(true)
	if terminal == nil && d != zshDialect { // for what a trap prints at the end of the shell, in order when the script's outputs are one
		files[1], files[2] = files[d.out], files[d.out]
		if separate {
			files[2] = files[d.err]
		}
	}
	i.err = pipe.NewReader(r, &i.mu, func(b []byte) { i.deliver(b, true) })
	if err != nil {
		return nil, fmt.Errorf("starting a shell: making a pipe: %w", err)
	}
	var text string
	if i.text, text, err = s.exchange.file("script"); err != nil {
		return nil, err
	}
	boot, booting, err := s.exchange.file("boot")
	if err != nil {
		return nil, err
	}
	defer boot.Close()
	state := s.last()
	_, fds := s.exchange.dirs()
	i.names = [2]string{text, telling}
	if _, err = boot.WriteString(d.booting(fds, text, telling, state, s.opts.Once)); err != nil {
		return nil, fmt.Errorf("starting a shell: %w", err)
	}
	env, dir, err := bash.ScriptEnvironment(s.opts.Environ, s.opts.Dir, s.opts.Env)
	if err != nil {
		return nil, err
	}
	loop := d.loop
	if i.terminal {
		loop = d.atTerminal()
	}
	argv := append([]string{s.path}, d.args...)
	argv = append(argv, "-c", loop, d.name, fds+"/"+booting)
	argv[0] = d.name
	if i.shim, err = shim.Start(shim.Command{Path: s.path, Argv: argv, Dir: dir, Env: env, Files: files, Box: s.exchange.box, Terminal: i.terminal}); err != nil {
		return nil, fmt.Errorf("starting the shell %s: %w", s.path, err)
	}
	i.control.Start()
	i.out.Start()
	i.err.Start()
	want := s.lastDirectory() // the call below leaves a state of its own
	// The boot file is read once; the first call says that it was.
	if exit, ended, err := i.run(ctx, &bash.Script{Text: ":", Kill: kill}); err != nil || ended {
		i.close()
		return nil, errors.Join(fmt.Errorf("starting the shell %s: it ended at once, with status %d", s.path, exit.Code), err)
	}
	s.moved = i.strayedFrom(want)
	return i, nil
}

// gone reports whether the process has ended.
func (i *instance) gone() bool {
	select {
	case <-i.shim.Exited():
		return true
	default:
		return false
	}
}

// run runs one script and reports whether the shell ended with it.
func (i *instance) run(ctx context.Context, c *bash.Script) (bash.Exit, bool, error) {
	began := time.Now()
	exit := bash.Exit{Began: began}
	nonce, err := newNonce()
	if err != nil {
		return exit, false, err
	}
	i.calls++
	slot := i.shell.next(i)
	i.slot = slot
	i.mu.Lock()
	i.call, i.werr = c, nil
	i.held.deliver(c)
	i.mu.Unlock()
	if c.Started != nil {
		c.Started(i.shim.PID())
	}
	if err := i.announce(c, slot, nonce); err != nil {
		return exit, true, err
	}
	watch := process.WatchMemory(i.shim.Root())
	e, ended := i.await(ctx, c, nonce, &exit)
	exit.PeakMemory = watch.End()
	exit.Duration = time.Since(began)
	if c.Terminal != nil {
		i.hangUp()
	}
	i.mu.Lock()
	i.out.Sweep()
	i.err.Sweep()
	i.call = nil
	werr := i.werr
	i.mu.Unlock()
	if e != nil {
		exit.User, exit.System = e.used.user-i.used.user, e.used.system-i.used.system
		i.used = e.used
		if err := i.shell.commit(slot); err != nil {
			exit.Notes = append(exit.Notes, "The state of the shell is larger than 64 MiB: a shell that takes the place of this one will have the state before this script")
		}
	}
	if ended {
		i.ended(&exit, e)
	} else {
		exit.SetStatus(syscall.WaitStatus(e.status << 8))
	}
	return exit, ended, werr
}

// name is what a shell takes for the name of a variable.
var name = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

// announce gives the script to the loop.
func (i *instance) announce(c *bash.Script, slot int, nonce string) error {
	var before strings.Builder
	stdin := os.DevNull
	switch {
	case c.Terminal != nil:
		before.WriteString("__agentrun_term=${TERM-}; export " + bash.Quote([]string{c.Terminal.Variable()}) + "; ")
	case i.reload:
		if state := i.shell.last(); state != "" {
			_, fds := i.shell.exchange.dirs()
			before.WriteString(i.shell.dialect.reloading(fds, i.names[0], i.names[1], state))
		}
		i.reload = false
	case c.Stdin != "":
		stdin = c.Stdin
	}
	before.WriteString("__agentrun_stdin=" + bash.Quote([]string{stdin}))
	if c.Dir != "" {
		before.WriteString("; cd -- " + bash.Quote([]string{c.Dir}))
	}
	kept := map[string]bool{}
	for _, kv := range c.Env {
		k, v, _ := strings.Cut(kv, "=")
		if !i.shell.opts.Once && !kept[k] && name().MatchString(k) {
			kept[k] = true
			before.WriteString(i.shell.dialect.keeping(k))
		}
		before.WriteString("; export " + bash.Quote([]string{k}) + "=" + bash.Quote([]string{v}))
	}
	stderr := i.shell.dialect.out
	if c.Separate {
		stderr = i.shell.dialect.err
	}
	head := fmt.Sprintf("__agentrun_call=%d __agentrun_slot=%s __agentrun_err=%d __agentrun_nonce=%s", i.calls, i.shell.slots[slot], stderr, nonce)
	text := i.shell.dialect.text(before.String()+"; "+head, c.Text, i.terminal)
	if err := i.text.Truncate(0); err != nil {
		return fmt.Errorf("giving the script to the shell: %w", err)
	}
	if _, err := i.text.WriteAt([]byte(text), 0); err != nil {
		return fmt.Errorf("giving the script to the shell: %w", err)
	}
	line := strconv.Itoa(stderr)
	if i.shell.dialect == shDialect && strings.Contains(c.Text, "trap") {
		line += " trap"
	}
	line += "\n"
	if _, err := i.in.WriteString(line); err != nil && !errors.Is(err, syscall.EPIPE) { // that it is gone is seen later
		return fmt.Errorf("giving the script to the shell: %w", err)
	}
	return nil
}

// await waits for the end of the script, and ends it where it has to. It returns what the loop told, nil for nothing,
// and whether the shell has ended or is to be.
func (i *instance) await(ctx context.Context, c *bash.Script, nonce string, exit *bash.Exit) (*end, bool) {
	var expired <-chan time.Time
	if c.Timeout > 0 {
		t := time.NewTimer(c.Timeout)
		defer t.Stop()
		expired = t.C
	}
	for {
		select {
		case e := <-i.ends:
			if e, ended, ok := i.check(e, nonce); ok {
				return e, ended
			}
			continue // of an earlier call
		case <-i.shim.Exited():
			return i.last(nonce), true
		case <-ctx.Done():
			exit.Cancelled = true
		case <-c.Kill:
			exit.Cancelled = true
			if c.Terminal != nil {
				c.Terminal.Ending()
			}
			i.shim.Kill(untilGone)
			return i.last(nonce), true
		case <-expired:
			exit.TimedOut = true
		case <-c.Limit:
			exit.OutputLimit = true
		case <-c.Feedback:
			exit.Feedback = true
		}
		if c.Terminal != nil {
			c.Terminal.Ending()
		}
		return i.stop(c, nonce), true
	}
}

// check takes what the loop told for the end of the call, if it is.
func (i *instance) check(e end, nonce string) (*end, bool, bool) {
	if e.call != i.calls || e.nonce != nonce {
		return nil, false, false
	}
	if e.exited {
		<-i.shim.Exited() // its traps are run, and it goes
	}
	return &e, e.exited, true
}

// stop asks, tells, and kills.
func (i *instance) stop(c *bash.Script, nonce string) *end {
	var told *end
	for _, rung := range []struct {
		sig  syscall.Signal
		wait time.Duration
	}{{syscall.SIGINT, untilTerm}, {syscall.SIGTERM, untilKill}} {
		i.shim.Signal(rung.sig)
		t := time.NewTimer(rung.wait)
		select {
		case <-i.shim.Exited():
			t.Stop()
			return i.last(nonce)
		case e := <-i.ends:
			t.Stop()
			if e.call == i.calls && e.nonce == nonce {
				told = &e
				i.shim.Kill(untilGone)
				return told
			}
		case <-c.Kill:
			t.Stop()
			i.shim.Kill(untilGone)
			return i.last(nonce)
		case <-t.C:
		}
	}
	i.shim.Kill(untilGone)
	return i.last(nonce)
}

// last is what the loop told before the shell ended, nil for nothing.
func (i *instance) last(nonce string) *end {
	i.control.LockedSweep()
	for {
		select {
		case e := <-i.ends:
			if e.call == i.calls && e.nonce == nonce {
				return &e
			}
		default:
			return nil
		}
	}
}

// ended says how the shell went.
func (i *instance) ended(exit *bash.Exit, e *end) {
	select {
	case <-i.shim.Exited():
		exit.SetStatus(i.shim.Status().Wait)
	default:
		if e != nil {
			exit.SetStatus(syscall.WaitStatus(e.status << 8))
		}
	}
	if i.shell.opts.Once || i.terminal && e != nil {
		return
	}
	if e != nil {
		found := "directory, variables, functions, aliases and options in a new shell"
		if i.shell.dialect == shDialect {
			found = "directory, variables, aliases and options in a new shell, and no functions: sh can not tell of them"
		}
		exit.Notes = append(exit.Notes, "The shell ended with this script; the next one finds the same "+found)
		return
	}
	exit.Notes = append(exit.Notes, "The shell ended with this script, and what that changed in it is not known; the next script finds a new shell with what there was before this one")
}

// hangUp ends a shell that has a terminal, and takes the last that was written to that.
func (i *instance) hangUp() {
	i.in.Close()
	t := time.NewTimer(untilKill)
	defer t.Stop()
	select {
	case <-i.shim.Done():
	case <-t.C:
		i.shim.Kill(untilGone)
	}
	t.Reset(untilKill)
	select {
	case <-i.out.Ended(): // nobody has the terminal any more, and all was read
	case <-t.C:
	}
}

// close ends the shell and everything below it, and returns how many processes it had left running.
func (i *instance) close() int {
	i.in.Close() // the loop ends, and the traps of the shell run
	t := time.NewTimer(untilKill)
	select {
	case <-i.shim.Done():
	case <-t.C:
		i.shim.Kill(untilGone)
	}
	t.Stop()
	i.release()
	select {
	case <-i.shim.Done():
		return i.shim.Left()
	default:
		return 0 // it does not die: nobody is waited for
	}
}

func (i *instance) release() {
	for _, f := range []*os.File{i.told, i.in, i.text} {
		if f != nil {
			f.Close()
		}
	}
	for _, r := range []*pipe.Reader{i.control, i.out, i.err} {
		if r != nil {
			r.Close()
		}
	}
}

// listen reads what the loop tells: "CALL NONCE end|exit STATUS" and, behind it, the two lines of times(1).
func (i *instance) listen(b []byte) {
	i.remainder = append(i.remainder, b...)
	for {
		lines := strings.SplitAfterN(string(i.remainder), "\n", 3)
		if len(lines) < 3 {
			return
		}
		i.remainder = []byte(lines[2])
		f := strings.Fields(lines[0] + lines[1])
		if len(f) < 8 {
			continue
		}
		e := end{nonce: f[1], exited: f[2] == "exit"}
		var errs [2]error
		e.call, errs[0] = strconv.Atoi(f[0])
		e.status, errs[1] = strconv.Atoi(f[3])
		if errors.Join(errs[:]...) != nil {
			continue
		}
		e.used = times{shellTime(f[4]) + shellTime(f[6]), shellTime(f[5]) + shellTime(f[7])}
		select {
		case i.ends <- e:
		default: // nobody asked for so many
		}
	}
}

// shellTime reads 1m2.345s, as times(1) of shells writes it, with the decimal sign of any language.
func shellTime(s string) time.Duration {
	d, _ := time.ParseDuration(strings.ReplaceAll(s, ",", "."))
	return d
}

// deliver passes on what came. The caller holds mu.
func (i *instance) deliver(b []byte, stderr bool) {
	if i.call == nil {
		i.held.Add(stderr, b)
		return
	}
	w := i.call.Stdout
	if stderr {
		w = i.call.Stderr
	}
	if w == nil || i.werr != nil {
		return
	}
	if _, err := w.Write(b); err != nil {
		i.werr = fmt.Errorf("passing on the output of the script: %w", err)
	}
}

func newNonce() (string, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("making a number: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}
