package anthropic_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/anthropic"
	"github.com/agentrun/agentrun/model/internal/wire"
	"github.com/agentrun/agentrun/model/modeltest"
	"github.com/agentrun/agentrun/model/script"
)

// server speaks the Messages API, and says what a scenario says.
type server struct {
	scenario modeltest.Scenario
	done     chan struct{}
	mu       sync.Mutex
	sent     [][]byte
}

// errorTypes are how the API calls its errors.
var errorTypes = map[model.Kind]string{
	model.KindAuth: "authentication_error", model.KindRateLimit: "rate_limit_error", model.KindOverloaded: "overloaded_error",
	model.KindServer: "api_error", model.KindOverflow: "invalid_request_error", model.KindInvalid: "invalid_request_error",
}

func fault(f *script.Failure) []byte {
	message := "Something about " + modeltest.Key + "\nis wrong."
	if f.Kind == model.KindOverflow {
		message = "prompt is too long: 210000 tokens > 200000 maximum"
	}
	return encode(map[string]any{"type": "error", "error": map[string]any{"type": errorTypes[f.Kind], "message": message}, "request_id": "req_1"})
}

func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	line := s.scenario.Lines[min(len(s.sent), len(s.scenario.Lines)-1)]
	s.sent = append(s.sent, body)
	s.mu.Unlock()
	var req struct {
		Model     string
		Stream    bool
		MaxTokens int `json:"max_tokens"`
	}
	switch {
	case r.URL.Path != "/v1/messages" || r.Method != http.MethodPost:
		http.NotFound(w, r)
		return
	case r.Header.Get("X-Api-Key") != modeltest.Key || r.Header.Get("Anthropic-Version") != "2023-06-01":
		http.Error(w, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, http.StatusUnauthorized)
		return
	case json.Unmarshal(body, &req) != nil || req.Model != s.scenario.Info.ID || !req.Stream || req.MaxTokens < 1:
		http.Error(w, `{"type":"error","error":{"type":"invalid_request_error","message":"bad request"}}`, http.StatusBadRequest)
		return
	}
	if len(line.Say) > 0 && line.Say[0].Error != nil && line.Say[0].Error.Status != 0 {
		f := line.Say[0].Error
		w.Header().Set("Content-Type", "application/json")
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(time.Duration(f.RetryAfter).Seconds())))
		}
		w.WriteHeader(f.Status)
		_, _ = w.Write(fault(f))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	out := stream{w: w, r: r, server: s}
	out.play(line)
}

// stream is one answer.
type stream struct {
	w      http.ResponseWriter
	r      *http.Request
	server *server
	index  int
	broken bool
}

func (s *stream) event(name string, v any) {
	fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", name, encode(v))
	_ = http.NewResponseController(s.w).Flush()
}

func (s *stream) play(line script.Line) {
	usage := script.Usage{Input: 10}
	for _, step := range line.Say {
		if step.Usage != nil {
			usage = *step.Usage
		}
	}
	s.event("message_start", map[string]any{"type": "message_start", "message": map[string]any{
		"id": "msg_1", "type": "message", "role": "assistant", "model": s.server.scenario.Info.ID, "content": []any{}, "stop_reason": nil,
		"usage": map[string]any{
			"input_tokens": usage.Input, "cache_creation_input_tokens": usage.CacheWrite, "cache_read_input_tokens": usage.CacheRead, "output_tokens": 1,
		},
	}})
	s.event("ping", map[string]any{"type": "ping"})
	reason := "end_turn"
	for i := range line.Say {
		step := &line.Say[i]
		switch {
		case step.Hang:
			select {
			case <-s.r.Context().Done():
			case <-s.server.done:
			}
			return
		case step.Cut:
			return
		case step.Usage != nil:
		case step.Error != nil && step.Error.Message == modeltest.Garbage:
			fmt.Fprint(s.w, "data: <html>502</html>\n\n")
			return
		case step.Error != nil && step.Error.Kind == model.KindRefused:
			reason = "refusal"
		case step.Error != nil:
			fmt.Fprintf(s.w, "event: error\ndata: %s\n\n", fault(step.Error))
			return
		case step.Parallel != nil:
			for k := range step.Parallel { // the API streams its blocks one behind the other
				reason = "tool_use"
				s.block(&step.Parallel[k])
			}
		default:
			if step.Call != "" {
				reason = "tool_use"
			}
			// A call that the line cuts has no end.
			if i+1 < len(line.Say) && line.Say[i+1].Cut {
				s.broken = true
			}
			s.block(step)
		}
	}
	if line.Stop == "length" {
		reason = "max_tokens"
	}
	details := map[string]any{}
	if usage.ReasoningTokens != nil {
		details["thinking_tokens"] = *usage.ReasoningTokens
	}
	s.event("message_delta", map[string]any{
		"type": "message_delta", "delta": map[string]any{"stop_reason": reason, "stop_sequence": nil},
		"usage": map[string]any{"output_tokens": usage.Output, "output_tokens_details": details},
	})
	s.event("message_stop", map[string]any{"type": "message_stop"})
}

func (s *stream) block(step *script.Step) {
	start := func(block map[string]any) {
		s.event("content_block_start", map[string]any{"type": "content_block_start", "index": s.index, "content_block": block})
	}
	delta := func(d map[string]any) {
		s.event("content_block_delta", map[string]any{"type": "content_block_delta", "index": s.index, "delta": d})
	}
	repeat := max(step.Repeat, 1)
	switch {
	case step.Text != nil:
		start(map[string]any{"type": "text", "text": ""})
		for range repeat {
			for _, p := range step.Text {
				delta(map[string]any{"type": "text_delta", "text": p})
			}
		}
	case step.Thinking != nil:
		start(map[string]any{"type": "thinking", "thinking": "", "signature": ""})
		for _, p := range step.Thinking {
			delta(map[string]any{"type": "thinking_delta", "thinking": p})
		}
		delta(map[string]any{"type": "signature_delta", "signature": step.Signature})
	case step.Redacted != "":
		start(map[string]any{"type": "redacted_thinking", "data": step.Redacted})
	case step.Call != "":
		start(map[string]any{"type": "tool_use", "id": step.ID, "name": step.Call, "input": map[string]any{}})
		delta(map[string]any{"type": "input_json_delta", "partial_json": ""})
		for _, p := range append(step.RawArgs, string(step.Args)) {
			delta(map[string]any{"type": "input_json_delta", "partial_json": p})
		}
	}
	if !s.broken {
		s.event("content_block_stop", map[string]any{"type": "content_block_stop", "index": s.index})
	}
	s.index++
}

func open(t *testing.T, scenario modeltest.Scenario) modeltest.Backend {
	s := &server{scenario: scenario, done: make(chan struct{})}
	h := httptest.NewServer(s)
	client := wire.NewHTTP()
	return modeltest.Backend{
		Model: anthropic.New(anthropic.Options{Info: scenario.Info, BaseURL: h.URL, Key: modeltest.Key, HTTP: client}),
		Sent: func() [][]byte {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.sent
		},
		Close: func() {
			close(s.done)
			client.CloseIdleConnections()
			h.Close()
		},
	}
}

func TestModel(t *testing.T) { modeltest.Run(t, modeltest.Options{Open: open}) }
