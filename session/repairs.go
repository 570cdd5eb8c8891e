package session

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/internal/ecmajson"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/record"
)

// WriteRepairs is Resume, and appends what was repaired to the log, so that pi and
// oh-my-pi build a valid context too and the next Resume finds nothing to repair. It
// returns the repairs it found and the context after them.
//
// Where nothing but results is missing at the end, they are appended. Otherwise the
// session branches before the first repair, and what follows there is written once
// more, repaired, with its time stamps and without the costs of its model calls, which
// were paid once. The old branch stays. All of it is one write; of one that a crash cuts short, readers take
// nothing.
//
// It takes the driver lease for the time being: the calls of an agent loop that is
// running wait for results that are no fault. When another process holds it, the error
// is a *LockedError.
func (s *Session) WriteRepairs(ctx context.Context, o ResumeOptions) (*Resumed, error) {
	if err := s.writable(ctx); err != nil {
		return nil, err
	}
	found, err := s.Resume(ctx, o)
	if err != nil || len(found.Repairs) == 0 {
		return found, err
	}
	lease, err := s.Drive()
	if err != nil {
		return nil, err
	}
	defer lease.Close()
	written, again := 0, 0
	g := &group{wake: make(chan wake, 1)}
	g.do = func() error {
		if s.known().leaf != found.Leaf {
			// Somebody appended meanwhile. Now nobody can.
			if found, err = s.Resume(ctx, o); err != nil || len(found.Repairs) == 0 {
				return err
			}
		}
		written, again, err = s.appendRepairs(ctx, found)
		return err
	}
	if err := s.submit(ctx, g); err != nil {
		return nil, fmt.Errorf("writing repairs: %w", err)
	}
	after, err := s.Resume(ctx, o)
	if err != nil {
		return nil, err
	}
	after.Repairs, after.Written, after.Again = found.Repairs, written, again
	return after, nil
}

// appendRepairs writes what was found to the log, in one piece. The lock is held. It
// returns how many entries it wrote, and how many of them are there once more.
func (s *Session) appendRepairs(ctx context.Context, found *Resumed) (written, again int, err error) {
	p := planRepairs(found)
	if err := s.relabel(ctx, p); err != nil {
		return 0, 0, err
	}
	reqs, err := p.requests(found)
	if err != nil {
		return 0, 0, err
	}
	if s.quota != nil {
		var n int64
		for _, r := range reqs {
			n += int64(len(r.fields)+len(r.raw)) + envelopeBytes
		}
		if err := s.quota.Log(s.known().size, n); err != nil {
			return 0, 0, err
		}
		reqs[0].asked = n
	}
	for _, step := range p.steps {
		if step.old != nil {
			again++
		}
	}
	return len(reqs), again, s.write(reqs)
}

// repairPlan is what has to be appended for a valid context.
type repairPlan struct {
	under string // entry to append under, "" for a root
	// again is set when entries that are there already are written once more, on a new
	// branch.
	again bool
	steps []repairStep
	ids   map[string]string // new ids of entries that are written again
	// labels are those of entries that are written again.
	labels []entry.Label
}

// repairStep is one entry to append: one of the log once more, or a new one.
type repairStep struct {
	old  *entry.Entry
	id   string
	body entry.Body
}

// planRepairs compares the path with the context that was built of it. What both begin
// with stays; the rest is written again as the context has it.
func planRepairs(found *Resumed) *repairPlan {
	path := found.path.entries
	want := wanted(path, found)
	keep, used := unchanged(path, want, found)
	p := &repairPlan{again: used < len(want) && !onlyNew(want[used:]), ids: map[string]string{}}
	if keep > 0 {
		p.under = path[keep-1].ID()
	} else if len(path) > 0 && !found.path.reach.NeedMessages() {
		p.under = path[0].Parent() // the path was not read to its root
	}
	if p.steps = want[used:]; len(p.steps) == 0 {
		// Nothing is wanted behind what stays, and something stands there.
		p.steps = []repairStep{{body: entry.Custom{CustomType: entry.CustomTypeLeaf, Data: json.RawMessage(`{"reason":"repair"}`)}}}
	}
	for i := range p.steps {
		step := &p.steps[i]
		step.id = record.NewID()
		if step.old != nil {
			p.ids[step.old.ID()] = step.id
		}
	}
	// What a compaction keeps may begin with an entry that is left out.
	next := ""
	for i := len(path) - 1; i >= keep; i-- {
		if id := p.ids[path[i].ID()]; id != "" {
			next = id
		} else if next != "" {
			p.ids[path[i].ID()] = next
		}
	}
	return p
}

func onlyNew(steps []repairStep) bool {
	for _, step := range steps {
		if step.old != nil {
			return false
		}
	}
	return true
}

// wanted lists what a path has to consist of for the context: its messages in their
// order, and between them, where they stand, the entries that are no messages and are
// of the branch: settings, compactions, data of extensions.
func wanted(path []entry.Entry, found *Resumed) []repairStep {
	places := make(map[int64]int, len(path))
	for i := range path {
		places[path[i].Offset()] = i
	}
	var steps []repairStep
	done := -1 // up to there the path is taken over
	others := func(to int) {
		for done++; done < to; done++ {
			if ofBranch(&path[done]) {
				steps = append(steps, repairStep{old: &path[done]})
			}
		}
	}
	for _, m := range found.Context.Messages {
		at := places[m.Entry().Offset()]
		switch {
		case m.Role == entry.RoleCompactionSummary && m.Entry().Type() == entry.TypeCompaction:
			continue // it stands behind what it keeps
		case m.Synthetic:
			body, err := m.Message()
			if err == nil {
				steps = append(steps, repairStep{body: body})
			}
			continue
		case at > done:
			others(at)
		}
		steps = append(steps, repairStep{old: &path[at]})
	}
	others(len(path))
	return steps
}

// ofBranch reports whether an entry that is no message belongs to its branch: it has a
// meaning for those who come by on their way from the root.
func ofBranch(e *entry.Entry) bool {
	switch e.Type() {
	case entry.TypeMessage, entry.TypeCustomMessage, entry.TypeBranchSummary:
		return false // it is in the context, or was left out of it
	case entry.TypeLabel, entry.TypeTitleChange, entry.TypeSessionInfo, entry.TypeModelUsage, entry.TypeCredentialPin, entry.TypeSessionInit:
		return false // it is of the session, on whatever branch it stands
	case entry.TypeCustom:
		var b entry.Custom
		if e.Decode(&b) != nil {
			return false
		}
		switch b.CustomType {
		case entry.CustomTypeLeaf, customTypeRepair, "agentrun.run.start", "agentrun.session":
			return false
		}
	}
	return true
}

// unchanged returns how much of the path, and of what is wanted, can stay: up to the
// first entry that has to be another, to be left out or to be somewhere else. What
// stays ends with a wanted entry.
func unchanged(path []entry.Entry, want []repairStep, found *Resumed) (keep, used int) {
	limit := len(path)
	for _, i := range found.path.broken {
		limit = min(limit, i)
	}
	left := map[int64]bool{} // what a repair left out
	for _, r := range found.Repairs {
		switch r.Kind {
		case entry.RepairOrphan, entry.RepairEmpty, entry.RepairRepeated, entry.RepairUnreadable, entry.RepairMoved:
			left[r.Offset] = true
		}
	}
	has := make(map[*entry.Entry]bool, len(want))
	for _, step := range want {
		if step.old != nil {
			has[step.old] = true
		}
	}
	for i := range path[:limit] {
		e := &path[i]
		if _, ok := found.path.changed[e.Offset()]; ok {
			break
		}
		if used < len(want) && want[used].old == e {
			keep, used = i+1, used+1
			continue
		}
		if has[e] || left[e.Offset()] || used < len(want) && want[used].old == nil {
			break
		}
		// It has no part in the context and may stay where it is.
	}
	return keep, used
}

// relabel finds the labels of what is written again.
func (s *Session) relabel(ctx context.Context, p *repairPlan) error {
	if !p.again {
		return nil
	}
	labels, err := s.Labels(ctx)
	if err != nil {
		return err
	}
	for _, step := range p.steps {
		if step.old == nil {
			continue
		}
		if label := labels[step.old.ID()]; label != "" {
			p.labels = append(p.labels, entry.Label{TargetID: step.id, Label: label})
		}
	}
	return nil
}

// maxRepairNotes is how many repairs are told one by one in the log.
const maxRepairNotes = 100

// requests makes lines of the plan.
func (p *repairPlan) requests(found *Resumed) ([]*request, error) {
	var reqs []*request
	add := func(r *request, id string) {
		r.id, r.prepared = id, true
		reqs = append(reqs, r)
	}
	marker := ""
	if p.again {
		marker = record.NewID()
		add(&request{}, marker) // filled in at the end, when the last id is known
	}
	for _, step := range p.steps {
		r := &request{}
		var err error
		if step.old != nil {
			err = r.copy(*step.old, p.ids)
		} else {
			err = r.set(step.body)
		}
		if err != nil {
			return nil, err
		}
		add(r, step.id)
	}
	for _, l := range p.labels {
		r := &request{}
		if err := r.set(l); err != nil {
			return nil, err
		}
		add(r, record.NewID())
	}
	if len(reqs) == 0 {
		return nil, nil
	}
	if p.again {
		for _, r := range reqs[1:] {
			r.fields = ecmajson.AppendString(append(r.fields, `,"`+repairMember+`":`...), marker)
		}
		start := repairStart{Leaf: found.Leaf, Last: reqs[len(reqs)-1].id}
		for _, r := range found.Repairs[:min(len(found.Repairs), maxRepairNotes)] {
			start.Repairs = append(start.Repairs, repairNotes{r.Kind, r.EntryID, r.What()})
		}
		start.More = len(found.Repairs) - len(start.Repairs)
		data, err := json.Marshal(start)
		if err == nil {
			err = reqs[0].set(entry.Custom{CustomType: customTypeRepair, Data: data})
		}
		if err != nil {
			return nil, err
		}
	}
	reqs[0].explicit, reqs[0].parent = true, p.under
	return reqs, nil
}

// copy takes over the members of an entry that is written once more, which are in the
// form of a line already. Ids of entries that are written again become the new ones.
func (r *request) copy(e entry.Entry, ids map[string]string) error {
	r.typ, r.at = e.Type(), e.Time()
	for key, value := range ecmajson.Object(e.Raw()) {
		switch {
		case key.Is("type"), key.Is("id"), key.Is("parentId"), key.Is("timestamp"), key.Is("crc"), key.Is(repairMember):
			continue
		case key.Is("firstKeptEntryId"), key.Is("providerReplayThroughEntryId"):
			if id, err := ecmajson.Unquote(value); err == nil && ids[string(id)] != "" {
				value = ecmajson.AppendString(nil, ids[string(id)])
			}
		case key.Is("message"):
			value = unpaid(value)
		}
		var err error
		r.fields = append(append(append(r.fields, ','), key...), ':')
		if r.fields, err = ecmajson.AppendNormal(r.fields, value); err != nil {
			return fmt.Errorf("writing entry %.40q again: %w", e.ID(), err)
		}
	}
	return nil
}

const noCost = `{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}`

// unpaid returns a message without the cost of its model call. The tokens stay:
// programs tell by them how full the context is.
func unpaid(message []byte) []byte {
	for _, path := range []string{"usage.cost", "details.usage.cost"} {
		if cost := gjson.GetBytes(message, path); cost.IsObject() && cost.Index > 0 {
			message = append(append(message[:cost.Index:cost.Index], noCost...), message[cost.Index+len(cost.Raw):]...)
		}
	}
	return message
}
