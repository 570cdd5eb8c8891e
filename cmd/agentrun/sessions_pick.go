package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/agentrun/agentrun/cmd/agentrun/internal/picker"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/search"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// picks reports whether sessions without a verb opens the list to pick from: somebody
// sits there, and asked for nothing that only a listing gives.
func (l *sessionsList) picks() bool {
	return !l.json && !l.quiet && !l.trash && !l.adopt && l.session == "" && os.Getenv("TERM") != "dumb" &&
		isTerminal(l.stdout) && l.stdin != nil && isTerminal(l.stdin)
}

// pick shows the list, and tells how to go on with the session that is chosen.
func (l *sessionsList) pick(ctx context.Context) error {
	item, how, err := l.fromList(ctx, l.stdin, l.stdout.(*os.File))
	if err != nil {
		return err
	}
	switch how {
	case picker.Choose:
		return l.resume(ctx, item.Path, false)
	case picker.Tree:
		return l.drawTree(ctx, item.Path, false)
	}
	return nil
}

// pickID shows the list on the terminal of the process, whatever its streams are, and
// prints the id of the session that is chosen, or its path where it has none.
func (l *sessionsList) pickID(ctx context.Context) error {
	if l.json || l.trash || l.adopt || l.session != "" {
		return usagef("--pick asks for a session: leave out --json, --trash, --adopt and --session")
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("there is no terminal to pick a session at: agentrun sessions list needs none: %w", err)
	}
	defer tty.Close()
	item, how, err := l.fromList(ctx, tty, tty)
	if err != nil {
		return err
	}
	switch how {
	case picker.Choose:
		_, err := fmt.Fprintln(l.stdout, cmp.Or(item.ID, item.Path))
		return err
	case picker.Tree: // it is looked at, and nothing is chosen
		e := *l.environment
		e.stdout = tty
		if err := e.drawTree(ctx, item.Path, false); err != nil {
			return err
		}
	}
	return &commandError{status: 1}
}

// fromList shows the list.
func (l *sessionsList) fromList(ctx context.Context, in, out *os.File) (picker.Item, picker.Verb, error) {
	m, err := l.manager()
	if err != nil {
		return picker.Item{}, picker.Quit, err
	}
	l.guard.Recount() // it may free space
	cwd, err := workingDirectory()
	if err != nil {
		return picker.Item{}, picker.Quit, err
	}
	stderr, held := l.stderr, &heldBack{}
	l.stderr = held // remarks would be written over the list
	home, _ := os.UserHomeDir()
	item, how, err := picker.Run(ctx, in, out, sessionSource{l.environment, m, cwd}, picker.Options{
		All: l.all, Plain: !coloured(out), Home: home,
	})
	l.stderr = stderr
	if werr := held.release(stderr); err == nil {
		err = werr
	}
	if s := (*picker.SignalError)(nil); errors.As(err, &s) {
		err = &commandError{status: statusSignal + int(s.Signal)}
	}
	return item, how, err
}

// heldBack keeps what is said while the list is on the screen.
type heldBack struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heldBack) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

func (h *heldBack) release(w io.Writer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.text.WriteTo(w)
	return err
}

// sessionSource gives the sessions of a home to the list.
type sessionSource struct {
	env *environment
	m   *session.Manager
	cwd string
}

func (s sessionSource) List(ctx context.Context, all bool) ([]picker.Item, error) {
	cwd := s.cwd
	if all {
		cwd = ""
	}
	found, err := s.m.List(ctx, cwd)
	if err != nil {
		return nil, err
	}
	items := make([]picker.Item, 0, len(found.Sessions))
	for _, i := range found.Sessions {
		items = append(items, picker.Item{ID: i.ID, Path: i.Path, Title: i.Title, Words: i.FirstPrompt, Fork: i.Parent != "", CWD: i.CWD, Modified: i.Modified, Size: i.Size})
	}
	return items, nil
}

// Beginning and end of a log that are looked at. An entry that does not fit is not
// shown: a list is no place to wait for a log of 1 GB.
const (
	firstBytes = 64 << 10
	lastBytes  = 256 << 10
)

func (s sessionSource) Words(ctx context.Context, path string) (string, error) {
	log, err := s.m.OpenLog(path)
	if err != nil {
		return "", err
	}
	defer log.Close()
	text := ""
	at, _ := log.Begin()
	err = log.Lines(ctx, at, at+firstBytes, func(line []byte, at int64) bool {
		for _, e := range session.LineEntries(line, at, 0) {
			if text != "" || e.Role() != "user" && e.Role() != entry.RoleBashExecution && e.Role() != entry.RolePythonExecution {
				continue
			}
			text = firstWords(words(e), 200)
		}
		return text == ""
	})
	return text, err
}

// Preview reads the end of the log, of whatever branch it is.
func (s sessionSource) Preview(ctx context.Context, path string) ([]picker.Message, error) {
	log, err := s.m.OpenLog(path)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	from, _ := log.Begin()
	if tail := log.Size() - lastBytes; tail > from {
		buf := make([]byte, lastBytes)
		n, err := log.ReadAt(buf, tail)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading the end of %s: %w", path, err)
		}
		first := bytes.IndexByte(buf[:n], '\n')
		if first < 0 {
			return nil, nil
		}
		from = tail + int64(first) + 1
	}
	var messages []picker.Message
	err = log.Lines(ctx, from, log.Size(), func(line []byte, at int64) bool {
		for _, e := range session.LineEntries(line, at, 0) {
			if text := words(e); e.Role() != "" && text != "" {
				messages = append(messages, picker.Message{Role: e.Role(), Text: firstWords(text, 1000)})
			}
		}
		return true
	})
	return messages, err
}

func (s sessionSource) Rename(ctx context.Context, i picker.Item, title string) (err error) {
	opened, err := s.m.Open(ctx, i.Path)
	if err != nil {
		return err
	}
	defer func() { err = closeSession(opened, err) }()
	if err := s.env.redactIn(opened); err != nil {
		return err
	}
	return opened.Rename(ctx, title, session.TitleUser)
}

func (s sessionSource) Trash(ctx context.Context, i picker.Item) (string, error) {
	if err := refuseRunning(ctx, s.m, i.Path); err != nil {
		return "", err
	}
	gone, err := s.m.Trash(ctx, i.Path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("in the trash; agentrun sessions restore %s gives it back", gone.ID), nil
}

func (s sessionSource) Fork(ctx context.Context, i picker.Item) (path, said string, err error) {
	forked, err := s.m.Fork(ctx, i.Path, session.ForkOptions{})
	if err != nil {
		return "", "", err
	}
	return forked.Path, fmt.Sprintf("forked as %s; %s", forked.ID, artifactsOf(forked.Artifacts)), nil
}

func (s sessionSource) Compress(ctx context.Context, i picker.Item) (path, said string, err error) {
	if err := s.m.Compress(ctx, i.Path); err != nil {
		return "", "", err
	}
	now, err := s.m.Find(ctx, i.Path)
	if err != nil {
		return "", "", err
	}
	return now.Path, fmt.Sprintf("compressed: %s, before %s", outputsink.FormatBytes(now.Size), outputsink.FormatBytes(i.Size)), nil
}

// Export is the command export, which says what it made.
func (s sessionSource) Export(ctx context.Context, i picker.Item, file string) (string, error) {
	env := *s.env
	var said bytes.Buffer
	env.stdout, env.stderr = io.Discard, &said
	x := sessionExport{environment: &env}
	x.out.name = file
	if err := x.run(ctx, i.Path); err != nil {
		return "", err
	}
	return strings.ReplaceAll(strings.TrimSpace(said.String()), "agentrun: ", ""), nil
}

// Search asks the index. Without one it would read everything.
func (s sessionSource) Search(ctx context.Context, words []string) ([]string, error) {
	x := search.New(s.m, search.Options{})
	if !x.Indexed() {
		return nil, nil
	}
	var ids []string
	seen := map[string]bool{}
	_, err := x.Search(ctx, search.Query{Words: words, Limit: maxFound}, func(h search.Hit) bool {
		if !seen[h.Session] {
			seen[h.Session] = true
			ids = append(ids, h.Session)
		}
		return ctx.Err() == nil
	})
	return ids, err
}

// maxFound is how many hits of a search the filter takes.
const maxFound = 2000
