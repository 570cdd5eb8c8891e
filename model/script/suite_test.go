package script_test

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/modeltest"
	"github.com/agentrun/agentrun/model/script"
)

// noting is a model that keeps what it is asked.
type noting struct {
	model.Model
	mu   sync.Mutex
	sent [][]byte
}

func (n *noting) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	if model.Check(req, n.Info()) == nil {
		raw, err := json.Marshal(req)
		if err != nil {
			panic(err)
		}
		n.mu.Lock()
		n.sent = append(n.sent, raw)
		n.mu.Unlock()
	}
	return n.Model.Stream(ctx, req)
}

func TestModel(t *testing.T) {
	modeltest.Run(t, modeltest.Options{
		NoImageLimits: true,
		Open: func(t *testing.T, s modeltest.Scenario) modeltest.Backend {
			var text bytes.Buffer
			lines := json.NewEncoder(&text)
			head := script.Head{Script: script.Version, Model: script.ModelInfo{
				ID: s.Info.ID, ContextWindow: s.Info.ContextWindow, MaxOutput: s.Info.MaxOutput, Prices: s.Info.Prices, Images: s.Info.Images,
			}}
			if err := lines.Encode(head); err != nil {
				t.Fatal(err)
			}
			for i, line := range s.Lines {
				if i == len(s.Lines)-1 {
					line.Times = -1
				}
				if err := lines.Encode(line); err != nil {
					t.Fatal(err)
				}
			}
			m, err := script.New("suite.jsonl", &text)
			if err != nil {
				t.Fatal(err)
			}
			n := &noting{Model: m}
			return modeltest.Backend{Model: n, Close: func() {}, Sent: func() [][]byte { return n.sent }}
		},
	})
}
