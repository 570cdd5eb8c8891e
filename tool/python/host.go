package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Host answers what code in a cell asks for: op is "read", "bash", "artifact" or "task". The error is a sentence for
// whoever wrote the code. It is called from several goroutines, and ctx is done when the cell has ended or is to.
type Host func(ctx context.Context, op string, args json.RawMessage) (any, error)

// ask is a request of the code.
type ask struct {
	ID   int64           `json:"id"`
	Cell int             `json:"cell"`
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args"`
}

type reply struct {
	ID    int64  `json:"id"`
	Value any    `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
}

// answer answers what the code asks for, until the kernel is gone.
func (i *instance) answer() {
	for {
		b, err := i.bridge.receive()
		if err != nil {
			// A frame that is none leaves a socket on which nobody can be answered.
			i.bridge.close()
			return
		}
		var q ask
		if json.Unmarshal(b, &q) != nil {
			continue
		}
		i.mu.Lock()
		c := i.call
		if c != nil {
			c.asks.Add(1)
		}
		i.mu.Unlock()
		if c == nil {
			_ = i.bridge.send(reply{ID: q.ID, Error: "agentrun." + q.Op + " works while a cell runs, and none does"})
			continue
		}
		i.reading.Go(func() {
			r := reply{ID: q.ID}
			var err error
			if r.Value, err = c.Ask(c.ctx, q.Op, q.Args); err != nil {
				r.Value, r.Error = nil, err.Error()
			}
			c.asks.Done() // code that was interrupted may never read the answer
			if err := i.bridge.send(r); err != nil {
				_ = i.bridge.send(reply{ID: q.ID, Error: fmt.Sprintf("agentrun.%s: %v", q.Op, err)})
			}
		})
	}
}

// Ask has the Host of the cell answer. It returns an error where there is none, or where it panics.
func (c *Cell) Ask(ctx context.Context, op string, args json.RawMessage) (value any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("agentrun.%s: it panicked: %v", op, p)
		}
	}()
	if c.Host == nil {
		return nil, errors.New("agentrun." + op + ": the program that runs this cell answers nothing")
	}
	return c.Host(ctx, op, args)
}
