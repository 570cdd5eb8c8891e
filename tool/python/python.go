// Package python runs Python code for an agent, cell after cell in one interpreter, as a notebook does.
//
// A [Kernel] is a process of plain python3 that runs the cells; variables, imports and the working directory that one
// cell leaves are those that the next one finds. [Run] runs a cell with its output bounded, kept and recorded, as
// bash.Run does for scripts, and [Tool] offers that to a model.
//
// A program that uses this package calls shell.Main of tool/shell first in its main: a kernel runs below another
// process of that program, which owns everything that the kernel starts.
//
// # Cells
//
// The value of a last expression is shown, unless a semicolon follows it or it is None; it is _ in the next cell.
// await stands anywhere; tasks go on between cells, but not while a cell without await runs. display(value, ...) shows
// more values. What is shown is text (the repr, Markdown, JSON, the words of HTML), and PNG and JPEG pictures: figures of
// matplotlib that are open at the end of a cell or that plt.show shows, and values with _repr_png_ or _repr_jpeg_, as those
// of PIL have. An exception is the end of its cell, with a traceback from the cell on, and exit code 1; sys.exit ends the cell
// with its code and leaves the kernel. input() raises EOFError at once.
//
// Code in a cell asks its owner with agentrun.read(url), agentrun.bash(script), agentrun.artifact(name, data) and
// agentrun.task(...), over a socket of its own ([Host]), with what the caller of the cell may do, while a cell runs.
//
// # Promises
//
//   - The end of a cell, pictures and requests go over two sockets, which are moved to high numbers, are not inherited
//     by what a cell starts, and carry frames with a key of 128 bits that is made for each kernel. Output is never taken for them. Code that
//     writes to them, or closes them, ends the kernel, and that is said. Not possible is to keep code from the key, which is
//     in the memory of its own process: code that looks for it there can say about its own cell what it likes, as it can with
//     its output, and nothing more.
//   - Output belongs to the cell that started who writes it. Every cell has a pipe of its own, or two: what a cell's processes
//     write goes to its pipe, and what a thread or a task of it prints too, whichever cell runs by then. What comes behind
//     the end of its cell is shown with the next one, with its number, the last 64 KiB of it. (A thread that
//     Python did not start writes for the cell that runs, and so do os.write(1, ...) and C code in threads.)
//   - A timeout or a cancelled context sends SIGINT to all that the kernel started, 2 s later SIGTERM, 2 s later SIGKILL.
//     A cell that ends by KeyboardInterrupt leaves the kernel as it is.
//   - A kernel that ends, whyever, is told, a cell is never run twice, and the next cell has a new kernel, which is told too.
//   - The result does not wait for what a cell left running; that goes on while the kernel lives. When the Kernel is
//     closed, or this process dies, nothing that it started is left.
//
// # Concurrency
//
// A Kernel may be used by any number of goroutines, and runs one cell at a time. One that comes meanwhile has a kernel of its
// own, without what cells defined, and its result says so.
//
// The package needs Linux, and Python 3.8 or later.
package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/tool/bash"
)

// Cell is what a Runner runs: Text is the code.
type Cell struct {
	bash.Script
	// Host answers what the code asks for; nil refuses.
	Host Host
}

// MaxCode is how long the code of a cell may be, in bytes.
const MaxCode = 8 << 20

// CheckCode returns an error that says so if no kernel can be given the code.
func CheckCode(code string) error {
	switch {
	case len(code) > MaxCode:
		return fmt.Errorf("the code has %s, and %s are the most: put data into a file", quantity.Bytes(int64(len(code))), quantity.Size(MaxCode))
	case strings.IndexByte(code, 0) >= 0:
		return errors.New("the code has a NUL byte, which Python does not read: leave it out")
	case !utf8.ValidString(code):
		return errors.New("the code is no UTF-8, which Python reads: write other bytes as escapes, such as b'\\xff'")
	}
	return nil
}

// Outcome is what a cell left beside its output.
type Outcome struct {
	// Result is the text of the last expression, nil where there is none. One of more than 51,200 characters is cut,
	// and says so; the output has all of it.
	Result *string `json:"result"`
	// Displays are what was shown, in order, but for plain text.
	Displays []Display `json:"displays,omitempty"`
	// Lost is why the kernel is gone, nil when it is not.
	Lost *string `json:"lost,omitempty"`
}

// Display is something that a cell showed.
type Display struct {
	MIMEType string `json:"mimeType"`       // image/png, image/jpeg, text/html, text/markdown or application/json
	Data     []byte `json:"data,omitempty"` // of an image, and the UTF-8 of a text
}

// Image reports whether d is a picture.
func (d Display) Image() bool { return d.MIMEType == "image/png" || d.MIMEType == "image/jpeg" }

// MaxDisplays bounds what the Displays of one cell have, in bytes; what is more is left out, and the result says so.
const MaxDisplays = 64 << 20

// Runner runs cells. *Kernel is one.
type Runner interface {
	// RunCell runs a cell. How it ended is in the Exit, and the error is about the Runner.
	RunCell(ctx context.Context, c *Cell) (bash.Exit, Outcome, error)
}

// ErrClosed is returned by runs in a kernel that was closed.
var ErrClosed = errors.New("the kernel is closed")

// Options say which kernel to keep. The zero value is the Python of the working directory's virtual environment, else
// of VIRTUAL_ENV, else of the PATH.
type Options struct {
	Path string   // of the interpreter, or its name in the PATH; "" is as said above
	Dir  string   // where the kernel starts; "" is the working directory of this process
	Env  []string // additions to the environment of this process, KEY=VALUE
	// Environ takes the place of the environment of this process; nil is that.
	Environ []string
	// Sandbox is what the kernel, and everything that it starts, may do for its life; nil is everything. Its private files
	// outlive an end of the kernel's process. What code asks its Host for is done outside.
	Sandbox *sandbox.Policy
	// Single says that no second cell follows, so that nothing is told about what such a one finds.
	Single bool
}

// Kernel is one kernel. Use [New].
type Kernel struct {
	opts Options
	box  *sandbox.Box // nil without a sandbox

	turn chan struct{} // holds one token while no cell runs

	mu     sync.Mutex // guards what is below; held for moments only
	closed bool
	others sync.WaitGroup // cells that run

	// Owned by who has the turn.
	live  *instance
	lost  bool // the kernel before has ended with what was in it
	cells int  // that were run
}

var _ Runner = (*Kernel)(nil)

// New returns a kernel. Its process is started by the first cell.
func New(o Options) (*Kernel, error) {
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("finding the working directory: %w", err)
	}
	k := &Kernel{opts: o, turn: make(chan struct{}, 1)}
	if !o.Sandbox.IsZero() {
		if k.box, err = sandbox.New(*o.Sandbox); err != nil {
			return nil, fmt.Errorf("starting a kernel: %w", err)
		}
	}
	k.turn <- struct{}{}
	return k, nil
}

// RunCell implements [Runner].
func (k *Kernel) RunCell(ctx context.Context, c *Cell) (bash.Exit, Outcome, error) {
	if err := CheckCode(c.Text); err != nil {
		return bash.Exit{}, Outcome{}, fmt.Errorf("running a cell: %w", err)
	}
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return bash.Exit{}, Outcome{}, ErrClosed
	}
	k.others.Add(1)
	k.mu.Unlock()
	defer k.others.Done()
	select {
	case <-k.turn:
	default:
		return k.aside(ctx, c)
	}
	defer func() { k.turn <- struct{}{} }()
	return k.run(ctx, c)
}

// aside runs a cell in a kernel of its own, because another one is running in k.
func (k *Kernel) aside(ctx context.Context, c *Cell) (bash.Exit, Outcome, error) {
	o := k.opts
	o.Single = true
	own, err := New(o)
	if err != nil {
		return bash.Exit{}, Outcome{}, err
	}
	defer own.Close()
	exit, outcome, err := own.run(ctx, c)
	exit.Notes = append(exit.Notes, "Another cell was running in the kernel: this one had a kernel of its own, without what cells defined there, and what it defined is not carried over")
	return exit, outcome, err
}

// run runs a cell in the kernel that lives, or in a new one.
func (k *Kernel) run(ctx context.Context, c *Cell) (bash.Exit, Outcome, error) {
	if c.Dir != "" {
		if err := bash.CheckDirectory(c.Dir); err != nil {
			return bash.Exit{Code: bash.CodeFailure}, Outcome{}, err
		}
	}
	if k.live != nil && k.live.gone() { // it ended between two cells
		k.live.close()
		k.live, k.lost = nil, true
	}
	var notes []string
	if k.live == nil {
		began := time.Now()
		live, err := k.start(ctx, c.Kill)
		if err != nil {
			exit := bash.Exit{Code: bash.CodeFailure, Began: began, Duration: time.Since(began)}
			if exit.Cancelled = ctx.Err() != nil || closed(c.Kill); exit.Cancelled {
				exit.Notes = append(exit.Notes, "The cell was not started")
				return exit, Outcome{}, nil
			}
			return exit, Outcome{}, err
		}
		k.live = live
		if k.lost {
			notes = append(notes, "This cell ran in a new kernel: the one before has ended, and what cells had defined there is gone")
		}
		k.lost = false
	}
	k.cells++
	exit, outcome, ended, err := k.live.run(ctx, c, k.cells)
	if k.box != nil {
		exit.Limits = k.box.Settle(syscall.WaitStatus(exit.Code << 8))
	}
	exit.Notes = append(notes, exit.Notes...)
	if ended {
		k.live.close()
		k.live, k.lost = nil, true
	}
	return exit, outcome, err
}

// Directory is where the kernel is; "" where that is not known, or a cell runs. It is asked by [bash.Run].
func (k *Kernel) Directory() string {
	select {
	case <-k.turn:
		defer func() { k.turn <- struct{}{} }()
	default:
		return ""
	}
	if k.live == nil || k.live.gone() {
		return ""
	}
	dir, err := os.Readlink("/proc/" + strconv.Itoa(k.live.shim.PID()) + "/cwd")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(dir, " (deleted)")
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Close ends the kernel and everything that it started, behind the cells that are running.
func (k *Kernel) Close() error {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil
	}
	k.closed = true
	k.mu.Unlock()
	k.others.Wait()
	if k.live != nil {
		k.live.close()
		k.live = nil
	}
	if k.box != nil {
		k.box.Close()
	}
	return nil
}
