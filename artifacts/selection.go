package artifacts

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
)

// Selection says what of a directory a clone has. Everything else stays behind,
// files that are not known here too, and nothing tells what it was; but every number
// that the original has handed out is used up in the clone.
type Selection struct {
	Numbers map[int64]bool   // artifacts
	Agents  map[AgentID]bool // with their outputs, logs, and everything of the agents below them
	Runs    map[string]bool  // what was written by these runs
	Used    int64            // a number up to which all are used up, whether they are there or not; -1 for none
}

// resolve returns the selection with the artifacts and agents of its runs.
func (s *Selection) resolve(fsys durable.FS, dir string, entries []fs.DirEntry) *Selection {
	all := &Selection{Numbers: map[int64]bool{}, Agents: map[AgentID]bool{}, Used: s.Used}
	for id, ok := range s.Numbers {
		all.Numbers[id] = ok
	}
	for id, ok := range s.Agents {
		all.Agents[id] = ok
	}
	if len(s.Runs) == 0 {
		return all
	}
	d := Open(dir, Options{FS: fsys})
	for _, e := range entries {
		name := e.Name()
		if _, ok := parsePack(name); ok {
			sides, err := d.pack(name)
			if err != nil {
				continue // which run wrote what cannot be told
			}
			for id, side := range sides {
				all.Numbers[id] = all.Numbers[id] || s.Runs[side.Run]
			}
			continue
		}
		id, isArtifact := sidecarID(name)
		agent, _, kind, isAgent := parseAgentFile(name)
		if !isArtifact && !(isAgent && kind == agentHold) {
			continue
		}
		if side, from := d.provenance(name); from != ours || !s.Runs[side.Run] {
			continue
		}
		if isArtifact {
			all.Numbers[id] = true
		} else {
			all.Agents[agent] = true
		}
	}
	return all
}

// has reports whether a directory entry of folder rel comes along.
func (s *Selection) has(rel string, e fs.DirEntry) bool {
	name := e.Name()
	if rel == "" {
		if name == redactedName {
			return true // what the numbers of secrets in entries stand for
		}
		if name == indexDir {
			return false // made anew
		}
		if _, ok := parsePack(name); ok {
			return false // it tells of others too
		}
		if id, ok := parseNumbered(name); ok {
			return s.Numbers[id]
		}
	}
	name = strings.TrimPrefix(name, agentSidecar)
	for id := range s.Agents {
		if rest, ok := strings.CutPrefix(name, id.s); ok && (rest == "" || rest[0] == '.') {
			return true
		}
		// On the way to the files of an agent of an agent.
		if strings.HasPrefix(id.s, name+".") && e.IsDir() {
			return true
		}
	}
	return false
}

// redactedName is the file of numbers of package redact/vault.
const redactedName = ".redacted"

// whole reports whether all that is in a folder comes along.
func (s *Selection) whole(rel string) bool {
	if rel == "" {
		return false
	}
	for folder := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		for id := range s.Agents {
			if rest, ok := strings.CutPrefix(folder, id.s); ok && (rest == "" || rest[0] == '.') {
				return true
			}
		}
	}
	return false
}

// useUp makes the counters of a clone that does not have everything.
func (d *cloneDir) useUp(ctx context.Context) error {
	count, err := d.source.next(ctx)
	if err != nil {
		return err
	}
	count.Artifact = max(count.Artifact, d.only.Used+1)
	to := Open(d.to, Options{FS: d.fs})
	if err := d.fs.Mkdir(to.index(""), durable.DirPerm); err != nil {
		return err
	}
	return to.rememberWith(count, d.opt.Sync)
}

// unpack writes the provenance of an artifact that came along and has it in a pack.
func (d *cloneDir) unpack(o output) error {
	side, from := d.source.packed(&snapshot{packs: d.packs}, o.id)
	switch from {
	case foreign:
		return nil
	case unknown:
		return errors.New("it cannot be read")
	}
	content, err := side.encode()
	if err != nil {
		return err
	}
	return durable.WriteFile(d.fs, filepath.Join(d.to, sidecarName(o.id)), d.opt.Sync, content)
}
