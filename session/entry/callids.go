package entry

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// tellApart gives each tool call of a strict context an id that no other call has, and
// its result the same: providers refuse a request in which an id comes twice. The first
// call keeps its id. An empty id is never kept.
func (p *pairing) tellApart() {
	names := callNames{used: map[string]bool{}}
	for i := range p.messages {
		if m := &p.messages[i]; m.Role == RoleAssistant {
			for _, id := range m.ToolCallIDs {
				if !names.take(id) {
					names.again = true
				}
			}
		}
	}
	if !names.again {
		return
	}
	// Now used has all ids of the context, and no new one may be any of them.
	names.kept, names.last = make(map[string]bool, len(names.used)), map[string]int{}
	for i := 0; i < len(p.messages); i++ {
		m := &p.messages[i]
		if m.Role != RoleAssistant || len(m.ToolCallIDs) == 0 {
			continue
		}
		old, changed := m.ToolCallIDs, false
		ids := make([]string, len(old))
		waiting := map[string][]string{} // new ids of calls without a result, by their old one
		for k, id := range old {
			ids[k] = names.keep(id)
			if ids[k] != id {
				changed = true
				p.repairs = append(p.repairs, Repair{
					Kind: RepairCallID, EntryID: m.EntryID, Offset: m.entry.offset, ToolCallID: id,
					Detail: fmt.Sprintf("another tool call has the id %.80q; this one is %.90q, and so is its result", id, ids[k]),
				})
			}
			waiting[id] = append(waiting[id], ids[k])
		}
		if !changed {
			continue
		}
		turn := m.entry.withCallIDs(ids)
		m.entry, m.ToolCallIDs, m.Renamed = &turn, ids, true
		for i+1 < len(p.messages) && p.messages[i+1].Role == RoleToolResult {
			i++
			r := &p.messages[i]
			id := r.ToolCallIDs[0]
			if len(waiting[id]) == 0 {
				continue
			}
			id, waiting[id] = waiting[id][0], waiting[id][1:]
			switch {
			case r.Synthetic:
				r.entry = &turn
			case id != r.ToolCallIDs[0]:
				result := r.entry.withCallID(id)
				r.entry, r.Renamed = &result, true
			}
			r.ToolCallIDs = []string{id}
		}
	}
}

// callNames gives out ids of calls.
type callNames struct {
	used  map[string]bool // by the part that a provider compares
	kept  map[string]bool
	last  map[string]int // the last number behind an id
	again bool           // some id comes twice
}

// callSeparator stands between the two ids that pi keeps of a call in the Responses
// API: of the call, which must be its own, and of the item.
const callSeparator = "|"

func compared(id string) string {
	call, _, _ := strings.Cut(id, callSeparator)
	return call
}

// take notes that id is in use, and reports whether it was not.
func (n *callNames) take(id string) bool {
	c := compared(id)
	if c == "" || n.used[c] {
		return false
	}
	n.used[c] = true
	return true
}

// maxCallID is how long an id may be for every provider, in bytes: 40 in OpenAI's Chat
// Completions, 64 elsewhere. Longer ones that the log has are left as they are.
const maxCallID = 40

// keep returns id for the first call that has it, and else a new one.
func (n *callNames) keep(id string) string {
	if c := compared(id); c != "" && !n.kept[c] {
		n.kept[c] = true
		return id
	}
	for i := max(n.last[id], 1) + 1; ; i++ {
		if renamed := numbered(id, i); n.take(renamed) {
			n.last[id] = i
			return renamed
		}
	}
}

// numbered is an id with a number behind each of its parts.
func numbered(id string, n int) string {
	number := "-" + strconv.Itoa(n)
	parts := strings.Split(id, callSeparator)
	for i, part := range parts {
		if part == "" {
			part = "call"
		}
		if len(part)+len(number) > maxCallID {
			part = strings.ToValidUTF8(part[:maxCallID-len(number)], "")
		}
		parts[i] = part + number
	}
	return strings.Join(parts, callSeparator)
}

// withCallIDs returns an assistant message with other ids for its calls, one for each of
// ToolCallIDs. Everything else stays as it is, to the byte.
func (e Entry) withCallIDs(ids []string) Entry {
	var r replacement
	r.raw = e.raw
	for b := range elements(e.message().Get("content")) {
		if str(b.Get("type")) != BlockToolCall {
			continue
		}
		if len(ids) == 0 {
			break
		}
		r.set(b, "id", ids[0])
		ids = ids[1:]
	}
	return New(r.apply(), e.Envelope())
}

// withCallID returns a tool result of another call.
func (e Entry) withCallID(id string) Entry {
	r := replacement{raw: e.raw}
	r.set(e.message(), "toolCallId", id)
	return New(r.apply(), e.Envelope())
}

// set gives an object a string as a member.
func (r *replacement) set(object gjson.Result, name, value string) {
	text := ecmajson.AppendString(nil, value)
	if old := object.Get(name); old.Exists() {
		r.put(old, text)
		return
	}
	at := object.Index + 1 // behind the brace; an object with a type or role has members
	r.edits = append(r.edits, edit{at, at, append([]byte(strconv.Quote(name)+":"), append(text, ',')...)})
}
