package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/internal/wire"
	"github.com/agentrun/agentrun/model/modeltest"
	"github.com/agentrun/agentrun/model/openai"
	"github.com/agentrun/agentrun/model/script"
)

// server speaks the Responses API and Chat Completions, and says what a scenario says.
type server struct {
	scenario modeltest.Scenario
	done     chan struct{}
	mu       sync.Mutex
	sent     [][]byte
}

type object = map[string]any

// codes are how the API calls its errors.
var codes = map[model.Kind]string{
	model.KindAuth: "invalid_api_key", model.KindRateLimit: "rate_limit_exceeded", model.KindOverloaded: "server_overloaded",
	model.KindServer: "server_error", model.KindOverflow: "context_length_exceeded", model.KindInvalid: "invalid_value",
}

func fault(f *script.Failure) object {
	return object{"message": "Something about " + modeltest.Key + "\nis wrong.", "type": "an_error", "param": nil, "code": codes[f.Kind]}
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
		Model  string
		Stream bool
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+modeltest.Key:
		http.Error(w, `{"error":{"message":"no key","code":"invalid_api_key"}}`, http.StatusUnauthorized)
		return
	case json.Unmarshal(body, &req) != nil || req.Model != s.scenario.Info.ID || !req.Stream:
		http.Error(w, `{"error":{"message":"bad request"}}`, http.StatusBadRequest)
		return
	}
	if len(line.Say) > 0 && line.Say[0].Error != nil && line.Say[0].Error.Status != 0 {
		f := line.Say[0].Error
		w.Header().Set("Content-Type", "application/json")
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(time.Duration(f.RetryAfter).Seconds())))
		}
		w.WriteHeader(f.Status)
		_, _ = w.Write(encode(object{"error": fault(f)}))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	out := &stream{w: w, r: r, server: s}
	switch r.URL.Path {
	case "/v1/responses":
		out.responses(line)
	case "/v1/chat/completions":
		out.chat(line)
	default:
		http.NotFound(w, r)
	}
}

// stream is one answer.
type stream struct {
	w      http.ResponseWriter
	r      *http.Request
	server *server
	number int
}

func (s *stream) data(v any) {
	fmt.Fprintf(s.w, "data: %s\n\n", encode(v))
	_ = http.NewResponseController(s.w).Flush()
}

// event is an event of the Responses API.
func (s *stream) event(kind string, v object) {
	v["type"], v["sequence_number"] = kind, s.number
	s.number++
	fmt.Fprintf(s.w, "event: %s\n", kind)
	s.data(v)
}

func (s *stream) hang() {
	select {
	case <-s.r.Context().Done():
	case <-s.server.done:
	}
}

func usageOf(line script.Line) script.Usage {
	for _, step := range line.Say {
		if step.Usage != nil {
			return *step.Usage
		}
	}
	return script.Usage{Input: 10, Output: 5}
}

func reasoned(u script.Usage) int64 {
	if u.ReasoningTokens == nil {
		return 0
	}
	return *u.ReasoningTokens
}

// responses plays a line over the Responses API.
func (s *stream) responses(line script.Line) {
	response := object{"id": "resp_1", "object": "response", "model": s.server.scenario.Info.ID, "status": "in_progress", "output": []any{}}
	s.event("response.created", object{"response": response})
	s.event("response.in_progress", object{"response": response})
	var whole strings.Builder
	end := object{"id": "resp_1", "object": "response", "model": s.server.scenario.Info.ID, "status": "completed"}
	kind := "response.completed"
	for i := range line.Say {
		step := &line.Say[i]
		switch {
		case step.Hang:
			s.hang()
			return
		case step.Cut:
			return
		case step.Usage != nil:
		case step.Error != nil && step.Error.Message == modeltest.Garbage:
			fmt.Fprint(s.w, "data: <html>502</html>\n\n")
			return
		case step.Error != nil && step.Error.Kind == model.KindRefused:
			end["status"], end["incomplete_details"] = "incomplete", object{"reason": "content_filter"}
			kind = "response.incomplete"
		case step.Error != nil && step.Error.Kind == model.KindServer:
			end["status"], end["error"] = "failed", fault(step.Error)
			s.event("response.failed", object{"response": end})
			return
		case step.Error != nil:
			f := fault(step.Error)
			s.event("error", object{"code": f["code"], "message": f["message"], "param": nil})
			return
		default:
			s.items(step, i+1 < len(line.Say) && line.Say[i+1].Cut)
			for range max(step.Repeat, 1) {
				whole.WriteString(strings.Join(step.Text, ""))
			}
		}
	}
	if line.Stop == "length" {
		end["status"], end["incomplete_details"] = "incomplete", object{"reason": "max_output_tokens"}
		kind = "response.incomplete"
	}
	u := usageOf(line)
	end["usage"] = object{
		"input_tokens": u.Input + u.CacheRead + u.CacheWrite, "input_tokens_details": object{"cached_tokens": u.CacheRead, "cache_write_tokens": u.CacheWrite},
		"output_tokens": u.Output, "output_tokens_details": object{"reasoning_tokens": reasoned(u)}, "total_tokens": 0,
	}
	end["output"] = []any{object{"type": "message", "content": []any{object{"type": "output_text", "text": whole.String()}}}}
	s.event(kind, object{"response": end})
}

// items streams the items of a step.
func (s *stream) items(step *script.Step, broken bool) {
	steps := step.Parallel
	if steps == nil {
		steps = []script.Step{*step}
	}
	base := s.number << 4 // output indexes only have to differ
	items := make([]object, len(steps))
	for k := range steps {
		at := base + k
		p := &steps[k]
		switch {
		case p.Text != nil:
			items[k] = object{"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []any{}}
		case p.Thinking != nil:
			items[k] = object{"type": "reasoning", "id": "rs_1", "summary": []any{}, "encrypted_content": p.Signature}
		case p.Call != "":
			items[k] = object{"type": "function_call", "id": fmt.Sprint("fc_", at), "call_id": p.ID, "name": p.Call, "arguments": "", "status": "in_progress"}
		}
		s.event("response.output_item.added", object{"output_index": at, "item": items[k]})
	}
	for piece := 0; ; piece++ {
		more := false
		for k := range steps {
			at, p := base+k, &steps[k]
			kind, pieces := "response.output_text.delta", p.Text
			switch {
			case p.Thinking != nil:
				kind, pieces = "response.reasoning_summary_text.delta", p.Thinking
			case p.Call != "":
				kind, pieces = "response.function_call_arguments.delta", p.RawArgs
				if p.Args != nil {
					pieces = script.Pieces{string(p.Args)}
				}
			}
			if piece < len(pieces)*max(p.Repeat, 1) {
				more = true
				s.event(kind, object{"output_index": at, "content_index": 0, "summary_index": 0, "delta": pieces[piece%len(pieces)]})
			}
		}
		if !more {
			break
		}
	}
	if broken {
		return
	}
	for k := range steps {
		p := &steps[k]
		if p.Call != "" {
			items[k]["arguments"] = strings.Join(p.RawArgs, "") + string(p.Args)
		}
		if p.Thinking != nil {
			items[k]["summary"] = []any{object{"type": "summary_text", "text": strings.Join(p.Thinking, "")}}
		}
		s.event("response.output_item.done", object{"output_index": base + k, "item": items[k]})
	}
}

// chat plays a line over Chat Completions.
func (s *stream) chat(line script.Line) {
	chunk := func(delta object, finish any) {
		s.data(object{
			"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": s.server.scenario.Info.ID,
			"choices": []any{object{"index": 0, "delta": delta, "finish_reason": finish}}, "usage": nil,
		})
	}
	chunk(object{"role": "assistant", "content": ""}, nil)
	reason, calls := "stop", 0
	for i := range line.Say {
		step := &line.Say[i]
		switch {
		case step.Hang:
			s.hang()
			return
		case step.Cut:
			return
		case step.Usage != nil:
		case step.Error != nil && step.Error.Message == modeltest.Garbage:
			fmt.Fprint(s.w, "data: <html>502</html>\n\n")
			return
		case step.Error != nil && step.Error.Kind == model.KindRefused:
			reason = "content_filter"
		case step.Error != nil:
			s.data(object{"error": fault(step.Error)})
			return
		case step.Text != nil:
			for range max(step.Repeat, 1) {
				for _, p := range step.Text {
					chunk(object{"content": p}, nil)
				}
			}
		case step.Thinking != nil:
			for _, p := range step.Thinking {
				chunk(object{"reasoning_content": p}, nil)
			}
		default:
			reason = "tool_calls"
			steps := step.Parallel
			if steps == nil {
				steps = []script.Step{*step}
			}
			for k := range steps {
				chunk(object{"tool_calls": []any{object{
					"index": calls + k, "id": steps[k].ID, "type": "function", "function": object{"name": steps[k].Call, "arguments": ""},
				}}}, nil)
			}
			for piece, more := 0, true; more; piece++ {
				more = false
				for k := range steps {
					pieces := steps[k].RawArgs
					if steps[k].Args != nil {
						pieces = script.Pieces{string(steps[k].Args)}
					}
					if piece < len(pieces) {
						more = true
						chunk(object{"tool_calls": []any{object{"index": calls + k, "function": object{"arguments": pieces[piece]}}}}, nil)
					}
				}
			}
			calls += len(steps)
		}
	}
	if line.Stop == "length" {
		reason = "length"
	}
	chunk(object{}, reason)
	u := usageOf(line)
	s.data(object{"id": "chatcmpl-1", "choices": []any{}, "usage": object{
		"prompt_tokens": u.Input + u.CacheRead + u.CacheWrite, "prompt_tokens_details": object{"cached_tokens": u.CacheRead, "cache_write_tokens": u.CacheWrite},
		"completion_tokens": u.Output, "completion_tokens_details": object{"reasoning_tokens": reasoned(u)},
	}})
	fmt.Fprint(s.w, "data: [DONE]\n\n")
}

// open returns how a scenario is opened over one of the APIs.
func open(api string) func(*testing.T, modeltest.Scenario) modeltest.Backend {
	return func(_ *testing.T, scenario modeltest.Scenario) modeltest.Backend {
		s := &server{scenario: scenario, done: make(chan struct{})}
		h := httptest.NewServer(s)
		client := wire.NewHTTP()
		scenario.Info.API = api
		return modeltest.Backend{
			Model: openai.New(openai.Options{Info: scenario.Info, BaseURL: h.URL + "/v1", Key: modeltest.Key, HTTP: client}),
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
}

func TestResponses(t *testing.T) {
	modeltest.Run(t, modeltest.Options{Open: open(model.APIOpenAIResponses), NoRedacted: true})
}

func TestChatCompletions(t *testing.T) {
	modeltest.Run(t, modeltest.Options{Open: open(model.APIOpenAIChat), NoRedacted: true, NoSignatures: true})
}
