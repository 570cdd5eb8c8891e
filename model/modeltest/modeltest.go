// Package modeltest is the suite that every [model.Model] passes. An adapter's test gives
// it a way to open a model whose other side does what a scenario says: a server that
// speaks the provider's protocol, or for a script the script.
//
//	func TestModel(t *testing.T) {
//		modeltest.Run(t, modeltest.Options{Open: func(t *testing.T, s modeltest.Scenario) modeltest.Backend { ... }})
//	}
//
// The suite checks what package model promises: how streams end, what answers are made of,
// that signatures go back as they came, that errors have kinds and hold no key, that a
// cancelled request leaves nothing running, and that memory is bounded by the answer.
package modeltest

import (
	"testing"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/script"
)

// Key is the key that a model under test has, and that its server repeats in errors.
const Key = "sk-modeltest-4f1c9a7be2d0"

// Garbage is the message of a [script.Failure] in the place of which the other side sends
// something that is not its protocol.
const Garbage = "garbage"

// Scenario is what the other side does.
type Scenario struct {
	Name string

	// Lines are played one a request, in their order; further requests get the last. An error
	// that is the first step of its line is the answer to the request, with its status and
	// Retry-After; a later one comes within the stream. For [model.KindRefused] the
	// provider ends the answer so.
	Lines []script.Line

	// Info is of the model to be opened; its API and Provider are the adapter's business.
	Info model.Info
}

// Backend is a model and its other side.
type Backend struct {
	Model model.Model
	// Sent returns what the other side was sent, request by request: for HTTP the bodies.
	Sent func() [][]byte
	// Close ends the other side and what the model keeps of connections.
	Close func()
}

// Options say how a model is opened, and what its protocol cannot say.
type Options struct {
	Open func(t *testing.T, s Scenario) Backend

	NoSignatures  bool // reasoning has none, and does not go back
	NoRedacted    bool // there is no reasoning that only the provider can read
	NoImageLimits bool // images beyond the limits are passed on
}

// Run runs the suite.
func Run(t *testing.T, o Options) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.skip != nil && c.skip(o) {
				t.Skip("the protocol of this model has no such thing")
			}
			c.run(t, o)
		})
	}
}
