package openai

import (
	"encoding/json"
	"fmt"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/internal/wire"
	"github.com/agentrun/agentrun/session/entry"
)

// responsesEvent is an event of the Responses API, of whatever type.
type responsesEvent struct {
	Type         string          `json:"type"`
	OutputIndex  int64           `json:"output_index"`
	ContentIndex int64           `json:"content_index"`
	SummaryIndex int64           `json:"summary_index"`
	Delta        wire.Text       `json:"delta"`
	Item         json.RawMessage `json:"item"`
	Response     *struct {
		ID         string `json:"id"`
		Model      string `json:"model"`
		Status     string `json:"status"`
		Error      *fault `json:"error"`
		Incomplete *struct {
			Reason string `json:"reason"`
		} `json:"incomplete_details"`
		Usage *struct {
			Input        int64 `json:"input_tokens"`
			InputDetails struct {
				Cached  int64 `json:"cached_tokens"`
				Written int64 `json:"cache_write_tokens"`
			} `json:"input_tokens_details"`
			Output        int64 `json:"output_tokens"`
			OutputDetails struct {
				Reasoning int64 `json:"reasoning_tokens"`
			} `json:"output_tokens_details"`
		} `json:"usage"`
	} `json:"response"`
	fault        // of an event of the type error, some of which have it in "error"
	Error *fault `json:"error"`
}

// heard are the types of events that something is made of. Others come and go with the
// versions of the API, in forms that nobody here knows.
var heard = map[string]bool{
	"response.created": true, "response.in_progress": true, "response.output_item.added": true, "response.output_item.done": true,
	"response.output_text.delta": true, "response.refusal.delta": true, "response.function_call_arguments.delta": true,
	"response.reasoning_summary_text.delta": true, "response.reasoning_text.delta": true,
	"response.completed": true, "response.incomplete": true, "response.failed": true, "error": true,
}

// item is an item of the output.
type item struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	Phase     string `json:"phase"`
	Encrypted string `json:"encrypted_content"`
}

// responsesReader makes an answer of the events of a stream.
type responsesReader struct {
	answer  *model.Answer
	refused bool
	summary map[int64]int64 // the part of the summary that reasoning is at, by its key
	argued  map[int64]bool  // calls whose arguments came piece by piece
}

// key is that of a block: a message may have several, one for each of its contents.
func (e *responsesEvent) key() int64 { return e.OutputIndex<<16 | e.ContentIndex&0xffff }

// event takes an event. It returns false behind the last one.
func (r *responsesReader) event(_ string, data []byte) (goOn bool, err error) {
	if string(data) == "[DONE]" {
		return false, nil
	}
	var e responsesEvent
	err = json.Unmarshal(data, &e)
	if err != nil && (e.Type == "" || heard[e.Type]) || e.Type == "" {
		return false, garbage(err)
	}
	a := r.answer
	switch e.Type {
	case "response.created", "response.in_progress":
		if e.Response != nil {
			a.Response(e.Response.ID, e.Response.Model)
		}
	case "response.output_item.added":
		var i item
		if err := json.Unmarshal(e.Item, &i); err != nil {
			return false, garbage(err)
		}
		if i.Type == "function_call" {
			return true, a.ToolCall(e.key(), i.CallID, i.Name)
		}
	case "response.output_text.delta":
		return true, a.Text(e.key(), string(e.Delta))
	case "response.refusal.delta":
		r.refused = true
		return true, a.Text(e.key(), string(e.Delta))
	case "response.reasoning_summary_text.delta":
		return true, r.think(e.OutputIndex<<16, e.SummaryIndex, string(e.Delta))
	case "response.reasoning_text.delta":
		return true, r.think(e.OutputIndex<<16, e.ContentIndex, string(e.Delta))
	case "response.function_call_arguments.delta":
		if r.argued == nil {
			r.argued = map[int64]bool{}
		}
		r.argued[e.OutputIndex<<16] = true
		return true, a.Arguments(e.OutputIndex<<16, string(e.Delta))
	case "response.output_item.done":
		return true, r.done(&e)
	case "response.completed", "response.incomplete", "response.failed":
		return false, r.finish(&e)
	case "error":
		f := &e.fault
		if e.Error != nil {
			f = e.Error
		}
		return false, f.err(0)
	}
	return true, nil
}

// think is more of the reasoning, of which parts stand apart.
func (r *responsesReader) think(key, part int64, delta string) error {
	if r.summary == nil {
		r.summary = map[int64]int64{}
	}
	if before, ok := r.summary[key]; ok && before != part {
		delta = "\n\n" + delta
	}
	r.summary[key] = part
	return r.answer.Thinking(key, delta)
}

// done ends an item.
func (r *responsesReader) done(e *responsesEvent) error {
	var i item
	if err := json.Unmarshal(e.Item, &i); err != nil {
		return garbage(err)
	}
	a, key := r.answer, e.OutputIndex<<16
	switch i.Type {
	case "reasoning":
		if i.Encrypted != "" {
			// The whole item goes back as it came.
			if err := a.Sign(key, entry.BlockThinking, string(e.Item)); err != nil {
				return err
			}
		}
		if a.Has(key) && i.ID != "" {
			if err := a.Item(key, i.ID); err != nil {
				return err
			}
		}
	case "message":
		if a.Has(key) && i.ID != "" {
			s, err := json.Marshal(textSignature{1, i.ID, i.Phase})
			if err != nil {
				return err
			}
			if err := a.Sign(key, entry.BlockText, string(s)); err != nil {
				return err
			}
		}
	case "function_call":
		if !a.Has(key) {
			if err := a.ToolCall(key, i.CallID, i.Name); err != nil {
				return err
			}
		}
		if !r.argued[key] {
			if err := a.Arguments(key, i.Arguments); err != nil {
				return err
			}
		}
	}
	return a.End(key)
}

// finish ends the answer.
func (r *responsesReader) finish(e *responsesEvent) error {
	s := e.Response
	if s == nil {
		return garbage(nil)
	}
	r.answer.Response(s.ID, s.Model)
	if u := s.Usage; u != nil {
		thought := u.OutputDetails.Reasoning
		if err := r.answer.Usage(entry.Usage{
			Input:     u.Input - u.InputDetails.Cached - u.InputDetails.Written,
			CacheRead: u.InputDetails.Cached, CacheWrite: u.InputDetails.Written,
			Output: u.Output, ReasoningTokens: &thought,
		}); err != nil {
			return err
		}
	}
	why := ""
	if s.Incomplete != nil {
		why = s.Incomplete.Reason
	}
	switch {
	case s.Status == "failed" || e.Type == "response.failed":
		return s.Error.err(0)
	case why == "content_filter" || r.refused:
		return &model.Error{Kind: model.KindRefused, Message: refusal}
	case why == "max_output_tokens":
		return r.answer.Finish(entry.StopLength)
	case s.Status == "incomplete" || s.Status == "cancelled":
		return &model.Error{Kind: model.KindServer, Message: fmt.Sprintf("the provider ended the answer before its end (%.100q); ask again", why)}
	}
	return r.answer.Finish(entry.StopStop)
}
