package model

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentrun/agentrun/session/entry"
)

// Kind says what became of a request, so that its caller knows what to do next.
type Kind string

// The kinds of errors.
const (
	KindAuth       Kind = "auth"             // no key, or one that the provider does not take
	KindRateLimit  Kind = "rate-limit"       // too much was asked: wait for RetryAfter
	KindOverloaded Kind = "overloaded"       // the provider is busy
	KindOverflow   Kind = "context-overflow" // the request is longer than the context window: compact
	KindInvalid    Kind = "invalid-request"  // the request can never succeed as it is
	KindRefused    Kind = "refused"          // the provider does not want to answer this
	KindNetwork    Kind = "network"          // no answer came
	KindCut        Kind = "cut"              // the answer broke off
	KindServer     Kind = "server"           // the provider failed, or does not speak its own protocol
	KindCancelled  Kind = "cancelled"        // the context of the call was done
)

// Error is how a stream fails. Its message is for people: it names the model, says what
// happened and what to do, and holds no key.
type Error struct {
	Kind       Kind
	Status     int           // of HTTP; 0 if there was none
	RetryAfter time.Duration // what the provider asked for; 0 if it did not
	Message    string        // one sentence, without the name of the model

	// Partial is what had come of the answer, as it may be put into the log: its StopReason is
	// error or aborted, so that no context takes it for an answer. A tool call that had not
	// ended has [InvalidArguments]. It is nil if nothing had come.
	Partial *entry.AssistantMessage

	Model string // "provider/id"; set by [Assemble]
	Err   error  // the cause, if there is one; wrapped
}

// Error is the sentence.
func (e *Error) Error() string {
	text := e.Message
	switch {
	case text == "" && e.Err != nil:
		text = e.Err.Error()
	case text == "":
		text = string(e.Kind)
	}
	if e.Model != "" {
		return fmt.Sprintf("asking %s: %s", e.Model, text)
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Temporary reports whether the same request may succeed later.
func (e *Error) Temporary() bool {
	switch e.Kind {
	case KindRateLimit, KindOverloaded, KindNetwork, KindCut, KindServer:
		return true
	}
	return false
}

// KindOf returns the kind of an error that a stream ended with, "" for nil. An error of
// no known kind is [KindServer].
func KindOf(err error) Kind {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return KindCancelled
	}
	return KindServer
}
