// Package chat is the interactive form of a run: a person writes prompts and answers questions, and sees what the agents
// of a session do.
//
// The picture is a function of a model, which events, keys and answers of a [Backend] change; [Run] puts it on a terminal.
// The model listens to the events of the agents. It has no other part in a run than a person has: prompts, words said
// meanwhile, answers to questions, and a cancel.
package chat

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/agentrun/agentrun/agent"
)

// Backend is what the person works with. Its methods are called from several goroutines, Run and Resume one at a time.
type Backend interface {
	// Run gives the agent a prompt, Resume has it go on; both return at the end of the run.
	Run(ctx context.Context, p Prompt) (agent.Outcome, error)
	Resume(ctx context.Context) (agent.Outcome, error)
	// Say says something to the agent at work.
	Say(ctx context.Context, text string) error
	// Past is the conversation so far.
	Past(ctx context.Context) ([]Item, error)
	// Entries are the entries of the session that a person goes back to, as a tree.
	Entries(ctx context.Context) ([]Entry, error)
	// Jump has the session go on from an entry.
	Jump(ctx context.Context, id string) error
	// Mode has what is prompted from now on worked on in the mode of that name, and says so; "" only tells which one it is.
	Mode(ctx context.Context, name string) (string, error)
	Artifacts(ctx context.Context) ([]Artifact, error)
	// Pager is a command that shows an artifact at the terminal.
	Pager(ctx context.Context, a Artifact) (*exec.Cmd, error)
	// Image reads a picture from a file. Clipboard reads one from the clipboard of the desktop. ErrNoImage is for what is none.
	Image(ctx context.Context, path string) (Image, error)
	Clipboard(ctx context.Context) (Image, error)
	// Remember keeps a prompt for other chats.
	Remember(prompt string) error
}

// ErrNoImage says that there is no picture.
var ErrNoImage = errors.New("that is no picture")

type (
	// Prompt is what a person gives the agent to do.
	Prompt struct {
		Text   string
		Images []Image
	}

	// Image is a picture for the agent.
	Image struct {
		Name     string
		MIMEType string
		Data     []byte
	}

	// Entry is a place in the session.
	Entry struct {
		ID     string
		Lead   string // the lines of the tree before it
		Text   string
		Active bool // on the way to the leaf
		Leaf   bool
	}

	// Artifact is output that was kept, or a report.
	Artifact struct {
		URL, Tool, Size string
		Path            string
	}
)

// Options say how a chat begins.
type Options struct {
	Session  string   // its id, short
	Model    string   // its name
	History  []string // of prompts, the last one last
	Commands []string // the names of slash commands from files
	Coloured bool
	Notes    []string // what is to be said first
}

// End is how a chat ended.
type End int

// Ends of a chat.
const (
	Quit     End = iota
	Sessions     // the person wants another session
)

// Front is the chat as the agents know it. It never waits for the terminal. It is safe for concurrent use.
type Front struct {
	mu      sync.Mutex
	waiting []tea.Msg
	more    chan struct{} // has one element when something waits
}

type (
	eventMsg struct {
		id    string
		event agent.Event
		at    time.Time
	}
	askMsg struct {
		question agent.Question
		ctx      context.Context
		answer   chan<- bool
	}
	remarkMsg string
	batchMsg  []tea.Msg
)

func newFront() *Front { return &Front{more: make(chan struct{}, 1)} }

func (f *Front) send(m tea.Msg) {
	f.mu.Lock()
	f.waiting = append(f.waiting, m)
	f.mu.Unlock()
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// Observe takes an event of an agent.
func (f *Front) Observe(id string, e agent.Event) { f.send(eventMsg{id, e, time.Now()}) }

// Ask asks the person whether a call may be made.
func (f *Front) Ask(ctx context.Context, q agent.Question) (bool, error) {
	answer := make(chan bool, 1)
	f.send(askMsg{q, ctx, answer})
	select {
	case yes := <-answer:
		return yes, nil
	case <-ctx.Done():
		f.send(withdrawnMsg{})
		return false, context.Cause(ctx)
	}
}

// withdrawnMsg says that somebody does not wait for an answer any more.
type withdrawnMsg struct{}

// Write takes remarks of the program.
func (f *Front) Write(p []byte) (int, error) {
	f.send(remarkMsg(p))
	return len(p), nil
}

// forward hands what waits to the program, many at once.
func (f *Front) forward(ctx context.Context, p *tea.Program) {
	for {
		select {
		case <-f.more:
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		batch := f.waiting
		f.waiting = nil
		f.mu.Unlock()
		p.Send(batchMsg(batch))
	}
}

// SignalError is how a chat ended that a signal has ended.
type SignalError syscall.Signal

func (e SignalError) Error() string {
	return "the chat was ended by a signal: " + syscall.Signal(e).String()
}

// Run shows a chat at a terminal until the person, or with a SignalError a signal, ends it. attach is given the front before anything else happens. A run that
// is under way then is cancelled, and has ended when Run returns.
func Run(ctx context.Context, in, out *os.File, b Backend, o Options, attach func(*Front)) (End, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	front := newFront()
	attach(front)
	m := newModel(ctx, b, o)
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithFPS(120), tea.WithoutSignalHandler())
	caught := make(chan os.Signal, 4)
	signal.Notify(caught, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	var ended os.Signal
	var others sync.WaitGroup
	others.Go(func() { front.forward(ctx, p) })
	others.Go(func() {
		select {
		case ended = <-caught:
			p.Quit()
		case <-ctx.Done():
		}
	})
	_, err := p.Run()
	signal.Stop(caught)
	cancel()
	m.work.Wait() // the run's last entries are in the log
	others.Wait()
	if sig, ok := ended.(syscall.Signal); ok && !errors.Is(err, tea.ErrProgramPanic) {
		return m.end, SignalError(sig)
	}
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil && !errors.Is(err, tea.ErrProgramPanic) {
		err = nil
	}
	return m.end, err
}
