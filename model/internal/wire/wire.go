// Package wire is what the adapters of providers share: a request over HTTP that is
// answered by server-sent events, and what its errors mean.
//
// It sends a request once. Nothing is retried, no variable of the environment is read
// but those that name a proxy, and no redirect is followed, since that would take the key
// elsewhere. No error holds the key, even if the server's answer does.
package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agentrun/agentrun/model"
)

// Idle is how long a provider may say nothing before it counts as hung. Reasoning models
// are silent for minutes.
const Idle = 10 * time.Minute

// maxError is how much of an answer that is an error is read, in bytes.
const maxError = 64 << 10

// Client sends requests. It is safe for concurrent use.
type Client struct {
	HTTP *http.Client  // nil: one of its own
	Idle time.Duration // 0: [Idle]
	Key  string        // is taken out of errors

	// Explain makes an error of what a provider answers in place of events. It may return
	// nil to leave that to [Explain].
	Explain func(status int, body []byte) *model.Error
}

// NewHTTP is a client for requests to providers.
func NewHTTP() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 8 // subagents ask at once
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Post sends body and hands the events of the answer to each, one after the other, until it
// returns false or an error, or the answer ends. It reports whether each ended it.
func (c *Client) Post(ctx context.Context, to string, header http.Header, body []byte, each func(event string, data []byte) (bool, error)) (ended bool, err error) {
	idle := c.Idle
	if idle == 0 {
		idle = Idle
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The timer starts anew with every piece that comes.
	hung := time.AfterFunc(idle, func() { cancel(errHung) })
	defer hung.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return false, &model.Error{Kind: model.KindInvalid, Message: "the base URL is none: give one such as https://host/v1"}
	}
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("User-Agent", "agentrun")
	res, err := c.HTTP.Do(req)
	if err != nil {
		return false, c.network(ctx, err, idle)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return false, c.refused(res)
	}
	if kind := res.Header.Get("Content-Type"); strings.HasPrefix(kind, "application/json") || strings.HasPrefix(kind, "text/html") {
		// Some servers answer with an error and the status of a success.
		return false, c.refused(res)
	}
	events := NewEvents(&touching{res.Body, hung, idle})
	for {
		event, data, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case errors.Is(err, ErrTooLong):
			return false, &model.Error{Kind: model.KindServer, Message: err.Error()}
		case err != nil:
			return false, c.network(ctx, err, idle)
		}
		goOn, err := each(event, data)
		if err != nil {
			return false, c.scrubbed(err)
		}
		if !goOn {
			return true, nil
		}
	}
}

// errHung is why a request is given up.
var errHung = errors.New("the provider says nothing")

// touching is a body that keeps a timer from going off.
type touching struct {
	io.Reader
	timer *time.Timer
	idle  time.Duration
}

func (t *touching) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	if n > 0 {
		t.timer.Reset(t.idle)
	}
	return n, err
}

// network is the error of a connection that failed. What Go says of one has the URL in
// it, in which somebody may have put a password.
func (c *Client) network(ctx context.Context, err error, idle time.Duration) error {
	if errors.Is(context.Cause(ctx), errHung) {
		// Whether something had come by then is known to model.Assemble, by an error that is no
		// *model.Error.
		return fmt.Errorf("the provider has said nothing for %v; ask again", idle)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return errors.New(c.scrub(fmt.Sprintf("the connection failed (%v); ask again", err)))
}

// refused is the error of an answer that is none.
func (c *Client) refused(res *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxError)) // what could be read is enough for a sentence
	var e *model.Error
	if c.Explain != nil {
		e = c.Explain(res.StatusCode, body)
	}
	if e == nil {
		e = Explain(res.StatusCode, "", string(body))
	}
	e.Status = res.StatusCode
	e.RetryAfter = RetryAfter(res.Header, time.Now())
	return c.scrubbed(e)
}

// scrubbed takes the key out of an error.
func (c *Client) scrubbed(err error) error {
	var e *model.Error
	if errors.As(err, &e) {
		e.Message = c.scrub(e.Message)
	}
	return err
}

func (c *Client) scrub(text string) string {
	if c.Key != "" {
		text = strings.ReplaceAll(text, c.Key, "[key]")
	}
	return text
}

// CallID is an id of a tool call as every provider takes it: letters, digits, '_' and '-',
// at most 64. Programs that share logs put other things behind a '|'; different ids stay
// different.
func CallID(id string) string {
	short, _, _ := strings.Cut(id, "|")
	clean := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, short)
	if clean == id && len(clean) <= 64 {
		return id
	}
	return fmt.Sprintf("%.40s_%016x", clean, fnv(id))
}

// fnv is the FNV-1a hash of a text.
func fnv(s string) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range []byte(s) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}
