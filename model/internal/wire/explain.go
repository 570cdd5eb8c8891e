package wire

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agentrun/agentrun/model"
)

// overflows are what providers and servers that speak like them say when a request is longer
// than the context window, in lower case: Anthropic, OpenAI, Google, xAI, Groq, OpenRouter,
// llama.cpp, LM Studio, vLLM, in this order.
var overflows = []string{
	"prompt is too long", "exceed context limit",
	"context_length_exceeded", "exceeds the context window", "maximum context length",
	"input token count",
	"maximum prompt length",
	"reduce the length of the messages",
	"context length exceeded",
	"exceeds the available context size", "exceed_context_size",
	"greater than the context length",
	"longer than the maximum model length", "too many tokens",
}

// Overflows reports whether a provider's words are about the context window.
func Overflows(text string) bool {
	text = strings.ToLower(text)
	for _, words := range overflows {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// Explain is what a status of HTTP means, with the provider's code and words, of which the
// beginning is told. A body in JSON whose error has a message is told by that.
func Explain(status int, code, body string) *model.Error {
	words := words(body)
	e := &model.Error{Status: status}
	switch {
	case Overflows(code) || Overflows(words), status == http.StatusRequestEntityTooLarge:
		e.Kind, e.Message = model.KindOverflow, "the request is longer than the model can take; compact the conversation"
	case code == "insufficient_quota":
		e.Kind, e.Message = model.KindAuth, "the account has no credit left; see to it at the provider, or use another key"
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		e.Kind, e.Message = model.KindAuth, "the provider does not take the key; see that it is right and may use this model"
	case status == http.StatusTooManyRequests:
		e.Kind, e.Message = model.KindRateLimit, "too much was asked in a short time; wait, then ask again"
	case status == http.StatusServiceUnavailable || status == 529:
		e.Kind, e.Message = model.KindOverloaded, "the provider has too much to do; ask again later"
	case status == http.StatusRequestTimeout || status >= 500:
		e.Kind, e.Message = model.KindServer, "the provider failed; ask again"
	case status == http.StatusNotFound:
		e.Kind, e.Message = model.KindInvalid, "the provider knows no such model or address; see the name of the model and the base URL"
	case status == http.StatusOK:
		e.Kind, e.Message = model.KindServer, "the provider answered with something else than events; see the base URL"
	case status >= 300 && status < 400:
		e.Kind, e.Message = model.KindInvalid, "the provider is elsewhere; give the base URL that it is at now"
	default:
		e.Kind, e.Message = model.KindInvalid, "the provider does not take the request"
	}
	if status != 0 {
		e.Message += " (HTTP " + strconv.Itoa(status)
		if words != "" {
			e.Message += ": " + words
		}
		e.Message += ")"
	} else if words != "" {
		e.Message += " (" + words + ")"
	}
	return e
}

// Fault makes an [Client.Explain] for bodies that have the member error, of which err makes an error of package model.
func Fault[F any](err func(f *F, status int) *model.Error) func(status int, body []byte) *model.Error {
	return func(status int, body []byte) *model.Error {
		var b struct {
			Error *F `json:"error"`
		}
		if json.Unmarshal(body, &b) != nil || b.Error == nil {
			return nil
		}
		return err(b.Error, status)
	}
}

// words are what a body says, on one line and not for ever.
func words(body string) string {
	var known struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal([]byte(body), &known) == nil && known.Error != nil {
		var e struct {
			Message string `json:"message"`
		}
		var text string
		switch {
		case json.Unmarshal(known.Error, &e) == nil && e.Message != "":
			body = e.Message
		case json.Unmarshal(known.Error, &text) == nil && text != "":
			body = text
		}
	}
	body = strings.Join(strings.Fields(strings.ToValidUTF8(body, "\uFFFD")), " ")
	body = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0 {
			return -1 // it ends up at a terminal
		}
		return r
	}, body)
	const most = 500
	if runes := []rune(body); len(runes) > most {
		body = string(runes[:most]) + "…"
	}
	return strings.TrimRight(body, ".")
}

// RetryAfter is how long a provider asks to wait, 0 if it does not: by milliseconds, as
// OpenAI says it too, by seconds, or by a date. It is at most a day.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	const most = 24 * time.Hour
	wait := time.Duration(0)
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e9 {
		wait = time.Duration(ms * float64(time.Millisecond))
	} else if s, err := strconv.ParseFloat(h.Get("Retry-After"), 64); err == nil && s > 0 && s < 1e6 {
		wait = time.Duration(s * float64(time.Second))
	} else if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), most)
}
