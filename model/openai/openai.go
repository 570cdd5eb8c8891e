// Package openai asks models over OpenAI's Responses API or over Chat Completions, which
// most other providers and local servers speak.
//
// Over Responses nothing is stored at the provider: reasoning comes encrypted and goes
// back as it came, to the byte, if the same model produced it; in the log it is the
// signature of a thinking block, in the form that oh-my-pi gives it. Chat Completions has
// no such thing: reasoning that a server shows is kept in the log and not sent back, and an
// image in a tool result follows in a message of the user, because results are text there.
//
// Prompt caches need no marks here; [model.Request].CacheKey tells which requests belong
// together. Images beyond the limits of the model are made smaller or give way to a line
// that says so: see [model.FitImages].
//
// It is a client of its own for two endpoints. The official SDK brings 27 MB and 1.6 ms before
// main, on every start of the program, whatever it is started for.
package openai

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/internal/wire"
)

// BaseURL is where OpenAI is.
const BaseURL = "https://api.openai.com/v1"

// Options are how a model is asked. The zero value has no key.
type Options struct {
	// Info has an ID at least. Provider "" is openai. API is [model.APIOpenAIResponses] or
	// [model.APIOpenAIChat]; "" is the first at OpenAI and the second elsewhere.
	Info    model.Info
	BaseURL string        // "" is [BaseURL]; with /v1, as others write it too
	Key     string        // "" sends none, as local servers have it
	Resize  model.Resize  // of images beyond the limits; nil leaves them out
	Idle    time.Duration // how long the provider may say nothing; 0 is ten minutes
	HTTP    *http.Client  // nil: one of its own
}

// Model is a model of OpenAI, or of a server that speaks like it. It is safe for
// concurrent use.
type Model struct {
	info   model.Info
	base   string
	key    string
	resize model.Resize
	client wire.Client
}

var _ model.Model = (*Model)(nil)

// New returns a model. Nothing is sent.
func New(o Options) *Model {
	if o.Info.Provider == "" {
		o.Info.Provider = "openai"
	}
	if o.BaseURL == "" {
		o.BaseURL = BaseURL
	}
	o.BaseURL = strings.TrimSuffix(o.BaseURL, "/")
	switch {
	case o.Info.API == model.APIOpenAIResponses || o.Info.API == model.APIOpenAIChat:
	case o.BaseURL == BaseURL:
		o.Info.API = model.APIOpenAIResponses
	default:
		o.Info.API = model.APIOpenAIChat
	}
	if o.HTTP == nil {
		o.HTTP = wire.NewHTTP()
	}
	return &Model{
		info: o.Info, base: o.BaseURL, key: o.Key, resize: o.Resize,
		client: wire.Client{HTTP: o.HTTP, Idle: o.Idle, Key: o.Key, Explain: wire.Fault((*fault).err)},
	}
}

// Info says what the model is.
func (m *Model) Info() model.Info { return m.info }

// Stream asks the model.
func (m *Model) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return model.Assemble(ctx, m.info, req, func(ctx context.Context, a *model.Answer) error {
		if m.info.API == model.APIOpenAIResponses {
			return m.responses(ctx, req, a)
		}
		return m.chat(ctx, req, a)
	})
}

// post sends a request.
func (m *Model) post(ctx context.Context, path string, body any, each func(string, []byte) (bool, error)) (ended bool, err error) {
	raw, err := wire.Marshal(body)
	if err != nil {
		return false, &model.Error{Kind: model.KindInvalid, Message: "the request cannot be written as JSON", Err: err}
	}
	header := http.Header{}
	if m.key != "" {
		header.Set("Authorization", "Bearer "+m.key)
	}
	return m.client.Post(ctx, m.base+path, header, raw, each)
}

// effort is how hard the model is told to think, "" if it is told nothing.
func (m *Model) effort(level string) string {
	if !m.info.Thinks {
		return ""
	}
	// Models before GPT-5.1, and those for Codex, always think, and before GPT-5.2 not beyond high.
	old := strings.HasPrefix(m.info.ID, "o") || m.info.ID == "gpt-5" || strings.HasPrefix(m.info.ID, "gpt-5-")
	switch level {
	case "", model.ThinkingOff:
		if old || strings.Contains(m.info.ID, "-codex") {
			return "low"
		}
		return "none"
	case model.ThinkingMinimal:
		return "low" // "minimal" is known to GPT-5 alone
	case model.ThinkingXHigh:
		if old || strings.HasPrefix(m.info.ID, "gpt-5.1") {
			return "high"
		}
	}
	return level
}

// fault is an error of the API.
type fault struct {
	Code    json.RawMessage `json:"code"` // a string, or of some servers a number
	Type    string          `json:"type"`
	Message string          `json:"message"`
}

// err is an error of the API as one of package model. Status 0 is that of an error within a
// stream.
func (f *fault) err(status int) *model.Error {
	if f == nil {
		f = &fault{}
	}
	var code string
	if json.Unmarshal(f.Code, &code) != nil {
		code = ""
	}
	if code == "" {
		code = f.Type
	}
	means := status
	if status == 0 {
		means = map[string]int{
			"invalid_api_key": 401, "insufficient_quota": 429, "rate_limit_exceeded": 429, "rate_limit_error": 429,
			"server_overloaded": 503, "overloaded_error": 529, "service_unavailable": 503, "slow_down": 503,
			"context_length_exceeded": 400, "invalid_prompt": 400, "invalid_request_error": 400, "invalid_image": 400,
			"model_not_found": 404,
		}[code]
		if means == 0 {
			means = 500
		}
	}
	e := wire.Explain(means, code, f.Message)
	e.Status = status
	if code == "content_filter" || code == "content_policy_violation" || code == "cyber_policy" {
		e.Kind, e.Message = model.KindRefused, refusal
	}
	return e
}

const refusal = "the provider does not want to answer this"

// garbage is the error of an event that is none.
func garbage(err error) error {
	return &model.Error{Kind: model.KindServer, Message: "the provider sent an event that is none; ask again, and see the base URL if this stays", Err: err}
}
