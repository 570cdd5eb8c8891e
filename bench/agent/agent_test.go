// Package agent_test measures the loop: what agentrun adds to a model and to tools.
package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/compact"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/toolset"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// noop does nothing.
type noop struct{}

func (noop) Name() string        { return "noop" }
func (noop) Description() string { return "does nothing" }
func (noop) Schema() json.RawMessage {
	return json.RawMessage(`{"type":"object","additionalProperties":false}`)
}
func (noop) Idempotent() bool   { return true }
func (noop) ParallelSafe() bool { return true }
func (noop) Call(context.Context, json.RawMessage) (tool.Result, error) {
	return tool.Result{Text: "ok"}, nil
}

// counted ends the benchmark's run after so many calls, and measures from a turn on.
type counted struct {
	model.Model
	from, turns int
	start       func()
}

func (c *counted) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	if req.Turn == c.from {
		c.start()
	}
	r := *req
	if r.Turn < c.turns {
		r.Turn = 0 // the line that calls
	} else {
		r.Turn = 1_000_000 // the one that ends
	}
	return c.Model.Stream(ctx, &r)
}

// work runs so many turns with a call each, of which those before from do not count.
func work(b *testing.B, from, turns int, equip func(*agent.Options)) {
	b.Helper()
	m := must(session.OpenManager(filepath.Join(b.TempDir(), "home"), session.Options{Durability: session.Flush}))
	s := must(m.Create(b.Context(), b.TempDir(), session.CreateOptions{}))
	defer s.Close()
	lines := `{"agent":"main","times":1000000,"say":[{"call":"noop","args":{}},{"usage":{"input":10,"output":1}}]}` + "\n" + `{"agent":"main","times":-1,"say":[{"text":"ok"}]}`
	c := &counted{Model: must(script.New("bench.jsonl", strings.NewReader(lines))), from: from, turns: from + turns, start: b.ResetTimer}
	o := agent.Options{Session: s, Model: c, Tools: must(toolset.New(noop{}))}
	equip(&o)
	a := must(agent.New(o))
	out, err := a.Run(b.Context(), entry.PlainText("go"))
	if err != nil || out.Status != agent.Completed || out.Calls != from+turns {
		b.Fatal(out, err)
	}
}

// BenchmarkCall is a turn with one call that does nothing: a request to a script, the answer and the result in the log, each
// acknowledged. Limit: 100 us.
func BenchmarkCall(b *testing.B) { work(b, 0, b.N, plain) }

func plain(*agent.Options) {}

// BenchmarkCallUnderBudget is the same with compaction, whose budget is not reached: asking for it is to cost nothing.
func BenchmarkCallUnderBudget(b *testing.B) {
	work(b, 0, b.N, func(o *agent.Options) { compact.Equip(o, compact.Options{}) })
}

// BenchmarkCount counts the tokens of a megabyte of text.
func BenchmarkCount(b *testing.B) {
	text := strings.Repeat("func (s *Session) Compact(ctx context.Context) error { return nil } // and so on\n", 13_000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		compact.Count(text)
	}
}

// BenchmarkTurn is the same behind so many turns: it must not grow with them.
func BenchmarkTurn(b *testing.B) {
	for _, from := range []int{10, 10_000} {
		b.Run(fmt.Sprint(from), func(b *testing.B) {
			if testing.Short() && from > 1000 {
				b.Skip("10,000 turns take seconds; run without -short")
			}
			work(b, from, b.N, plain)
		})
	}
}
