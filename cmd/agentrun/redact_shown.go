package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
)

// cleaned is the standard output of a verb that shows what others wrote, without secrets. Their numbers are those of the session at
// hand. nil is standard output as it is.
type cleaned struct {
	env     *environment
	session *session.Session
	by      *redact.Redactor
	out     io.Writer // what standard output was
	writer  *redact.Writer
	kept    int64 // replaced in what went through a sink
}

// cleanOutput replaces secrets in what is printed until close, if that is wanted. A session is begun for the first of them if there is none.
func (e *environment) cleanOutput(ctx context.Context) (*cleaned, error) {
	mode := e.redact
	if mode == "" {
		home, err := session.ResolveHome(e.home)
		if err != nil {
			return nil, nil //nolint:nilerr // files are shown without a home too
		}
		set, _, _ := config.Load(nil, home) // as in redaction
		mode = set.Redact.Mode
	}
	if !mode.Active() {
		return nil, nil
	}
	s, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	v := e.vaults[len(e.vaults)-1]
	c := &cleaned{env: e, session: s, out: e.stdout}
	c.by = redact.New(redact.Options{Values: e.replacing.Values, Number: func(kind string, secret []byte) int64 {
		if !s.Exists() {
			if _, err := s.Append(ctx, entry.Custom{CustomType: createdType}); err != nil {
				return 0
			}
			e.remark("started session %s", s.ID())
		}
		return v.Number(kind, secret)
	}})
	c.writer = c.by.Writer(e.stdout)
	e.stdout = c.writer
	return c, nil
}

// stream is for the options of a sink.
func (c *cleaned) stream() func() outputsink.Redactor {
	if c == nil {
		return nil
	}
	return func() outputsink.Redactor { return c.by.Stream() }
}

// close prints what was held back, and says how many secrets there were.
func (c *cleaned) close(err error) error {
	if c == nil {
		return err
	}
	c.env.stdout = c.out
	err = errors.Join(err, c.writer.Close())
	if n := c.writer.Replaced() + c.kept; n > 0 {
		c.env.remark("%s replaced; --redact off shows it as it is", count(n, "secret was", "secrets were"))
	}
	return closeSession(c.session, err)
}

// sink is how tools for files show and keep what they print, nil for the usual way.
func (b *workbench) sink() *outputsink.Options {
	by := b.session.Redactor()
	if by == nil {
		return nil
	}
	o := outputsink.DefaultOptions()
	o.Redact = func() outputsink.Redactor { return by.Stream() }
	return &o
}

// careful is a tool that writes files. It refuses to write what takes the place of a secret: whoever read a file so would destroy it.
type careful struct{ tool.Tool }

var errMark = errors.New("nothing was written: [redacted:...] stands for a secret that you were not shown, and would take its place in the file; " +
	"leave that line alone and change what is around it with edit, or have the person do it")

// Call refuses, or does it.
func (c careful) Call(ctx context.Context, input json.RawMessage) (tool.Result, error) {
	if redact.HasMark(input) {
		return tool.Refuse(errMark), nil
	}
	return c.Tool.Call(ctx, input)
}
