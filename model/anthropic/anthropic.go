// Package anthropic asks Claude models over Anthropic's Messages API, or whatever speaks
// like it.
//
// What it sends besides the conversation: marks of the prompt cache behind the tools and
// the system prompt and behind the last two turns of the user, so that each request reads what the one
// before it wrote; thinking in the form that the model's generation takes; no temperature
// unless the request has one.
//
// Thinking goes back to the provider with its signature, to the byte, if this API
// produced it. Thinking of others, or without a signature, is left out, as the API
// demands; the log has it. Images beyond the limits of the model are made smaller or
// give way to a line that says so: see [model.FitImages].
//
// It is a client of its own for one endpoint. The official SDK brings 9 MB, 0.5 ms before main,
// and settings that it reads from the environment and files by itself.
package anthropic

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/internal/wire"
)

// BaseURL is where Anthropic is.
const BaseURL = "https://api.anthropic.com"

// Version is the version of the API that this package speaks.
const Version = "2023-06-01"

// Options are how a model is asked. The zero value has no key.
type Options struct {
	Info    model.Info    // ID at least; Provider "" is anthropic, API is always that of this package
	BaseURL string        // "" is [BaseURL]; without /v1
	Key     string        // "" sends none, as local servers have it
	Resize  model.Resize  // of images beyond the limits; nil leaves them out
	Idle    time.Duration // how long the provider may say nothing; 0 is ten minutes
	HTTP    *http.Client  // nil: one of its own
}

// Model is a Claude model. It is safe for concurrent use.
type Model struct {
	info   model.Info
	url    string
	key    string
	resize model.Resize
	client wire.Client
}

var _ model.Model = (*Model)(nil)

// New returns a model. Nothing is sent.
func New(o Options) *Model {
	o.Info.API = model.APIAnthropic
	if o.Info.Provider == "" {
		o.Info.Provider = "anthropic"
	}
	if o.BaseURL == "" {
		o.BaseURL = BaseURL
	}
	if o.HTTP == nil {
		o.HTTP = wire.NewHTTP()
	}
	return &Model{
		info: o.Info, url: strings.TrimSuffix(o.BaseURL, "/") + "/v1/messages", key: o.Key, resize: o.Resize,
		client: wire.Client{HTTP: o.HTTP, Idle: o.Idle, Key: o.Key, Explain: wire.Fault((*fault).err)},
	}
}

// Info says what the model is.
func (m *Model) Info() model.Info { return m.info }

// Stream asks the model.
func (m *Model) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return model.Assemble(ctx, m.info, req, func(ctx context.Context, a *model.Answer) error {
		body, err := m.body(req)
		if err != nil {
			return err
		}
		header := http.Header{"Anthropic-Version": {Version}}
		if m.key != "" {
			header.Set("X-Api-Key", m.key)
		}
		r := reader{answer: a}
		_, err = m.client.Post(ctx, m.url, header, body, r.event)
		return err
	})
}
