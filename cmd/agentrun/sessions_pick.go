package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/agentrun/agentrun/cmd/agentrun/internal/picker"
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
	m, err := l.manager()
	if err != nil {
		return err
	}
	l.guard.Recount() // it may free space
	cwd, err := workingDirectory()
	if err != nil {
		return err
	}
	stderr, held := l.stderr, &heldBack{}
	l.stderr = held // remarks would be written over the list
	home, _ := os.UserHomeDir()
	item, ok, err := picker.Run(ctx, l.stdin, l.stdout.(*os.File), sessionSource{m, cwd}, picker.Options{
		All: l.all, Plain: !coloured(l.stdout), Home: home,
	})
	l.stderr = stderr
	if werr := held.release(stderr); err == nil {
		err = werr
	}
	if s := (*picker.SignalError)(nil); errors.As(err, &s) {
		return &commandError{status: statusSignal + int(s.Signal)}
	}
	if err != nil || !ok {
		return err
	}
	return l.resume(ctx, item.Path, false)
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
		items = append(items, picker.Item{ID: i.ID, Path: i.Path, Title: i.Title, CWD: i.CWD, Modified: i.Modified, Size: i.Size})
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
			if e.Role() != "user" {
				continue
			}
			if m, err := e.Message(); err == nil && text == "" {
				text = firstWords(entry.Text(m), 200)
			}
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
