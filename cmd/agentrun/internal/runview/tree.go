package runview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentrun/agentrun/agent"
)

// Tree is the agents of a run. The zero value is a run without an event. It belongs to one goroutine.
type Tree struct {
	agents map[string]*Agent
	order  []*Agent
}

// Agent is one of them, as far as its events tell.
type Agent struct {
	ID     string
	Type   string
	Status string // what it does, or its end
	Doing  string // the call that it is at
	Ended  bool
	Failed bool // it ended in another way than it was to
	Calls  int  // that have a result

	began, ended time.Time
	tokens       int64 // spent by itself
	cost         float64
	total        *agent.Spent // by itself, what its end says, once it has one
	calls        []call       // that have none yet, in their order
}

type call struct{ id, what string }

// queued is the status of an agent that has not begun.
const queued = "queued"

// Agent is the state of one agent; nil of one that nothing is known of.
func (t *Tree) Agent(id string) *Agent { return t.agents[id] }

// Children is how many agents there are besides the main one.
func (t *Tree) Children() int {
	n := len(t.order)
	if t.agents[agent.MainID] != nil {
		n--
	}
	return n
}

// at is an agent, which is made if there is none.
func (t *Tree) at(id string, now time.Time) *Agent {
	if a := t.agents[id]; a != nil {
		return a
	}
	if t.agents == nil {
		t.agents = map[string]*Agent{}
	}
	a := &Agent{ID: Clean(id), Status: queued, began: now}
	t.agents[id] = a
	t.order = append(t.order, a)
	return a
}

// Observe takes an event of an agent.
func (t *Tree) Observe(id string, e agent.Event, now time.Time) {
	a := t.at(id, now)
	switch e := e.(type) {
	case agent.Spawned:
		a.Type = Clean(e.Type)
	case agent.StateChanged:
		if e.State == agent.Stopped || e.State == agent.Failed || e.State == agent.Idle {
			return // Ended says more
		}
		if a.Status == queued || a.Ended {
			a.began = now
		}
		if a.Ended {
			a.Ended, a.Failed, a.total = false, false, nil
		}
		a.Status = string(e.State)
		if e.State == agent.Waiting {
			a.Status = "waits for you"
		}
	case agent.Answered:
		a.tokens += e.Message.Usage.TotalTokens
		a.cost += e.Message.Usage.Cost.Total
	case agent.Retrying:
		a.Status = "tries again in " + Duration(e.Wait)
	case agent.CallStarted:
		a.calls = append(a.calls, call{e.ID, Clean(e.Tool + " " + Subject(e.Arguments))})
		a.doing()
	case agent.CallFinished:
		a.calls = slices.DeleteFunc(a.calls, func(c call) bool { return c.id == e.ID })
		a.Calls++
		a.doing()
	case agent.Ended:
		spent := e.Outcome.Spent
		a.end(string(e.Outcome.Status), e.Outcome.Status == agent.Completed, &spent, now)
	case agent.Reported:
		spent := e.Spent
		a.end(e.Status, e.Status == string(agent.Completed), &spent, now)
	}
}

func (a *Agent) doing() {
	a.Doing = ""
	if n := len(a.calls); n > 0 {
		a.Doing = a.calls[n-1].what
	}
}

func (a *Agent) end(status string, well bool, spent *agent.Spent, now time.Time) {
	if !a.Ended {
		a.ended = now
	}
	a.Status, a.Ended, a.Failed, a.total, a.calls, a.Doing = Clean(status), true, !well, spent, nil, ""
}

// depth is how many agents are above it.
func (a *Agent) depth() int {
	if a.ID == agent.MainID {
		return 0
	}
	return 1 + strings.Count(a.ID, ".")
}

// parent is the id of the agent that started it.
func (a *Agent) parent() string {
	if i := strings.LastIndexByte(a.ID, '.'); i > 0 {
		return a.ID[:i]
	}
	return agent.MainID
}

// spent is what an agent and those below it have spent so far.
func (t *Tree) spent(a *Agent) (tokens int64, cost float64) {
	tokens, cost = a.tokens, a.cost
	if a.total != nil { // of one that a run before this one has ended there is no more
		tokens, cost = max(tokens, a.total.Tokens), max(cost, a.total.Cost)
	}
	for _, b := range t.order {
		if b.ID != agent.MainID && b.parent() == a.ID {
			more, dollars := t.spent(b)
			tokens, cost = tokens+more, cost+dollars
		}
	}
	return tokens, cost
}

// Rows are the agents as rows of at most width columns, at most most of them. Agents that have ended make room first.
func (t *Tree) Rows(width, most int, now time.Time) []Row {
	list := t.sorted()
	var hidden []*Agent
	if most = max(most, 1); len(list) > most {
		list, hidden = choose(list, max(most-1, 1))
	}
	rows := make([]Row, 0, len(list)+1)
	for i, a := range list {
		rows = append(rows, t.row(a, branch(list, i), width, now))
	}
	if len(hidden) > 0 && most > 1 {
		rows = append(rows, Row{{more(hidden), Faint}}.Fit(width))
	}
	return rows
}

// sorted is the agents in the order of a tree: those of an agent behind it, in the order in which they were started.
func (t *Tree) sorted() []*Agent {
	list := make([]*Agent, 0, len(t.order))
	if main := t.agents[agent.MainID]; main != nil {
		list = append(list, main)
	}
	below := map[string][]*Agent{}
	for _, a := range t.order {
		if a.ID != agent.MainID {
			below[a.parent()] = append(below[a.parent()], a)
		}
	}
	var add func(parent string)
	add = func(parent string) {
		for _, a := range below[parent] {
			list = append(list, a)
			add(a.ID)
		}
	}
	add(agent.MainID)
	return list
}

// choose keeps most agents: the first, then those at work, those that wait, and those that ended last.
func choose(list []*Agent, most int) (kept, hidden []*Agent) {
	rank := func(a *Agent) int {
		switch {
		case a == list[0]:
			return 0
		case !a.Ended && a.Status != queued:
			return 1
		case !a.Ended:
			return 2
		}
		return 3
	}
	byRank := slices.Clone(list)
	slices.SortStableFunc(byRank, func(a, b *Agent) int {
		if d := rank(a) - rank(b); d != 0 || !a.Ended {
			return d
		}
		return b.ended.Compare(a.ended)
	})
	keep := map[*Agent]bool{}
	for _, a := range byRank[:most] {
		keep[a] = true
	}
	for _, a := range list {
		if keep[a] {
			kept = append(kept, a)
		} else {
			hidden = append(hidden, a)
		}
	}
	return kept, hidden
}

// more says what is not shown.
func more(hidden []*Agent) string {
	counts := map[string]int{}
	var states []string
	for _, a := range hidden {
		state := a.Status
		if !a.Ended && state != queued {
			state = "at work"
		}
		if counts[state]++; counts[state] == 1 {
			states = append(states, state)
		}
	}
	slices.Sort(states)
	for i, s := range states {
		states[i] = fmt.Sprintf("%d %s", counts[s], s)
	}
	return fmt.Sprintf("… %d more: %s", len(hidden), strings.Join(states, ", "))
}

// branch is the lines of the tree before an agent.
func branch(list []*Agent, i int) string {
	a := list[i]
	depth := a.depth()
	if depth == 0 {
		return ""
	}
	var b strings.Builder
	for level := 1; level <= depth; level++ {
		later := false
		for _, next := range list[i+1:] {
			if d := next.depth(); d <= level {
				later = d == level
				break
			}
		}
		switch {
		case level == depth && later:
			b.WriteString("├─ ")
		case level == depth:
			b.WriteString("└─ ")
		case later:
			b.WriteString("│  ")
		default:
			b.WriteString("   ")
		}
	}
	return b.String()
}

// row is one agent. On a narrow terminal there is less of it.
func (t *Tree) row(a *Agent, branch string, width int, now time.Time) Row {
	mark, style := "●", Cyan
	switch {
	case a.Failed:
		mark, style = "✗", Red
	case a.Ended:
		mark, style = "✓", Green
	case a.Status == queued:
		mark, style = "○", Faint
	case a.Status == "waits for you":
		style = Amber
	}
	tokens, cost := t.spent(a)
	fields := []Span{{"", Plain}, {a.Status, style}, {"", Faint}, {"", Faint}, {"", Faint}}
	if a.Type != "" {
		fields[0] = Span{a.Type, Faint}
	}
	if a.Doing != "" {
		fields[1].Text = head(a.Doing, max(width/3, 12))
	}
	if tokens > 0 {
		fields[2].Text = Count(tokens) + " tokens"
	}
	if cost > 0 {
		fields[3].Text = Dollars(cost)
	}
	end := now
	if a.Ended {
		end = a.ended
	}
	if took := end.Sub(a.began); a.Status != queued && took >= time.Second {
		fields[4].Text = Duration(took)
	}
	row := func() Row {
		r := Row{{branch, Faint}, {mark + " ", style}, {a.ID, Bold}}
		for _, f := range fields {
			if f.Text != "" {
				r = append(r, Span{"  ", Plain}, f)
			}
		}
		return r
	}
	for _, drop := range []int{0, 4, 3, 2} {
		if row().Width() <= width {
			break
		}
		fields[drop].Text = ""
	}
	return row().Fit(width)
}

// Count is a number with its thousands apart.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Dollars is a cost; what is less than a cent is told to a hundredth of it.
func Dollars(cost float64) string {
	if cost < 1 {
		return fmt.Sprintf("$%.4f", cost)
	}
	return fmt.Sprintf("$%.2f", cost)
}

// Tries says which try of a request failed, where that is known.
func Tries(e agent.Retrying) string {
	if e.Of == 0 {
		return ""
	}
	return fmt.Sprintf(" (try %d of %d failed)", e.Try, e.Of)
}

// Duration is a time as a person reads it.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
}
