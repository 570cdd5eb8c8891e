package doctor

import (
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/session"
)

// claude takes a record of a Claude Code transcript: uuid and parentUuid make the
// tree, tool_use and tool_result blocks of messages the calls.
func (t *transcript) claude(raw []byte, at spot) {
	v := gjson.GetManyBytes(raw, "uuid", "parentUuid", "message.content")
	if id := v[0].String(); id != "" {
		if first, twice := t.ids[id]; twice {
			t.say(Finding{Kind: string(session.KindDuplicate), What: fmt.Sprintf(
				"record %s has the id of the one in line %d: only one of both is found by a resume; both are in the file", short(id), first)}.at(at.line, at.offset, at.bytes))
		} else {
			t.ids[id] = at.line
			t.parentOf[id] = v[1].String()
		}
		if above := v[1].String(); above != "" {
			t.parents = append(t.parents, parent{id, above, at})
		}
	}
	if !v[2].IsArray() {
		return
	}
	v[2].ForEach(func(_, block gjson.Result) bool {
		switch block.Get("type").String() {
		case "tool_use":
			t.ask(block.Get("id").String(), block.Get("name").String(), at)
		case "tool_result":
			t.answer(block.Get("tool_use_id").String(), at)
		}
		return true
	})
}
