// Package grep finds lines by a regular expression, in files and in what a session keeps.
//
// # Promises
//
//   - The expression is of Go's syntax (RE2) and matched with each line alone, without the
//     newline and a carriage return before it: ^ and $ are the ends of the line.
//   - Files are those that find lists: in the workspace, without what git ignores. The
//     result has them in that order, as path:line:text, and lines of context as
//     path-line-text, with -- between stretches that do not touch. Of a file that is
//     binary by its first 8 KiB one line says that it matches. UTF-16 with a byte order
//     mark is read as text.
//   - ripgrep, where it is installed, searches for expressions in which no literal tells quickly
//     that a file has nothing. The result is the same to the byte: it is given the
//     expression as it was understood here, what it reads otherwise than Go is asked
//     of Go again, and where anything is in doubt the file is searched here.
//   - Memory is bounded by the length of lines, of which 64 MiB are the most that is
//     searched in one piece, not by files or results. Of context of lines that long there may
//     be less than was asked for.
//   - The result of a call is bounded as all output is; all of it is in an artifact when it
//     is larger than the bounds.
//
// All functions are safe for concurrent use. The goroutines and processes of a search are
// gone when it returns.
package grep

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/agentrun/agentrun/tool/find"
	"github.com/agentrun/agentrun/tool/workspace"
)

// MaxContext is how many lines of context can be asked for.
const MaxContext = 1000

// Options of a search.
type Options struct {
	Pattern    string
	IgnoreCase bool
	Context    int // lines before and behind each match
	find.Options
	// JSON writes each line as an object: path, line (null for binary content), match (false
	// for context), text.
	JSON bool
	// Ripgrep is the program rg; "" looks for it, and None does without.
	Ripgrep string

	always bool // use rg for every expression, in tests
}

// None is an Options.Ripgrep.
const None = "none"

// Result tells what was found.
type Result struct {
	Matches  int64    `json:"matches"` // lines
	Files    int64    `json:"files"`   // with a match
	Searched int64    `json:"searched"`
	Problems []string `json:"problems,omitempty"` // what could not be read, one sentence each
}

// Search writes the lines that match to out.
func Search(ctx context.Context, w *workspace.Workspace, s find.Sources, o Options, out io.Writer, targets ...string) (Result, error) {
	if o.Context < 0 || o.Context > MaxContext {
		return Result{}, fmt.Errorf("%d lines of context: give 0 to %d", o.Context, MaxContext)
	}
	p, err := compile(o.Pattern, o.IgnoreCase)
	if err != nil {
		return Result{}, err
	}
	p.json = o.JSON
	l, err := find.List(ctx, w, s, o.Options, targets...)
	if err != nil {
		return Result{}, err
	}
	defer l.Close()
	run := &run{pattern: p, opts: o, ctx: ctx, res: Result{Problems: l.Problems}}
	for i := range l.Items {
		if l.Items[i].Regular() {
			run.items = append(run.items, &l.Items[i])
		} else if slices.Contains(targets, l.Items[i].Name) {
			run.res.Problems = append(run.res.Problems, l.Items[i].Name+" is no regular file: it was not searched")
		}
	}
	run.res.Searched = int64(len(run.items))
	run.all(out)
	if err := ctx.Err(); err != nil {
		return run.res, fmt.Errorf("searching: %w", err)
	}
	return run.res, run.err
}

// run is one search.
type run struct {
	*pattern
	opts  Options
	ctx   context.Context // of the one call this value lives for
	items []*find.Item

	mu  sync.Mutex // guards all below
	res Result
	err error
}

// batch is how many files one goroutine takes at once: enough to make taking them cheap.
const batch = 16

func (r *run) all(out io.Writer) {
	procs := runtime.GOMAXPROCS(0)
	rg := r.ripgrep()
	left := r.items // that nobody has taken
	next := func() []*find.Item {
		size := batch
		if rg != nil {
			size = rg.batch(len(r.items), len(left), procs)
		}
		items := left[:min(size, len(left))]
		left = left[len(items):]
		return items
	}
	o := newOrdered(out)
	taken := 0
	var take sync.Mutex
	var workers sync.WaitGroup
	for range min(procs, len(r.items)/batch+1) {
		workers.Go(func() {
			s := &searcher{pattern: r.pattern, context: r.opts.Context}
			lines := bufio.NewWriterSize(nil, 64<<10)
			for r.ctx.Err() == nil {
				take.Lock()
				items := next()
				if len(items) == 0 {
					take.Unlock()
					return
				}
				p := o.part(taken)
				taken++
				take.Unlock()
				lines.Reset(p)
				if rg != nil {
					rg.search(s, items, lines)
				} else {
					for _, item := range items {
						r.one(s, item, lines)
					}
				}
				_ = lines.Flush() // p remembers the error
				p.Close()
			}
		})
	}
	workers.Wait()
	if r.err == nil {
		r.err = o.err
	}
}

// one searches one file.
func (r *run) one(s *searcher, item *find.Item, out io.Writer) {
	if r.ctx.Err() != nil {
		return
	}
	f, err := item.Open(r.ctx)
	if err == nil {
		var n int64
		n, err = s.search(r.ctx, f, item.Name, out)
		r.note(n)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errEndless
	}
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist): // gone since it was listed
	case r.ctx.Err() == nil:
		r.problem(item.Name, err)
	}
}

var errEndless = errors.New("it has no end, and waits for more")

func (r *run) note(matches int64) {
	if matches == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.res.Matches += matches
	r.res.Files++
}

func (r *run) problem(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.res.Problems = append(r.res.Problems, fmt.Sprintf("%s cannot be read: %v", name, workspace.Bare(err)))
}
