package openai

import (
	"crypto/rand"
	"encoding/json"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/internal/wire"
	"github.com/agentrun/agentrun/session/entry"
)

// chatChunk is a piece of a stream.
type chatChunk struct {
	ID      string `json:"id"`
	Model   string `json:"model"`
	Choices []struct {
		Index int `json:"index"`
		Delta struct {
			Content          *wire.Text  `json:"content"`
			ReasoningContent *wire.Text  `json:"reasoning_content"` // DeepSeek, llama.cpp, vLLM
			Reasoning        *wire.Text  `json:"reasoning"`         // OpenRouter, Ollama
			Refusal          *string     `json:"refusal"`
			ToolCalls        []chatDelta `json:"tool_calls"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt        int64 `json:"prompt_tokens"`
		PromptDetails struct {
			Cached  int64 `json:"cached_tokens"`
			Written int64 `json:"cache_write_tokens"`
		} `json:"prompt_tokens_details"`
		Completion        int64 `json:"completion_tokens"`
		CompletionDetails struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	} `json:"usage"`
	Error *fault `json:"error"`
}

// chatDelta is more of a tool call.
type chatDelta struct {
	Index    *int64 `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string    `json:"name"`
		Arguments wire.Text `json:"arguments"`
	} `json:"function"`
}

// Keys of blocks: those of tool calls are their own, from 0.
const (
	keyText     = -1
	keyThinking = -2
)

// chatReader makes an answer of the pieces of a stream.
type chatReader struct {
	answer  *model.Answer
	stop    string
	refused bool
	calls   map[int64]string // ids, by key
	last    int64            // the key of the call that came last
}

// event takes a piece. It returns false behind the last one.
func (r *chatReader) event(_ string, data []byte) (goOn bool, err error) {
	if string(data) == "[DONE]" {
		return false, nil
	}
	var c chatChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return false, garbage(err)
	}
	if c.Error != nil {
		return false, c.Error.err(0)
	}
	a := r.answer
	if c.ID != "" {
		a.Response(c.ID, c.Model)
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		d := choice.Delta
		for _, thought := range []*wire.Text{d.ReasoningContent, d.Reasoning} {
			if thought != nil {
				if err := a.Thinking(keyThinking, string(*thought)); err != nil {
					return false, err
				}
				break // a server that has both says the same in both
			}
		}
		if d.Refusal != nil && *d.Refusal != "" {
			r.refused = true
			if err := a.Text(keyText, *d.Refusal); err != nil {
				return false, err
			}
		}
		if d.Content != nil {
			if err := a.Text(keyText, string(*d.Content)); err != nil {
				return false, err
			}
		}
		for i := range d.ToolCalls {
			if err := r.call(&d.ToolCalls[i]); err != nil {
				return false, err
			}
		}
		if choice.FinishReason != "" {
			r.stop = choice.FinishReason
		}
	}
	if u := c.Usage; u != nil {
		thought := u.CompletionDetails.Reasoning
		return true, a.Usage(entry.Usage{
			Input:     u.Prompt - u.PromptDetails.Cached - u.PromptDetails.Written,
			CacheRead: u.PromptDetails.Cached, CacheWrite: u.PromptDetails.Written,
			Output: u.Completion, ReasoningTokens: &thought,
		})
	}
	return true, nil
}

// call takes more of a tool call. Servers differ: some leave the index out, give a call
// no id, or say id and name with each piece.
func (r *chatReader) call(d *chatDelta) error {
	if r.calls == nil {
		r.calls = map[int64]string{}
	}
	key := r.last
	if d.Index != nil {
		key = max(*d.Index, 0)
	}
	id, begun := r.calls[key]
	if d.Index == nil && begun && d.ID != "" && d.ID != id {
		key, begun = int64(len(r.calls)), false
	}
	if !begun {
		if d.ID == "" {
			d.ID = "call_" + rand.Text()
		}
		r.calls[key] = d.ID
		if err := r.answer.ToolCall(key, d.ID, d.Function.Name); err != nil {
			return err
		}
	}
	r.last = key
	return r.answer.Arguments(key, string(d.Function.Arguments))
}

// finish ends the answer: its stream has ended, with or without a mark. A reason why the
// model stopped is the end of an answer; without one it was cut.
func (r *chatReader) finish() error {
	switch {
	case r.stop == "":
		return nil
	case r.stop == "content_filter" || r.refused:
		return &model.Error{Kind: model.KindRefused, Message: refusal}
	case r.stop == "length":
		return r.answer.Finish(entry.StopLength)
	}
	return r.answer.Finish(entry.StopStop)
}
