package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
)

// kin are the subagents of one agent, as far as no call of it waits for them. All of it is in the agent's log; kin
// remembers it.
type kin struct {
	tree   *Tree
	parent Parent
	work   sync.WaitGroup

	mu      sync.Mutex // guards all below
	read    bool       // the log is read
	family  family
	seen    map[string]int64              // how long the log of a subagent was when it was looked into
	live    map[string]context.CancelFunc // at work in the background
	ready   []entry.Body                  // reports that are to be handed over
	err     error                         // agentrun's own
	changed chan struct{}                 // closed when one of live has come to its end
}

func newKin(t *Tree) *kin {
	return &kin{tree: t, seen: map[string]int64{}, live: map[string]context.CancelFunc{}, changed: make(chan struct{})}
}

// load reads the log, the first time. k.mu is held.
func (k *kin) load(ctx context.Context) error {
	if k.read {
		return nil
	}
	k.family = family{ends: map[string]End{}, told: map[told]bool{}}
	_, err := os.Stat(k.parent.Session.ArtifactsDir())
	if err == nil { // else there was never a subagent
		if k.family, err = readFamily(ctx, k.parent.Session); err != nil {
			return fmt.Errorf("looking for subagents: %w", err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking for subagents: %w", err)
	}
	k.read = true
	return nil
}

// started notes what a call has started, which the log has.
func (k *kin) started(ctx context.Context, spawn Spawn) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.read { // else it will be
		k.family.spawns = append(k.family.spawns, spawn)
		return nil
	}
	return k.load(ctx)
}

// ended notes an end that the log has.
func (k *kin) ended(end End) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.family.ends[end.ID] = end
	k.family.all = append(k.family.all, end)
}

// lastEnd is the last end of a subagent, zero if it has none.
func (k *kin) lastEnd(ctx context.Context, id artifacts.AgentID) (End, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.load(ctx)
	return k.family.ends[id.String()], err
}

// begin reads the log, and starts what a crash or a stop has cut off.
func (k *kin) begin(ctx context.Context) error {
	k.mu.Lock()
	if k.read && k.seen[""] != 0 {
		k.mu.Unlock()
		return nil
	}
	err := k.load(ctx)
	k.seen[""] = 1 // no id is empty: this has been done
	f := k.family
	for _, end := range f.late {
		if !f.told[told{end.ID, end.Version, end.Run}] {
			body, rerr := k.again(ctx, end)
			k.ready, err = append(k.ready, body), errors.Join(err, rerr)
		}
	}
	for _, end := range f.ends {
		err = errors.Join(err, k.tree.clearLeft(ctx, &k.parent, end))
	}
	var cut []func()
	for _, spawn := range f.spawns {
		for i, sp := range spawn.Agents {
			if _, over := f.ends[sp.ID]; !over && spawn.Background {
				cut = append(cut, func() { k.revive(ctx, spawn, i) })
			}
		}
	}
	k.mu.Unlock()
	if err != nil {
		return err
	}
	for _, revive := range cut {
		revive()
	}
	return nil
}

// again is the message of a report that was kept and not handed over. k.mu is held.
func (k *kin) again(ctx context.Context, end End) (entry.Body, error) {
	j := &job{end: &end, late: true}
	for _, spawn := range k.family.spawns {
		for _, sp := range spawn.Agents {
			if sp.ID == end.ID {
				j.typ.Name = sp.Agent
			}
		}
	}
	var err error
	if j.id, err = artifacts.ParseAgentID(end.ID); err != nil {
		return nil, fmt.Errorf("handing over a report: %w", err)
	}
	r, err := k.tree.kept(ctx, j)
	if err != nil {
		return nil, err
	}
	return handOver(r)
}

// handOver is the message that tells an agent of a report.
func handOver(r report) (entry.Body, error) {
	details, err := json.Marshal(told{r.end.ID, r.end.Version, r.end.Run})
	if err != nil {
		return nil, fmt.Errorf("handing over a report: %w", err)
	}
	return entry.CustomMessage{CustomType: ReportType, Content: entry.PlainText(r.String()), Display: true, Details: details}, nil
}

// revive starts a subagent of a call before this run in the background. One that cannot be started any more ends.
func (k *kin) revive(ctx context.Context, spawn Spawn, i int) {
	var in input
	err := tool.Decode(spawn.Input, &in)
	if err == nil && i >= len(in.Tasks) {
		err = errors.New("the log does not say what it was given")
	}
	j := &job{typ: Type{Name: spawn.Agents[i].Agent}}
	if err == nil {
		j.item = in.Tasks[i]
		err = taskTool{k.tree, &k.parent}.checkItem(j)
	}
	id, perr := artifacts.ParseAgentID(spawn.Agents[i].ID)
	if perr != nil {
		return // no subagent of ours is called so
	}
	j.id = id
	if err != nil {
		j.late = true
		r := report{id: id, typ: j.typ.Name, end: End{Status: Crashed, Reason: err.Error()}}
		r, err = k.tree.keep(ctx, &k.parent, j, r)
		k.over(j, r, err)
		return
	}
	k.launch(ctx, j, in.Context)
}

// launch starts a subagent in the background, unless it is at work there.
func (k *kin) launch(ctx context.Context, j *job, shared string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.live[j.id.String()] != nil {
		return
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k.live[j.id.String()] = cancel
	j.late = true
	at := k.tree.slots.queue()
	k.work.Go(func() {
		defer cancel()
		r, err := k.tree.finish(inner, &k.parent, j, at, shared)
		k.over(j, r, err)
	})
}

// over notes the end of a subagent in the background.
func (k *kin) over(j *job, r report, err error) {
	var body entry.Body
	if err == nil {
		body, err = handOver(r)
	}
	size := k.size(j.id.String())
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.live, j.id.String())
	switch {
	case err == nil:
		k.ready = append(k.ready, body)
		if r.end.Status == Crashed {
			k.seen[j.id.String()] = size // not at once again
		}
	case !errors.Is(err, errStopped):
		k.err = errors.Join(k.err, err)
	}
	close(k.changed)
	k.changed = make(chan struct{})
}

// size is how long the log of a subagent is, 0 if it has none.
func (k *kin) size(id string) int64 {
	info, err := os.Stat(k.log(id))
	if err != nil {
		return 0
	}
	return info.Size()
}

func (k *kin) log(id string) string {
	return filepath.Join(k.parent.Session.ArtifactsDir(), filepath.Base(id)+".jsonl")
}

// wake starts the subagents again that have ended, and that somebody has said something to since.
func (k *kin) wake(ctx context.Context) error {
	k.mu.Lock()
	spawns := k.family.spawns
	k.mu.Unlock()
	for _, spawn := range spawns {
		for i, sp := range spawn.Agents {
			needed, err := k.needsWork(ctx, sp.ID)
			if err != nil {
				return err
			}
			if needed {
				k.revive(ctx, spawn, i)
			}
		}
	}
	return nil
}

// needsWork reports whether a subagent that has ended has more to do. It looks into logs that have grown.
func (k *kin) needsWork(ctx context.Context, id string) (bool, error) {
	size := k.size(id)
	k.mu.Lock()
	end, ended := k.family.ends[id]
	skip := !ended || k.live[id] != nil || size == 0 || k.seen[id] == size
	if !skip {
		k.seen[id] = size
	}
	k.mu.Unlock()
	if skip {
		return false, nil
	}
	more, err := moreToDo(ctx, k.tree.o.Manager, k.log(id), end, 0)
	if err != nil && ctx.Err() == nil && !passes(err) {
		return false, nil // a log that cannot be read has nothing more to do: whoever wrote it has crashed
	}
	return more, err
}

// moreToDo reports whether a subagent with that log, or one below it, has more to do than its end says.
func moreToDo(ctx context.Context, m *session.Manager, path string, end End, depth int) (bool, error) {
	s, err := m.View(ctx, path)
	if errors.Is(err, session.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || depth > maxDepth {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer s.Close()
	standing, err := agent.StandingOf(ctx, s, end.ID)
	if err != nil {
		return false, err
	}
	if standing.Said > 0 || end.Run != "" && standing.Run != end.Run {
		return true, nil
	}
	f, err := readFamily(ctx, s)
	if err != nil {
		return false, err
	}
	for id, below := range f.ends {
		more, err := moreToDo(ctx, m, filepath.Join(filepath.Dir(path), filepath.Base(id)+".jsonl"), below, depth+1)
		if err != nil || more {
			return more, err
		}
	}
	return false, nil
}

// Settled reports whether the last run of a session is completed, and nothing is left that agentrun resume would do: nobody has
// said something since to its agent or to a subagent, and no report from the background is to be handed over. It changes nothing.
func Settled(ctx context.Context, m *session.Manager, s *session.Session) (bool, error) {
	standing, err := agent.StandingOf(ctx, s, agent.MainID)
	if err != nil || standing.Run == "" || standing.Status != agent.Completed || standing.Said > 0 {
		return false, err
	}
	f, err := readFamily(ctx, s)
	if err != nil {
		return false, err
	}
	for _, end := range f.late {
		if !f.told[told{end.ID, end.Version, end.Run}] {
			return false, nil
		}
	}
	for _, spawn := range f.spawns {
		for _, sp := range spawn.Agents {
			if _, ended := f.ends[sp.ID]; !ended && spawn.Background {
				return false, nil
			}
		}
	}
	for id, end := range f.ends {
		more, err := moreToDo(ctx, m, filepath.Join(s.ArtifactsDir(), filepath.Base(id)+".jsonl"), end, 0)
		if err != nil || more {
			return false, err
		}
	}
	return true, nil
}

// inbox hands over the reports that are there.
func (k *kin) inbox(ctx context.Context) ([]entry.Body, error) {
	if err := errors.Join(k.begin(ctx), k.wake(ctx)); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	bodies := k.ready
	k.ready = nil
	return bodies, k.err
}

// pending reports whether there is a report to hand over, or one to wait for.
func (k *kin) pending(ctx context.Context) (bool, error) {
	if err := errors.Join(k.begin(ctx), k.wake(ctx)); err != nil {
		return false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.ready) > 0 || len(k.live) > 0, k.err
}

// await waits for a report, as long as somebody is at work on one.
func (k *kin) await(ctx context.Context) (bool, error) {
	if err := k.begin(ctx); err != nil {
		return false, err
	}
	k.mu.Lock()
	ready, err := len(k.ready), k.err
	k.mu.Unlock()
	if ready > 0 && err == nil {
		return true, nil // and whoever takes that up wakes others
	}
	if err := errors.Join(err, k.wake(ctx)); err != nil {
		return false, err
	}
	k.mu.Lock()
	ready, live, changed, err := len(k.ready), len(k.live), k.changed, k.err
	k.mu.Unlock()
	if ready > 0 || live == 0 || err != nil {
		return ready > 0 && err == nil, err
	}
	k.parent.slot.lend()
	defer k.parent.slot.reclaim()
	select {
	case <-changed:
		// What came of it is in ready now, or it was stopped.
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.ready) > 0, k.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// wait waits until nobody is at work in the background any more.
func (k *kin) wait(ctx context.Context) {
	for {
		k.mu.Lock()
		live, changed := len(k.live), k.changed
		k.mu.Unlock()
		if live == 0 {
			return
		}
		k.parent.slot.lend()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		k.parent.slot.reclaim()
		if ctx.Err() != nil {
			return
		}
	}
}

// stop stops what is at work, and waits for its end.
func (k *kin) stop() {
	k.mu.Lock()
	for _, cancel := range k.live {
		cancel()
	}
	k.mu.Unlock()
	k.work.Wait()
}

// wasMerged reports whether a patch is in the files of the agent. Others may have merged it since the log was read.
func (k *kin) wasMerged(ctx context.Context, artifact string) (bool, error) {
	f, err := readFamily(ctx, k.parent.Session)
	return f.merged[artifact], err
}
