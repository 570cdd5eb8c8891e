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
		{"claude that was refused by its provider", `{"type":"result","subtype":"success","is_error":true,"api_error_status":404,"result":"There is no such model"}`, "", "There is no such model", 0},
		{"claude that says why", `{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["No conversation found\nwith that"]}`, "", "No conversation found", 0},
		{"claude with a subagent of its own, cut off", `{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"Mine."}]},"parent_tool_use_id":null}
{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"That of another."}]},"parent_tool_use_id":"toolu_1"}`, "Mine.", "", 0},
		{"claude of another version", `{"type":"assistant","error":"rate_limit","message":{"role":"assistant","content":[{"type":"text","text":"One."}],"usage":"none"}}
{"type":"result","subtype":"success","is_error":false,"result":"Two.","errors":[{"code":1}],"usage":{"input_tokens":3,"output_tokens":4,"cached_input_tokens":"x"}}`, "Two.", "", 7},
		{"claude in one array", `[{"type":"system"},{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"One."}]}},{"type":"result","subtype":"success","is_error":false,"result":"Two.","usage":{"input_tokens":3,"output_tokens":4}}]`, "Two.", "", 7},
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

func TestWhatAProgramSaysThatItCostIsCounted(t *testing.T) {
	for name, test := range map[string]struct {
		output string
		cost   float64
	}{
		"claude":             {`{"type":"result","subtype":"success","is_error":false,"result":"x","total_cost_usd":0.25,"usage":{"input_tokens":3}}`, 0.25},
		"claude that failed": {`{"type":"result","subtype":"error_max_turns","is_error":true,"total_cost_usd":0.5}`, 0.5},
		"pi": {`{"type":"message_end","message":{"role":"assistant","content":[],"usage":{"input":1,"cost":{"input":0.1,"total":0.125}},"stopReason":"toolUse"}}
{"type":"turn_end","message":{"role":"assistant","usage":{"input":1,"cost":{"total":0.125}}}}
{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"x"}],"usage":{"input":1,"cost":{"total":0.25}},"stopReason":"stop"}}`, 0.375},
		"codex, which does not say": {`{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":4,"output_tokens":2}}`, 0},
	} {
		w, err := readLastWord(strings.NewReader(test.output))
		if err != nil || w.usage.Cost.Total != test.cost {
			t.Errorf("%s: $%v, %v; want $%v", name, w.usage.Cost.Total, err, test.cost)
		}
	}
}

func TestTheStructuredOutputOfAProgramIsItsOwn(t *testing.T) {
	w, err := readLastWord(strings.NewReader(`{"type":"result","subtype":"success","is_error":false,"result":"Here it is.","structured_output":{"n":1}}`))
	if err != nil || w.text != "Here it is." || string(w.structured) != `{"n":1}` {
		t.Errorf("%+v, %v", w, err)
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
