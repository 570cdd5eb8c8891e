package anthropic

import (
	"encoding/json"
	"fmt"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/internal/wire"
	"github.com/agentrun/agentrun/session/entry"
)

// event is an event of the stream, of whatever type.
type event struct {
	Type    string `json:"type"`
	Index   int64  `json:"index"`
	Message *struct {
		ID    string `json:"id"`
		Model string `json:"model"`
		Usage usage  `json:"usage"`
	} `json:"message"`
	Block json.RawMessage `json:"content_block"`
	Delta *struct {
		Type        string    `json:"type"`
		Text        wire.Text `json:"text"`
		Thinking    wire.Text `json:"thinking"`
		Signature   string    `json:"signature"`
		PartialJSON wire.Text `json:"partial_json"`
		StopReason  string    `json:"stop_reason"`
		StopDetails *struct {
			Category    string `json:"category"`
			Explanation string `json:"explanation"`
		} `json:"stop_details"`
	} `json:"delta"`
	Usage *usage `json:"usage"`
	Error *fault `json:"error"`
}

// usage is a count of tokens. Later ones have what is left out in them from before.
type usage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	Details    *struct {
		Thinking *int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// fault is an error of the API.
type fault struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// reader makes an answer of the events of a stream.
type reader struct {
	answer *model.Answer
	usage  entry.Usage
	inputs map[int64]json.RawMessage // of calls that came with arguments at once
	stop   string
	why    string // the provider does not want to answer
}

// event takes an event. It returns false behind the last one.
func (r *reader) event(_ string, data []byte) (goOn bool, err error) {
	var e event
	if err := json.Unmarshal(data, &e); err != nil || e.Type == "" {
		return false, &model.Error{Kind: model.KindServer, Message: "the provider sent an event that is none; ask again, and see the base URL if this stays", Err: err}
	}
	switch e.Type {
	case "message_start":
		if e.Message == nil {
			return true, nil
		}
		r.answer.Response(e.Message.ID, e.Message.Model)
		return true, r.count(&e.Message.Usage)
	case "content_block_start":
		return true, r.begin(e.Index, e.Block)
	case "content_block_delta":
		return true, r.delta(&e)
	case "content_block_stop":
		if input := r.inputs[e.Index]; input != nil {
			if err := r.answer.Arguments(e.Index, string(input)); err != nil {
				return false, err
			}
		}
		return true, r.answer.End(e.Index)
	case "message_delta":
		if e.Delta != nil && e.Delta.StopReason != "" {
			r.stop = e.Delta.StopReason
			if d := e.Delta.StopDetails; d != nil {
				r.why = d.Explanation
				if r.why == "" {
					r.why = d.Category
				}
			}
		}
		if e.Usage != nil {
			return true, r.count(e.Usage)
		}
	case "message_stop":
		return false, r.finish()
	case "ping":
		return true, r.answer.Usage(r.usage) // whoever waits sees that the provider is there
	case "error":
		return false, e.Error.err(0)
	}
	return true, nil // something that came after this was written
}

// begin begins a block.
func (r *reader) begin(index int64, raw json.RawMessage) error {
	var b struct {
		Type, Text, Thinking, Signature, Data, ID, Name string
		Input                                           json.RawMessage
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		return &model.Error{Kind: model.KindServer, Message: "the provider sent a block that is none; ask again", Err: err}
	}
	a := r.answer
	switch b.Type {
	case "text":
		return a.Text(index, b.Text)
	case "thinking":
		if err := a.Thinking(index, b.Thinking); err != nil {
			return err
		}
		return a.Sign(index, entry.BlockThinking, b.Signature)
	case "redacted_thinking":
		return a.Whole(index, entry.RedactedThinkingBlock{Data: b.Data})
	case "tool_use":
		if len(b.Input) > 0 && string(b.Input) != "{}" && string(b.Input) != "null" {
			if r.inputs == nil {
				r.inputs = map[int64]json.RawMessage{}
			}
			r.inputs[index] = append(json.RawMessage(nil), b.Input...)
		}
		return a.ToolCall(index, b.ID, b.Name)
	}
	return a.Whole(index, entry.AnthropicServerToolBlock{Block: append(json.RawMessage(nil), raw...)})
}

// delta is more of a block.
func (r *reader) delta(e *event) error {
	a, d := r.answer, e.Delta
	if d == nil {
		return nil
	}
	switch d.Type {
	case "text_delta":
		return a.Text(e.Index, string(d.Text))
	case "thinking_delta":
		return a.Thinking(e.Index, string(d.Thinking))
	case "signature_delta":
		return a.Sign(e.Index, entry.BlockThinking, d.Signature)
	case "input_json_delta":
		delete(r.inputs, e.Index)
		return a.Arguments(e.Index, string(d.PartialJSON))
	}
	return nil
}

// count takes a count of tokens.
func (r *reader) count(u *usage) error {
	for _, c := range []struct {
		to   *int64
		from *int64
	}{
		{&r.usage.Input, u.Input},
		{&r.usage.Output, u.Output},
		{&r.usage.CacheRead, u.CacheRead},
		{&r.usage.CacheWrite, u.CacheWrite},
	} {
		if c.from != nil {
			*c.to = *c.from
		}
	}
	if u.Details != nil && u.Details.Thinking != nil {
		r.usage.ReasoningTokens = u.Details.Thinking
	}
	return r.answer.Usage(r.usage)
}

// finish ends the answer.
func (r *reader) finish() error {
	switch r.stop {
	case "":
		return nil // cut: an answer says why it ends
	case "refusal":
		what := "the provider does not want to answer this"
		if r.why != "" {
			what += fmt.Sprintf(" (%.300s)", r.why)
		}
		return &model.Error{Kind: model.KindRefused, Message: what}
	case "max_tokens", "model_context_window_exceeded":
		return r.answer.Finish(entry.StopLength)
	}
	return r.answer.Finish(entry.StopStop)
}

// err is an error of the API as one of package model.
func (f *fault) err(status int) *model.Error {
	if f == nil {
		f = &fault{}
	}
	means := map[string]int{
		"invalid_request_error": 400, "authentication_error": 401, "billing_error": 403, "permission_error": 403, "not_found_error": 404,
		"request_too_large": 413, "rate_limit_error": 429, "timeout_error": 504, "api_error": 500, "overloaded_error": 529,
	}[f.Type]
	if status != 0 && means == 0 {
		means = status
	}
	if means == 0 {
		means = 500
	}
	e := wire.Explain(means, f.Type, f.Message)
	e.Status = status
	return e
}
