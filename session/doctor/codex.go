package doctor

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
)

// KindOrdinal is a rollout of Codex whose numbering has a gap or goes back.
const KindOrdinal = "ordinal"

// codex takes a line of a Codex rollout: {timestamp, ordinal?, type, payload}, and in
// rollouts of early versions the payload alone.
func (t *transcript) codex(raw []byte, at spot) {
	v := gjson.GetManyBytes(raw, "type", "payload", "ordinal")
	item := v[1]
	switch typ := v[0].String(); {
	case typ == "session_meta":
		t.sawHeader = true
	case !item.Exists():
		item = gjson.ParseBytes(raw)
		if t.records == 1 && item.Get("id").Exists() && item.Get("timestamp").Exists() {
			t.sawHeader = true // the first line of early rollouts
			return
		}
	case typ != "response_item":
		t.number(v[2], at)
		return
	}
	t.number(v[2], at)
	switch typ, id := item.Get("type").String(), item.Get("call_id").String(); {
	case strings.HasSuffix(typ, "_call_output"), typ == "tool_search_output":
		t.answer(id, at)
	case typ == "function_call", typ == "custom_tool_call", typ == "local_shell_call", typ == "tool_search_call":
		if typ != "tool_search_call" || item.Get("execution").String() == "client" {
			t.ask(id, item.Get("name").String(), at)
		}
	}
}

// number checks the ordinals of a paginated rollout, which are dense.
func (t *transcript) number(v gjson.Result, at spot) {
	if v.Type != gjson.Number {
		return
	}
	n := v.Int()
	if t.ordinals && n != t.ordinal+1 && !t.unordered {
		t.unordered = true // once: what comes behind it is shifted as well
		t.say(Finding{Kind: KindOrdinal, What: fmt.Sprintf(
			"record %d follows record %d: Codex refuses to go on with a rollout whose numbers are not dense", n, t.ordinal)}.at(at.line, at.offset, at.bytes))
	}
	t.ordinal, t.ordinals = n, true
}
