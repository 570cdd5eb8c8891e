package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/plan"
	"github.com/agentrun/agentrun/cmd/agentrun/internal/chat"
	"github.com/agentrun/agentrun/cmd/agentrun/internal/runview"
	"github.com/agentrun/agentrun/internal/picture"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/task"
	"github.com/agentrun/agentrun/tool"
)

// chatBackend works a session for a chat.
type chatBackend struct {
	*agentCommand
	bench    *workbench
	front    *chat.Front
	settings json.RawMessage
	models   *models

	modeTold plan.Mode // the one that the person knows of

	tools   []tool.Tool // of the agent of the session, from its first run on
	release func()
}

// notes are what is said of a session when a chat begins.
func (c *chatBackend) notes(ctx context.Context) []string {
	s := c.bench.session
	if !s.Exists() {
		return nil
	}
	if driven, err := s.Driven(); err == nil && driven {
		return []string{"another agentrun works in this session: what is sent here fails until it has ended"}
	}
	standing, err := agent.StandingOf(ctx, s, agent.MainID)
	if err != nil || standing.Run == "" || standing.Status == agent.Completed {
		return nil
	}
	return []string{fmt.Sprintf("the last run of the session %s: /resume goes on with it", howEnded[standing.Status])}
}

// Run implements chat.Backend, here and below.
func (c *chatBackend) Run(ctx context.Context, p chat.Prompt) (agent.Outcome, error) {
	if err := c.interrupted(ctx, c.bench.session); err != nil {
		return agent.Outcome{}, err
	}
	said, err := c.said(c.bench, &p.Text)
	if err != nil {
		return agent.Outcome{}, err
	}
	content := entry.PlainText(said)
	if len(p.Images) > 0 {
		var blocks []entry.Block
		if strings.TrimSpace(said) != "" {
			blocks = append(blocks, entry.TextBlock{Text: said})
		}
		for _, i := range p.Images {
			blocks = append(blocks, entry.ImageBlock{MIMEType: i.MIMEType, Data: base64.StdEncoding.EncodeToString(i.Data)})
		}
		content = entry.Blocks(blocks...)
	}
	return c.drive(ctx, func(w *work, with []entry.Body) (agent.Outcome, error) {
		return w.agent.Run(ctx, content, w.mention(ctx, c.bench, &p.Text, with)...)
	})
}

// Resume goes on with the last run.
func (c *chatBackend) Resume(ctx context.Context) (agent.Outcome, error) {
	return c.drive(ctx, func(w *work, _ []entry.Body) (agent.Outcome, error) { return w.agent.Resume(ctx) })
}

// drive has the agent work, and go on as long as something was said to it that it has not heard.
func (c *chatBackend) drive(ctx context.Context, do func(*work, []entry.Body) (agent.Outcome, error)) (out agent.Outcome, err error) {
	with, err := c.enterMode(ctx, c.bench, nil)
	if err != nil {
		return out, err
	}
	if c.mode != "" {
		c.modeTold = plan.Mode(c.mode)
	}
	c.mode = "" // it is entered once; the session knows it then
	w, err := c.prepare(ctx, c.bench, c.models, c.settings)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, w.release()) }()
	defer func() {
		if out.Status != "" && w.view.spent().Requests > 0 {
			c.remark("%s", endLine(out, w.view.spent(), w.view.unpriced))
		}
	}()
	for out, err = do(w, with); err == nil && out.Status == agent.Completed; out, err = w.agent.Resume(ctx) {
		standing, serr := agent.StandingOf(ctx, c.bench.session, agent.MainID)
		if serr != nil || standing.Said == 0 {
			return out, serr
		}
	}
	return out, err
}

// Say says something to the agent at work.
func (c *chatBackend) Say(ctx context.Context, text string) error {
	_, err := agent.Say(ctx, c.bench.session, agent.Said{Text: text})
	return err
}

// Mode has the next prompts worked on in a mode.
func (c *chatBackend) Mode(ctx context.Context, name string) (string, error) {
	if name == "" && !c.bench.session.Exists() {
		name = cmp.Or(c.mode, string(plan.Agent))
	}
	if name == "" {
		board, err := plan.Open(ctx, c.bench.session)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("the mode is %s; /mode agent, ask, plan or debug changes it", cmp.Or(plan.Mode(c.mode), board.Mode())), nil
	}
	mode, err := plan.ParseMode(name)
	if err != nil {
		return "", err
	}
	c.mode = string(mode)
	return fmt.Sprintf("the mode is %s from the next prompt on", mode), nil
}

// Past is the conversation at the leaf.
func (c *chatBackend) Past(ctx context.Context) ([]chat.Item, error) {
	s := c.bench.session
	if !s.Exists() {
		return nil, nil
	}
	conversation, err := s.Context(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the conversation: %w", err)
	}
	var items []chat.Item
	subjects := map[string]string{}
	for _, m := range conversation.Messages {
		message, err := m.Message()
		if err != nil {
			continue // what cannot be read is not sent either
		}
		switch m := message.(type) {
		case entry.UserMessage:
			text := m.Content.Text()
			for _, b := range m.Content.Blocks() {
				if _, ok := b.(entry.ImageBlock); ok {
					text += "\n[picture]"
				}
			}
			items = append(items, chat.Item{Kind: chat.Said, Text: strings.TrimSpace(text)})
		case entry.AssistantMessage:
			if text := m.Content.Text(); strings.TrimSpace(text) != "" {
				items = append(items, chat.Item{Kind: chat.Answer, Text: text})
			}
			for _, call := range m.Content.ToolCalls() {
				subjects[call.ID] = runview.Subject(call.Arguments)
			}
		case entry.ToolResultMessage:
			done := agent.CallFinished{Tool: m.ToolName, Result: tool.Result{IsError: m.IsError}}
			items = append(items, chat.Item{Kind: chat.Call, Row: runview.PastRow(subjects[m.ToolCallID], done)})
		case entry.CompactionSummaryMessage, entry.BranchSummaryMessage:
			items = append(items, chat.Item{Kind: chat.Remark, Text: "what was before is summed up for the agent; agentrun sessions show has it whole"})
		}
	}
	return items, nil
}

// Entries are the messages of the session, as a tree.
func (c *chatBackend) Entries(ctx context.Context) ([]chat.Entry, error) {
	s := c.bench.session
	if !s.Exists() {
		return nil, nil
	}
	tree, err := s.Tree(ctx)
	if err != nil {
		return nil, err
	}
	children, roots := tree.Children()
	active := map[int]bool{}
	for _, i := range tree.Path(tree.Leaf()) {
		active[i] = true
	}
	var all []chat.Entry
	type branch struct {
		entry       int
		lead, below string
	}
	var stack []branch
	push := func(entries []int, lead string) {
		for i, at := range slices.Backward(entries) {
			b := branch{at, lead + "├─ ", lead + "│  "}
			switch {
			case len(entries) == 1:
				b.lead, b.below = lead, lead
			case i == len(entries)-1:
				b.lead, b.below = lead+"└─ ", lead+"   "
			}
			if len(lead) > maxIndent {
				b.below = lead
			}
			stack = append(stack, b)
		}
	}
	leaf := -1
	for push(roots, ""); len(stack) > 0; {
		b := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e, err := tree.Entry(b.entry)
		if err != nil {
			return nil, err
		}
		if e.Type() == entry.TypeMessage {
			if active[b.entry] {
				leaf = len(all)
			}
			all = append(all, chat.Entry{ID: e.ID(), Lead: b.lead, Text: cmp.Or(e.Role(), e.Type()) + ": " + firstWords(words(e), 200), Active: active[b.entry]})
			b.lead = b.below
		}
		if n := len(children[b.entry]); n == 1 {
			stack = append(stack, branch{children[b.entry][0], b.lead, b.below})
		} else {
			push(children[b.entry], b.below)
		}
	}
	if leaf >= 0 {
		all[leaf].Leaf = true
	}
	return all, nil
}

// Jump moves the leaf.
func (c *chatBackend) Jump(ctx context.Context, id string) error {
	_, err := c.bench.session.Branch(ctx, id, session.BranchOptions{})
	return err
}

// Artifacts are the numbered ones and the reports.
func (c *chatBackend) Artifacts(ctx context.Context) ([]chat.Artifact, error) {
	dir := c.artifacts(c.bench.session)
	if dir == nil || !c.bench.session.Exists() {
		return nil, nil
	}
	list, err := dir.List(ctx)
	if err != nil {
		return nil, err
	}
	var all []chat.Artifact
	for _, i := range list {
		all = append(all, chat.Artifact{URL: i.URL(), Tool: i.Tool, Size: outputsink.FormatBytes(i.Bytes), Path: i.Path})
	}
	subagents, err := task.List(ctx, c.bench.manager, c.bench.session, agent.MainID)
	if err != nil {
		return nil, err
	}
	for _, a := range subagents {
		if a.Artifact != nil {
			size := ""
			if info, err := os.Stat(*a.Artifact); err == nil {
				size = outputsink.FormatBytes(info.Size())
			}
			all = append(all, chat.Artifact{URL: a.URL, Tool: a.Agent, Size: size, Path: *a.Artifact})
		}
	}
	return all, nil
}

// Pager shows the file of an artifact.
func (c *chatBackend) Pager(_ context.Context, a chat.Artifact) (*exec.Cmd, error) {
	if _, err := os.Stat(a.Path); err != nil {
		return nil, fmt.Errorf("opening %s: %w", a.URL, err)
	}
	return exec.Command("sh", "-c", cmp.Or(os.Getenv("PAGER"), "less")+` "$1"`, "sh", a.Path), nil
}

// Image reads a picture.
func (c *chatBackend) Image(_ context.Context, path string) (chat.Image, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			path = filepath.Join(home, rest)
		}
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() { // a fifo may never end
		return chat.Image{}, chat.ErrNoImage
	}
	f, err := os.Open(path)
	if err != nil {
		return chat.Image{}, chat.ErrNoImage
	}
	defer f.Close()
	return imageFrom(f, filepath.Base(path))
}

// imageFrom reads a picture within the limits of models.
func imageFrom(r io.Reader, name string) (chat.Image, error) {
	data, err := io.ReadAll(io.LimitReader(r, picture.MaxFile+1))
	if err != nil {
		return chat.Image{}, fmt.Errorf("reading the picture %s: %w", name, err)
	}
	mime := http.DetectContentType(data)
	if !picture.Takes(mime) {
		return chat.Image{}, chat.ErrNoImage
	}
	p, err := picture.Fit(data, mime)
	if err != nil {
		return chat.Image{}, fmt.Errorf("reading the picture %s: %w", name, err)
	}
	return chat.Image{Name: name, MIMEType: p.MIMEType, Data: p.Data}, nil
}

// clipboardTime is how long a program of the desktop may take.
const clipboardTime = 5 * time.Second

// Clipboard reads a picture by the desktop's own program.
func (c *chatBackend) Clipboard(ctx context.Context) (chat.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, clipboardTime)
	defer cancel()
	for _, p := range []struct {
		variable string
		argv     []string
	}{
		{"WAYLAND_DISPLAY", []string{"wl-paste", "--no-newline", "--type", "image/png"}},
		{"DISPLAY", []string{"xclip", "-selection", "clipboard", "-target", "image/png", "-out"}},
	} {
		if os.Getenv(p.variable) == "" {
			continue
		}
		cmd := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
		out, err := cmd.StdoutPipe()
		if err != nil || cmd.Start() != nil {
			continue
		}
		i, err := imageFrom(out, "clipboard.png")
		_, _ = cmd.Process.Kill(), cmd.Wait() // all that was wanted of it is read
		if !errors.Is(err, chat.ErrNoImage) {
			return i, err
		}
	}
	return chat.Image{}, chat.ErrNoImage
}

// Remember keeps a prompt for other chats, without secrets.
func (c *chatBackend) Remember(prompt string) error {
	if r := c.bench.session.Redactor(); r != nil {
		clean, _ := r.Text([]byte(prompt))
		prompt = string(clean)
	}
	return chat.AddHistory(c.bench.session.Home(), prompt)
}
