// Package model says what a language model is to the rest of agentrun: a [Request]
// goes in, [Event] values come out, and the last of them is the whole answer as an
// entry for the session log. It knows no provider; packages below it do
// (model/script, model/anthropic, model/openai), and model/modeltest is the suite
// that all of them pass.
//
//	for event, err := range m.Stream(ctx, req) {
//		if err != nil {
//			return err // *model.Error; its Partial is what had been said by then
//		}
//		switch event := event.(type) {
//		case model.TextDelta:
//			fmt.Print(event.Text)
//		case model.Stop:
//			answer = event.Message
//		}
//	}
//
// # What a stream promises
//
//   - It ends with exactly one [Stop], or with exactly one error, and nothing follows.
//     An answer that breaks off is an error ([KindCut]), never a short answer.
//   - The error is an [*Error]. Its Kind says what to do; Partial is the answer so far,
//     ready for the log, nil when there was nothing yet.
//   - The answer in [Stop] is made of the events before it, by one piece of code for all
//     providers ([Assemble]), so it says what was streamed, to the byte. Signatures are
//     kept as they came. Arguments of a tool call that are not a JSON object are handed
//     on as such: see [InvalidArguments]. They are never mended.
//   - Once ctx is done no event follows but the error ([KindCancelled]), which wraps the
//     reason of ctx, or the Stop of an answer that was complete by then. A caller who leaves the loop ends the request too. Either way
//     nothing is left running when the loop is over.
//   - Nothing is retried here: whoever drives a model knows whether it should be, and
//     for how long. A Model that chooses to, such as one that wraps others, says so by [Retry].
//   - No error, event or answer holds a key.
//
// Each range over a stream is a request of its own. A Model is safe for concurrent
// use; a stream belongs to the goroutine that ranges over it, which does all its work.
//
// # What a request must be
//
// [Check] refuses what no provider takes, in one sentence, before anything is sent;
// every Model calls it (Assemble does). Messages are those of session/entry, and of
// four kinds only: user, developer, assistant, toolResult. [Messages] makes them of a
// context, and [Plain] of a single message. A request is not changed by a Model, and
// must not be changed by others while it is being streamed.
package model

import (
	"context"
	"iter"

	"github.com/agentrun/agentrun/session/entry"
)

// Model is a language model that answers requests.
type Model interface {
	// Info says what the model is. It is the same on every call, and cheap.
	Info() Info

	// Stream sends a request when it is ranged over, and yields the answer as it comes.
	// The package comment says what it promises.
	Stream(ctx context.Context, req *Request) iter.Seq2[Event, error]
}

// Values of Info.API, which are those of the "api" member of an answer in a log. They
// say in what form signatures and ids in it are.
const (
	APIAnthropic       = "anthropic-messages"
	APIOpenAIResponses = "openai-responses"
	APIOpenAIChat      = "openai-completions" // Chat Completions, by the name that oh-my-pi gives it
	APIScript          = "script"
)

// Info is what is known of a model.
type Info struct {
	Provider string `json:"provider"` // anthropic, openai, script
	API      string `json:"api"`      // one of the API constants, or another
	ID       string `json:"id"`       // the provider's name for the model

	ContextWindow int64 `json:"contextWindow,omitempty"` // of input and output together, in tokens; 0 is unknown
	MaxOutput     int64 `json:"maxOutput,omitempty"`     // of one answer, in tokens; 0 is unknown

	// Prices are nil when nobody knows them: the cost of an answer is then 0, which is
	// no statement.
	Prices *Prices `json:"prices,omitempty"`

	Images ImageLimits `json:"images,omitzero"`

	// Thinks says that the model can think before it answers, so that [Request].Thinking
	// means something.
	Thinks bool `json:"thinks,omitempty"`
}

// Name is the model as a log names it, "provider/id".
func (i Info) Name() string { return i.Provider + "/" + i.ID }

// Prices are in US dollars for a million tokens.
type Prices struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cacheRead"`
	CacheWrite float64 `json:"cacheWrite"`

	// Long are the prices of a whole request whose input, cached or not, has more than Above
	// tokens; nil if they are the same.
	Long  *Prices `json:"long,omitempty"`
	Above int64   `json:"above,omitempty"`
}

// Cost is what usage costs. The usage's own Cost does not count. Tokens of reasoning are
// part of Output.
func (p *Prices) Cost(u entry.Usage) entry.Cost {
	if p == nil {
		return entry.Cost{}
	}
	if p.Long != nil && u.Input+u.CacheRead+u.CacheWrite > p.Above {
		return p.Long.Cost(u)
	}
	const million = 1e6
	c := entry.Cost{
		Input:      p.Input * float64(u.Input) / million,
		Output:     p.Output * float64(u.Output) / million,
		CacheRead:  p.CacheRead * float64(u.CacheRead) / million,
		CacheWrite: p.CacheWrite * float64(u.CacheWrite) / million,
	}
	c.Total = c.Input + c.Output + c.CacheRead + c.CacheWrite
	return c
}

// ImageLimits are what a provider takes of images; 0 is no limit that is known. Adapters
// keep them: they say in words what they leave out.
type ImageLimits struct {
	MaxCount int `json:"maxCount,omitempty"` // in one request
	MaxEdge  int `json:"maxEdge,omitempty"`  // the longer side, in pixels
	MaxBytes int `json:"maxBytes,omitempty"` // of one image as base64
}
