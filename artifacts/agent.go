package artifacts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/process"
)

// agentFiles says which files of one agent a listing found.
type agentFiles struct {
	kinds    agentKind // of any version
	versions []int     // with a .md, ascending
}

func (a agentFiles) with(version int, kind agentKind) agentFiles {
	a.kinds |= kind
	if kind == agentText {
		at, _ := slices.BinarySearch(a.versions, version)
		a.versions = slices.Insert(slices.Clone(a.versions), at, version)
	}
	return a
}

// Agent describes one output of a subagent.
type Agent struct {
	ID       AgentID
	Version  int   // 1 for the first output
	Versions []int // all there are, ascending
	Path     string
	Bytes    int64
	ModTime  time.Time
}

// URL is how this very version is read within its session: the newest as
// agent://<id>, older ones as agent://<id>.v<n>.
func (a Agent) URL() string {
	if a.Version == a.Versions[len(a.Versions)-1] {
		return "agent://" + a.ID.String()
	}
	return "agent://" + a.ID.String() + ".v" + strconv.Itoa(a.Version)
}

// AgentNotFoundError is returned for an id or version without an output. It
// matches ErrNotFound.
type AgentNotFoundError struct {
	Ref       string   // as it was asked for
	Available []string // what can be read instead, ascending
	Reason    string   // why there is none, where that is known
}

func (e *AgentNotFoundError) Error() string {
	reason := ""
	if e.Reason != "" {
		reason = " (" + e.Reason + ")"
	}
	some := e.Available[:min(len(e.Available), maxAvailable)]
	return "Not found: " + e.Ref + reason + "\nAvailable: " + enumerate(some, len(e.Available))
}

func (e *AgentNotFoundError) Is(target error) bool { return target == ErrNotFound }

// Reserve takes an id for a new subagent called name, below parent, or at the
// top level when parent is zero: <index>-<name>, with an index that no agent of
// the session has or had. It is taken by an exclusive create; nothing is left of
// it when Reserve fails.
func (d *Dir) Reserve(ctx context.Context, parent AgentID, name string, p Provenance) (AgentID, error) {
	if err := checkSegment(name); err != nil {
		return AgentID{}, fmt.Errorf("reserving an agent id: %w", err)
	}
	id, err := d.reserve(ctx, parent, name, p)
	if err != nil {
		return AgentID{}, fmt.Errorf("reserving an agent id for %s: %w", name, err)
	}
	return id, nil
}

func (d *Dir) reserve(ctx context.Context, parent AgentID, name string, p Provenance) (AgentID, error) {
	release, err := d.lock(ctx)
	if err != nil {
		return AgentID{}, err
	}
	defer release()
	return d.claimAgent(ctx, parent, name, p)
}

// ReserveAll is Reserve for several subagents at once: their indexes follow each other in the order of names, and nobody
// else's come between. It goes on where a crash has cut it off: ids that were taken for p.Run, which must not be empty,
// below parent, and that nothing was written under, are taken first, each by the name that it was made for.
func (d *Dir) ReserveAll(ctx context.Context, parent AgentID, names []string, p Provenance) ([]AgentID, error) {
	for _, name := range names {
		if err := checkSegment(name); err != nil {
			return nil, fmt.Errorf("reserving agent ids: %w", err)
		}
	}
	ids, err := d.reserveAll(ctx, parent, names, p)
	if err != nil {
		return nil, fmt.Errorf("reserving agent ids for %s: %w", strings.Join(names, ", "), err)
	}
	return ids, nil
}

func (d *Dir) reserveAll(ctx context.Context, parent AgentID, names []string, p Provenance) ([]AgentID, error) {
	release, err := d.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	left, err := d.unused(ctx, parent, p.Run)
	if err != nil {
		return nil, err
	}
	ids := make([]AgentID, 0, len(names))
	for _, name := range names {
		if len(left) > 0 && strings.HasSuffix(left[0].s, "-"+name) {
			ids, left = append(ids, left[0]), left[1:]
			continue
		}
		id, err := d.claimAgent(ctx, parent, name, p)
		if err != nil {
			return ids, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// unused are the ids below parent that were taken for a run and that there is nothing else of, by their index.
func (d *Dir) unused(ctx context.Context, parent AgentID, run string) ([]AgentID, error) {
	if run == "" {
		return nil, errors.New("the run is not named")
	}
	s, err := d.list(ctx, true)
	if err != nil {
		return nil, err
	}
	var ids []AgentID
	for id, files := range s.agents {
		if files.kinds != agentHold || id.Parent() != parent {
			continue
		}
		if side, from := d.provenance(agentSidecar + id.s + jsonSuffix); from == ours && side.Run == run {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b AgentID) int { return cmp.Compare(a.topIndex(), b.topIndex()) })
	return ids, nil
}

// claimAgent takes the next id. The lock is held.
func (d *Dir) claimAgent(ctx context.Context, parent AgentID, name string, p Provenance) (AgentID, error) {
	count, err := d.next(ctx)
	if err != nil {
		return AgentID{}, err
	}
	// Indexes below folders that oh-my-pi made count too.
	nested, err := d.nested(ctx)
	if err != nil {
		return AgentID{}, err
	}
	for id := range nested {
		count.Agent = max(count.Agent, id.topIndex()+1)
	}
	side := sidecar{Run: p.Run, Created: d.opt.Now().UTC(), ID: process.Self()}
	content, err := side.encode()
	if err != nil {
		return AgentID{}, err
	}
	for range claimTries {
		if count.Agent > maxID {
			break
		}
		id, err := parent.Child(strconv.FormatInt(count.Agent, 10) + "-" + name)
		if err != nil {
			return AgentID{}, err
		}
		count.Agent++
		hold := d.join(agentSidecar + id.s + jsonSuffix)
		// It says whose it is from its first moment: one that a kill left without that would be nobody's, and its index a gap.
		err = durable.WriteNewFunc(d.fs, hold, false, func(w io.Writer) error {
			_, err := w.Write(content)
			return err
		})
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return AgentID{}, err
		}
		if err := d.remember(count); err != nil {
			_ = d.fs.Remove(hold) // the first error is the one to report
			return AgentID{}, err
		}
		return id, nil
	}
	return AgentID{}, fmt.Errorf("%s has no free index up to %d", d.Path(), count.Agent)
}

// versions are those of id that have a text, ascending.
func (d *Dir) versions(id AgentID, s *snapshot) []int { return d.withNested(id, s.agents[id].versions) }

// withNested adds the version that oh-my-pi keeps elsewhere.
func (d *Dir) withNested(id AgentID, have []int) []int {
	if slices.Contains(have, 1) {
		return have
	}
	if _, err := d.nestedPath(id); err == nil {
		return append([]int{1}, have...)
	}
	return have
}

// nestedPath is where oh-my-pi 15.8 and later keeps the output of a nested
// agent: each agent's children in a folder of its name, Anna/Anna.Bob.md. It
// fails when there is no such regular file, or a folder on the way is not one.
func (d *Dir) nestedPath(id AgentID) (string, error) {
	dir := d.Path()
	for i := range len(id.s) {
		if id.s[i] != '.' {
			continue
		}
		dir = filepath.Join(dir, id.s[:i])
		at, err := d.fs.Identify(dir)
		if err != nil {
			return "", err
		}
		if !isDir(at) {
			return "", fs.ErrNotExist
		}
	}
	path := filepath.Join(dir, id.s+".md")
	at, err := d.fs.Identify(path)
	if err != nil {
		return "", err
	}
	if dir == d.Path() || !isRegular(at) {
		return "", fs.ErrNotExist
	}
	return path, nil
}

// LookupAgent finds an output of id: version 0 stands for the newest. It returns
// ErrNoDirectory or an *AgentNotFoundError.
func (d *Dir) LookupAgent(ctx context.Context, id AgentID, version int) (Agent, error) {
	for fresh := false; ; fresh = true {
		s, err := d.list(ctx, fresh)
		if err != nil {
			return Agent{}, err
		}
		have := d.versions(id, s)
		if v := pick(have, version); v != 0 {
			a, err := d.describeAgent(id, v, have)
			if !errors.Is(err, fs.ErrNotExist) {
				return a, err
			}
		}
		if fresh {
			return Agent{}, d.agentNotFound(ctx, id, version, s, have)
		}
	}
}

// HasAgent reports whether there is that version of the output of id, without a look at the rest of the directory.
func (d *Dir) HasAgent(ctx context.Context, id AgentID, version int) (bool, error) {
	if id.IsZero() || version < 1 {
		return false, nil
	}
	_, err := d.exists(ctx)
	if noDirectory(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = d.describeAgent(id, version, []int{version})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// pick chooses a version out of those there are; 0 when it is not among them.
func pick(have []int, version int) int {
	switch {
	case len(have) == 0:
		return 0
	case version == 0:
		return have[len(have)-1]
	case slices.Contains(have, version):
		return version
	default:
		return 0
	}
}

func (d *Dir) describeAgent(id AgentID, version int, have []int) (Agent, error) {
	path := d.join(agentFile(id, version, ".md"))
	at, err := d.fs.Identify(path)
	if errors.Is(err, fs.ErrNotExist) && version == 1 {
		var nested string
		if nested, err = d.nestedPath(id); err == nil {
			path = nested
			at, err = d.fs.Identify(path)
		}
	}
	if err != nil {
		return Agent{}, fmt.Errorf("looking for the output of agent %s: %w", id, err)
	}
	if !isRegular(at) {
		return Agent{}, fmt.Errorf("the output of agent %s is refused: %s is not a regular file", id, path)
	}
	return Agent{
		ID: id, Version: version, Versions: have, Path: path,
		Bytes: at.Size, ModTime: time.Unix(0, at.ModTime),
	}, nil
}

func (d *Dir) agentNotFound(ctx context.Context, id AgentID, version int, s *snapshot, have []int) error {
	notFound := &AgentNotFoundError{Ref: id.s}
	if version != 0 {
		notFound.Ref += ".v" + strconv.Itoa(version)
	}
	if len(have) > 0 {
		for _, v := range have {
			notFound.Available = append(notFound.Available, id.s+".v"+strconv.Itoa(v))
		}
		return notFound
	}
	switch kinds := s.agents[id].kinds; {
	case kinds&agentLog != 0:
		notFound.Reason = "it has a session of its own and has handed back nothing yet"
	case kinds&agentHold != 0:
		notFound.Reason = "its id is reserved and it has handed back nothing yet"
	}
	ids, err := d.AgentIDs(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		notFound.Available = append(notFound.Available, id.s)
	}
	return notFound
}

// AgentIDs are the agents that have an output, ascending. A directory that does
// not exist has none.
func (d *Dir) AgentIDs(ctx context.Context) ([]AgentID, error) {
	s, err := d.list(ctx, false)
	if noDirectory(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := d.nested(ctx)
	if err != nil {
		return nil, err
	}
	for id, files := range s.agents {
		if len(files.versions) > 0 {
			found[id] |= agentText
		}
	}
	maps.DeleteFunc(found, func(_ AgentID, kinds agentKind) bool { return kinds&agentText == 0 })
	return slices.SortedFunc(maps.Keys(found), func(a, b AgentID) int { return strings.Compare(a.s, b.s) }), nil
}

// maxNested bounds how many files of nested agents are looked at.
const maxNested = 100_000

// nested finds the agents in folders, as oh-my-pi lays them out.
func (d *Dir) nested(ctx context.Context) (map[AgentID]agentKind, error) {
	s, err := d.list(ctx, false)
	if err != nil {
		return nil, err
	}
	found := map[AgentID]agentKind{}
	type folder struct {
		path  string
		owner AgentID
	}
	var queue []folder
	for _, id := range s.folders {
		queue = append(queue, folder{d.join(id.s), id})
	}
	for looked := 0; len(queue) > 0 && looked < maxNested; queue = queue[1:] {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("listing %s: %w", d.Path(), err)
		}
		entries, err := d.fs.ReadDir(queue[0].path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return nil, fmt.Errorf("listing the agents below %s: %w", queue[0].owner, err)
		}
		looked += len(entries)
		for _, e := range entries {
			name := e.Name()
			if id, err := ParseAgentID(name); err == nil && e.IsDir() {
				if id.Parent() == queue[0].owner {
					queue = append(queue, folder{filepath.Join(queue[0].path, name), id})
				}
				continue
			}
			id, version, kind, ok := parseAgentFile(name)
			if ok && version == 1 && e.Type().IsRegular() && id.Parent() == queue[0].owner {
				found[id] |= kind
			}
		}
	}
	return found, nil
}

// AgentJSON returns the output of id as JSON and the name of the file it came
// from: the structured file beside the text where there is one that parses, else
// the text itself, which may turn out not to be JSON. It loads at most
// Options.MaxJSON bytes.
func (d *Dir) AgentJSON(ctx context.Context, id AgentID, version int) (data []byte, source string, err error) {
	a, err := d.LookupAgent(ctx, id, version)
	if err != nil {
		return nil, "", err
	}
	side := strings.TrimSuffix(a.Path, ".md") + jsonSuffix
	data, err = durable.ReadFile(d.fs, side, d.opt.MaxJSON)
	if err == nil && json.Valid(data) {
		return data, filepath.Base(side), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("reading the structured output of agent %s: %w", id, err)
	}
	data, err = durable.ReadFile(d.fs, a.Path, d.opt.MaxJSON)
	if err != nil {
		return nil, "", fmt.Errorf("reading the output of agent %s: %w", id, err)
	}
	return data, filepath.Base(a.Path), nil
}

// OpenAgent opens the text of an output; version 0 stands for the newest.
func (d *Dir) OpenAgent(ctx context.Context, id AgentID, version int) (*Reader, Agent, error) {
	a, err := d.LookupAgent(ctx, id, version)
	if err != nil {
		return nil, Agent{}, err
	}
	f, err := d.fs.OpenFile(a.Path, os.O_RDONLY, 0)
	if err != nil {
		return nil, Agent{}, fmt.Errorf("opening the output of agent %s: %w", id, err)
	}
	return &Reader{dir: d, f: f}, a, nil
}

// OpenAgentLog opens the session of an agent, <id>.jsonl, for reading. Without one the error matches ErrNotFound.
func (d *Dir) OpenAgentLog(_ context.Context, id AgentID) (*Reader, error) {
	path := d.join(id.s + ".jsonl")
	at, err := d.fs.Identify(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &AgentNotFoundError{Ref: id.s + ".jsonl", Reason: "it has no session of its own"}
	}
	if err == nil && !isRegular(at) {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		return nil, fmt.Errorf("opening the session of agent %s: %w", id, err)
	}
	f, err := d.fs.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the session of agent %s: %w", id, err)
	}
	return &Reader{dir: d, f: f}, nil
}
