package task

import (
	"strings"
	"testing"
)

func TestTheLastWordOfEachProgramIsFound(t *testing.T) {
	tests := []struct {
		name, output, text, failed string
		tokens                     int64
	}{
		{"claude", `{"type":"system","subtype":"init","session_id":"x"}
{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"One."},{"type":"tool_use","id":"t","name":"Bash","input":{}}]}}
{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"{\"type\":\"result\"}"}]}}
{"type":"result","subtype":"success","is_error":false,"result":"Two.","total_cost_usd":0.1,"usage":{"input_tokens":3,"output_tokens":4,"cache_read_input_tokens":5}}`, "Two.", "", 12},
		{"claude without turns left", `{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"So far."}]}}
{"type":"result","subtype":"error_max_turns","is_error":true}`, "So far.", "error_max_turns", 0},
		{"claude cut off", `{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"So far."}]}}
{"type":"assi`, "So far.", "", 0},
		{"codex", `{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"One."}}
{"type":"item.completed","item":{"id":"2","type":"command_execution","aggregated_output":"x"}}
{"type":"item.completed","item":{"id":"3","type":"agent_message","text":"Two."}}
{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":4,"output_tokens":2}}`, "Two.", "", 12},
		{"codex failed", `{"type":"turn.failed","error":{"message":"no model\nmore"}}`, "", "no model", 0},
		{"codex with a notice", `{"type":"error","message":"reconnecting"}
{"type":"item.completed","item":{"type":"agent_message","text":"Here."}}`, "Here.", "", 0},
		{"pi", `{"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"no"}]}}
{"type":"message_end","message":{"role":"assistant","content":[{"type":"thinking","thinking":"no"},{"type":"text","text":"Yes."}],"stopReason":"stop","usage":{"input":1,"output":2,"cacheRead":3,"cacheWrite":4}}}`, "Yes.", "", 10},
		{"pi that failed, then did not", `{"type":"message_end","message":{"role":"assistant","content":[],"stopReason":"error","errorMessage":"529"}}
{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"Yes."}],"stopReason":"stop"}}`, "Yes.", "", 0},
		{"plain", "{\"type\":1}\nwords\n[]\n", "", "", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, err := readLastWord(strings.NewReader(test.output))
			u := w.usage
			if err != nil || w.text != test.text || w.failed != test.failed || u.Input+u.Output+u.CacheRead+u.CacheWrite != test.tokens {
				t.Errorf("%+v, %v", w, err)
			}
			if w.known != (test.name != "plain") {
				t.Errorf("known is %v", w.known)
			}
		})
	}
}

func FuzzLastWord(f *testing.F) {
	f.Add(`{"type":"result","result":"x"}`)
	f.Add(`{"type":"message_end","message":{"role":"assistant","content":[{"type":"text"}]}}` + "\n{")
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := readLastWord(strings.NewReader(s)); err != nil {
			t.Error(err)
		}
	})
}
