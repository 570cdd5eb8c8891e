package entry

import (
	"slices"
)

// pairing collects the messages of a context in the order of the log, and finds
// the result of every tool call and the turns that failed.
type pairing struct {
	messages []ContextMessage
	places   []place  // parallel to messages
	ids      []string // slab for the calls of entries that nobody prepared
	repairs  []Repair

	// Calls that wait for a result: those of the last turn, unless they are many,
	// and by id those of turns before it. Results nearly always follow their turn,
	// so the map stays empty.
	turn    int // index of the last turn
	last    int // index of the last message that is no result
	waiting []string
	earlier map[string]open

	strict bool // messages that say nothing or repeat the one before are left out
	odd    bool // the messages can't be returned as they stand
	failed bool // some turn failed
}

// open are calls of one id and one turn that wait for results.
type open struct{ turn, calls int32 }

// place is what pairing knows about one message.
type place struct {
	turn    int32 // of a result: the index of the turn it answers; else noTurn
	next    int32 // the next message that is not left out, once that is known
	waiting int32 // of a turn: how many of its calls have no result
	dropped bool
	failed  bool // of a turn: dropped unless a note on its reasoning follows
}

const noTurn = -1

// manyCalls is how many calls of a turn are searched one by one. More go to the map,
// so that a hostile line with a million calls costs no more than its length.
const manyCalls = 16

// newPairing returns a pairing for at most n messages, which need not be many.
func newPairing(n int) *pairing {
	return &pairing{messages: make([]ContextMessage, 0, n), places: make([]place, 0, n)}
}

// add takes the message that e contributes, if any.
func (p *pairing) add(e *Entry) {
	g := e.seen
	if g == nil {
		g = new(glance)
		p.ids = g.fill(e, p.ids)
	}
	switch {
	case g.none:
		return
	case g.role == "":
		p.repaired(RepairUnreadable, e, "")
		return
	case p.strict && p.refused(e, g):
		return
	}
	m := ContextMessage{EntryID: e.id, Role: g.role, ToolCallIDs: g.calls, Excluded: g.excluded, entry: e}
	switch {
	case e.typ == TypeMessage && g.role == RoleAssistant:
		p.addTurn(m, g.end)
	case e.typ == TypeMessage && g.role == RoleToolResult:
		p.addResult(m)
	default:
		p.push(m)
	}
}

// repaired notes a repair that concerns e.
func (p *pairing) repaired(kind RepairKind, e *Entry, call string) {
	p.repairs = append(p.repairs, Repair{Kind: kind, EntryID: e.id, Offset: e.offset, ToolCallID: call})
}

// refused leaves out what providers refuse, or would take for something else.
func (p *pairing) refused(e *Entry, g *glance) bool {
	if g.role == RoleToolResult || g.role == RoleAssistant && g.end != succeeded {
		return false
	}
	if n := len(p.messages); n > 0 {
		// Results stand between two copies of a turn that has calls.
		if before := &p.messages[p.last]; before.Role == g.role && !p.places[p.last].failed && e.repeats(before.entry) {
			p.repaired(RepairRepeated, e, "")
			return true
		}
	}
	if !g.strict {
		g.look(e)
	}
	if g.empty {
		p.repaired(RepairEmpty, e, "")
		return true
	}
	return false
}

// push appends a message that is no result.
func (p *pairing) push(m ContextMessage) *place {
	p.last = len(p.messages)
	p.messages = append(p.messages, m)
	p.places = append(p.places, place{turn: noTurn})
	return &p.places[p.last]
}

// addTurn takes an assistant message and how it ended.
func (p *pairing) addTurn(m ContextMessage, end outcome) {
	for _, id := range p.waiting {
		p.wait(id, p.turn)
	}
	p.waiting = p.waiting[:0]
	pl := p.push(m)
	p.turn = p.last
	pl.dropped, pl.failed = end == void, end == failed
	p.odd = p.odd || pl.dropped
	p.failed = p.failed || pl.failed
	for _, id := range m.ToolCallIDs {
		if len(m.ToolCallIDs) > manyCalls {
			if x, ok := p.earlier[id]; p.strict || !ok || int(x.turn) != p.turn {
				p.wait(id, p.turn)
				pl.waiting++
			}
		} else if p.strict || !slices.Contains(p.waiting, id) {
			p.waiting = append(p.waiting, id)
			pl.waiting++
		}
	}
}

// wait remembers a call for results that do not follow their turn.
func (p *pairing) wait(id string, turn int) {
	if p.earlier == nil {
		p.earlier = make(map[string]open)
	}
	x := open{int32(turn), 1}
	if old := p.earlier[id]; old.turn == x.turn {
		x.calls += old.calls
	}
	p.earlier[id] = x
}

// addResult takes a toolResult message.
func (p *pairing) addResult(m ContextMessage) {
	id := m.ToolCallIDs[0]
	pl := place{turn: noTurn}
	if i := slices.Index(p.waiting, id); i >= 0 {
		pl.turn = int32(p.turn)
		p.waiting = slices.Delete(p.waiting, i, i+1)
	} else if x, ok := p.earlier[id]; ok {
		pl.turn = x.turn
		if x.calls--; x.calls > 0 {
			p.earlier[id] = x
		} else {
			delete(p.earlier, id)
		}
	}
	if pl.turn == noTurn {
		p.repaired(RepairOrphan, m.entry, id)
		return
	}
	p.places[pl.turn].waiting--
	p.odd = p.odd || int(pl.turn) != p.last
	p.messages = append(p.messages, m)
	p.places = append(p.places, pl)
}

// resolve returns the messages in an order that providers accept.
func (p *pairing) resolve() ([]ContextMessage, []Repair) {
	if p.failed {
		p.dropFailed()
	}
	for i := range p.places {
		p.odd = p.odd || p.places[i].waiting > 0
	}
	if p.odd {
		p.arrange()
	}
	if p.strict {
		p.tellApart()
	}
	return p.messages, p.repairs
}

// left reports whether message i is left out: it was dropped, or its turn.
func (p *pairing) left(i int32) bool {
	pl := &p.places[i]
	return pl.dropped || pl.turn != noTurn && p.places[pl.turn].dropped
}

// dropFailed drops the failed turns, going backwards: whether a note follows a turn
// at once depends on what was dropped behind it.
func (p *pairing) dropFailed() {
	next := int32(len(p.messages))
	for i := int32(len(p.messages)) - 1; i >= 0; i-- {
		// A turn that was just dropped takes its results along. Each message is
		// passed over once, so this stays linear.
		for int(next) < len(p.messages) && p.left(next) {
			next = p.places[next].next
		}
		pl := &p.places[i]
		pl.next = next
		if pl.failed {
			pl.dropped = int(next) == len(p.messages) || !p.messages[next].isInterruptionNote()
			p.messages[i].Interrupted = !pl.dropped
			p.odd = p.odd || pl.dropped
		}
		next = i
	}
}

// arrange builds the messages anew: without those left out, each result right
// behind its turn, and synthetic results where there is none.
func (p *pairing) arrange() {
	byTurn := p.resultsByTurn()
	out := make([]ContextMessage, 0, len(p.messages)+len(byTurn)/8)
	last := int32(noTurn) // the last message kept that is no result
	for i := range p.messages {
		pl := &p.places[i]
		if p.left(int32(i)) {
			continue
		}
		if pl.turn != noTurn {
			if pl.turn != last {
				p.repaired(RepairMoved, p.messages[i].entry, p.messages[i].ToolCallIDs[0])
			}
			continue
		}
		last = int32(i)
		out = append(out, p.messages[i])
		if len(p.messages[i].ToolCallIDs) == 0 || p.messages[i].Role != RoleAssistant {
			continue
		}
		for len(byTurn) > 0 && p.places[byTurn[0]].turn < last { // of turns left out
			byTurn = byTurn[1:]
		}
		n := 0
		for n < len(byTurn) && p.places[byTurn[n]].turn == last {
			out = append(out, p.messages[byTurn[n]])
			n++
		}
		if pl.waiting > 0 {
			out = p.interrupt(out, p.messages[i], byTurn[:n])
		}
	}
	p.messages = out
}

// resultsByTurn returns the indexes of all results, ordered by turn and within a
// turn as in the log.
func (p *pairing) resultsByTurn() []int32 {
	var results []int32
	for i := range p.places {
		if p.places[i].turn != noTurn {
			results = append(results, int32(i))
		}
	}
	slices.SortStableFunc(results, func(a, b int32) int { return int(p.places[a].turn - p.places[b].turn) })
	return results
}

// interrupt appends synthetic results for the calls of turn that have none.
func (p *pairing) interrupt(out []ContextMessage, turn ContextMessage, results []int32) []ContextMessage {
	done := make(map[string]int, len(turn.ToolCallIDs))
	for _, i := range results {
		done[p.messages[i].ToolCallIDs[0]]++
	}
	names := make(map[string]string)
	for b := range elements(turn.entry.message().Get("content")) {
		if str(b.Get("type")) == BlockToolCall {
			names[str(b.Get("id"))] = str(b.Get("name"))
		}
	}
	for i, id := range turn.ToolCallIDs {
		if done[id] > 0 {
			if p.strict { // one result for each call
				done[id]--
			}
			continue
		}
		if !p.strict { // calls of one id are one
			done[id]++
		}
		out = append(out, ContextMessage{
			EntryID: turn.EntryID, Role: RoleToolResult, Synthetic: true,
			ToolCallIDs: turn.ToolCallIDs[i : i+1 : i+1], toolName: names[id], entry: turn.entry,
		})
		p.repaired(RepairInterrupted, turn.entry, id)
	}
	return out
}
