// Package picker is the list of sessions that agentrun sessions opens at a terminal.
//
// [Model] is the list without a terminal: keys go in, lines come out. [Run] puts it on
// a terminal: it reads keys, draws on the alternate screen, and gives the terminal back
// as it was, after a signal and a panic too. What takes time runs beside it, so that
// the list answers to keys meanwhile.
package picker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Source is what the list is of. Its methods are called from several goroutines.
type Source interface {
	// List returns the sessions of the working directory, or of all, newest first.
	List(ctx context.Context, all bool) ([]Item, error)
	// Words returns the first prompt or command of a session that was listed without.
	Words(ctx context.Context, path string) (string, error)
	// Preview returns the last messages of a session, the last one last.
	Preview(ctx context.Context, path string) ([]Message, error)
	Rename(ctx context.Context, i Item, title string) error
	// Trash and Fork return a sentence about what they did; Fork the path as well.
	Trash(ctx context.Context, i Item) (said string, err error)
	Fork(ctx context.Context, i Item) (path, said string, err error)
	// Compress returns where the session is now, and a sentence.
	Compress(ctx context.Context, i Item) (path, said string, err error)
	// Export writes the session to a file of the working directory.
	Export(ctx context.Context, i Item, file string) (said string, err error)
	// Search returns the ids of the sessions in whose text the words are, nil when there
	// is no index that would tell fast.
	Search(ctx context.Context, words []string) ([]string, error)
}

// Options say how the list begins.
type Options struct {
	All   bool   // with the sessions of every directory
	Plain bool   // without colours
	Home  string // the user's directory, written ~
}

// SignalError is returned when a signal, or ctrl-c, ended the list.
type SignalError struct{ Signal syscall.Signal }

func (e *SignalError) Error() string { return "ended by " + e.Signal.String() }

const (
	// enter: the alternate screen, no cursor, and no line that goes on in the next one.
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leave = "\x1b[?7h\x1b[?25h\x1b[?1049l"

	// escapeWait is how long after ESC the rest of a key's sequence may come: more than
	// slow connections need, less than people notice.
	escapeWait = 50 * time.Millisecond
)

// Run shows the list until a session is chosen, to go on with (Choose) or to be drawn
// (Tree), or not: how is Quit then.
func Run(ctx context.Context, in, out *os.File, src Source, o Options) (chosen Item, how Verb, err error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return Item{}, Quit, fmt.Errorf("preparing the terminal: %w; agentrun sessions list needs none", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &screen{out: out, src: src, all: ctx, events: make(chan func(), 16)}
	s.model.Home, s.model.Plain, s.model.Now = o.Home, o.Plain, time.Now()
	s.model.all = o.All

	caught := make(chan os.Signal, 8)
	signal.Notify(caught, syscall.SIGWINCH, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	keys, stop, err := readKeys(in)
	if err == nil {
		_, err = out.WriteString(enter)
	}
	defer func() { // also when this panics
		cancel()
		signal.Stop(caught)
		if stop != nil {
			stop()
		}
		_, lerr := out.WriteString(leave)
		err = errors.Join(err, lerr, term.Restore(int(in.Fd()), before))
		s.drain()
	}()
	if err != nil {
		return Item{}, Quit, fmt.Errorf("preparing the terminal: %w", err)
	}
	return s.loop(keys, caught)
}

// screen is a model on a terminal.
type screen struct {
	model  Model
	out    *os.File
	src    Source
	all    context.Context // ends what only reads
	events chan func()     // what other goroutines have for the model
	work   sync.WaitGroup

	listing       int    // how many were begun
	previewOf     string // what is being read
	cancelPreview context.CancelFunc
	searched      string // the filter whose words are, or were, looked for
	cancelSearch  context.CancelFunc
}

func (s *screen) loop(keys <-chan Key, caught <-chan os.Signal) (Item, Verb, error) {
	s.resize()
	s.load()
	for {
		if err := s.draw(); err != nil {
			return Item{}, Quit, err
		}
		select {
		case k, ok := <-keys:
			if !ok {
				return Item{}, Quit, &SignalError{syscall.SIGHUP} // the terminal is gone
			}
			switch e := s.model.Press(k); e.Verb {
			case Nothing:
			case Quit:
				return Item{}, Quit, nil
			case Interrupt:
				return Item{}, Quit, &SignalError{syscall.SIGINT}
			case Choose, Tree:
				return e.Item, e.Verb, nil
			default:
				s.carryOut(e)
			}
		case sig := <-caught:
			if sig != syscall.SIGWINCH {
				return Item{}, Quit, &SignalError{sig.(syscall.Signal)}
			}
			s.resize()
		case event := <-s.events:
			event()
		}
	}
}

func (s *screen) resize() {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24 // a terminal that does not know its size
	}
	s.model.Resize(width, height)
}

func (s *screen) draw() error {
	s.wantPreview()
	s.search()
	s.model.Now = time.Now()
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range s.model.Lines() {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("\x1b[2K" + line) // erased first: behind a full line the cursor stands on its last column
	}
	b.WriteString("\x1b[J")
	_, err := s.out.WriteString(b.String())
	return err
}

// beside runs f in a goroutine; what f returns is done to the model. A panic in f is
// one of Run, which gives the terminal back.
func (s *screen) beside(f func() func()) {
	s.work.Go(func() {
		event := func() func() {
			defer func() {
				if p := recover(); p != nil {
					text := fmt.Sprintf("%v\n%s", p, debug.Stack())
					go func() { s.events <- func() { panic(text) } }()
				}
			}()
			return f()
		}()
		if event != nil {
			s.events <- event
		}
	})
}

// drain waits for what is under way: a fork is finished, what reads is not.
func (s *screen) drain() {
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	for {
		select {
		case <-s.events:
		case <-done:
			return
		}
	}
}

// load lists the sessions here, then all of them, then finds words for those without
// a title. A listing that is older than another one under way is not shown.
func (s *screen) load() {
	s.listing++
	listing, first := s.listing, !s.model.loaded
	set := func(items []Item) func() {
		return func() {
			if listing == s.listing {
				s.model.SetItems(items)
			}
		}
	}
	s.beside(func() func() {
		items, err := s.src.List(s.all, false)
		if err != nil {
			return s.failed(err)
		}
		known := map[string]bool{}
		for n := range items {
			items[n].Here, known[items[n].Path] = true, true
		}
		if first {
			s.events <- set(slices.Clone(items))
		}
		every, err := s.src.List(s.all, true)
		if err != nil {
			return s.failed(err)
		}
		for _, i := range every {
			if !known[i.Path] {
				items = append(items, i)
			}
		}
		s.events <- set(items)
		return s.words(items)
	})
}

func (s *screen) words(items []Item) func() {
	const batch = 32
	found := map[string]string{}
	send := func() {
		words := found
		found = map[string]string{}
		s.events <- func() { s.model.SetWords(words) }
	}
	for _, i := range items {
		if i.Title != "" || i.Words != "" {
			continue
		}
		if s.all.Err() != nil {
			return nil
		}
		if w, err := s.src.Words(s.all, i.Path); err == nil {
			found[i.Path] = w
		}
		if len(found) == batch {
			send()
		}
	}
	send()
	return nil
}

func (s *screen) failed(err error) func() {
	if s.all.Err() != nil {
		return nil
	}
	return func() {
		s.model.Say(err.Error())
		s.model.loaded = true
	}
}

// wantPreview has the preview read that is to be shown; one that is no longer wanted
// is given up.
func (s *screen) wantPreview() {
	path, wanted := s.model.Wanted()
	if !wanted || path == s.previewOf {
		return
	}
	if s.cancelPreview != nil {
		s.cancelPreview()
	}
	ctx, cancel := context.WithCancel(s.all)
	s.previewOf, s.cancelPreview = path, cancel
	s.beside(func() func() {
		defer cancel()
		messages, err := s.src.Preview(ctx, path)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			messages = []Message{{Role: "cannot be read", Text: err.Error()}}
		}
		return func() {
			s.model.SetPreview(path, messages)
			if s.previewOf == path {
				s.previewOf = ""
			}
		}
	})
}

// searchWait is how long a filter has to stay as it is before its words are looked for.
const searchWait = 150 * time.Millisecond

// search looks for the words of the filter in the text of the sessions. A search whose
// filter is no longer wanted is given up.
func (s *screen) search() {
	filter := s.model.Filter()
	if filter == s.searched {
		return
	}
	if s.cancelSearch != nil {
		s.cancelSearch()
	}
	ctx, cancel := context.WithCancel(s.all)
	s.searched, s.cancelSearch = filter, cancel
	words := strings.Fields(filter)
	if len(words) == 0 {
		cancel()
		return
	}
	s.beside(func() func() {
		defer cancel()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(searchWait):
		}
		ids, err := s.src.Search(ctx, words)
		if err != nil || ctx.Err() != nil {
			return nil // the filter goes by what the list shows
		}
		return func() {
			paths := map[string]bool{}
			for _, i := range s.model.items {
				if i.ID != "" && slices.Contains(ids, i.ID) {
					paths[i.Path] = true
				}
			}
			s.model.SetFound(filter, paths)
		}
	})
}

// carryOut does what a key asked for. It is not given up when the list is left.
func (s *screen) carryOut(e Effect) {
	s.model.SetBusy(true)
	s.beside(func() func() {
		ctx := context.WithoutCancel(s.all)
		var path, said string
		var err error
		switch e.Verb {
		case Rename:
			path, said, err = e.Item.Path, "renamed", s.src.Rename(ctx, e.Item, e.Title)
		case Trash:
			said, err = s.src.Trash(ctx, e.Item)
		case Fork:
			path, said, err = s.src.Fork(ctx, e.Item)
		case Compress:
			path, said, err = s.src.Compress(ctx, e.Item)
		case Export:
			path = e.Item.Path
			said, err = s.src.Export(ctx, e.Item, e.File)
		}
		return func() {
			s.model.SetBusy(false)
			if err != nil {
				s.model.Say(err.Error())
				return
			}
			s.model.Say(said)
			if path != "" {
				s.model.SelectNext(path)
			}
			s.load()
		}
	})
}

// readKeys reads keys until stop is called; the channel is closed when the terminal is
// gone. What was typed and not read is left to who comes next.
func readKeys(in *os.File) (keys <-chan Key, stop func(), err error) {
	wakeRead, wake, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	ch, done := make(chan Key), make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(ch)
		fds := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}, {Fd: int32(wakeRead.Fd()), Events: unix.POLLIN}}
		var pending []byte
		for {
			wait := -1
			if len(pending) > 0 {
				wait = int(escapeWait / time.Millisecond)
			}
			n, err := unix.Poll(fds, wait)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || fds[1].Revents != 0 {
				return
			}
			if n > 0 {
				buf := make([]byte, 256)
				n, err := unix.Read(int(in.Fd()), buf)
				if err == unix.EINTR || err == unix.EAGAIN {
					continue
				}
				if err != nil || n == 0 {
					return
				}
				pending = append(pending, buf[:n]...)
			}
			for {
				k, used := decode(pending, n == 0)
				if used == 0 {
					break
				}
				pending = pending[used:]
				select {
				case ch <- k:
				case <-done:
					return
				}
			}
		}
	})
	return ch, func() {
		close(done)
		wake.Close() // the other end reads as closed
		reader.Wait()
		wakeRead.Close()
	}, nil
}
